"""``python -m bench stopping``: writes docs/explanation/stopping.md.

Simulation only: series of block ratios (``noise``) are judged after every block by the interval that verdicts
rest on, and by Student's. ``--record EVIDENCE`` first takes the recorded noise from a study of two arms that
are alike.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench import block_caveats
from bench.noise import (
    BLOCKS_TOGETHER,
    RECORDED,
    SCENARIOS,
    SD,
    Floats,
    Noise,
    normal,
    record,
    recorded_blocks,
    recorded_ratios,
)
from pgdyno.analysis.statistics.effect import Method, critical_value, one_sided_critical_value
from pgdyno.analysis.statistics.symmetry import skewness
from pgdyno.estimate import group_digits, signed
from pgdyno.study.defaults import CONFIDENCE, MARGIN
from pgdyno.study.stopping_rule import VERDICT_BLOCKS_MIN

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "stopping.md"
TEMPLATE = Path(__file__).with_name("stopping.txt")
OF_RECORDED = "recorded blocks: slices"
PATHS = 4000
BLOCKS = 60
EFFECTS = (0.0, 0.02, 0.05, 0.10)
SPREADS = (0.01, 0.025, 0.04)
SEED = 20261122


@dataclass(frozen=True)
class Judged:
    """Of many studies that look after every block. ``stopped`` is the number of blocks at the verdict, and
    that of all blocks where there was none.
    """

    stopped: Floats
    verdict: Floats  # +1 faster, −1 slower, 0 same, nan undecided
    covered: Floats  # whether the interval at the stop holds the truth
    alarmed: Floats  # whether it left the truth out at any look, stop or no stop
    equivalent: Floats  # whether the arms were called the same at any look, stop or no stop


def judged(noise: Floats, effect: float, method: Method) -> Judged:
    """``effect`` is a share of the baseline: 0.05."""
    truth, limit = math.log1p(effect), math.log1p(MARGIN)
    d = truth + noise
    n = np.arange(1, d.shape[1] + 1)
    mean = np.cumsum(d, axis=1) / n
    squares = np.cumsum((d - truth) ** 2, axis=1) - n * (mean - truth) ** 2
    error = np.sqrt(np.maximum(squares, 0) / np.maximum(n - 1, 1) / n)
    looks = slice(VERDICT_BLOCKS_MIN - 1, None)
    reach, inner = (
        np.array([critical(int(k), CONFIDENCE, method) for k in n[looks]]) * error[:, looks]
        for critical in (critical_value, one_sided_critical_value)
    )
    low, high = mean[:, looks] - reach, mean[:, looks] + reach
    same = np.abs(mean[:, looks]) + inner <= limit
    verdict = np.where(same, 0.0, np.where(low > 0, 1.0, np.where(high < 0, -1.0, np.nan)))
    decided = ~np.isnan(verdict)
    stop = np.where(decided.any(axis=1), decided.argmax(axis=1), decided.shape[1] - 1)
    at = np.arange(len(d)), stop
    held = (low <= truth) & (truth <= high)
    return Judged(
        stop + float(VERDICT_BLOCKS_MIN), verdict[at], held[at], ~held.all(axis=1), same.any(axis=1)
    )


@dataclass(frozen=True)
class Kept:
    """What is kept of 95 % under one kind of noise, as shares. Without an effect: studies that call the arms
    different at any look, by the interval of the verdict and by Student's. ``coverage`` at the stop: the
    least over the effects. ``equivalent``: studies with an effect of the margin that call the arms the same,
    the more of both directions.
    """

    name: str
    alarms: float
    student: float
    coverage: float
    equivalent: float


def kept(name: str, noise: Noise, paths: int = PATHS) -> Kept:
    """The same noise under every effect."""
    drawn = noise(np.random.default_rng(SEED), paths, BLOCKS)
    covered = [float(judged(drawn, effect, Method.ANYTIME).covered.mean()) for effect in EFFECTS]
    alarmed = {method: judged(drawn, 0.0, method).alarmed for method in Method}
    alarms, student = (float(alarmed[method].mean()) for method in (Method.ANYTIME, Method.STUDENT))
    both = (MARGIN, 1 / (1 + MARGIN) - 1)
    equivalent = max(float(judged(drawn, effect, Method.ANYTIME).equivalent.mean()) for effect in both)
    return Kept(name, alarms, student, min(covered), equivalent)


def other_metric(share: float, paths: int = PATHS) -> float:
    """How often Student's interval of a metric without an effect, of whose blocks' variance ``share`` is the
    primary one's, leaves out the truth when the primary's verdict stops the study.
    """
    rng = np.random.default_rng(SEED)
    primary, own = (rng.normal(0, SD, (paths, BLOCKS)) for _ in range(2))
    stop = judged(primary, 0.0, Method.ANYTIME).stopped.astype(int)
    d = math.sqrt(share) * primary + math.sqrt(1 - share) * own
    missed = 0
    for n in np.unique(stop):
        of = d[stop == n, :n]
        reach = critical_value(int(n), CONFIDENCE, Method.STUDENT) * of.std(axis=1, ddof=1) / math.sqrt(n)
        missed += int((np.abs(of.mean(axis=1)) > reach).sum())
    return missed / paths


def lengths(name: str, noise: Noise, paths: int = PATHS) -> list[list[str]]:
    """A row an effect: how often which verdict within BLOCKS, and blocks to it."""
    drawn = noise(np.random.default_rng(SEED), paths, BLOCKS)
    rows = []
    for effect in EFFECTS:
        found = judged(drawn, effect, Method.ANYTIME)
        shares = [float((found.verdict == verdict).mean()) for verdict in (1.0, 0.0, -1.0)]
        shares.append(float(np.isnan(found.verdict).mean()))
        needed = [_blocks(found, share) for share in (0.5, 0.9)]
        rows.append([name, f"{effect:.0%}", *needed, *map(_percent, shares)])
    return rows


def _blocks(found: Judged, share: float) -> str:
    """So many suffice for this share of the studies."""
    blocks = np.where(np.isnan(found.verdict), np.inf, found.stopped)
    needed = float(np.quantile(blocks, share, method="inverted_cdf"))
    return f"{needed:.0f}" if math.isfinite(needed) else f"> {BLOCKS}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def page(paths: int = PATHS) -> str:
    """docs/explanation/stopping.md."""
    rows = [kept(name, noise, paths) for name, noise in SCENARIOS.items()]
    guarantees = table(
        (
            "Noise",
            "False alarms",
            "False *same*",
            "Coverage at the stop",
            "False alarms with Student's interval",
        ),
        [[of.name, *map(_percent, (of.alarms, of.equivalent, of.coverage, of.student))] for of in rows],
    )
    of_spreads = [(f"{100 * sd:g}%", normal(sd)) for sd in SPREADS]
    sd = float(SCENARIOS[OF_RECORDED](np.random.default_rng(SEED), paths, BLOCKS).std())
    of_spreads.append((f"recorded, {100 * sd:.1f}%", SCENARIOS[OF_RECORDED]))
    needed = table(
        (
            "SD of a block",
            "True effect",
            "Blocks, median",
            "Blocks, 90th percentile",
            "Faster",
            "Same",
            "Slower",
            "Undecided",
        ),
        [line for name, noise in of_spreads for line in lengths(name, noise, paths)],
    )
    others = [_percent(other_metric(share, paths)) for share in (0.0, 0.5, 1.0)]
    text = TEMPLATE.read_text("utf-8")
    return text.format(
        paths=f"{paths:,}",
        blocks=BLOCKS,
        guarantees=guarantees,
        needed=needed,
        others=f"{', '.join(others[:2])} and {others[2]}",
        recorded=_recorded(),
        together=BLOCKS_TOGETHER,
        sd=f"{100 * SD:g}%",
        covariates=covariates(),
        recorded_blocks=len(recorded_ratios()["throughput"]),
        **{
            name: table(("Noise", *(f"{n} blocks" for n in block_caveats.BLOCKS)), of(paths // 4, SEED))
            for name, of in (
                ("autocorrelated", block_caveats.of_autocorrelation),
                ("skewed", block_caveats.of_skewness),
            )
        },
        widths=table(
            ("Blocks", "Anytime-valid", "Student's, one analysis", "Ratio", "One-sided, anytime-valid"),
            [_width(n) for n in (5, 6, 8, 10, 15, 20, 30, 60)],
        ),
    )


def _recorded() -> str:
    """Number, SD and skewness of the recorded blocks by schedule."""
    found = []
    for schedule, words in (("slices", "slices"), ("duet", "a duet")):
        studies = recorded_blocks(schedule)
        every = np.concatenate(studies)
        found.append(
            f"{len(every)} blocks of {len(studies)} studies in {words} "
            f"(SD {100 * every.std():.1f}%, skewness {signed(skewness(every.tolist()), 1, '')})"
        )
    return "\n- ".join(found)


def covariates() -> str:
    """What each would take off the spread of the recording's whole blocks. The line through the other blocks'
    points tells each block's part: a coefficient from the block itself would flatter.
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
    """Of the line through 0: arms that are alike differ by nothing."""
    return float(np.sum(x * y) / np.sum(x * x))


def _width(n: int) -> list[str]:
    ours, student = (critical_value(n, CONFIDENCE, method) for method in (Method.ANYTIME, Method.STUDENT))
    one_sided = one_sided_critical_value(n, CONFIDENCE, Method.ANYTIME)
    return [str(n), f"{ours:.2f}", f"{student:.2f}", f"{ours / student:.2f}", f"{one_sided:.2f}"]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(arguments: Sequence[str]) -> int:
    """Writes the page."""
    parser = argparse.ArgumentParser(prog="python -m bench stopping", description=__doc__)
    parser.add_argument("--record", type=Path, metavar="EVIDENCE", help=f"renews {RECORDED.name} before")
    chosen = parser.parse_args(arguments)
    if chosen.record:
        record(chosen.record)
    PAGE.write_text(page(), "utf-8")
    return 0
