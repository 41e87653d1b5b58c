"""Kinds of formulas of ``metrics.toml``: each has its text and its function, for documents and values.

Δ in the text is the difference over the measured part. ``samples.py`` and ``statements.py`` compute the kinds
SAMPLE_KINDS and CALL_KINDS, from other data than the readings of a probe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pgdyno.analysis.telemetry.counters import ENABLED, RUNNING, Gauges, Window, total, values
from pgdyno.units import PER_MIB, PERCENT, S_PER_MS, US_PER_MS

SCALES: Mapping[tuple[str, str], float] = {
    ("B", "MiB"): PER_MIB,
    ("B", "MiB/s"): PER_MIB,
    ("ms", "s"): S_PER_MS,
    ("s", "%"): PERCENT,  # seconds per second
}
"""(unit in which a column counts, unit of the metric) → factor."""

WHERE: Mapping[str, tuple[str, str]] = {"io": ("object", "relation")}
"""Probe → column and value of the rows that count: from PostgreSQL 18 on, pg_stat_io includes WAL."""


@dataclass(frozen=True)
class Readings:
    """Readings of one probe at both ends of the measured part, by column."""

    window: Window
    probe: str

    def delta(self, column: str) -> float | None:
        """Return the difference of a counter."""
        return self.window.delta(self.probe, column, WHERE.get(self.probe))

    def sum(self, columns: Sequence[str]) -> float | None:
        """Return the sum of differences; None if any is missing."""
        known = [delta for column in columns if (delta := self.delta(column)) is not None]
        return sum(known) if len(known) == len(columns) else None

    def at(self, gauges: Gauges, column: str) -> float | None:
        """Return the sum of a gauge over all rows."""
        return total(gauges, self.probe, column)

    def growth(self, end: Gauges, column: str) -> float | None:
        """Return the difference of a gauge, which may be negative."""
        before, after = self.at(self.window.first, column), self.at(end, column)
        return None if before is None or after is None else after - before

    def per_transaction(self, value: float | None, scale: float = 1.0) -> float | None:
        """Divide by the transactions executed in the same time."""
        return _ratio(value, self.window.transactions, scale)


HOUR_S, MINUTE_S = 3600.0, 60.0


def _ratio(part: float | None, whole: float | None, scale: float = 1.0) -> float | None:
    return scale * part / whole if part is not None and whole else None


def _timed(of: Readings, columns: Sequence[str]) -> float | None:
    """Return a time in ms as µs per transaction.

    If the second column counts something but its time is 0, the server does not measure it (track_io_timing,
    track_wal_io_timing). Then the value is missing.
    """
    spent, happened = (of.delta(column) for column in columns)
    return None if spent == 0 and happened else of.per_transaction(spent, US_PER_MS)


def _counted(of: Readings, columns: Sequence[str]) -> float | None:
    """Return the sum of events per transaction; None if one has no counter.

    If the CPU has too few counters, an event is counted for a part of the time only, and its count is scaled.
    """
    scaled = [
        _ratio(of.delta(column), of.delta(f"{column}{RUNNING}"), of.delta(f"{column}{ENABLED}") or 0.0)
        for column in columns
    ]
    known = [count for count in scaled if count is not None]
    return of.per_transaction(sum(known)) if len(known) == len(columns) else None


@dataclass(frozen=True)
class _Kind:
    """``text`` has the columns as ``{0}`` and ``{1}``, and the sum of all differences as ``{sum}``."""

    text: str
    value: Callable[[Readings, Sequence[str]], float | None]


_KINDS: Mapping[str, _Kind] = {
    "difference": _Kind("{sum}", lambda of, c: of.sum(c)),
    "per_transaction": _Kind("{sum}", lambda of, c: of.per_transaction(of.sum(c))),
    # missing if the second column is 0, because then the server does not count the first one
    "per_transaction_if": _Kind(
        "Δ{0}, if {1} are counted",
        lambda of, c: of.per_transaction(of.delta(c[0])) if of.delta(c[1]) else None,
    ),
    "time_per_transaction": _Kind("Δ{0}", _timed),
    "events_per_transaction": _Kind("{sum}", _counted),
    # the time for which the driver drove this server
    "per_second": _Kind("{sum}", lambda of, c: _ratio(of.sum(c), of.window.driven_s)),
    "per_minute": _Kind("{sum}", lambda of, c: _ratio(of.sum(c), of.window.driven_s, MINUTE_S)),
    "per_hour": _Kind("{sum}", lambda of, c: _ratio(of.sum(c), of.window.driven_s, HOUR_S)),
    "share": _Kind("Δ{0} / Δ{1}", lambda of, c: _ratio(of.delta(c[0]), of.delta(c[1]), PERCENT)),
    "share_of_sum": _Kind("Δ{0} / {sum}", lambda of, c: _ratio(of.delta(c[0]), of.sum(c), PERCENT)),
    "at_begin": _Kind("first {0}", lambda of, c: of.at(of.window.first, c[0])),
    "at_end": _Kind("last {0}", lambda of, c: of.at(of.window.last, c[0])),
    "at_end_vacuumed": _Kind("final {0}", lambda of, c: of.at(of.window.final, c[0])),
    "growth": _Kind("last − first {0}", lambda of, c: of.growth(of.window.last, c[0])),
    "growth_vacuumed": _Kind("final − first {0}", lambda of, c: of.growth(of.window.final, c[0])),
    "growth_per_transaction": _Kind(
        "final − first {0}",
        lambda of, c: of.per_transaction(of.growth(of.window.final, c[0])),
    ),
    "largest": _Kind(
        "last {0}, largest", lambda of, c: max(values(of.window.last, of.probe, c[0]), default=None)
    ),
}

PAIRS = ("per_transaction_if", "time_per_transaction", "share")
"""Kinds that need two columns. Kinds with a sum need at least one, and all others one."""

SAMPLE_KINDS: Mapping[str, str] = {
    "sampled_rate": "Δ{0} / s",
    "sampled_minimum": "smallest sample",
    "sampled_mean": "mean of the samples",
    "sampled_maximum": "largest sample",
}
"""Text of the kinds over the samples of this machine."""

CALL_KINDS: Mapping[str, str] = {"per_call": "Δ{0} / Δcalls", "time_per_call": "Δ{0} / Δcalls"}
"""Text of the kinds over the calls of a statement. ``time_per_call`` is missing if the time is 0."""

TEXTS: Mapping[str, str] = {**{kind: of.text for kind, of in _KINDS.items()}, **SAMPLE_KINDS, **CALL_KINDS}
"""Kind → text."""


@dataclass(frozen=True)
class Formula:
    """A formula over columns of a probe. ``scale`` converts their unit to that of the metric."""

    kind: str
    columns: Sequence[str]
    probe: str
    scale: float = 1.0

    def __post_init__(self) -> None:
        """Raise ValueError for a wrong number of columns."""
        needed = 2 if self.kind in PAIRS else 1
        if len(self.columns) != needed and "{sum}" not in TEXTS[self.kind]:
            raise ValueError(f"{self.kind} needs {needed} columns (got {len(self.columns)})")

    @property
    def text(self) -> str:
        """The formula for people."""
        deltas = " + ".join(f"Δ{column}" for column in self.columns)
        return TEXTS[self.kind].format(*self.columns, sum=f"({deltas})" if len(self.columns) > 1 else deltas)

    def of_window(self, window: Window) -> float | None:
        """Return the value over the readings of a probe; None if the results file lacks the data."""
        value = _KINDS[self.kind].value(Readings(window, self.probe), self.columns)
        return None if value is None else value * self.scale
