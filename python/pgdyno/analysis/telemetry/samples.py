"""Samples of a trial: rates, wait shares, events, throughput over time.

- Rates, wait shares, CPU shares and lateness from the one-second series of a trial.
- Events beside the transactions during a trial, with their times, from its one-second series.
- Throughput over time of each trial, from the driver's intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pgdyno.analysis.statistics.intervals import robust_sd
from pgdyno.analysis.telemetry.metrics import OF_SAMPLES, Formula, keyed, newest_name
from pgdyno.results.records import Executed, SampleSeries, Slice, Trial
from pgdyno.study.schedule import Role
from pgdyno.units import PERCENT, parse_size_bytes

# ----------------------------------------------------------------------
# Rates, wait shares, CPU shares and lateness from the one-second series of a trial.
#
# A series has the columns ``at_s`` (time of the sample since the trial's epoch), ``late_s`` (delay of the
# sample) and others. NaN is a missing value. Counters become rates; a counter that decreases was reset and
# becomes NaN.
#
# ``spans`` are intervals (from, to): an arm's own slices, in a series that continues while other arms are
# driven. A slice hardly longer than the sampling interval is not resolved. Then waits, which are of the arm's
# own server, are counted from the first slice to the last. The machine is shared by the arms, so its values
# are omitted. In a duet both arms are driven all the time.
# ----------------------------------------------------------------------

Floats = npt.NDArray[np.float64]
Span = tuple[float, float]

SERVER, WAITS, HOST = "server", "waits", "host"
SAMPLES = "samples"
"""Column of the waits: the number of samples. The other columns are sums of backends over these samples."""

RUNNING = "running"
"""State of a backend that does not wait."""

STEPS_RESOLVED = 3
"""Minimum length of a resolved span, in samples."""

GAUGES = frozenset(
    {
        "active_backends",
        "waiting_backends",
        "autovacuum_workers",
        "oldest_xmin_age",
        "frozen_xid_age",
        "processes_running",
        "processes_blocked",
        "memory_available_bytes",
        "memory_cached_bytes",
        "memory_shared_bytes",
        "memory_dirty_bytes",
        "memory_writeback_bytes",
    }
)
"""Columns that are gauges. All others, except those of the waits, are cumulative."""


@dataclass(frozen=True)
class SampleRates:
    """Values between samples: ``per_s`` of the counters, ``gauges`` at the later sample."""

    from_s: Floats
    to_s: Floats
    per_s: Mapping[str, Floats]
    gauges: Mapping[str, Floats]

    @property
    def at_s(self) -> Floats:
        """The middle of each interval."""
        return (self.from_s + self.to_s) / 2


@dataclass(frozen=True)
class Lateness:
    """Delays of sampling. ``worst_s`` is the largest delay, ``gap_s`` the longest time without a sample.

    ``missed`` is the number of samples that were due and not taken.
    """

    worst_s: float
    gap_s: float
    missed: int
    n: int


@dataclass(frozen=True)
class Waits:
    """Waits of the active backends: ``share`` of their time by wait (``running``: none), the largest first.

    The waits have the names of the newest version of PostgreSQL.

    ``backends`` is the mean number of active backends if the spans are resolved, else None.
    ``samples`` is the number of samples.
    """

    share: Mapping[str, float]
    backends: float | None
    samples: float


@dataclass(frozen=True)
class Cpu:
    """Shares of the machine's CPU time, which add up to 1. A share is None if it is unknown.

    ``rest`` is everything except server and driver, including pgdyno's sampling.
    """

    server: float | None
    driver: float | None
    rest: float
    steal: float
    iowait: float
    idle: float


def own_spans(slices: Iterable[Slice]) -> list[Span]:
    """Return the intervals in which an arm was driven, until its last transaction ended."""
    return [(piece.opened_s, piece.drained_s) for piece in slices]


def rates(series: SampleSeries) -> SampleRates:
    """Return each counter's increase per second from sample to sample; empty with fewer than two samples."""
    at = series.points[:, 0]
    took_s = np.diff(at)
    per_s, gauges = {}, {}
    for name in series.columns[2:]:
        values = series.column(name)
        if name in GAUGES:
            gauges[name] = values[1:]
            continue
        grown = np.diff(values)
        with np.errstate(divide="ignore", invalid="ignore"):
            per_s[name] = np.where((grown >= 0) & (took_s > 0), grown / took_s, np.nan)
    return SampleRates(at[:-1], at[1:], per_s, gauges)


def lateness(series: SampleSeries) -> Lateness | None:
    """Return the delays of a series; None if it is empty."""
    if not len(series.points):
        return None
    at, late = series.points[:, 0], series.points[:, 1]
    due = at - late
    gaps = np.diff(due)
    missed = np.sum(np.rint(gaps / series.step_s) - 1)
    return Lateness(
        worst_s=float(np.max(late)),
        gap_s=float(np.max(np.diff(at), initial=0.0)),
        missed=max(0, int(missed)),
        n=len(at),
    )


