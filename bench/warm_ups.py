"""Simulation of studies whose arms warm up at different speeds: ``python -m bench warm-ups``.

The rate of each arm rises exponentially from half of its final value. Both final rates are equal: any
*faster* or *slower* is wrong. Rates pass through the product's tests and rules, as blocks of a study do.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.noise import Floats
from bench.stopping import SEED, table
from pgdyno.analysis.comparison import Verdict, decide
from pgdyno.analysis.statistics.intervals import Method, percent_of, summarize
from pgdyno.analysis.statistics.series import VALUES_MIN, is_steady
from pgdyno.analysis.steady_state import (
    EXTENDED_BLOCKS_MIN,
    SUSPICION,
    Observed,
    WarmUpChange,
    effect_trend,
    trending,
)
from pgdyno.measure.warm_up import EARLIER_MIN, FIRST_SHARE_MIN
from pgdyno.study.plan import VERDICT_BLOCKS_MIN
from pgdyno.study.sizing import CONFIDENCE, MARGIN
from pgdyno.units import Better

STUDIES = 200
CASES = ((2.0, 2.0), (2.0, 5.0), (2.0, 10.0), (2.0, 20.0))
"""Time constants of both arms in seconds of their own load."""

SLICE_S, ROUNDS = 0.5, 20
WARM_UP_S, WARM_UP_MIN_S = 4.0, 2.0
OVERHEAD_S = 5.0
SLICE_SD, BLOCK_SD, DRIFT_SD = 0.06, 0.015, 0.005
"""Log SDs: of a slice, of an arm in a block, and of a step of the drift that both arms share."""


@dataclass(frozen=True)
class SimulatedStudy:
    """One simulated study: verdict, effect as a log ratio, and duration."""

    verdict: Verdict
    effect: float
    minutes: float
    warm_up_s: float


def simulate_study(
    rng: np.random.Generator, time_constants_s: tuple[float, float], minutes: float, *, extends: bool
) -> SimulatedStudy:
    """Simulate one study. Without ``extends``, it stops on any verdict, and its warm-up keeps its maximum."""
    most_s, least_s, used_s = WARM_UP_S, WARM_UP_MIN_S, 0.0
    blocks: list[tuple[Observed, Observed]] = []
    before: float | None = None
    while True:
        windows, warm_up_s = _block(rng, time_constants_s, (least_s, most_s), len(blocks))
        blocks.append(windows)
        used_s += OVERHEAD_S + 2 * (warm_up_s + ROUNDS * SLICE_S)
        trends = [effect_trend([b for _, b in blocks], [a for a, _ in blocks], CONFIDENCE)]
        ratios = [math.log(b.per_s.mean() / a.per_s.mean()) for a, b in blocks]
        is_trending, may_trend = trending(trends, MARGIN)[0], trending(trends, MARGIN, alarm=SUSPICION)[0]
        effect = float(np.mean(ratios))
        if before is not None and len(ratios) >= EXTENDED_BLOCKS_MIN:
            is_trending = is_trending or WarmUpChange(before, effect).exceeds(MARGIN)
        verdict = Verdict.UNDECIDED
        if len(ratios) >= VERDICT_BLOCKS_MIN and not is_trending:
            summary = summarize(ratios, CONFIDENCE, Method.ANYTIME)
            verdict = decide(summary, Better.MORE, MARGIN, CONFIDENCE).verdict
        if verdict is not Verdict.UNDECIDED and not (extends and may_trend):
            return SimulatedStudy(verdict, effect, used_s / 60, most_s)
        block_s = OVERHEAD_S + 2 * (warm_up_s + ROUNDS * SLICE_S)
        if used_s + block_s / 2 > 60 * minutes:
            return SimulatedStudy(verdict, effect, used_s / 60, most_s)
        longer_s = block_s + 2 * most_s
        if extends and is_trending and (60 * minutes - used_s) / longer_s >= VERDICT_BLOCKS_MIN:
            before, blocks, least_s, most_s = effect, [], most_s, 2 * most_s


def _block(
    rng: np.random.Generator,
    time_constants_s: tuple[float, float],
    limits_s: tuple[float, float],
    number: int,
) -> tuple[tuple[Observed, Observed], float]:
    """Return the rates of both arms in the measured part, and the seconds of the warm-up of each."""
    least_s, most_s = limits_s
    warm = round(most_s / SLICE_S)
    at = (np.arange(warm + ROUNDS) + 0.5) * SLICE_S
    drift = np.cumsum(rng.normal(0, DRIFT_SD, (len(at), 2)).ravel()).reshape(len(at), 2)
    rates: list[Floats] = [
        (1 - 0.5 * np.exp(-at / constant_s))
        * np.exp(rng.normal(0, SLICE_SD, len(at)) + drift[:, arm] + rng.normal(0, BLOCK_SD))
        for arm, constant_s in enumerate(time_constants_s)
    ]
    least_s = max(least_s, FIRST_SHARE_MIN * most_s if number < EARLIER_MIN else 0.0, VALUES_MIN * SLICE_S)
    tests = range(math.ceil(least_s / SLICE_S), warm)
    ends = next((n for n in tests if all(is_steady(of[:n].tolist()) for of in rates)), warm)
    measured_at: Floats = np.linspace(0, 2 * SLICE_S * ROUNDS, ROUNDS, endpoint=False)
    a, b = (Observed(measured_at + arm * SLICE_S, of[ends : ends + ROUNDS]) for arm, of in enumerate(rates))
    return (a, b), ends * SLICE_S


def rows(studies: int, minutes: float, cases: Sequence[tuple[float, float]] = CASES) -> list[list[str]]:
    """Return two rows per case: without and with the rules."""
    found = []
    for case in cases:
        for extends in (False, True):
            rng = np.random.default_rng(SEED)
            ended = [simulate_study(rng, case, minutes, extends=extends) for _ in range(studies)]
            verdicts = Counter(one.verdict for one in ended)
            wrong = verdicts[Verdict.FASTER] + verdicts[Verdict.SLOWER]
            found.append(
                [
                    f"{case[0]:g} s, {case[1]:g} s",
                    "yes" if extends else "no",
                    f"{wrong / studies:.0%}",
                    f"{verdicts[Verdict.SAME] / studies:.0%}",
                    f"{verdicts[Verdict.UNDECIDED] / studies:.0%}",
                    f"{percent_of(float(np.mean([one.effect for one in ended]))):+.1f}%".replace("-", "−"),
                    f"{float(np.median([one.minutes for one in ended])):.0f}",
                ]
            )
    return found


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench warm-ups", description=__doc__)
    parser.add_argument("--studies", type=int, default=STUDIES, metavar="N", help="[default: 200]")
    parser.add_argument("--minutes", type=float, default=25.0, metavar="N", help="of each [default: 25]")
    chosen = parser.parse_args(arguments)
    head = (
        "Time constants",
        "Extended",
        "Faster or slower (wrong)",
        "Same",
        "Undecided",
        "Mean estimate",
        "Minutes, median",
    )
    print(table(head, rows(chosen.studies, chosen.minutes)))
    return 0
