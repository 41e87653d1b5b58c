"""Throughput dips, the events that coincide with them, and their cost.

A point of a trial's series (an interval of about a second from the driver) is low if it is below its baseline
by more than SDS robust standard deviations and by more than DEPTH_MIN. The baseline is the median of the
trial, in long windows that of a minute. The deviation is the median absolute deviation of all points of the
arm, so dips do not mask themselves. Consecutive low points are one dip.

An event coincides with a dip if it overlaps its time. It is called the cause only if events of this kind
coincide with the arm's dips significantly often. Under the null hypothesis the dips of each trial are rotated
by a random number of points, all by the same number: dips that cluster stay a cluster, and so do events. The
distribution is exact (all rotations of a trial; the trials are independent). Holm's correction is over the
kinds. All other dips are unexplained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

import numpy as np
import numpy.typing as npt

from pgdyno.analysis.case_findings import CaseResult, Findings
from pgdyno.analysis.finding_fields import ByArm, about, in_json
from pgdyno.analysis.queries import SeriesResult
from pgdyno.analysis.statistics.intervals import holm_confidences, robust_sd
from pgdyno.analysis.telemetry.samples import HOST, SAMPLES, SERVER, WAITS
from pgdyno.results.records import Executed, SampleSeries, Trial, TrialStatus
from pgdyno.units import parse_size_bytes

Floats = npt.NDArray[np.float64]

# ----------------------------------------------------------------------
# Events beside the transactions during a trial, with their times, from its one-second series.
#
# The time of an event is known only to within a sampling interval: between the sample that shows it and the
# previous one. Permanent conditions are not events. For shares (pressure, steal, other load), only values far
# above the trial's median are events.
# ----------------------------------------------------------------------

SEGMENT_BYTES = 16 << 20
"""WAL segment size if the settings do not contain it."""

UNUSUAL_SDS = 5.0
"""Robust standard deviations above the trial's median from which a share is an event."""

STEAL_SHARE_MIN, LOAD_SHARE_MIN, STALL_SHARE_MIN = 0.03, 0.10, 0.10
"""Minimum shares of an event: steal and other load, of the machine's CPU time; I/O stalls, of the time."""

LOCKED_SHARE_MIN = 0.5
"""Minimum share of the clients that wait for locks in a sample."""

SERVER_CPU = "server_cpu_s"
"""CPU time of the trial's own server, a column of the machine's series."""


class Event(StrEnum):
    """Possible cause of a dip."""

    CHECKPOINT = "checkpoint"
    AUTOVACUUM = "autovacuum"
    WAL_SEGMENT = "new WAL segment"
    LOCKS = "waiting for locks"
    IO_STALL = "stalled for I/O"
    STEAL = "CPU stolen"
    OTHER_LOAD = "other load on the machine"
    SWAPPING = "swapping"
    OTHER_ARM = "another arm's background work"


Spans = npt.NDArray[np.float64]
"""Shape (n, 2): from, to, in seconds since the epoch; ascending and disjoint."""

Events = Mapping[Event, Spans]

BACKGROUND = (Event.CHECKPOINT, Event.AUTOVACUUM)
"""Background work of one arm's server that may disturb another arm's server at the same time."""

NOTHING: Spans = np.empty((0, 2))


def events_of(
    series: Mapping[str, SampleSeries],
    settings: Mapping[str, str],
    clients: int,
    beside: Sequence[SampleSeries] = (),
) -> Events:
    """Return the events of one trial, for kinds that occurred.

    ``beside`` are the machine's series of trials measured at the same time on servers that pgdyno started.
    Each has the CPU time of its own server.
    """
    found: dict[Event, Spans] = {}
    if SERVER in series and len(series[SERVER].points) > 1:
        found |= _of_server(series[SERVER], settings)
    if WAITS in series and len(series[WAITS].points) > 1:
        found[Event.LOCKS] = _locked(series[WAITS], clients)
    if HOST in series and len(series[HOST].points) > 1:
        found |= _of_host(series[HOST], beside)
    return {event: spans for event, spans in found.items() if len(spans)}


