"""The smallest effect that a study detects within its time, and what can make it smaller.

It is ``detectable_log_ratio`` of the report, for all blocks that fit into the budget instead of those so far.
The SD is that of the blocks so far or, before the first block, of earlier studies.

The variance of a block's log ratio is b² + w². The part w² is from within the windows: it is that of the mean
of k pairs of slices, the variance of their log ratios over k. A window that is f times as long has
b² + w² / f, and fewer blocks fit into the same time. Slices are taken as independent. If they are correlated,
w² is too small, and a longer window helps more than is said.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pgdyno.analysis.comparison import (
    CLIENTS_PER_CORE_MAX,
    POWER,
    Comparison,
    LessNoise,
    detectable_log_ratio,
    less_noise_of,
    ok_by_block,
)
from pgdyno.analysis.measurement_noise import InterimResult
from pgdyno.analysis.statistics.intervals import LogRatioSummary, Method, method_of, paired, percent_of
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Slice, Trial
from pgdyno.study.cases import UNLIMITED_S
from pgdyno.study.plan import VERDICT_BLOCKS_MIN, Study
from pgdyno.units import counted, format_duration, given_number, given_percent, share_text

WINDOW_FACTORS = (0.25, 0.5, 2.0, 4.0)
"""Lengths of windows that are considered, as multiples of the study's."""

GAIN_MIN = 0.15
"""Minimum reduction of the smallest detectable effect by another window. The standard error of the SD of 20
blocks is 16%, so a smaller gain is not worth a change."""

WITHIN_SHARE_MIN = 0.5
"""Share of the variance from within the windows above which the arms are better measured at the same time."""


@dataclass(frozen=True)
class BlockNoise:
    """SD of the log ratio of a block, and the duration of a block.

    ``within``: SD from within the windows, None if unknown. ``window_s``: measured time per arm and block.
    """

    sd: float
    block_s: float
    within: float | None = None
    window_s: float | None = None

    @property
    def within_share(self) -> float | None:
        """Share of the variance from within the windows; None if unknown."""
        if self.within is None or not self.sd:
            return None
        return min(1.0, (self.within / self.sd) ** 2)

    def in_window(self, window_s: float | None, turns: int) -> BlockNoise | None:
        """Return the noise of windows of another length; None if it cannot be predicted."""
        if window_s == self.window_s:
            return self
        if not window_s or not self.window_s or self.within is None:
            return None
        factor = window_s / self.window_s
        is_near = min(WINDOW_FACTORS) <= factor <= max(WINDOW_FACTORS)
        return self.with_window(factor, turns) if is_near else None

    def with_window(self, factor: float, turns: int) -> BlockNoise:
        """Return the noise of windows ``factor`` times as long; ``turns``: number of windows in a block."""
        assert self.within is not None and self.window_s is not None
        within_squared = min(self.within, self.sd) ** 2
        return BlockNoise(
            math.sqrt(self.sd**2 + within_squared * (1 / factor - 1)),
            self.block_s + turns * (factor - 1) * self.window_s,
        )


@dataclass(frozen=True)
class Resolution:
    """Smallest effect, as a log ratio, that ``blocks`` blocks detect with probability POWER."""

    log_ratio: float
    blocks: int

    @classmethod
    def of(cls, noise: BlockNoise, blocks: int, confidence: float, method: Method) -> Resolution | None:
        """Return the resolution; None if so few blocks have no interval."""
        found = detectable_log_ratio(noise.sd, blocks, confidence, method)
        return None if math.isinf(found) else cls(found, blocks)

    @property
    def size(self) -> str:
        """Return ``±4.1%``."""
        return f"±{share_text(percent_of(self.log_ratio) / 100)}"

    def text(self, study: Study, cases: int) -> str:
        """Return ``±4.1% in 10 min (24 blocks, 80% power)``, with the time of all cases of the study."""
        time = "" if study.budget_s >= UNLIMITED_S else f" in {format_duration(cases * study.budget_s)}"
        return f"{self.size}{time} ({counted(self.blocks, 'block')}, {given_percent(POWER)} power)"


def expected(study: Study, noise: BlockNoise) -> Resolution | None:
    """Return the resolution of a study that has not begun, from the noise of earlier ones."""
    fitting = max(1, round(study.budget_s / noise.block_s)) if noise.block_s else 0
    blocks = fitting if study.blocks_max is None else min(fitting, study.blocks_max)
    return Resolution.of(noise, blocks, study.confidence, method_of(study, blocks))


def within_blocks(comparison: Comparison, trials: Sequence[Trial], study: Study) -> float | None:
    """Return the SD of a block's log ratio from within the windows; None without pairs of slices.

    Only of throughput: slices have no percentile of their own.
    """
    if not study.is_together or study.load_is_fixed or study.window_s is None or study.checkpoints:
        return None
    variances = []
    for of_arm in ok_by_block(trials).values():
        if not {0, comparison.arm.arm} <= of_arm.keys():
            continue
        pairs = list(zip(*paired(of_arm[0], of_arm[comparison.arm.arm]), strict=True))
        rates = [(_per_s(a), _per_s(b)) for a, b in pairs]
        if len(rates) >= 2 and all(a and b for a, b in rates):
            variances.append(statistics.variance(math.log(b / a) for a, b in rates) / len(rates))
    return math.sqrt(statistics.fmean(variances)) if variances else None


