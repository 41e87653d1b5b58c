"""Simulation of the stopping rule. ``python -m bench stopping`` prints its figures.

Series of block ratios (``noise``) are tested after every block with the interval of verdicts, and with
Student's. ``--record EVIDENCE`` first renews the recorded noise from a study of identical arms.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench import block_caveats
from bench.noise import (
    RECORDED,
    SCENARIOS,
    SD,
    Floats,
    Groups,
    Noise,
    bootstrap,
    gaussian_groups,
    normal,
    record,
    recorded_groups,
    recorded_ratios,
    recorded_studies,
    residuals,
    skewed,
)
from pgdyno.analysis.comparison import Verdict
from pgdyno.analysis.statistics.intervals import Method, critical_value
from pgdyno.analysis.statistics.series import skewness
from pgdyno.study.defaults import CONFIDENCE, MARGIN
from pgdyno.study.plan import SAME_BLOCKS_MIN, VERDICT_BLOCKS_MIN
from pgdyno.units import group_digits, signed

OF_RECORDED = "recorded blocks: slices"
PATHS = 4000
BLOCKS = 60
EFFECTS = (0.0, 0.01, 0.02, 0.05, 0.10)
SPREADS = (0.01, 0.025, 0.04)
SKEWNESSES = (0.0, 1.0, 1.75, 2.0)
SPREADS_OF_SKEWED = (0.01, 0.015, 0.025, 0.04)
BLOCKS_OF_20_MIN = 40
"""Blocks of half a minute, with the defaults of ``pgdyno compare --minutes 20``."""
LEAST_BLOCKS = (5, 10, SAME_BLOCKS_MIN, 20)
SEED = 20261122


@dataclass(frozen=True)
class StoppedStudies:
    """Results of many studies with an interim analysis after every block.

    ``stopped`` is the number of blocks at the verdict, or of all blocks if undecided.
    """

    stopped: Floats
    verdict: Floats  # +1 faster, −1 slower, 0 same, nan undecided
    differs: Floats  # whether the interval at the stop excludes 0
    covered: Floats  # whether the interval at the stop contains the true effect
    alarmed: (
        Floats  # whether the interval of any interim analysis, also after the stop, misses the true effect
    )


def apply_stopping_rule(
    noise: Floats, effect: float, method: Method, least: int = SAME_BLOCKS_MIN
) -> StoppedStudies:
    """Apply the stopping rule. ``effect`` is a share of the baseline: 0.05.

    ``least`` is the minimum number of blocks of *same* with the anytime-valid interval.
    """
    truth, limit = math.log1p(effect), math.log1p(MARGIN)
    d = truth + noise
    n = np.arange(1, d.shape[1] + 1)
    mean = np.cumsum(d, axis=1) / n
    squares = np.cumsum((d - truth) ** 2, axis=1) - n * (mean - truth) ** 2
    error = np.sqrt(np.maximum(squares, 0) / np.maximum(n - 1, 1) / n)
    analyses = slice(VERDICT_BLOCKS_MIN - 1, None)
    reach, inner = (
        np.array([critical_value(int(k), level, method) for k in n[analyses]]) * error[:, analyses]
        for level in (CONFIDENCE, 2 * CONFIDENCE - 1)
    )
    low, high = mean[:, analyses] - reach, mean[:, analyses] + reach
    different = np.where(low > 0, 1.0, np.where(high < 0, -1.0, np.nan))
    same = np.where((n[analyses] >= least) | (method is Method.STUDENT), 0.0, np.nan)
    verdict = np.where(np.abs(mean[:, analyses]) + inner <= limit, same, different)
    decided = ~np.isnan(verdict)
    stop = np.where(decided.any(axis=1), decided.argmax(axis=1), decided.shape[1] - 1)
    at = np.arange(len(d)), stop
    contained = (low <= truth) & (truth <= high)
    return StoppedStudies(
        stop + float(VERDICT_BLOCKS_MIN),
        verdict[at],
        ~np.isnan(different[at]),
        contained[at],
        ~contained.all(axis=1),
    )


def wrong_same(drawn: Floats, method: Method = Method.ANYTIME, least: int = SAME_BLOCKS_MIN) -> float:
    """Return the share of studies with an effect of the margin that end in *same*.

    It is the maximum of both directions.
    """
    both = (MARGIN, 1 / (1 + MARGIN) - 1)
    return max(float((apply_stopping_rule(drawn, of, method, least).verdict == 0).mean()) for of in both)


@dataclass(frozen=True)
class ErrorRates:
    """Error rates with one kind of noise, as shares.

    ``alarms`` and ``student``: studies without an effect in which any interim analysis finds a difference,
    with the interval of the verdict and with Student's. ``coverage`` at the stop: the minimum over the
    effects. ``same``: see ``wrong_same``.
    """

    name: str
    alarms: float
    student: float
    coverage: float
    same: float


def error_rates(name: str, noise: Noise, paths: int = PATHS) -> ErrorRates:
    """Return the error rates, with the same noise for every effect."""
    drawn = noise(np.random.default_rng(SEED), paths, BLOCKS)
    covered = [float(apply_stopping_rule(drawn, effect, Method.ANYTIME).covered.mean()) for effect in EFFECTS]
    alarmed = {method: apply_stopping_rule(drawn, 0.0, method).alarmed for method in Method}
    alarms, student = (float(alarmed[method].mean()) for method in (Method.ANYTIME, Method.STUDENT))
    return ErrorRates(name, alarms, student, min(covered), wrong_same(drawn))


RECORDINGS = 400
RECORDING_PATHS = 400


def chance_of(groups: Groups) -> tuple[float, float]:
    """Return how often independent Gaussian noise has error rates at least as high as recorded studies.

    The rates are those of ``ErrorRates.alarms`` and ``same``. Each Gaussian recording has the SD and
    number of blocks of the recorded studies, and is evaluated in the same way: a few studies give imprecise
    rates.
    """
    observed = error_rates("", bootstrap(groups))
    rng = np.random.default_rng(SEED)
    rates = [
        error_rates("", bootstrap(gaussian_groups(groups, rng)), RECORDING_PATHS) for _ in range(RECORDINGS)
    ]
    alarms = float(np.mean([of.alarms >= observed.alarms for of in rates]))
    return alarms, float(np.mean([of.same >= observed.same for of in rates]))


def other_metric(share: float, paths: int = PATHS) -> float:
    """Return how often Student's interval of another metric without an effect misses 0 at the stop.

    The verdict on the primary metric stops the study. ``share`` is the part of the variance between blocks
    that the metric shares with the primary one.
    """
    rng = np.random.default_rng(SEED)
    primary, own = (rng.normal(0, SD, (paths, BLOCKS)) for _ in range(2))
    stop = apply_stopping_rule(primary, 0.0, Method.ANYTIME).stopped.astype(int)
    d = math.sqrt(share) * primary + math.sqrt(1 - share) * own
    missed = 0
    for n in np.unique(stop):
        of = d[stop == n, :n]
        reach = critical_value(int(n), CONFIDENCE, Method.STUDENT) * of.std(axis=1, ddof=1) / math.sqrt(n)
        missed += int((np.abs(of.mean(axis=1)) > reach).sum())
    return missed / paths


def lengths(name: str, noise: Noise, paths: int = PATHS) -> list[list[str]]:
    """Return a row per effect: the share of each verdict within BLOCKS, and the blocks until it."""
    drawn = noise(np.random.default_rng(SEED), paths, BLOCKS)
    rows = []
    for effect in EFFECTS:
        found = apply_stopping_rule(drawn, effect, Method.ANYTIME)
        shares = [float((found.verdict == verdict).mean()) for verdict in (1.0, 0.0, -1.0)]
        shares.append(float(np.isnan(found.verdict).mean()))
        shares.append(float(((found.verdict == 0) & found.differs).mean()))
        needed = [_blocks(found, share) for share in (0.5, 0.9)]
        rows.append([name, f"{effect:.0%}", *needed, *map(_percent, shares)])
    return rows


def same_of_skewed(sd: float, paths: int = PATHS) -> list[str]:
    """Return the share of wrong *same* by the skewness of blocks with this SD."""
    drawn = [skewed(of, sd)(np.random.default_rng(SEED), paths, BLOCKS) for of in SKEWNESSES]
    return [f"{100 * sd:g}%", *(_percent(wrong_same(of)) for of in drawn)]


def minimum_of_same(least: int, paths: int = PATHS) -> list[str]:
    """Return errors and lengths with another minimum number of blocks of *same*."""
    cells = [str(least)]
    for skewness_of_blocks in SKEWNESSES:
        drawn = skewed(skewness_of_blocks, SD)(np.random.default_rng(SEED), paths, BLOCKS)
        cells.append(_percent(wrong_same(drawn, least=least)))
    for sd in SPREADS_OF_SKEWED[:-1]:
        drawn = normal(sd)(np.random.default_rng(SEED), paths, BLOCKS_OF_20_MIN)
        found = apply_stopping_rule(drawn, 0.0, Method.ANYTIME, least)
        cells += [_percent(float((found.verdict == 0).mean())), _blocks(found, 0.5)]
    return cells


def _blocks(found: StoppedStudies, share: float) -> str:
    """Format the number of blocks that is enough for this share of the studies."""
    blocks = np.where(np.isnan(found.verdict), np.inf, found.stopped)
    needed = float(np.quantile(blocks, share, method="inverted_cdf"))
    return f"{needed:.0f}" if math.isfinite(needed) else f"> {BLOCKS}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def report(paths: int = PATHS) -> str:
    """Return the tables in Markdown, each below its title."""
    rates = [error_rates(name, noise, paths) for name, noise in SCENARIOS.items()]
    of_spreads = [(f"{100 * sd:g}%", normal(sd)) for sd in SPREADS]
    sd = float(SCENARIOS[OF_RECORDED](np.random.default_rng(SEED), paths, BLOCKS).std())
    of_spreads.append((f"recorded, {100 * sd:.1f}%", SCENARIOS[OF_RECORDED]))
    others = [_percent(other_metric(share, paths)) for share in (0.0, 0.5, 1.0)]
    sections = {
        "Half of the width of a 95% interval, in standard errors": table(
            ("Blocks", "Anytime-valid", "Student's, one analysis", "Ratio"),
            [_width(n) for n in (5, 6, 8, 10, 15, 20, 30, 60)],
        ),
        f"Errors of {paths:,} studies, analyzed after every block up to {BLOCKS}": table(
            (
                "Noise",
                "False alarms",
                "False *same*",
                "Coverage at the stop",
                "False alarms with Student's interval",
            ),
            [[of.name, *map(_percent, (of.alarms, of.same, of.coverage, of.student))] for of in rates],
        ),
        "False *same* by skewness of the blocks": table(
            ("SD of a block", *(f"Skewness {of:g}" for of in SKEWNESSES)),
            [same_of_skewed(sd, paths) for sd in SPREADS_OF_SKEWED],
        ),
        f"Minimum number of blocks of *same*: false *same*, equal arms in {BLOCKS_OF_20_MIN} blocks": table(
            (
                "Minimum",
                *(f"Skewness {of:g}" for of in SKEWNESSES),
                *(
                    f"{what}, SD {100 * sd:g}%"
                    for sd in SPREADS_OF_SKEWED[:-1]
                    for what in ("Same", "Blocks, median")
                ),
            ),
            [minimum_of_same(least, paths) for least in LEAST_BLOCKS],
        ),
        "Recorded blocks": f"- {_recorded()}",
        "Recordings of Gaussian noise with at least these errors": _chance(),
        "Recorded studies of identical arms with a false alarm": _aa_alarms(),
        "Errors of other metrics with Student's interval, sharing 0, 50 and 100% of the variance": ", ".join(
            others
        ),
        **{
            f"Detection of {title}": table(
                ("Noise", *(f"{n} blocks" for n in block_caveats.BLOCKS)), of(paths // 4, SEED)
            )
            for title, of in (
                ("autocorrelated blocks", block_caveats.of_autocorrelation),
                ("skewed blocks", block_caveats.of_skewness),
            )
        },
        "Blocks until the verdict": table(
            (
                "SD of a block",
                "True effect",
                "Blocks, median",
                "Blocks, 90th percentile",
                "Faster",
                "Same",
                "Slower",
                "Undecided",
                "Same, and the interval excludes 0",
            ),
            [line for name, noise in of_spreads for line in lengths(name, noise, paths)],
        ),
        f"Covariates of {len(recorded_ratios()['throughput'])} recorded blocks": covariates(),
    }
    return titled(sections)


def titled(sections: Mapping[str, str]) -> str:
    """Format sections in Markdown."""
    return "\n\n".join(f"## {title}\n\n{text}" for title, text in sections.items())


def _recorded() -> str:
    """Describe the recorded blocks by schedule: number, SD and skewness."""
    found = []
    for schedule, words in (("slices", "slices"), ("duet", "a duet")):
        studies = residuals(recorded_groups(schedule))
        every = np.concatenate(studies)
        found.append(
            f"{len(every)} blocks of {len(studies)} studies in {words} "
            f"(SD {100 * every.std():.1f}%, skewness {signed(skewness(every.tolist()), 1, '')})"
        )
    return "\n- ".join(found)


def _chance() -> str:
    """Return the results of ``chance_of`` for both schedules as text."""
    slices, duet = (chance_of(recorded_groups(schedule)) for schedule in ("slices", "duet"))
    alarms, same = ([_percent(of[i]) for of in (slices, duet)] for i in (0, 1))
    return (
        f"False alarms: {alarms[0]} in slices, {alarms[1]} in a duet. "
        f"False *same*: {same[0]} in slices, {same[1]} in a duet."
    )


def _aa_alarms() -> str:
    """Return how many recorded studies of identical arms had a false alarm, as "1 of 10"."""
    identical = [study for study in recorded_studies() if study["effect"] == 0]
    alarms = [study for study in identical if study["verdict"] in {Verdict.FASTER, Verdict.SLOWER}]
    return f"{len(alarms)} of {len(identical)}"


def covariates() -> str:
    """Format the residual SD of complete recorded blocks for each covariate.

    The coefficient for a block is fitted to the other blocks. With the block itself included, the result is
    optimistic.
    """
    ratios = dict(recorded_ratios())
    d = ratios.pop("throughput")
    rows = [["none", "–", "–", f"{100 * d.std(ddof=1):.2f}%"]]
    median_pair = ratios.pop("median pair")
    for name, x in ratios.items():
        left = np.array([d[i] - _slope(np.delete(x, i), np.delete(d, i)) * x[i] for i in range(len(d))])
        own, together = f"{100 * x.std(ddof=1):.2f}%", group_digits(float(np.corrcoef(x, d)[0, 1]), 2)
        rows.append([name, own, together, f"{100 * left.std(ddof=1):.2f}%"])
    rows.append(["(the median pair of slices instead)", "–", "–", f"{100 * median_pair.std(ddof=1):.2f}%"])
    return table(("Covariate", "Own SD", "Correlation", "Residual SD of a block"), rows)


def _slope(x: Floats, y: Floats) -> float:
    """Return the slope of the line through 0, because identical arms have no difference."""
    return float(np.sum(x * y) / np.sum(x * x))


def _width(n: int) -> list[str]:
    ours, student = (critical_value(n, CONFIDENCE, method) for method in (Method.ANYTIME, Method.STUDENT))
    return [str(n), f"{ours:.2f}", f"{student:.2f}", f"{ours / student:.2f}"]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(arguments: Sequence[str]) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench stopping", description=__doc__)
    parser.add_argument("--record", type=Path, metavar="EVIDENCE", help=f"renews {RECORDED.name} before")
    chosen = parser.parse_args(arguments)
    if chosen.record:
        record(chosen.record)
    print(report())
    return 0
