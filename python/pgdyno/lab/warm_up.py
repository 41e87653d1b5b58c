"""Ends the warm-up when every arm's rate is stationary.

It looks where it may end: with one arm at each interval, with arms that take turns when all have had as many
slices, so that none is warmed up for longer than another. What earlier blocks have shown counts, too: each
began as this one does, and the mean of their rates says how long a warm-up takes, better than a single one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pgdyno.analysis.statistics.mser import VALUES_MIN, is_steady, mser_of_mean
from pgdyno.engine import Event
from pgdyno.probe.sampled_server import step_for
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Interval, TrialStatus
from pgdyno.study.plan import Study
from pgdyno.study.schedule import Role
from pgdyno.units import NS_PER_S

INTERVAL_SHARE_MIN = 0.5
"""Of the interval asked for: a shorter one is the rest of a slice, and counts with the one before."""


EARLIER_MIN = 2
"""Blocks whose rates are asked: of one the noise alone would make warm-ups longer."""

FIRST_SHARE_MIN = 1 / 3
"""Of the longest time: what a warm-up takes while there are none yet. One that rises slowly and is noisy
looks steady too early, and later ones learn the more from it the longer it was."""

EARLIER_TIMES_MAX = 4
"""As many values of the measured part as of the warm-up: what comes later says nothing of it."""

RESUMED_BLOCKS_MAX = 20
"""Of a study that goes on, the last ones: the mean of more says hardly more, and an hour has thousands of
intervals to read."""

Rates = Sequence[float]


@dataclass
class _Warming:
    """One arm's warm-up so far. Of each observation: transactions, seconds, the latency's median in ns.
    ``least`` observations are needed by what earlier blocks have shown; None: as many as there can be.
    """

    least: int | None = 0
    seen: list[tuple[float, float, float | None]] = field(default_factory=list)
    slices: int = 0  # that are over
    driven_s: float = 0.0
    is_in_slice: bool = False  # whether the last observation is of the slice that is still open
    looks: int = 0  # how often it was asked whether it is steady, and what it was then
    looks_steady: int = 0

    def add(self, n: float, took_s: float, p50_ns: float | None, interval_s: float) -> None:
        self.driven_s += took_s
        if took_s < INTERVAL_SHARE_MIN * interval_s and self.is_in_slice:
            before_n, before_s, before_p50 = self.seen[-1]
            self.seen[-1] = (before_n + n, before_s + took_s, before_p50)
        elif took_s > 0:
            self.seen.append((n, took_s, p50_ns))
            self.is_in_slice = True

    def looks_so(self, *, of_latency: bool) -> bool:
        """Whether it is steady now; it is kept that it was asked."""
        found = is_steady(self.values(of_latency=of_latency))
        self.looks += 1
        self.looks_steady += found
        return found

    def values(self, *, of_latency: bool) -> list[float]:
        if of_latency:
            return [float(p50_ns) for _, _, p50_ns in self.seen if p50_ns is not None]
        return [n / took_s for n, took_s, _ in self.seen]


class WarmUp:
    """Of the arms that are up together, ``targets`` of them. Where the study gives a time, it looks on."""

    def __init__(
        self,
        study: Study,
        targets: int,
        interval_s: float,
        earlier: Sequence[Sequence[Rates]] | None = None,
        as_long_as_s: float | None = None,
    ) -> None:
        """``earlier``: of each target what ``rates`` gave of the blocks before this one. ``as_long_as_s``:
        how long the block's first arm was driven, where arms come one after the other: the others are, too.
        """
        self._as_long_as_s = as_long_as_s
        self._interval_s = interval_s
        earlier = earlier or [[] for _ in range(targets)]
        is_first = min(map(len, earlier)) < EARLIER_MIN
        self._least_s = study.warmup_min_s
        if self._least_s is not None and is_first:
            self._least_s = max(self._least_s, FIRST_SHARE_MIN * study.warmup_s)
        self._arms = [
            _Warming(least=mser_of_mean(trials) if len(trials) >= EARLIER_MIN else 0) for trials in earlier
        ]
        self._measured = [_Warming() for _ in range(targets)]
        self._of_latency = _is_of_latency(study)
        self._is_over = False

    def ends_with(self, event: Event) -> bool:
        """Takes notice of an event of the run. True, once, when the warm-up may end with it."""
        if event["event"] not in ("interval", "slice"):
            return False
        is_warm_up = event["role"] == "warm-up"
        arm = (self._arms if is_warm_up else self._measured)[event["target"]]
        if event["event"] == "slice":
            arm.slices += 1
            arm.is_in_slice = False
        elif is_warm_up or _tells_more(self._arms[event["target"]], arm):
            took_s = (event["to_ns"] - event["from_ns"]) / NS_PER_S
            n = float(sum(kind["ok"] + kind["rolled_back"] for kind in event["kinds"].values()))
            arm.add(n, took_s, event["latency_ns"].get("p50") if n else None, self._interval_s)
        if not is_warm_up:
            return False
        if self._is_over or not self._may_end(event):
            return False
        found = [of.looks_so(of_latency=self._of_latency) for of in self._arms]  # each is asked
        if self._as_long_as_s is None:
            self._is_over = all(found) and all(
                of.least is not None and len(of.seen) >= of.least for of in self._arms
            )
        else:
            self._is_over = all(of.driven_s >= self._as_long_as_s for of in self._arms)
        return self._is_over

    def found(self, target: int) -> Mapping[str, Any] | None:
        """How an arm's warm-up ended, ``by`` evidence or time, and how often it looked steady before. None
        where there was none.
        """
        arm = self._arms[target]
        if not arm.seen:
            return None
        return {
            "driven_s": arm.driven_s,
            "by": "evidence" if self._is_over else "time",
            "values": len(arm.seen),
            "looks": arm.looks,
            "looks_steady": arm.looks_steady,
        }

    def rates(self, target: int) -> Rates:
        """From the warm-up's beginning into the measured part: what later blocks can learn from."""
        return _in_a_row(self._arms[target], self._measured[target], of_latency=self._of_latency)

    def _may_end(self, event: Event) -> bool:
        least_s = self._least_s
        if least_s is None or any(of.driven_s < least_s or len(of.seen) < VALUES_MIN for of in self._arms):
            return False
        if len(self._arms) == 1:
            return bool(event["event"] == "interval")
        return bool(event["event"] == "slice") and len({of.slices for of in self._arms}) == 1