def _per_s(piece: Slice) -> float:
    return sum(counts.ok for counts in piece.kinds.values()) / piece.counted_s if piece.counted_s else 0.0


def noise_of(
    evidence: Evidence, case: int, found: InterimResult, block_s: float
) -> tuple[BlockNoise, LogRatioSummary] | None:
    """Return the noise of the blocks so far, of the comparison with the largest SD, and its summary.

    None before VERDICT_BLOCKS_MIN blocks: an SD of fewer predicts nothing.
    """
    known = [
        (of.primary.summary.sd, at)
        for at, of in enumerate(found.comparisons)
        if of.primary and of.primary.summary.sd is not None and of.primary.summary.n >= VERDICT_BLOCKS_MIN
    ]
    if not known:
        return None
    sd, at = max(known)
    noisiest, study = found.comparisons[at], evidence.study(case).plan
    assert noisiest.primary is not None
    within = within_blocks(noisiest, evidence.trials(case), study)
    return BlockNoise(sd, block_s, within, study.window_s), noisiest.primary.summary


def notes(evidence: Evidence, case: int, found: InterimResult, further: int, block_s: float) -> Iterator[str]:
    """Yield two lines on a case after its blocks so far: what it resolves at its end, and what improves it.

    They are of the comparison with the largest noise.
    """
    measured_noise = noise_of(evidence, case, found, block_s)
    if measured_noise is None:
        return
    (noise, summary), study, trials = measured_noise, evidence.study(case).plan, evidence.trials(case)
    resolution = Resolution.of(noise, summary.n + further, summary.confidence, summary.method)
    if resolution is None:
        return
    cases = len(evidence.cases())
    yield f"smallest detectable effect: {resolution.text(study, cases)}"
    caveats, clients = evidence.caveats(case), max(arm.clients for arm in evidence.arms(case))
    stolen = sum(of.kind == "steal" for of in caveats)
    is_shared = any(of.code == "other-programs" for of in caveats)
    cores = evidence.study(case).host_facts.cores or 1
    measured = Measured(noise, resolution, clients, cores, stolen, len(trials), is_shared, cases)
    ways = improvements(study, measured, summary.confidence, summary.method)
    yield f"  for a smaller one: {', '.join(ways)}"


@dataclass(frozen=True)
class Measured:
    """Noise, load and machine of the blocks so far. ``clients``: largest number of an arm. ``stolen``: number
    of trials with steal. ``is_shared``: whether other programs used the machine before the first block.
    ``cases``: number of cases of the study, which share its time.
    """

    noise: BlockNoise
    resolution: Resolution
    clients: int
    cores: int
    stolen: int = 0
    trials: int = 0
    is_shared: bool = False
    cases: int = 1


def improvements(study: Study, measured: Measured, confidence: float, method: Method) -> list[str]:
    """Return what can reduce the smallest detectable effect, with its predicted size where it is known.

    The choice follows from the measured noise. Noise from within the windows is reduced by another window or
    by measuring the arms at the same time, noise between blocks by fewer clients or less other load.
    """
    noise, now = measured.noise, measured.resolution
    possible = less_noise_of(study, measured.clients, measured.cores)
    within, found = noise.within_share, list[str]()
    if within is not None and noise.window_s is not None:
        others = []
        for factor in WINDOW_FACTORS:
            longer = noise.with_window(factor, study.turns)
            blocks = int(now.blocks * noise.block_s / longer.block_s)
            of = Resolution.of(longer, blocks, confidence, method) if blocks >= VERDICT_BLOCKS_MIN else None
            if of is not None and of.log_ratio <= (1 - GAIN_MIN) * now.log_ratio:
                others.append((of.log_ratio, of, factor * noise.window_s))
        if others:
            _, of, window_s = min(others, key=lambda one: one[0])
            found.append(f"--window {given_number(round(window_s, 1))}s ({of.size})")
    is_within = within is not None and within >= WITHIN_SHARE_MIN
    if LessNoise.SLICES in possible:
        found.append("--schedule slices")
    if LessNoise.DUET in possible and is_within:
        found.append("--schedule duet")
    if LessNoise.FEWER_CLIENTS in possible and not is_within:
        found.append(f"at most {CLIENTS_PER_CORE_MAX * measured.cores} clients")
    if measured.stolen:
        found.append(f"less steal (in {measured.stolen} of {counted(measured.trials, 'trial')})")
    if measured.is_shared:
        found.append("no other programs")
    elif not is_within and not measured.stolen:
        found.append("a quieter machine (pgdyno doctor)")
    doubled = Resolution.of(noise, 2 * now.blocks, confidence, method)
    if doubled is not None:
        minutes = f"--minutes {given_number(round(measured.cases * study.budget_s / 30, 1))}"
        more = minutes if study.blocks_max is None else f"--blocks {2 * now.blocks}"
        found.insert(0, f"{more} ({doubled.size})")
    return found