def waits(series: SampleSeries, spans: Sequence[Span]) -> Waits | None:
    """Return the waits; None without samples in the spans, or without active backends.

    A sample covers the time since the previous one. If it lies partly in a span, it is weighted by that part.
    """
    if len(series.points) < 2 or not spans:
        return None
    within, resolved = resolvable(series, spans)
    weight = overlap(series.points[:, 0], within)
    samples = float(np.nansum(weight * series.column(SAMPLES)))
    names = [name for name in series.columns[2:] if name != SAMPLES]
    seen: dict[str, float] = {}
    for name in names:
        event = newest_name(name)
        seen[event] = seen.get(event, 0.0) + float(np.nansum(weight * series.column(name)))
    active = sum(seen.values())
    if not samples or not active:
        return None
    share = {name: n / active for name, n in sorted(seen.items(), key=lambda item: -item[1]) if n > 0}
    return Waits(share, active / samples if resolved else None, samples)


def cpu(series: SampleSeries, spans: Sequence[Span]) -> Cpu | None:
    """Return the CPU shares from the host's series; None without CPU times or if the spans are not resolved.

    Otherwise the CPU time of other arms in between would be attributed to this arm.
    """
    if len(series.points) < 2 or not spans or not resolvable(series, spans)[1]:
        return None
    grew = {
        name: growth_per_s(series, f"cpu_{name}_s", spans) for name in ("busy", "idle", "iowait", "steal")
    }
    busy, idle, iowait, steal = (grew[name] for name in ("busy", "idle", "iowait", "steal"))
    if busy is None or idle is None or iowait is None or steal is None or busy + idle + iowait <= 0:
        return None
    every = busy + idle + iowait  # busy includes steal
    server, driver = (growth_per_s(series, f"{name}_cpu_s", spans) for name in ("server", "driver"))
    rest = busy - steal - (server or 0.0) - (driver or 0.0)
    return Cpu(
        server=None if server is None else server / every,
        driver=None if driver is None else driver / every,
        rest=max(0.0, rest) / every,  # clocks of different resolution can exceed the total slightly
        steal=steal / every,
        iowait=iowait / every,
        idle=idle / every,
    )


def growth_per_s(series: SampleSeries, column: str, spans: Sequence[Span]) -> float | None:
    """Return the increase of a counter per second of the spans, interpolated between samples.

    Time before the first sample and after the last one is excluded. None if the counter is missing, or was
    reset between the first span and the last.
    """
    at, values = series.points[:, 0], series.column(column)
    there = np.isfinite(values)
    if not there.all():
        at, values = at[there], values[there]
    if len(at) < 2:
        return None
    begin, end = np.searchsorted(at, spans[0][0]), np.searchsorted(at, spans[-1][1], side="right")
    if np.any(np.diff(values[begin:end]) < 0):
        return None
    edges_s = np.clip(np.array(spans), at[0], at[-1])
    took_s = float(np.sum(edges_s[:, 1] - edges_s[:, 0]))
    edges = np.interp(edges_s, at, values)
    return float(np.sum(edges[:, 1] - edges[:, 0])) / took_s if took_s > 0 else None


def gauge(series: SampleSeries, column: str, spans: Sequence[Span]) -> Floats | None:
    """Return the samples of a gauge; None without samples, or if they do not resolve the spans."""
    if not spans or not resolvable(series, spans)[1]:
        return None
    at, values = series.points[:, 0], series.column(column)
    inside = np.zeros(len(at), dtype=bool)
    for from_s, to_s in spans:
        inside |= (at >= from_s) & (at <= to_s)
    found = values[inside & np.isfinite(values)]
    return found if len(found) else None


def resolvable(series: SampleSeries, spans: Sequence[Span]) -> tuple[list[Span], bool]:
    """Return the spans if the samples resolve them, else one span from the first to the last."""
    if min(to_s - from_s for from_s, to_s in spans) >= STEPS_RESOLVED * series.step_s:
        return list(spans), True
    return [(spans[0][0], spans[-1][1])], len(spans) == 1


def overlap(at: Floats, spans: Sequence[Span]) -> Floats:
    """Return the share of each sample's time, since the previous sample, that lies in the spans."""
    step = float(np.median(np.diff(at)))
    begins = np.concatenate([[at[0] - step], at[:-1]])
    # After a gap, a sample covers at most two steps.
    begins = np.maximum(begins, at - 2 * step)
    inside = np.zeros(len(at))
    for from_s, to_s in spans:
        inside += np.clip(np.minimum(at, to_s) - np.maximum(begins, from_s), 0.0, None)
    return inside / np.where(at > begins, at - begins, 1.0)


