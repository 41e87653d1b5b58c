"""A trial of given rate, for tests."""

from __future__ import annotations

from ok_trial import ok_trial
from pgdyno.results.records import Counts, Slice, Trial
from pgdyno.study.schedule import Role


def trial(block: int, arm: int, per_s: float, counted_s: float = 2.0) -> Trial:
    """``counted_s`` is that of its one slice."""
    n = round(per_s * counted_s)
    piece = Slice(
        0, Role.MEASURE, 0.0, 0.0, counted_s, counted_s, 0.1 * counted_s, 0.1 * counted_s, {"tx": Counts(n)}
    )
    return ok_trial(trial=10 * block + arm, block=block, arm=arm, transactions=n, slices=[piece])
