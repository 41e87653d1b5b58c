"""Results of a calibration: noise of an arm against itself, by schedule and slice length.

A unit is a round and its mirror image (ABBA; in a duet two slices with the cores swapped). Its value is d =
ln(B/A) of the work done. Within a block, units vary about the block's mean with standard deviation s_u. The
mean d̄ of a block varies about its true value 0 with variance σ_b² + s_u²/k, for k units per block. σ_b is
the contribution of restores and restarts. It does not depend on the slice length, so it is estimated from all
lengths together by equating moments (the method of variance components in a one-way layout). It is at least
0.

The figure of merit is the standard deviation of a block times the square root of its minutes. It does not
depend on the number of blocks, and includes the time for restores, restarts, warm-up, draining and discarded
starts. Its variance is a sum of mean squares, so its interval is chi-squared with Satterthwaite's degrees of
freedom ("An approximate distribution of estimates of variance components", Biometrics 1946).

The time to detect an effect follows from the rule of the verdicts: a study that stops on its verdict needs at
least five blocks and an anytime-valid interval, and has one A/A block per ten blocks after the tenth.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pgdyno.analysis.comparison.measurement_noise import Alarms
from pgdyno.analysis.comparison.paired_comparison import ok_by_block
from pgdyno.analysis.comparison.verdict import BLOCKS_NEEDED_MAX, detectable_log_ratio
from pgdyno.analysis.statistics.distributions import chi2_quantile, normal_quantile
from pgdyno.analysis.statistics.effect import Method, paired, student
from pgdyno.results.reader import Evidence
from pgdyno.results.records import BlockStatus, Slice, Trial
from pgdyno.study.aa_plan import BLOCKS_PER_AA
from pgdyno.study.stopping_rule import VERDICT_BLOCKS_MIN

CONFIDENCE = 0.95
EFFECTS = (0.05, 0.02)
"""True differences for which the time to detect them is reported."""

BLOCKS_KNOWN = 3
"""Minimum number of blocks per schedule and length. Results of fewer are shown without conclusions."""


@dataclass(frozen=True)
class CalibrationResult:
    """Results of one schedule and slice length: ``units`` by block, as log ratios.

    ``unit_s`` is the time of a unit with draining, ``block_s`` the whole time of a block. ``lost_share`` is
    the share of the slices' time that was not counted.
    """

    schedule: str
    slice_s: float
    units: Sequence[Sequence[float]]
    unit_s: float
    block_s: float
    lost_share: float

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return len(self.units)

    @property
    def per_block(self) -> float:
        """Mean number of units per block."""
        return sum(map(len, self.units)) / len(self.units) if self.units else 0.0

    @property
    def is_short(self) -> bool:
        """True if it has too few blocks for conclusions."""
        return self.blocks < BLOCKS_KNOWN

    @property
    def free_of_units(self) -> int:
        """Degrees of freedom of s_u."""
        return sum(len(of) - 1 for of in self.units)

    @property
    def sd_unit(self) -> float | None:
        """s_u, about each block's mean; None if no block has two units."""
        if self.free_of_units < 1:
            return None
        square = sum(float(np.var(of)) * len(of) for of in self.units)
        return math.sqrt(square / self.free_of_units)

    @property
    def of_blocks(self) -> list[float]:
        """Mean log ratio of each block."""
        return [float(np.mean(of)) for of in self.units]

    def within(self) -> float | None:
        """Return the SD of a unit times the square root of its minutes, without the noise of restarts."""
        return None if self.sd_unit is None else self.sd_unit * math.sqrt(self.unit_s / 60)

    def sd_block(self, sd_restart: float) -> float | None:
        """Return the SD of a block's mean."""
        if self.sd_unit is None:
            return None
        return math.sqrt(sd_restart**2 + self.sd_unit**2 / self.per_block)


