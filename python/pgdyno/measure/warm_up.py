"""Detection of the end of a warm-up: the rate of every arm is stationary.

With one arm the test follows each interval. With arms that take turns it follows each round, so that all have
the same warm-up. Rates of earlier blocks are used, too: each block begins in the same state, and the mean
over blocks shows the necessary length better than a single block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from pgdyno.analysis.statistics.series import VALUES_MIN, is_steady, mser_of_mean
from pgdyno.measure.sampler import step_for
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Interval, TrialStatus, WarmUpEnd
from pgdyno.server.engine import Event
from pgdyno.study.plan import Study
from pgdyno.study.schedule import Role
from pgdyno.units import NS_PER_S

INTERVALS_PER_S = 200
"""Maximum rate of intervals from load generators. The coordinator needs about 0.2 ms for each
(``python -m bench driver-nodes``)."""

INTERVAL_SHARE_MIN = 0.5
"""Minimum share of the nominal interval. A shorter one is the end of a slice and is added to the one
before."""


EARLIER_MIN = 2
"""Minimum number of earlier blocks to use. With a single one, noise alone would make warm-ups longer."""

FIRST_SHARE_MIN = 1 / 3
"""Minimum warm-up of the first blocks, as a share of the maximum. A noisy rate that rises slowly seems
stationary too early, and a longer warm-up gives later ones more data."""

EARLIER_TIMES_MAX = 4
"""Maximum ratio of values of the measured part to values of the warm-up. Later values are not relevant."""

RESUMED_BLOCKS_MAX = 20
"""Number of last blocks that a resumed study reads. More blocks hardly change the mean, and an hour has
thousands of intervals."""

RAN = (TrialStatus.OK, TrialStatus.EXCLUDED, TrialStatus.SUPERSEDED)
"""Trials that ran to their end."""

Rates = Sequence[float]


@dataclass
class _ArmWarmUp:
    """Warm-up of one arm so far. Each observation: transactions, seconds, median latency in ns. ``least``:
    number of observations that earlier blocks needed; None: the maximum.
    """

    least: int | None = 0
    seen: list[tuple[float, float, float | None]] = field(default_factory=list)
    slices: int = 0  # finished slices
    driven_s: float = 0.0
    is_in_slice: bool = False  # whether the last observation belongs to the current slice
    tests: int = 0  # number of tests for stationarity
    tests_passed: int = 0  # number of tests with a positive result

    def add(self, n: float, took_s: float, p50_ns: float | None, interval_s: float) -> None:
        self.driven_s += took_s
        if took_s < INTERVAL_SHARE_MIN * interval_s and self.is_in_slice:
            before_n, before_s, before_p50 = self.seen[-1]
            self.seen[-1] = (before_n + n, before_s + took_s, before_p50)
        elif took_s > 0:
            self.seen.append((n, took_s, p50_ns))
            self.is_in_slice = True

    def test(self, *, of_latency: bool) -> bool:
        """Return whether it is stationary now, and count the test."""
        found = is_steady(self.values(of_latency=of_latency))
        self.tests += 1
        self.tests_passed += found
        return found

    def values(self, *, of_latency: bool) -> list[float]:
        if of_latency:
            return [float(p50_ns) for _, _, p50_ns in self.seen if p50_ns is not None]
        return [n / took_s for n, took_s, _ in self.seen]


def with_longer_warm_up(study: Study, times: int) -> Study:
    """Return the plan with a warm-up of a multiple of the maximum.

    The rates were steady too early, or not at all: otherwise the effect would not depend on the warm-up.
    """
    if times == 1:
        return study
    most_s = times * study.warmup_s
    return study.model_copy(update={"warmup_s": most_s, "warmup_min_s": most_s})


class WarmUp:
    """Warm-up of ``targets`` arms that run at the same time. With a fixed time it only observes."""

    def __init__(
        self,
        study: Study,
        targets: int,
        interval_s: float,
        earlier: Sequence[Sequence[Rates]] | None = None,
        as_long_as_s: float | None = None,
    ) -> None:
        """Start with the ``rates`` of earlier blocks, by target.

        ``as_long_as_s``: duration for the first arm of the block, if arms run one after the other. The other
        arms get the same.
        """
        self._as_long_as_s = as_long_as_s
        self._interval_s = interval_s
        earlier = earlier or [[] for _ in range(targets)]
        is_first = min(map(len, earlier)) < EARLIER_MIN
        self._least_s = study.warmup_min_s
        if self._least_s is not None and is_first:
            self._least_s = max(self._least_s, FIRST_SHARE_MIN * study.warmup_s)
        self._arms = [
            _ArmWarmUp(least=mser_of_mean(trials) if len(trials) >= EARLIER_MIN else 0) for trials in earlier
        ]
        self._measured = [_ArmWarmUp() for _ in range(targets)]
        self._of_latency = study.load_is_fixed  # in an open loop the rate is fixed
        self._is_over = False

    def ends_with(self, event: Event) -> bool:
        """Process an event of the run. Return True once, when the warm-up can end."""
        if event["event"] not in ("interval", "slice"):
            return False
        is_warm_up = event["role"] == "warm-up"
        arm = (self._arms if is_warm_up else self._measured)[event["target"]]
        if event["event"] == "slice":
            arm.slices += 1
            arm.is_in_slice = False
        elif is_warm_up or _needs_more(self._arms[event["target"]], arm):
            took_s = (event["to_ns"] - event["from_ns"]) / NS_PER_S
            kinds = event["kinds"].values()
            n = float(sum(kind["ok"] + kind["rolled_back"] for kind in kinds))
            p50_ns = event["latency_ns"].get("p50") if any(kind["ok"] for kind in kinds) else None
            arm.add(n, took_s, p50_ns, self._interval_s)
        if not is_warm_up:
            return False
        if self._is_over or not self._may_end(event):
            return False
        found = [of.test(of_latency=self._of_latency) for of in self._arms]  # tests every arm
        if self._as_long_as_s is None:
            self._is_over = all(found) and all(
                of.least is not None and len(of.seen) >= of.least for of in self._arms
            )
        else:
            self._is_over = all(of.driven_s >= self._as_long_as_s for of in self._arms)
        return self._is_over

    def found(self, target: int) -> WarmUpEnd | None:
        """Return how the warm-up of an arm ended; None without a warm-up."""
        arm = self._arms[target]
        if not arm.seen:
            return None
        return WarmUpEnd(
            driven_s=arm.driven_s,
            by="evidence" if self._is_over else "time",
            values=len(arm.seen),
            looks=arm.tests,
            looks_steady=arm.tests_passed,
        )

    def rates(self, target: int) -> Rates:
        """Return the rates from the start of the warm-up into the measured part, for later blocks."""
        return _joined_rates(self._arms[target], self._measured[target], of_latency=self._of_latency)

    def _may_end(self, event: Event) -> bool:
        least_s = self._least_s
        if least_s is None or any(of.driven_s < least_s or len(of.seen) < VALUES_MIN for of in self._arms):
            return False
        if len(self._arms) == 1:
            return bool(event["event"] == "interval")
        return bool(event["event"] == "slice") and len({of.slices for of in self._arms}) == 1


def rates_so_far(evidence: Evidence, case: int, study: Study) -> dict[int, list[Rates]]:
    """Return ``WarmUp.rates`` of the earlier blocks of a resumed study, by arm; empty for a warm-up with a
    fixed time.
    """
    found: dict[int, list[Rates]] = {}
    if study.warmup_min_s is None:
        return found
    whole = [one for one in evidence.trials(case) if one.status in RAN]
    last = max((one.block for one in whole), default=0) - RESUMED_BLOCKS_MAX
    interval_s = interval_s_of(study)
    for trial in whole:
        if trial.block > last:
            rates = _rates_of(evidence.intervals(trial.trial), interval_s, of_latency=study.load_is_fixed)
            found.setdefault(trial.arm, []).append(rates)
    return found


def interval_s_of(study: Study) -> float:
    """Return the width of the engine's intervals: the step of the telemetry. It is longer if more than
    INTERVALS_PER_S would arrive from all load generators.
    """
    drivers = 1 if study.drivers is None else study.drivers.n
    return max(step_for(study.window_likely_s()), float(math.ceil(drivers / INTERVALS_PER_S)))


def _rates_of(intervals: Sequence[Interval], interval_s: float, *, of_latency: bool) -> Rates:
    warm, measured = _ArmWarmUp(), _ArmWarmUp()
    position = None
    for one in intervals:
        of = warm if one.role is Role.WARM_UP else measured
        of.is_in_slice = of.is_in_slice and one.position == position
        position = one.position
        if of is warm or _needs_more(warm, measured):
            n = float(sum(counts.executed for counts in one.kinds.values()))
            of.add(n, one.to_s - one.from_s, one.latency_p50_ns, interval_s)
    return _joined_rates(warm, measured, of_latency=of_latency)


def _needs_more(warm: _ArmWarmUp, measured: _ArmWarmUp) -> bool:
    return len(measured.seen) < EARLIER_TIMES_MAX * len(warm.seen)


def _joined_rates(warm: _ArmWarmUp, measured: _ArmWarmUp, *, of_latency: bool) -> Rates:
    return [*warm.values(of_latency=of_latency), *measured.values(of_latency=of_latency)]
