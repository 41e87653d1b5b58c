"""Times per transaction of a trial, from its probes: by statement, on CPU, runnable, and in waits.

Unit: µs per transaction, or a mean number of backends. ``causes/time_breakdown.py`` combines them. Sources:

- statements: Δ total_exec_time of pg_stat_statements, for statements that clients send. Statements inside a
  function are included in the calling statement and not added to it (``toplevel``, from PostgreSQL 14 on).
- CPU: the kernel's accounting of the clients' server processes (schedstat: on CPU, or runnable without CPU).
- waits: wait-event samples of the server's backends in the counted parts of slices. If backends were seen
  in a state n times in N samples, their mean number is n / N. By Little's law, this number × time /
  transactions is the time that a transaction spends in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pgdyno.analysis.telemetry.counters import Window
from pgdyno.analysis.telemetry.samples import SAMPLES, STEPS_RESOLVED, overlap
from pgdyno.analysis.telemetry.statements import Statement
from pgdyno.analysis.telemetry.wait_event_resources import resource_of
from pgdyno.results.records import SampleSeries, Slice, Trial
from pgdyno.units import US_PER_MS, US_PER_S

STATEMENTS_KEPT = 40
"""Number of statements of a trial, those with the most time; the others are summed."""

ON_CPU, RUNNABLE = "clients_on_cpu_s", "clients_ready_s"
"""Columns of the readings of ``host``: seconds of all clients' server processes since their start."""


@dataclass(frozen=True)
class WaitSamples:
    """Wait-event samples. ``backends``: mean number by resource and RUNNING; ``n``: number of samples."""

    backends: Mapping[str, float]
    n: float

    @property
    def active(self) -> float:
        """Mean number of backends that were active."""
        return sum(self.backends.values())


@dataclass(frozen=True)
class ClientTime:
    """Times of one trial. None means unknown.

    ``statements`` are those with the most time, by text; ``others_us`` is the sum of the others.
    ``cpu_is_of_all``: the CPU time is that of all processes of the server, including those without a client.
    """

    statements: Mapping[str, float] | None = None
    others_us: float = 0.0
    planning_us: float | None = None
    on_cpu_us: float | None = None
    runnable_us: float | None = None
    cpu_is_of_all: bool = False
    driver_us: float | None = None
    wait_samples: WaitSamples | None = None


def client_time_of_trial(
    trial: Trial, w: Window, found: Sequence[Statement], waits: SampleSeries | None
) -> ClientTime:
    """Return the times of a trial. ``found`` are the statements of this window."""
    n = trial.transactions
    if not n:
        return ClientTime()
    by_text, others_us, planning_us = _statements(w, found, n)
    on_cpu, runnable = (_grown_us(w, column, n) for column in (ON_CPU, RUNNABLE))
    of_all = on_cpu is None and trial.server_cpu_s is not None
    if of_all and trial.server_cpu_s is not None:
        on_cpu = US_PER_S * trial.server_cpu_s / n
    return ClientTime(
        statements=by_text,
        others_us=others_us,
        planning_us=planning_us,
        on_cpu_us=on_cpu,
        runnable_us=runnable,
        cpu_is_of_all=of_all,
        driver_us=US_PER_S * trial.driver_cpu_s / n,
        wait_samples=None if waits is None else wait_samples(waits, trial.measured),
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


def wait_samples(series: SampleSeries, slices: Sequence[Slice]) -> WaitSamples | None:
    """Return the wait-event samples within the counted parts of these slices.

    None without samples, or if a sample sums over more time than a slice.
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
            resource = resource_of(name)
            seen[resource] = seen.get(resource, 0.0) + float(np.nansum(weight * series.column(name))) / n
    return WaitSamples({resource: backends for resource, backends in seen.items() if backends > 0}, n)


def within(at: np.ndarray, spans: Iterable[tuple[float, float]]) -> np.ndarray:
    """Return 1 for times in one of the spans, else 0."""
    inside = np.zeros(len(at))
    for from_s, to_s in spans:
        inside[np.searchsorted(at, from_s) : np.searchsorted(at, to_s)] = 1.0
    return inside