@dataclass(frozen=True)
class Calibration:
    """Results of all schedules and slice lengths. ``sd_restart`` is σ_b."""

    measured: Sequence[CalibrationResult]
    sd_restart: float
    alarms: Alarms | None

    @property
    def is_short(self) -> bool:
        """True if any length has too few blocks."""
        return any(one.is_short for one in self.measured)

    @property
    def restarts_show(self) -> bool:
        """True if σ_b² is significantly greater than 0.

        One-sided test of its estimate against its normal standard error without restart noise.
        """
        known = [one for one in self.measured if one.sd_unit is not None]
        blocks, error = sum(one.blocks for one in known), 0.0
        for one in known:
            of_units = (one.sd_unit or 0.0) ** 2 / one.per_block
            error += (one.blocks / blocks * of_units) ** 2 * (2 / one.blocks + 2 / one.free_of_units)
        return self.sd_restart**2 > normal_quantile(CONFIDENCE) * math.sqrt(error)

    def merit(self, one: CalibrationResult) -> float | None:
        """Return the figure of merit. Smaller is better."""
        sd = one.sd_block(self.sd_restart)
        return None if sd is None else sd * math.sqrt(one.block_s / 60)

    def merit_interval(self, one: CalibrationResult) -> tuple[float, float] | None:
        """Return the chi-squared interval of the figure of merit, at CONFIDENCE."""
        merit, free = self.merit(one), self.freedom(one)
        if merit is None or free is None or one.is_short:
            return None
        low, high = (free / chi2_quantile((1 + p) / 2, free) for p in (CONFIDENCE, -CONFIDENCE))
        return merit * math.sqrt(low), merit * math.sqrt(high)

    def freedom(self, one: CalibrationResult) -> float | None:
        """Return Satterthwaite's degrees of freedom of the variance of a block's mean."""
        variance = self._variance(one)
        return 2 * variance**2 / self._variance_of([(one, 1.0)]) if variance else None

    def _variance(self, one: CalibrationResult) -> float:
        return (one.sd_block(self.sd_restart) or 0.0) ** 2

    def _variance_of(self, parts: Sequence[tuple[CalibrationResult, float]]) -> float:
        """Return the variance of Σ_j c_j V_j for lengths and their c.

        The variance of a block's mean is estimated by

        V_j = Σ_i n_i/N (M_i - s_i²/k_i) + s_j²/k_j,

        for mean squares M_i of n_i block means about 0, with mean V_i, and s_i² of units.
        """
        known = [one for one in self.measured if one.sd_unit is not None]
        blocks, whole, total = sum(one.blocks for one in known), sum(c for _, c in parts), 0.0
        for one in known:
            of_blocks = whole * one.blocks / blocks
            of_units = sum(c for other, c in parts if other is one) - of_blocks
            within = (one.sd_unit or 0.0) ** 2 / one.per_block
            total += of_blocks**2 * 2 * self._variance(one) ** 2 / one.blocks
            total += of_units**2 * 2 * within**2 / max(1, one.free_of_units)
        return total

    def minutes(self, one: CalibrationResult, effect: float) -> float | None:
        """Return the result of ``minutes_for``; None with too few blocks."""
        sd = one.sd_block(self.sd_restart)
        return None if sd is None or one.is_short else minutes_for(sd, one.block_s, effect)

    def best(self, schedule: str | None = None) -> CalibrationResult | None:
        """Return the result with the smallest figure of merit, of one schedule or of all.

        None if any of them has too few blocks.
        """
        mine = [one for one in self.measured if schedule in (None, one.schedule)]
        merits = [(merit, one) for one in mine if (merit := self.merit(one)) is not None]
        if not merits or any(one.is_short for one in mine):
            return None
        return min(merits, key=lambda pair: pair[0])[1]

    def like_best(self) -> list[CalibrationResult]:
        """Return the results that do not differ significantly from the best, at 5% for all together.

        The test uses the normal standard error of the difference between squared figures of merit.
        """
        best = self.best()
        others = [one for one in self.measured if one is not best]
        if best is None:
            return []
        return [one for one in others if not self._is_worse(one, best, (1 - CONFIDENCE) / len(others))]

    def _is_worse(self, one: CalibrationResult, best: CalibrationResult, level: float) -> bool:
        merit, least = self.merit(one), self.merit(best)
        if merit is None or least is None:
            return False
        sd = math.sqrt(self._variance_of([(one, one.block_s / 60), (best, -best.block_s / 60)]))
        return merit**2 - least**2 > normal_quantile(1 - level) * sd


def minutes_for(sd: float, block_s: float, effect: float) -> float | None:
    """Return the minutes to detect a true effect of that size with probability POWER.

    For a study of two arms that stops on its verdict, including its A/A blocks. ``sd`` is of one block. None
    if more than BLOCKS_NEEDED_MAX blocks are needed.
    """
    wanted, numbers = math.log1p(effect), range(VERDICT_BLOCKS_MIN, BLOCKS_NEEDED_MAX)
    place = bisect_left(
        numbers, True, key=lambda n: detectable_log_ratio(sd, n, CONFIDENCE, Method.ANYTIME) <= wanted
    )
    if place == len(numbers):
        return None
    n = numbers[place]
    return (n + max(0, n - BLOCKS_PER_AA) / BLOCKS_PER_AA) * block_s / 60


def calibration_of(measured: Sequence[CalibrationResult]) -> Calibration:
    """Return the calibration for the results of all lengths."""
    return Calibration(measured, _sd_restart(measured), _alarms(measured))


