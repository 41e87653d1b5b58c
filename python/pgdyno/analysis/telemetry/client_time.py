"""Times per transaction of a trial, from its probes: by statement, on CPU, runnable, and in waits.

Unit: µs per transaction, or a mean number of backends. ``causes/time_breakdown.py`` combines them. Sources:

- statements: Δ total_exec_time of pg_stat_statements, of those that clients sent. What runs inside a function
  is in the time of the statement that called it, and is not added to it (``toplevel``, from 14 on).
- CPU: the kernel's account of the clients' server processes (schedstat: on a CPU, ready but without one).
- waits: what the looks at the server's backends found in the parts of slices that count. Of backends seen in
  a state at n of N looks the mean number is n / N; by Little's law this number × time / transactions is what
  a transaction spends in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pgdyno.analysis.telemetry.counters import Window
from pgdyno.analysis.telemetry.samples import RUNNING, SAMPLES, STEPS_RESOLVED, overlap
from pgdyno.analysis.telemetry.statements import Statement
from pgdyno.results.records import Series, Slice, Trial
from pgdyno.units import US_PER_MS, US_PER_S

STATEMENTS_KEPT = 40
"""Of a trial, those with the most time; the others are one sum."""

ON_CPU, READY = "clients_on_cpu_s", "clients_ready_s"
"""Of the readings of ``host``: seconds of the server processes of all clients together, since they began."""

LOCK, WAL, IO, INNER, SLEEP, PROCESSES, CLIENT, OTHER = (
    *("lock", "wal", "io", "lwlock", "sleep", "ipc", "client", "other"),
)
"""Kinds of waiting."""


@dataclass(frozen=True)
class Looks:
    """``backends``: how many in the mean, by kind of waiting and RUNNING; over ``n`` looks."""

    backends: Mapping[str, float]
    n: float

    @property
    def active(self) -> float:
        """All that were doing something for their clients."""
        return sum(self.backends.values())


@dataclass(frozen=True)
class ClientTime:
    """Of one trial; None: not known.

    ``statements`` are those with the most time, by text; ``others_us`` all other ones. ``cpu_is_of_all``: the
    CPU time is that of all processes of the server, those without a client among them.
    """

    statements: Mapping[str, float] | None = None
    others_us: float = 0.0
    planning_us: float | None = None
    on_cpu_us: float | None = None
    ready_us: float | None = None
    cpu_is_of_all: bool = False
    driver_us: float | None = None
    looks: Looks | None = None


def of_trial(trial: Trial, w: Window, found: Sequence[Statement], waits: Series | None) -> ClientTime:
    """``found``: the statements of this window."""
    n = trial.transactions
    if not n:
        return ClientTime()
    by_text, others_us, planning_us = _statements(w, found, n)
    on_cpu, ready = (_grown_us(w, column, n) for column in (ON_CPU, READY))
    of_all = on_cpu is None and trial.server_cpu_s is not None
    if of_all and trial.server_cpu_s is not None:
        on_cpu = US_PER_S * trial.server_cpu_s / n
    return ClientTime(
        statements=by_text,
        others_us=others_us,
        planning_us=planning_us,
        on_cpu_us=on_cpu,
        ready_us=ready,
        cpu_is_of_all=of_all,
        driver_us=US_PER_S * trial.driver_cpu_s / n,
        looks=None if waits is None else looks_at(waits, trial.measured),
    )


def _statements(
    w: Window, found: Sequence[Statement], n: int
) -> tuple[Mapping[str, float] | None, float, float | None]:
    every_ms = w.delta("statements", "total_exec_time")
    if every_ms is None:
        return None, 0.0, None
    own = sorted(((of.top_ms, of.text) for of in found if of.top_ms > 0), reverse=True)
    listed = {text: US_PER_MS * ms / n for ms, text in own[:STATEMENTS_KEPT]}
    others_us = US_PER_MS * every_ms / n - sum(listed.values())
    plans_ms = w.delta("statements", "total_plan_time")
    return listed, max(0.0, others_us), US_PER_MS * plans_ms / n if plans_ms else None


def _grown_us(w: Window, column: str, n: int) -> float | None:
    first, last = (
        next((row[column] for row in of.get("host", ()) if column in row), None) for of in (w.first, w.last)
    )
    if not isinstance(first, int | float) or not isinstance(last, int | float) or last < first:
        return None
    return US_PER_S * (last - first) / n


def looks_at(series: Series, slices: Sequence[Slice]) -> Looks | None:
    """The looks within the counted parts of these slices; None where there are none, or a sample sums looks
    over more time than a slice lasts.
    """
    spans = [(piece.counted_from_s, piece.closed_s) for piece in slices if piece.counted_s > 0]
    if not spans or len(series.points) < 2:
        return None
    samples = series.column(SAMPLES)
    if np.nanmax(samples) <= 1:
        weight = within(series.points[:, 0], spans)
    elif len(spans) == 1 or min(to_s - from_s for from_s, to_s in spans) >= STEPS_RESOLVED * series.step_s:
        weight = overlap(series.points[:, 0], spans)
    else:
        return None
    n = float(np.nansum(weight * samples))
    if not n:
        return None
    seen: dict[str, float] = {}
    for name in series.columns[2:]:
        if name != SAMPLES:
            kind = kind_of(name)
            seen[kind] = seen.get(kind, 0.0) + float(np.nansum(weight * series.column(name))) / n
    return Looks({kind: backends for kind, backends in seen.items() if backends > 0}, n)


def within(at: np.ndarray, spans: Iterable[tuple[float, float]]) -> np.ndarray:
    """1 where a moment lies in one of the spans, else 0."""
    inside = np.zeros(len(at))
    for from_s, to_s in spans:
        inside[np.searchsorted(at, from_s) : np.searchsorted(at, to_s)] = 1.0
    return inside


_BY_TYPE = {
    "Lock": LOCK,
    "LWLock": INNER,
    "LWLockTranche": INNER,
    "LWLockNamed": INNER,
    "BufferPin": INNER,
    "IO": IO,
    "Timeout": SLEEP,
    "IPC": PROCESSES,
    "Client": CLIENT,
}
_TO_DISK = ("walwrite", "walsync", "walwritelock", "wal_write")
_OF_BLOCKS = {"LWLock/buffer_io", "IPC/BufferIO", "IPC/BufferIo", "LWLock/BufferIO"}


def kind_of(event: str) -> str:
    """The kind of a wait event ``TYPE/NAME``; versions spell some names differently."""
    if event == RUNNING:
        return RUNNING
    if event in _OF_BLOCKS:
        return IO
    of, _, name = event.partition("/")
    if of in {"IO", "LWLock"} and name.lower().startswith(_TO_DISK):
        return WAL
    if event == "Timeout/SpinDelay":
        return INNER
    return _BY_TYPE.get(of, OTHER)
