"""Events beside the transactions during a trial, with their times, from its one-second series.

The time of an event is known only to within a sampling interval: between the sample that shows it and the
previous one. Permanent conditions are not events. For shares (pressure, steal, other load), only values far
above the trial's median are events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from pgdyno.analysis.statistics.distributions import robust_sd
from pgdyno.analysis.telemetry.samples import HOST, SAMPLES, SERVER, WAITS
from pgdyno.results.records import SampleSeries
from pgdyno.units import parse_size_bytes

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