def _of_server(series: SampleSeries, settings: Mapping[str, str]) -> dict[Event, Spans]:
    counted = [np.diff(series.column(name)) > 0 for name in _CHECKPOINTS]
    segments = np.floor(series.column("lsn_bytes") / _segment_bytes(settings))
    return {
        Event.CHECKPOINT: _spans(series, np.logical_or.reduce(counted)),
        Event.AUTOVACUUM: _spans(series, series.column("autovacuum_workers")[1:] > 0),
        Event.WAL_SEGMENT: _spans(series, np.diff(segments) > 0),
    }


_CHECKPOINTS = ("num_timed", "num_requested", "num_done", "buffers_written")
"""Counters that increase at the start, at the end, and during a checkpoint."""


def _segment_bytes(settings: Mapping[str, str]) -> int:
    size = settings.get("wal_segment_size")
    return parse_size_bytes(size) if size else SEGMENT_BYTES


def _locked(series: SampleSeries, clients: int) -> Spans:
    locks = [series.column(name) for name in series.columns if name.startswith("Lock/")]
    if not locks:
        return NOTHING
    with np.errstate(divide="ignore", invalid="ignore"):
        waiting = np.nansum(locks, axis=0) / series.column(SAMPLES)
    return _spans(series, waiting[1:] >= LOCKED_SHARE_MIN * clients)


def _of_host(series: SampleSeries, beside: Sequence[SampleSeries]) -> dict[Event, Spans]:
    took_s = np.diff(series.points[:, 0])
    rate = {name: np.diff(series.column(name)) / took_s for name in _HOST}
    cores = rate["cpu_busy_s"] + rate["cpu_idle_s"] + rate["cpu_iowait_s"]
    ours = sum(np.nan_to_num(rate[name]) for name in (SERVER_CPU, "driver_cpu_s", "pgdyno_cpu_s"))
    others_of_ours = sum(_server_cpu_at(of, series.points[:, 0]) / took_s for of in beside)
    with np.errstate(divide="ignore", invalid="ignore"):
        stolen = rate["cpu_steal_s"] / cores
        others = (rate["cpu_busy_s"] - rate["cpu_steal_s"] - ours - others_of_ours) / cores
    return {
        Event.STEAL: _spans(series, unusual(stolen, STEAL_SHARE_MIN)),
        Event.OTHER_LOAD: _spans(series, unusual(others, LOAD_SHARE_MIN)),
        Event.IO_STALL: _spans(series, unusual(rate["pressure_io_full_s"], STALL_SHARE_MIN)),
        Event.SWAPPING: _spans(series, (rate["swap_in_bytes"] > 0) | (rate["swap_out_bytes"] > 0)),
    }


def _server_cpu_at(of: SampleSeries, at: Spans) -> npt.NDArray[np.float64]:
    """Return the CPU time of another trial's server between these times, interpolated between its samples."""
    used = of.column(SERVER_CPU)
    known = np.isfinite(used)
    if not known.any():
        return np.zeros(len(at) - 1)
    return np.diff(np.interp(at, of.points[known, 0], used[known]))


_HOST = (
    *("cpu_busy_s", "cpu_idle_s", "cpu_iowait_s", "cpu_steal_s", SERVER_CPU, "driver_cpu_s"),
    *("pgdyno_cpu_s", "pressure_io_full_s", "swap_in_bytes", "swap_out_bytes"),
)


def unusual(share: npt.NDArray[np.float64], least: float) -> npt.NDArray[np.bool_]:
    """Return where the share is at least ``least`` and far above the others."""
    known = share[np.isfinite(share)]
    with np.errstate(invalid="ignore"):
        large = share >= least
        if not len(known) or not large.any():
            return np.zeros(len(share), dtype=bool)
        middle, sd = float(np.median(known)), float(robust_sd(known))
        return large & (share > middle + UNUSUAL_SDS * sd)


def _spans(series: SampleSeries, happened: npt.NDArray[np.bool_]) -> Spans:
    """Return spans for ``happened``, one value per sampling interval. Adjacent intervals become one span."""
    at = series.points[:, 0]
    return merge_adjacent(np.column_stack([at[:-1][happened], at[1:][happened]]))


def merge_adjacent(spans: Spans) -> Spans:
    """Merge adjacent spans. They must ascend."""
    if len(spans) < 2:
        return spans
    apart = np.concatenate([[True], spans[1:, 0] > spans[:-1, 1]])
    ends = np.concatenate([spans[:-1, 1][apart[1:]], spans[-1:, 1]])
    return np.column_stack([spans[apart, 0], ends])