def _sd_restart(measured: Sequence[CalibrationResult]) -> float:
    excess, n = 0.0, 0
    for one in measured:
        if one.sd_unit is not None:
            excess += sum(d * d for d in one.of_blocks) - one.blocks * one.sd_unit**2 / one.per_block
            n += one.blocks
    return math.sqrt(max(0.0, excess / n)) if n else 0.0


def _alarms(measured: Sequence[CalibrationResult]) -> Alarms | None:
    """Return the false alarms in series of VERDICT_BLOCKS_MIN blocks.

    A false alarm is a Student interval that excludes 0. A block counts once, because its units share the
    effect of its restart.
    """
    series = [
        one.of_blocks[first : first + VERDICT_BLOCKS_MIN]
        for one in measured
        for first in range(0, one.blocks - VERDICT_BLOCKS_MIN + 1, VERDICT_BLOCKS_MIN)
    ]
    if not series:
        return None
    p_values = [student(one, CONFIDENCE).p_value for one in series]
    return Alarms(sum(p is not None and p < 1 - CONFIDENCE for p in p_values), len(series), CONFIDENCE)


def as_values(calibration: Calibration) -> list[Mapping[str, object]]:
    """Return the values for JSON and the history: a row per schedule and length, logs unchanged."""
    equivalent = calibration.like_best()
    return [
        {
            "schedule": one.schedule,
            "slice_s": one.slice_s,
            "blocks": one.blocks,
            "units": sum(map(len, one.units)),
            "block_s": one.block_s if one.units else None,
            "unit_s": one.unit_s if one.units else None,
            "lost_share": one.lost_share if one.units else None,
            "sd_within_root_min": one.within(),
            "sd_root_min": calibration.merit(one),
            "sd_root_min_interval": calibration.merit_interval(one),
            "is_like_best": any(one is other for other in equivalent),
            "minutes": {f"{effect:g}": calibration.minutes(one, effect) for effect in EFFECTS},
        }
        for one in calibration.measured
    ]


def find_calibration(evidence: Evidence) -> Calibration:
    """Return the calibration in a file that ``pgdyno doctor --calibrate`` wrote."""
    return calibration_of([_measured(evidence, case) for case in evidence.cases()])


def _measured(evidence: Evidence, case: int) -> CalibrationResult:
    """Return the results of one case. A length without a block has only its name."""
    plan = evidence.study(case).plan
    durations = {
        block.block: block.ended_unix_s - block.started_unix_s
        for block in evidence.blocks(case)
        if block.status is BlockStatus.DONE and block.ended_unix_s is not None
    }
    pairs = {
        block: (of[0], of[1])
        for block, of in ok_by_block(evidence.trials(case)).items()
        if {0, 1} <= of.keys() and block in durations
    }
    found = {block: of for block, (a, b) in pairs.items() if (of := units(a, b))}
    if not found:
        return CalibrationResult(str(plan.schedule), float(plan.turn_s or 0.0), [], 0.0, 0.0, 0.0)
    spans = [_span_s(*pairs[block]) / len(of) for block, of in found.items()]
    # The first block also creates the snapshot, so later blocks show the time of a block.
    later = [durations[block] for block in sorted(found)[1:]] or list(durations.values())
    return CalibrationResult(
        schedule=str(plan.schedule),
        slice_s=float(plan.turn_s or 0.0),
        units=[found[block] for block in sorted(found)],
        unit_s=sum(spans) / len(spans),
        block_s=sum(later) / len(later),
        lost_share=_lost_share([pairs[block] for block in found]),
    )


def units(a: Trial, b: Trial) -> list[float]:
    """Return the log ratios of pairs of rounds. Pairs in which an arm did nothing are omitted."""
    mine, others = paired(a, b)
    found = []
    for first in range(0, len(mine) - 1, 2):
        rates = [_rate(of[first : first + 2]) for of in (mine, others)]
        if all(rates):
            found.append(math.log(rates[1] / rates[0]))
    return found


def _rate(slices: Sequence[Slice]) -> float:
    counted_s = sum(piece.counted_s for piece in slices)
    n = sum(counts.executed for piece in slices for counts in piece.kinds.values())
    return n / counted_s if counted_s > 0 else 0.0


def _span_s(a: Trial, b: Trial) -> float:
    """Return the time from the start of the first measured slice to the end of the last one."""
    every = [*a.measured, *b.measured]
    return max(piece.drained_s for piece in every) - min(piece.opened_s for piece in every)


def _lost_share(pairs: Sequence[tuple[Trial, Trial]]) -> float:
    """Return the share of the slices' time that was discarded at their starts or spent on draining."""
    every = [piece for pair in pairs for trial in pair for piece in trial.measured]
    whole_s = sum(piece.drained_s - piece.opened_s for piece in every)
    return 1 - sum(piece.counted_s for piece in every) / whole_s if whole_s > 0 else 0.0
