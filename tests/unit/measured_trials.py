"""Trials with given rates, and their time breakdowns, for tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from synthetic_study import Synthetic, arms_of

from ok_trial import ok_trial
from pgdyno.analysis.statistics.intervals import Method
from pgdyno.analysis.telemetry.trial_telemetry import ClientTime
from pgdyno.analysis.time_breakdown import TimeBreakdown, break_down_time
from pgdyno.results.records import Counts, Slice, Trial
from pgdyno.study.schedule import Role

ARMS = arms_of(Synthetic())


def trial(block: int, arm: int, per_s: float, counted_s: float = 2.0) -> Trial:
    """``counted_s``: length of its only slice."""
    n = round(per_s * counted_s)
    piece = Slice(
        0, Role.MEASURE, 0.0, 0.0, counted_s, counted_s, 0.1 * counted_s, 0.1 * counted_s, {"tx": Counts(n)}
    )
    return ok_trial(trial=10 * block + arm, block=block, arm=arm, transactions=n, slices=[piece])


def explained(
    rates: Sequence[tuple[float, float]],
    times: Sequence[tuple[ClientTime, ClientTime]],
    confidence: float = 0.95,
    method: Method = Method.STUDENT,
) -> TimeBreakdown:
    """Return the breakdown of blocks with these rates and times of both arms."""
    trials = [trial(block, arm, per_s) for block, of in enumerate(rates) for arm, per_s in enumerate(of)]
    by_trial = {10 * block + arm: time for block, of in enumerate(times) for arm, time in enumerate(of)}
    return break_down_time(ARMS, trials, by_trial, None, {1: confidence}, method)[1]


def noisy(rng: np.random.Generator, update_us: float, n: int = 12, confidence: float = 0.95) -> TimeBreakdown:
    """An UPDATE takes ``update_us`` more in the second arm. Otherwise there is only noise."""
    rates, times = [], []
    for _ in range(n):
        own = [2000.0 + float(rng.normal(0, 20)), 2000.0 + update_us + float(rng.normal(0, 20))]
        of = [ClientTime(statements={"UPDATE": one, "SELECT": float(rng.normal(300, 20))}) for one in own]
        rates.append((8e6 / (own[0] + 1000.0), 8e6 / (own[1] + 1000.0)))
        times.append((of[0], of[1]))
    return explained(rates, times, confidence)
