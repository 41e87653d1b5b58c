"""Elapsed time in I/O calls of client backends, from the counters of the server.

The counters are exact, except that each session reports them up to a second late. A time includes that on
CPU and runnable within a call. So does a wait-event sample, and both are scaled by the same factor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pgdyno.analysis.telemetry.counters import Window
from pgdyno.analysis.telemetry.samples import BACKGROUND
from pgdyno.analysis.telemetry.trial_telemetry import Clocked, WaitSamples
from pgdyno.results.records import Trial
from pgdyno.units import US_PER_MS

WAL, IO = "wal", "io"

CLOCKED_EVENTS: Mapping[str, Sequence[tuple[int, Sequence[str]]]] = {
    WAL: [(14, ["io/walwrite", "io/walsync"])],
    IO: [
        (10, ["io/datafileread", "io/datafilewrite"]),
        (16, ["io/datafileextend", "io/datafileflush", "io/datafilesync"]),
        (18, ["io/aioiocompletion", "io/aioiouringexecution", "io/aioiouringsubmit"]),
    ],
}
"""Resource → first version, and the wait events of the calls that the server times from it on."""

SWITCHES = {WAL: "track_wal_io_timing", IO: "track_io_timing"}

OWN_SINCE = {WAL: 18, IO: 16}
"""First version in which pg_stat_io has the times of client backends; before, counters include background
processes."""

TIMES: Mapping[str, Sequence[str]] = {
    WAL: ("write_time", "fsync_time"),
    IO: tuple(f"{of}_time" for of in ("read", "write", "writeback", "extend", "fsync")),
}
SHARED_TIMES: Mapping[str, Sequence[str]] = {
    WAL: ("wal", "wal_write_time", "wal_sync_time"),
    IO: ("database", "blk_read_time", "blk_write_time"),
}
"""Columns in ms: of pg_stat_io, and the probe and columns of earlier versions."""


def clocked_io(trial: Trial, w: Window, samples: WaitSamples) -> dict[str, Clocked]:
    """Return the I/O times of client backends by resource, where the server measured them.

    Before OWN_SINCE, the samples give the share of client backends in the times of all processes.
    """
    major = int(str(trial.settings.get("server_version_num", "0"))) // 10000
    found = {}
    for resource, since in CLOCKED_EVENTS.items():
        events = [event for first, of in since if first <= major for event in of]
        sampled = sum(samples.events.get(event, 0.0) for event in events)
        if not events or trial.settings.get(SWITCHES[resource]) != "on":
            continue
        if major >= OWN_SINCE[resource]:
            ms = _own_ms(w, resource)
        else:
            probe, *columns = SHARED_TIMES[resource]
            background = samples.events.get(BACKGROUND + resource)
            times = [w.delta(probe, column) for column in columns]
            ms = None
            if background is not None and None not in times:
                share = sampled / (sampled + background) if sampled else 0.0
                ms = share * sum(time or 0.0 for time in times)
        if ms is not None and trial.transactions:
            found[resource] = Clocked(US_PER_MS * ms / trial.transactions, sampled)
    return found


def _own_ms(w: Window, resource: str) -> float | None:
    """Return the time of client backends in pg_stat_io; None without this view."""
    if "io" not in w.growths:
        return None
    rows = [
        row.deltas
        for row in w.growths["io"]
        if row.end.get("backend_type") == "client backend"
        and (row.end.get("object") == "wal") == (resource == WAL)
        and row.end.get("context") != "init"  # new WAL segments: sampled as data file I/O
    ]
    return sum(row.get(column, 0.0) for row in rows for column in TIMES[resource])
