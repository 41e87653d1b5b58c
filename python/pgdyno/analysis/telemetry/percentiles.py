"""Latency percentiles from merged histograms. Percentiles are never averaged.

The latency of a skipped arrival of an open loop is not known, but it is longer than the time that the arrival
had waited. A percentile counts skipped arrivals as longer than every measured latency, because percentiles
of the others would hide overload. A percentile among them is therefore only a lower bound.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pgdyno.analysis.statistics.intervals import binomial_at_most
from pgdyno.analysis.statistics.pooled_quantiles import BlockCounts
from pgdyno.analysis.telemetry.metrics import ALL_KINDS, PERCENTILES, TrialLatencies, latency_key
from pgdyno.caveats import Caveat
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Arm, Measure, Pairs, Trial, TrialStatus
from pgdyno.study.plan import Study
from pgdyno.study.values import BEYOND_MIN, parse_limit
from pgdyno.units import significant


def merge(histograms: Iterable[Pairs]) -> Pairs:
    """Return one histogram of all values. Exact, as HDR histograms of one precision have equal buckets."""
    every = [pairs for pairs in histograms if len(pairs)]
    if not every:
        return np.empty((0, 2), dtype=np.uint64)
    stacked = np.concatenate(every)
    order = np.argsort(stacked[:, 0], kind="stable")  # merges the sorted histograms
    values, counts = stacked.take(order, axis=0).T
    begins = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    return np.column_stack([values[begins], np.add.reduceat(counts, begins)])


def _n(pairs: Pairs) -> int:
    return int(pairs[:, 1].sum()) if len(pairs) else 0


def _rank(n: int, quantile: float) -> int:
    # A share times n can be slightly above an integer; a relative correction keeps the rank right.
    return math.ceil(quantile * n * (1 - 1e-12))


def _at(pairs: Pairs, cumulative: np.ndarray, rank: int) -> int:
    # An integer of Python would be compared as a float, with a copy of all counts.
    return int(pairs[cumulative.searchsorted(np.uint64(rank)), 0])


class LatencyMs(NamedTuple):
    """A percentile of latency in ms. ``is_bound``: it is longer than ``value``, by an unknown time."""

    value: float
    is_bound: bool = False


EMPTY = merge([])


@dataclass(frozen=True)
class Latencies:
    """Latencies of ``answered`` (ok) transactions, and the waiting times of ``skipped`` arrivals."""

    answered: Pairs = field(default_factory=lambda: EMPTY)
    skipped: Pairs = field(default_factory=lambda: EMPTY)

    @cached_property
    def n(self) -> int:
        """The number of answered and skipped transactions."""
        return _n(self.answered) + _n(self.skipped)

    @cached_property
    def _cumulative(self) -> np.ndarray:
        """Number of answered transactions up to each value."""
        return np.cumsum(self.answered[:, 1])

    @cached_property
    def _every(self) -> tuple[Pairs, np.ndarray]:
        """All transactions, skipped ones with the time that they had waited, and their cumulative numbers."""
        merged = merge([self.answered, self.skipped])
        return merged, np.cumsum(merged[:, 1])

    def quantile_ms(self, quantile: float) -> LatencyMs | None:
        """Return the quantile over all, with skipped ones above all others; None with too few beyond it.

        It is the smallest recorded value with at least that share of all values at or below it, definition 1
        of Hyndman and Fan, "Sample quantiles in statistical packages", 1996 (numpy's ``inverted_cdf``), which
        needs no interpolation between buckets.

        Its lower bound among the skipped ones is the quantile that results if each had been answered at the
        moment when it was skipped.
        """
        n = self.n
        if n == 0 or (quantile < 1 and round(n * (1 - quantile), 9) < BEYOND_MIN):
            return None
        rank = _rank(n, quantile)
        if len(self.answered) == 0 or rank > self._cumulative[-1]:
            return LatencyMs(_at(*self._every, rank) / 1e6, True)
        return LatencyMs(_at(self.answered, self._cumulative, rank) / 1e6)

    def quantiles_ms(self) -> dict[str, LatencyMs | None]:
        """Return all PERCENTILES."""
        return {name: self.quantile_ms(quantile) for name, quantile in PERCENTILES.items()}


def merge_latencies(every: Iterable[Latencies]) -> Latencies:
    """Return the latencies of several kinds or trials together."""
    known = list(every)
    return Latencies(merge(of.answered for of in known), merge(of.skipped for of in known))


def block_counts(blocks: Sequence[Latencies], quantile: float) -> BlockCounts:
    """Return the counts of an arm by block. Each block must have the quantile.

    Only values between the lowest and the highest quantile of a block can be the quantile of all blocks.
    """
    own = [_at(of.answered, of._cumulative, _rank(of.n, quantile)) for of in blocks]
    lowest, highest = min(own), max(own)
    values = [of.answered[:, 0] for of in blocks]
    every = np.unique(np.concatenate([ns[(lowest <= ns) & (ns <= highest)] for ns in values]))
    counts = [
        np.append(0, of._cumulative)[np.searchsorted(of.answered[:, 0], every, "right")] for of in blocks
    ]
    totals = [of.n for of in blocks]
    return BlockCounts(*(np.asarray(part, dtype=np.float64) for part in (every, counts, totals)))


def read_latencies(evidence: Evidence, trial: int) -> dict[str, Latencies]:
    """Return the latencies of a trial by kind."""
    answered, skipped = (
        {of.kind: of.pairs for of in evidence.histograms(trial, measure)}
        for measure in (Measure.LATENCY, Measure.SKIPPED)
    )
    return {
        kind: Latencies(answered.get(kind, EMPTY), skipped.get(kind, EMPTY))
        for kind in sorted({*answered, *skipped})
    }


def trial_latencies(by_trial: Mapping[int, Mapping[str, Latencies]]) -> TrialLatencies:
    """Return the percentiles of each kind. ``by_trial``: trial ID → kind → latencies."""
    values: dict[int, dict[str, float | None]] = {}
    bounds: dict[int, dict[str, float | None]] = {}
    for trial, by_kind in by_trial.items():
        values[trial], bounds[trial] = {}, {}
        for kind, of in by_kind.items():
            for name, ms in of.quantiles_ms().items():
                if ms is not None:
                    (bounds if ms.is_bound else values)[trial][latency_key(kind, name)] = ms.value
    return TrialLatencies(values, bounds)


def latencies_of_all_kinds(evidence: Evidence, plan: Study, trials: Sequence[Trial]) -> TrialLatencies:
    """Return the percentiles of all kinds of each ok trial, if the verdict is about latency."""
    ok = [trial.trial for trial in trials if trial.status is TrialStatus.OK] if plan.load_is_fixed else []
    merged = {trial: merge_latencies(read_latencies(evidence, trial).values()) for trial in ok}
    return trial_latencies({trial: {ALL_KINDS: of} for trial, of in merged.items()})


def limited_ms(pairs: Pairs, answered: int, unanswered: int, quantile: float) -> float | None:
    """Return the quantile in ms over all transactions, with unanswered ones as slower than all others.

    Unanswered transactions failed or were skipped. The result is infinite if they are too many. None if all
    transactions are too few (BEYOND_MIN).
    """
    every = answered + unanswered
    if round(every * (1 - quantile), 9) < BEYOND_MIN:  # 100 · (1 − 0.9) is slightly below 10
        return None
    share = quantile * every / answered if answered else math.inf
    if share > 1:
        return math.inf
    if not len(pairs):
        return None
    return _at(pairs, np.cumsum(pairs[:, 1]), _rank(_n(pairs), share)) / 1e6


def curve_ms(of: Latencies, points: int = 120) -> list[tuple[float, float]]:
    """Return points (share of values beyond, latency in ms) for a chart.

    The points are equidistant on a log axis of the share, from 0.5 down to 1 / n. The curve ends at the share
    of skipped transactions.
    """
    n, answered = of.n, _n(of.answered)
    if n < 2:
        return []
    beyond = np.geomspace(0.5, 1 / n, points)
    ranks = np.clip(np.ceil((1 - beyond) * n * (1 - 1e-12)), 1, n)
    beyond, ranks = beyond[ranks <= answered], ranks[ranks <= answered]
    values = of.answered[np.searchsorted(np.cumsum(of.answered[:, 1]), ranks), 0]
    return [(float(share), float(value) / 1e6) for share, value in zip(beyond, values, strict=True)]


def mean_us(pairs: Pairs) -> float | None:
    """Return the mean, within the precision of the buckets (HdrHistogram: three digits); None if empty."""
    n = _n(pairs)
    return float(pairs[:, 0].astype(float) @ pairs[:, 1].astype(float)) / n / 1e3 if n else None


ALARM = 0.05
"""Level of the sign test: at the capacity, a window misses the limit with probability 0.5."""


def limited_by_trial(
    plan: Study, trials: Sequence[Trial], latencies: Mapping[int, Mapping[str, Latencies]]
) -> dict[int, float | None]:
    """Return trial ID → limited quantile in ms, infinite if too many had no answer; empty without limit."""
    if plan.capacity is None:
        return {}
    limit = parse_limit(plan.capacity)
    found = {}
    for trial in trials:
        if trial.trial in latencies:
            counts = [of for piece in trial.measured for of in piece.kinds.values()]
            answered = sum(of.executed for of in counts)
            every = sum(of.all for of in counts)
            pairs = merge(of.answered for of in latencies[trial.trial].values())
            found[trial.trial] = limited_ms(pairs, answered, every - answered, limit.quantile)
    return found


LATENCY_FACTOR_MAX = 2.0
"""Largest median of the limited quantile, as a multiple of the limit, that confirms a capacity: close to
saturation, an error of 5% of the rate (``RESOLUTION``) doubles the latency of a queue."""


@dataclass(frozen=True)
class MissedLimit:
    """An arm that missed the limit at its capacity. ``median_ms`` is that of the limited quantile."""

    arm: Arm
    kept: int
    blocks: int
    median_ms: float


def missed_limits(
    plan: Study, arms: Sequence[Arm], trials: Sequence[Trial], limited: Mapping[int, float | None]
) -> list[MissedLimit]:
    """Return the arms that missed the limit at the rates of their search.

    Either significantly often, or by too much for an error of the search. Empty without a search.
    """
    if plan.capacity is None or not plan.searches_capacity:
        return []
    limit_ms = 1e3 * parse_limit(plan.capacity).latency_s
    found = []
    for arm in arms:
        known = [
            ms for trial in trials if trial.arm == arm.arm and (ms := limited.get(trial.trial)) is not None
        ]
        if not known:
            continue
        missed = MissedLimit(arm, sum(ms < limit_ms for ms in known), len(known), statistics.median(known))
        is_often = binomial_at_most(missed.kept, missed.blocks, 0.5) <= ALARM
        if is_often or missed.median_ms > LATENCY_FACTOR_MAX * limit_ms:
            found.append(missed)
    return found


def read_missed_limits(
    evidence: Evidence, plan: Study, arms: Sequence[Arm], trials: Sequence[Trial]
) -> list[MissedLimit]:
    """Return the arms that missed the limit, from the latencies of a study that searches its capacity."""
    ok = [trial.trial for trial in trials if trial.status is TrialStatus.OK and plan.searches_capacity]
    latencies = {trial: read_latencies(evidence, trial) for trial in ok}
    return missed_limits(plan, arms, trials, limited_by_trial(plan, trials, latencies))


def missed_limit_caveats(plan: Study, missed: Iterable[MissedLimit]) -> list[Caveat]:
    """Return a caveat for each arm whose capacity is not confirmed."""
    found = []
    for of in missed:
        ms = of.median_ms
        found.append(
            Caveat.of(
                "capacity-not-sustained",
                arm=of.arm.name,
                limit=plan.limit_text,
                kept=of.kept,
                blocks=of.blocks,
                median_ms="∞" if math.isinf(ms) else significant(ms, 3),
            )
        )
    return found
