"""What happened beside the transactions while a trial was measured, and when: from its one-second series.

An event is known no closer than the samples are apart: it lies between the one that shows it and the one
before. What is always so is no event; of shares (pressure, steal, the load of others) only what is far above
the trial's usual counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from pgdyno.analysis.statistics.distributions import robust_sd
from pgdyno.analysis.telemetry.samples import HOST, SAMPLES, SERVER, WAITS
from pgdyno.results.records import Series
from pgdyno.units import parse_size_bytes

SEGMENT_BYTES = 16 << 20
"""Of the WAL, where the settings do not say."""

UNUSUAL_SDS = 5.0
"""So many robust standard deviations above the trial's median a share is an event,"""

STEAL_SHARE_MIN, LOAD_SHARE_MIN, STALL_SHARE_MIN = 0.03, 0.10, 0.10
"""and if it is at least so large: of the machine's CPU time, the same, and of the time."""

LOCKED_SHARE_MIN = 0.5
"""Of the clients: as many wait for locks at a look."""

SERVER_CPU = "server_cpu_s"
"""The CPU time of the trial's own server, in the machine's series."""


class Event(StrEnum):
    """What may be the cause of a dip."""

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
"""Shape (n, 2): from, to, in seconds since the epoch; ascending, apart."""

Events = Mapping[Event, Spans]

BACKGROUND = (Event.CHECKPOINT, Event.AUTOVACUUM)
"""What of one arm's server may disturb another's that is driven at the time."""

NOTHING: Spans = np.empty((0, 2))


def events_of(
    series: Mapping[str, Series],
    settings: Mapping[str, str],
    clients: int,
    beside: Sequence[Series] = (),
) -> dict[Event, Spans]:
    """Of one trial; only kinds that happened. ``beside``: the machine's series of the trials that were
    measured in that time on servers of ours, each of which knows the CPU time of its own server.
    """
    found: dict[Event, Spans] = {}
    if SERVER in series and len(series[SERVER].points) > 1:
        found |= _of_server(series[SERVER], settings)
    if WAITS in series and len(series[WAITS].points) > 1:
        found[Event.LOCKS] = _locked(series[WAITS], clients)
    if HOST in series and len(series[HOST].points) > 1:
        found |= _of_host(series[HOST], beside)
    return {event: spans for event, spans in found.items() if len(spans)}


def _of_server(series: Series, settings: Mapping[str, str]) -> dict[Event, Spans]:
    counted = [np.diff(series.column(name)) > 0 for name in _CHECKPOINTS]
    segments = np.floor(series.column("lsn_bytes") / _segment_bytes(settings))
    return {
        Event.CHECKPOINT: _spans(series, np.logical_or.reduce(counted)),
        Event.AUTOVACUUM: _spans(series, series.column("autovacuum_workers")[1:] > 0),
        Event.WAL_SEGMENT: _spans(series, np.diff(segments) > 0),
    }


_CHECKPOINTS = ("num_timed", "num_requested", "num_done", "buffers_written")
"""It begins, it ends, and all the time it writes."""


def _segment_bytes(settings: Mapping[str, str]) -> int:
    said = settings.get("wal_segment_size")
    return parse_size_bytes(said) if said else SEGMENT_BYTES


def _locked(series: Series, clients: int) -> Spans:
    locks = [series.column(name) for name in series.columns if name.startswith("Lock/")]
    if not locks:
        return NOTHING
    with np.errstate(divide="ignore", invalid="ignore"):
        waiting = np.nansum(locks, axis=0) / series.column(SAMPLES)
    return _spans(series, waiting[1:] >= LOCKED_SHARE_MIN * clients)


def _of_host(series: Series, beside: Sequence[Series]) -> dict[Event, Spans]:
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


def _server_cpu_at(of: Series, at: Spans) -> npt.NDArray[np.float64]:
    """What another trial's server used between these moments; its samples are not at the same."""
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
    """Where it is far above the others and at least so much."""
    known = share[np.isfinite(share)]
    if not len(known):
        return np.zeros(len(share), dtype=bool)
    middle, sd = float(np.median(known)), float(robust_sd(known))
    with np.errstate(invalid="ignore"):
        return (share >= least) & (share > middle + UNUSUAL_SDS * sd)


def _spans(series: Series, happened: npt.NDArray[np.bool_]) -> Spans:
    """``happened``: between one sample and the next. Neighbours become one span."""
    at = series.points[:, 0]
    return joined(np.column_stack([at[:-1][happened], at[1:][happened]]))


def joined(spans: Spans) -> Spans:
    """Those that touch become one. They ascend."""
    if len(spans) < 2:
        return spans
    apart = np.concatenate([[True], spans[1:, 0] > spans[:-1, 1]])
    ends = np.concatenate([spans[:-1, 1][apart[1:]], spans[-1:, 1]])
    return np.column_stack([spans[apart, 0], ends])


def overlapped(spans: Spans, from_s: Spans, to_s: Spans) -> npt.NDArray[np.bool_]:
    """For each piece of time from_s .. to_s, whether one of the spans reaches into it."""
    if not len(spans):
        return np.zeros(len(from_s), dtype=bool)
    after = np.searchsorted(spans[:, 1], from_s, side="right")  # the first that ends later than it begins
    begins = np.append(spans[:, 0], np.inf)
    return begins[after] < to_s