def overlapped(spans: Spans, from_s: Spans, to_s: Spans) -> npt.NDArray[np.bool_]:
    """Return for each interval from_s .. to_s whether a span overlaps it."""
    if not len(spans):
        return np.zeros(len(from_s), dtype=bool)
    after = np.searchsorted(spans[:, 1], from_s, side="right")  # the first that ends after its beginning
    begins = np.append(spans[:, 0], np.inf)
    return begins[after] < to_s


# ----------------------------------------------------------------------
# Dips and their causes.
# ----------------------------------------------------------------------

RUNNING_POINTS = 61
"""Window of the running median, in points, with linear interpolation, for series of two or more."""

SHORT_SHARE = 0.5
"""Minimum share of the usual length: a shorter interval, at the end of a slice, is not used."""


@dataclass(frozen=True)
class TrialRates:
    """Measured points of one trial."""

    from_s: Floats
    to_s: Floats
    n: Floats

    @property
    def per_s(self) -> Floats:
        """Executed transactions per second."""
        return self.n / (self.to_s - self.from_s)


@dataclass(frozen=True)
class Dip:
    """A dip. ``depth`` is the relative loss of throughput, ``lost`` the loss in transactions."""

    trial: int
    first: Annotated[int, about("Index of its first point.")]
    points: int
    from_s: float
    to_s: float
    depth: float
    lost: float
    causes: Sequence[Event] = ()


def rates_of(executed: Executed) -> TrialRates:
    """Return the measured points, without truncated intervals."""
    took_s = executed.to_s - executed.from_s
    kept = executed.measured & (took_s > 0)
    if kept.any():
        kept &= took_s >= SHORT_SHARE * np.median(took_s[kept])
    return TrialRates(executed.from_s[kept], executed.to_s[kept], executed.n[kept])


def baseline(per_s: Floats) -> Floats:
    """Return the usual rate at each point."""
    parts = len(per_s) // RUNNING_POINTS
    if parts < 2:
        return np.full(len(per_s), np.median(per_s))
    whole = per_s[: parts * RUNNING_POINTS].reshape(parts, RUNNING_POINTS)
    middles = (np.arange(parts) + 0.5) * RUNNING_POINTS - 0.5
    return np.interp(np.arange(len(per_s)), middles, np.median(whole, axis=1))


def relative(per_s: Floats, usual: Floats) -> Floats:
    """Return the relative deviation of each point from the usual rate."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(usual > 0, per_s / usual - 1, 0.0)


def follows(rates: TrialRates) -> npt.NDArray[np.bool_]:
    """Return whether each point follows the previous one directly, without another arm's slice in between."""
    took_s = rates.to_s - rates.from_s
    return np.concatenate([[False], rates.from_s[1:] - rates.to_s[:-1] < SHORT_SHARE * took_s[1:]])