def rates_so_far(evidence: Evidence, case: int, study: Study) -> dict[int, list[Rates]]:
    """By arm, what ``WarmUp.rates`` gave of the blocks of a study that goes on; nothing where its warm-up
    takes a constant time.
    """
    found: dict[int, list[Rates]] = {}
    if study.warmup_min_s is None:
        return found
    whole = [one for one in evidence.trials(case) if one.status in (TrialStatus.OK, TrialStatus.EXCLUDED)]
    last = max((one.block for one in whole), default=0) - RESUMED_BLOCKS_MAX
    interval_s = step_for(study.window_likely_s())
    for trial in whole:
        if trial.block > last:
            rates = _rates_of(evidence.intervals(trial.trial), interval_s, of_latency=_is_of_latency(study))
            found.setdefault(trial.arm, []).append(rates)
    return found


def _rates_of(intervals: Sequence[Interval], interval_s: float, *, of_latency: bool) -> Rates:
    warm, measured = _Warming(), _Warming()
    position = None
    for one in intervals:
        of = warm if one.role is Role.WARM_UP else measured
        of.is_in_slice = of.is_in_slice and one.position == position
        position = one.position
        if of is warm or _tells_more(warm, measured):
            n = float(sum(counts.executed for counts in one.kinds.values()))
            of.add(n, one.to_s - one.from_s, one.latency_p50_ns, interval_s)
    return _in_a_row(warm, measured, of_latency=of_latency)


def _is_of_latency(study: Study) -> bool:
    """Where clients start by the clock, it is their latency that comes to rest, and not their rate."""
    return study.rate is not None or study.pacing != "none" or study.searches_capacity


def _tells_more(warm: _Warming, measured: _Warming) -> bool:
    return len(measured.seen) < EARLIER_TIMES_MAX * len(warm.seen)


def _in_a_row(warm: _Warming, measured: _Warming, *, of_latency: bool) -> Rates:
    return [*warm.values(of_latency=of_latency), *measured.values(of_latency=of_latency)]