OWN_IN_DUET = "host.server_share"


def of_samples(
    trial: Trial, series: Mapping[str, SampleSeries], *, is_duet: bool = False
) -> tuple[dict[str, float], list[str]]:
    """Return values by key over the trial's measured slices, and the names of the waits, the largest first.

    In a duet both arms are driven all the time, so an arm has one span, which is always resolved. Of the
    machine's values, only the CPU time of the server's own processes belongs to this arm.
    """
    spans = own_spans(trial.measured)
    if is_duet and spans:
        spans = [(spans[0][0], spans[-1][1])]
    values = _host(series[HOST], spans) if HOST in series else {}
    if is_duet:
        values = {key: value for key, value in values.items() if key == OWN_IN_DUET}
    seen = waits(series[WAITS], spans) if WAITS in series else None
    if seen is not None:
        values |= {keyed("wait.share", name): PERCENT * share for name, share in seen.share.items()}
        if seen.backends is not None:
            values["waits.backends"] = seen.backends
    if SERVER in series and (waiting := gauge(series[SERVER], "waiting_backends", spans)) is not None:
        values["locks.waiting_backends"] = float(np.mean(waiting))
    late = [found.worst_s for of in series.values() if (found := lateness(of)) is not None]
    if late:
        values["probes.late_s"] = max(late)
    return values, [] if seen is None else list(seen.share)


def _host(series: SampleSeries, spans: Sequence[Span]) -> dict[str, float]:
    shares = cpu(series, spans)
    if shares is None:
        return {}
    parts = {
        "server": shares.server,
        "driver": shares.driver,
        "rest": shares.rest,
        "steal": shares.steal,
        "iowait": shares.iowait,
        "idle": shares.idle,
    }
    values = {f"host.{name}_share": PERCENT * part for name, part in parts.items() if part is not None}
    for metric in OF_SAMPLES:
        if metric.formula is not None and (value := _of_series(metric.formula, series, spans)) is not None:
            values[metric.key] = value * metric.formula.scale
    return values


_GAUGES: Mapping[str, Callable[[Floats], float]] = {
    "sampled_minimum": np.min,
    "sampled_mean": np.mean,
    "sampled_maximum": np.max,
}


def _of_series(formula: Formula, series: SampleSeries, spans: Sequence[Span]) -> float | None:
    """Return a rate or gauge of the whole machine, like its CPU shares only if the spans are resolved."""
    (column,) = formula.columns
    if formula.kind == "sampled_rate":
        return growth_per_s(series, column, spans)
    samples = gauge(series, column, spans)
    return None if samples is None else float(_GAUGES[formula.kind](samples))


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
) -> dict[Event, Spans]:
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
    if not len(known):
        return np.zeros(len(share), dtype=bool)
    middle, sd = float(np.median(known)), float(robust_sd(known))
    with np.errstate(invalid="ignore"):
        return (share >= least) & (share > middle + UNUSUAL_SDS * sd)


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
# Throughput over time of each trial, from the driver's intervals.
# ----------------------------------------------------------------------

POINTS_MAX = 360
"""Maximum number of points of one trial: more than a chart can show, and enough for a slope."""


@dataclass(frozen=True, slots=True)
class ThroughputPoint:
    """Rate of one interval, or of several in long windows, at its middle since the trial's epoch."""

    at_s: float
    per_s: float
    role: Role


def throughput_points(executed: Executed) -> list[ThroughputPoint]:
    """Return the transactions per second that ended as designed (ok or intentional rollback)."""
    lasting = executed.from_s < executed.to_s
    measured = executed.measured[lasting]
    from_s, to_s, n = (column[lasting] for column in executed[1:])
    if not len(n):
        return []
    firsts = _firsts(measured, math.ceil(len(n) / POINTS_MAX))
    lasts = np.append(firsts[1:], len(n)) - 1
    point = np.repeat(np.arange(len(firsts)), lasts - firsts + 1)  # of each interval
    at_s = (from_s[firsts] + to_s[lasts]) / 2
    per_s = np.bincount(point, n) / np.bincount(point, to_s - from_s)
    roles = [Role.MEASURE if one else Role.WARM_UP for one in measured[firsts].tolist()]
    return list(map(ThroughputPoint, at_s.tolist(), per_s.tolist(), roles))


def _firsts(measured: npt.NDArray[np.bool_], together: int) -> npt.NDArray[np.int64]:
    """Return the first interval of each point: at a change of role, and after a fixed number of intervals."""
    edges = [0, *(np.flatnonzero(np.diff(measured)) + 1).tolist(), len(measured)]
    return np.concatenate([np.arange(*ends, together) for ends in pairwise(edges)])
