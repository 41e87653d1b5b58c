"""Latency percentiles from merged histograms. Percentiles are never averaged."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from pgdyno.analysis.statistics.distributions import binomial_at_most
from pgdyno.analysis.telemetry.metrics import ALL_KINDS, PERCENTILES, latency_key
from pgdyno.caveats import Caveat, Code, Parameter
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Arm, Measure, Pairs, Trial, TrialStatus
from pgdyno.study.capacity_search import parse_limit
from pgdyno.study.plan import Study

BEYOND_MIN = 10
"""Minimum number of values beyond a quantile: p99.9 of 500 values would be their maximum."""


def merge(histograms: Iterable[Pairs]) -> Pairs:
    """Return one histogram of all values. Exact, as HDR histograms of one precision have equal buckets."""
    every = [pairs for pairs in histograms if len(pairs)]
    if not every:
        return np.empty((0, 2), dtype=np.uint64)
    stacked = np.concatenate(every)
    values, counts = stacked[np.argsort(stacked[:, 0], kind="stable")].T
    begins = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    return np.column_stack([values[begins], np.add.reduceat(counts, begins)])


def quantile_ns(pairs: Pairs, quantile: float) -> int | None:
    """Return the smallest recorded value with at least that share of all values at or below it.

    This is definition 1 of Hyndman and Fan, "Sample quantiles in statistical packages", 1996 (numpy's
    ``inverted_cdf``), which needs no interpolation between buckets. None if the histogram is empty or too
    small (BEYOND_MIN).
    """
    n = int(pairs[:, 1].sum()) if len(pairs) else 0
    if n == 0 or (quantile < 1 and n * (1 - quantile) < BEYOND_MIN):
        return None
    cumulated = np.cumsum(pairs[:, 1])
    # A share times n can be slightly above an integer; a relative correction keeps the rank right.
    rank = np.ceil(quantile * n * (1 - 1e-12))
    return int(pairs[int(np.searchsorted(cumulated, rank)), 0])


def quantiles_ms(pairs: Pairs) -> dict[str, float | None]:
    """Return all PERCENTILES in milliseconds."""
    found = {name: quantile_ns(pairs, quantile) for name, quantile in PERCENTILES.items()}
    return {name: None if value is None else value / 1e6 for name, value in found.items()}


def latencies_ms(by_kind: Mapping[str, Pairs]) -> dict[str, float | None]:
    """Return the latencies of one trial by key, of each kind and of ALL_KINDS."""
    return {
        latency_key(kind, name): value
        for kind, pairs in [*by_kind.items(), (ALL_KINDS, merge(by_kind.values()))]
        for name, value in quantiles_ms(pairs).items()
    }


def latencies_of_all_kinds(
    evidence: Evidence, plan: Study, trials: Sequence[Trial]
) -> dict[int, dict[str, float | None]]:
    """Return trial ID → key → latency of ALL_KINDS of each ok trial, if the verdict is about latency."""
    ok = [trial.trial for trial in trials if trial.status is TrialStatus.OK] if plan.load_is_fixed else []
    merged = {trial: merge(of.pairs for of in evidence.histograms(trial, Measure.LATENCY)) for trial in ok}
    return {
        trial: {latency_key(ALL_KINDS, name): value for name, value in quantiles_ms(pairs).items()}
        for trial, pairs in merged.items()
    }


def limited_ms(pairs: Pairs, answered: int, unanswered: int, quantile: float) -> float | None:
    """Return the quantile in ms over all transactions, with unanswered ones as slower than all others.

    Unanswered transactions failed, or were skipped at the end of the slice. The result is infinite if they
    are too many. None if all transactions are too few, as in ``quantile_ns``.
    """
    every = answered + unanswered
    if every * (1 - quantile) < BEYOND_MIN or not len(pairs):
        return None
    share = quantile * every / answered if answered else math.inf
    if share > 1:
        return math.inf
    cumulated = np.cumsum(pairs[:, 1])
    rank = np.ceil(share * int(cumulated[-1]) * (1 - 1e-12))
    return int(pairs[int(np.searchsorted(cumulated, rank)), 0]) / 1e6


def curve_ms(pairs: Pairs, points: int = 120) -> list[tuple[float, float]]:
    """Return points (share of values beyond, latency in ms) for a chart.

    The points are equidistant on a log axis of the share, from 0.5 down to 1 / n.
    """
    n = int(pairs[:, 1].sum()) if len(pairs) else 0
    if n < 2:
        return []
    beyond = np.geomspace(0.5, 1 / n, points)
    cumulated = np.cumsum(pairs[:, 1])
    ranks = np.clip(np.ceil((1 - beyond) * n * (1 - 1e-12)), 1, n)
    values = pairs[np.searchsorted(cumulated, ranks), 0]
    return [(float(share), float(value) / 1e6) for share, value in zip(beyond, values, strict=True)]


def mean_us(pairs: Pairs) -> float | None:
    """Return the mean, within the precision of the buckets (HdrHistogram: three digits); None if empty."""
    n = int(pairs[:, 1].sum()) if len(pairs) else 0
    return float(pairs[:, 0].astype(float) @ pairs[:, 1].astype(float)) / n / 1e3 if n else None


ALARM = 0.05
"""Level of the sign test: at the capacity, a window misses the limit with probability 0.5."""


def limited_by_trial(
    plan: Study, trials: Sequence[Trial], histograms: Mapping[int, Mapping[str, Pairs]]
) -> dict[int, float | None]:
    """Return trial ID → limited quantile in ms, infinite if too many had no answer; empty without limit."""
    if plan.capacity is None:
        return {}
    limit = parse_limit(plan.capacity)
    found = {}
    for trial in trials:
        if trial.trial in histograms:
            counts = [of for piece in trial.measured for of in piece.kinds.values()]
            answered = sum(of.executed for of in counts)
            every = sum(of.all for of in counts)
            pairs = merge(histograms[trial.trial].values())
            found[trial.trial] = limited_ms(pairs, answered, every - answered, limit.quantile)
    return found


def missed_limit_caveats(
    plan: Study, arms: Sequence[Arm], trials: Sequence[Trial], limited: Mapping[int, float | None]
) -> list[Caveat]:
    """Return a caveat for each arm that missed the limit at the rates of its search significantly often."""
    if plan.capacity is None:
        return []
    limit_ms = 1e3 * parse_limit(plan.capacity).latency_s
    found = []
    for arm in arms:
        known = [
            ms for trial in trials if trial.arm == arm.arm and (ms := limited.get(trial.trial)) is not None
        ]
        kept = sum(ms < limit_ms for ms in known)
        if known and binomial_at_most(kept, len(known), 0.5) <= ALARM:
            names: dict[str, Parameter] = {
                "arm": arm.name,
                "limit": plan.capacity,
                "kept": kept,
                "blocks": len(known),
            }
            found.append(Caveat(Code.CAPACITY_NOT_SUSTAINED, names))
    return found