def runs(low: npt.NDArray[np.bool_], follows: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the first index and the end index (exclusive) of each run of low points."""
    begins = low & ~(follows & np.concatenate([[False], low[:-1]]))
    firsts = np.flatnonzero(begins)
    ends = [int(np.argmin(low[i:] & np.concatenate([[True], ~begins[i + 1 :]]))) for i in firsts]
    return [
        (int(first), int(first) + length if length else len(low))
        for first, length in zip(firsts, ends, strict=True)
    ]


def dips_in(trial: int, rates: TrialRates, usual: Floats, low: npt.NDArray[np.bool_]) -> list[Dip]:
    """Return the runs of low points as dips."""
    found = []
    for first, behind in runs(low, follows(rates)):
        own = slice(first, behind)
        expected = float(np.sum(usual[own] * (rates.to_s[own] - rates.from_s[own])))
        lost = expected - float(np.sum(rates.n[own]))
        from_s, to_s = float(rates.from_s[first]), float(rates.to_s[behind - 1])
        found.append(Dip(trial, first, behind - first, from_s, to_s, lost / expected, lost))
    return found


Ints = npt.NDArray[np.intp]

ALPHA = 0.05
"""Probability that any kind of event in a study is called a cause although it coincides at random."""


@dataclass(frozen=True)
class Coincidence:
    """One kind of event: the number of dips it coincides with, and the number expected at random."""

    event: Event
    dips: int
    expected: float
    p_value: float
    is_cause: bool


def with_other_arms(trials: Sequence[Trial], events: Mapping[int, Events]) -> dict[int, Events]:
    """Return each trial's events with the background work of servers that ran at the same time.

    These are trials of the same block and run, which have the same epoch.
    """
    together: dict[tuple[int, float | None], list[int]] = {}
    for trial in trials:
        together.setdefault((trial.block, trial.epoch_unix_s), []).append(trial.trial)
    found: dict[int, Events] = {}
    for up in together.values():
        for own in up:
            others = [
                events[other][event]
                for other in up
                if other != own and other in events
                for event in BACKGROUND
                if event in events[other]
            ]
            happened = dict(events.get(own, {}))
            if others:
                spans = np.concatenate(others)
                happened[Event.OTHER_ARM] = merge_adjacent(_merged(spans[np.argsort(spans[:, 0])]))
            found[own] = happened
    return found


def _merged(spans: Floats) -> Floats:
    """Return spans with nondecreasing ends, so that a span within another one ends with it."""
    return np.column_stack([spans[:, 0], np.maximum.accumulate(spans[:, 1])])


def cause_time_range(rates: TrialRates, first: Ints, last: Ints) -> tuple[Floats, Floats]:
    """Return the time range, in seconds, in which the cause of points ``first`` .. ``last`` may be.

    It begins at the previous point if time is continuous: an event that begins within a point slows that
    point partly, and the next ones fully.
    """
    before = rates.from_s[np.maximum(first - 1, 0)]
    return np.where(follows(rates)[first], before, rates.from_s[first]), rates.to_s[last]


def overlapping_events(dip: Dip, rates: TrialRates, events: Events) -> list[Event]:
    """Return the kinds of events that overlap the dip's time."""
    place = cause_time_range(rates, np.array([dip.first]), np.array([dip.first + dip.points - 1]))
    return [event for event in Event if event in events and overlapped(events[event], *place)[0]]


def coincidences_of(
    dips: Sequence[Dip], rates: Mapping[int, TrialRates], events: Mapping[int, Events], alpha: float
) -> list[Coincidence]:
    """Return a result for each kind of event that overlaps a dip. The mappings are by trial of the arm."""
    met = [overlapping_events(dip, rates[dip.trial], events[dip.trial]) for dip in dips]
    found = []
    for event in Event:
        k = sum(event in of for of in met)
        if k:
            chances = chances_of_coincidences(event, dips, rates, events)
            expected = float(chances @ np.arange(len(chances)))
            p_value = min(1.0, float(np.sum(chances[k:])))
            found.append(Coincidence(event, k, expected, p_value, is_cause=False))
    levels = holm_confidences([one.p_value for one in found], 1 - alpha)
    return [replace(one, is_cause=one.p_value <= 1 - level) for one, level in zip(found, levels, strict=True)]


def chances_of_coincidences(
    event: Event, dips: Sequence[Dip], rates: Mapping[int, TrialRates], events: Mapping[int, Events]
) -> Floats:
    """Return the probabilities of 0, 1, 2 … coincident dips if the dips of each trial are rotated."""
    chances = np.array([1.0])
    for trial, of in rates.items():
        mine = [dip for dip in dips if dip.trial == trial]
        if not mine or event not in events[trial]:
            continue
        first, met = np.arange(len(of.n)), np.zeros(len(of.n), dtype=int)
        for points in {dip.points for dip in mine}:
            last = np.minimum(first + points - 1, len(of.n) - 1)
            hit = overlapped(events[trial][event], *cause_time_range(of, first, last))
            for dip in mine:
                if dip.points == points:
                    met += np.roll(hit, -dip.first)
        chances = np.convolve(chances, np.bincount(met) / len(met))
    return chances


SDS = 5.0
"""With normal noise, one point in three million is lower (``tests/test_throughput_dips.py``)."""

DEPTH_MIN = 0.10
"""Minimum depth of a dip relative to the baseline, even with little noise."""

DEPTH_ALWAYS = 0.8
"""Depth that is always a dip, even with much noise, so that stalls are found."""

POINTS_MIN = 20
"""Minimum number of points of an arm to estimate their SD."""


@dataclass(frozen=True)
class ArmDips:
    """Dips of all ``trials`` of an arm that count.

    ``peaks`` is the number of excursions above the baseline of the same size, which shows the effect of
    noise.
    """

    dips: Sequence[Dip]
    coincidences: Sequence[Coincidence]
    peaks: Annotated[int, about("Number of excursions above the baseline, for comparison.")]
    points: int
    measured_s: float
    transactions: float
    trials: Sequence[int] = ()

    @in_json
    def time_share(self) -> float:
        """Share of the measured time that is in dips."""
        return self.share_of_time(self.dips)

    @in_json
    def transaction_share(self) -> float:
        """Transactions lost in dips as a share of the executed ones."""
        return self.share_of_transactions(self.dips)

    @property
    def groups(self) -> list[tuple[Event | None, float | None, list[Dip]]]:
        """The dips of each cause, with the number expected at random; then those without a known cause."""
        found: list[tuple[Event | None, float | None, list[Dip]]] = [
            (one.event, one.expected, [dip for dip in self.dips if one.event in dip.causes])
            for one in self.coincidences
            if one.is_cause
        ]
        unexplained = [dip for dip in self.dips if not dip.causes]
        return [*found, (None, None, unexplained)] if unexplained else found

    def share_of_time(self, dips: Iterable[Dip]) -> float:
        """Return the share of the measured time."""
        return sum(dip.to_s - dip.from_s for dip in dips) / self.measured_s

    def share_of_transactions(self, dips: Iterable[Dip]) -> float:
        """Return the lost transactions as a share of the executed ones."""
        return sum(dip.lost for dip in dips) / self.transactions if self.transactions else 0.0


def find_dips(
    trials: Sequence[Trial], rates: Mapping[int, TrialRates], events: Mapping[int, Events], cases: int = 1
) -> dict[int, ArmDips]:
    """Return the dips by arm, over those of all ``trials`` that count. Arms with too few points are omitted.

    All arms of all ``cases`` of the study share ALPHA.
    """
    happened = with_other_arms(trials, events)
    trials = [trial for trial in trials if trial.status is TrialStatus.OK]
    found = {}
    arms = sorted({trial.arm for trial in trials})
    alpha = ALPHA / max(1, cases * len(arms))
    for arm in arms:
        mine = [t.trial for t in trials if t.arm == arm and t.trial in rates and len(rates[t.trial].n)]
        if sum(len(rates[trial].n) for trial in mine) >= POINTS_MIN:
            own = {t: happened.get(t, {}) for t in mine}
            found[arm] = _of_arm({t: rates[t] for t in mine}, own, alpha)
    return found


def _of_arm(rates: Mapping[int, TrialRates], events: Mapping[int, Events], alpha: float) -> ArmDips:
    baselines = {trial: baseline(of.per_s) for trial, of in rates.items()}
    apart = {trial: relative(rates[trial].per_s, baselines[trial]) for trial in rates}
    every = np.concatenate(list(apart.values()))
    sd = float(robust_sd(every))
    limit = min(max(SDS * sd, DEPTH_MIN), DEPTH_ALWAYS)
    dips = [
        dip
        for trial, of in rates.items()
        for dip in dips_in(trial, of, baselines[trial], apart[trial] < -limit)
    ]
    coincidences = coincidences_of(dips, rates, events, alpha)
    causes = {one.event for one in coincidences if one.is_cause}
    return ArmDips(
        dips=[
            replace(
                dip,
                causes=[
                    event
                    for event in overlapping_events(dip, rates[dip.trial], events[dip.trial])
                    if event in causes
                ],
            )
            for dip in dips
        ],
        coincidences=coincidences,
        peaks=sum(len(runs(of > limit, follows(rates[trial]))) for trial, of in apart.items()),
        points=len(every),
        measured_s=sum(float(np.sum(of.to_s - of.from_s)) for of in rates.values()),
        transactions=sum(float(np.sum(of.n)) for of in rates.values()),
        trials=list(rates),
    )


def _find(findings: Findings) -> dict[int, ArmDips]:
    rates = {trial: rates_of(executed) for trial, executed in findings.executed.items()}
    return find_dips(findings.trials, rates, findings.telemetry.of_series[EVENTS.name], findings.cases)


EVENTS = SeriesResult("events", events_of)

RESULT = CaseResult(
    "dips", ByArm[ArmDips], "By the index of the arm; not with too few points.", "steady_states", _find
)


def dips_by_arm(findings: Findings) -> Mapping[int, ArmDips]:
    """Return the dips of a case."""
    found: Mapping[int, ArmDips] = findings.feature_findings[RESULT.name]
    return found
