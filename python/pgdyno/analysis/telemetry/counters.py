"""Differences of raw counters between two readings of a probe, and gauges at both ends of the window.

Columns have their names of PostgreSQL 18 for all servers. A difference below zero, or another time of the
last reset, means that the counters were reset. Then the whole probe of that trial is discarded, because a
number for a part of the window would be misleading.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pgdyno.results.records import Moment, StoredReading
from pgdyno.study.defaults import Absence

Row = Mapping[str, float | int | str | None]

OTHERS = "others"
"""Kind of the row that sums all rows beyond the limit."""

IDENTITY: Mapping[str, tuple[str, ...]] = {
    "statements": ("kind", "queryid", "username", "toplevel"),
    "relations": ("kind", "schema", "name"),
    "pgstattuple": ("kind", "schema", "name"),
    "io": ("backend_type", "object", "context"),
    "blocks": ("kind",),
}
"""Columns that identify the rows of a probe. A probe of COUNTERS without an entry has one row."""

SPLIT_OTHERS = "toplevel"
"""Column by which a reading has several rows of others."""

RESETS = ("stats_reset", "bgwriter_stats_reset", "stats_since")
"""Columns with the time of the last reset."""


ENABLED, RUNNING = "_enabled_ns", "_running_ns"
"""Ends of the columns with the time for which an event was enabled, and for which a counter counted it."""

_TABLE = tomllib.loads(Path(__file__).with_name("counters.toml").read_text("utf-8"))

COUNTERS: Mapping[str, frozenset[str]] = {
    **{probe: frozenset(columns.split()) for probe, columns in _TABLE.items()},
    "hardware": frozenset(
        f"{event}_{mode}{part}"
        for event in ("instructions", "cycles")
        for mode in ("user", "kernel")
        for part in ("", ENABLED, RUNNING)
    ),
}
"""Cumulative counters. All other columns are gauges, which may fall or disappear."""

SCAN = "pgstattuple"
"""Probe that reads whole tables, before the first and after the last reading of the others."""

MAY_VANISH = frozenset({"relations"})
"""Probes whose rows may disappear: a table was dropped."""


WHERE: Mapping[str, tuple[str, str]] = {"io": ("object", "relation")}
"""Probe → column and value of the rows that count: from PostgreSQL 18 on, pg_stat_io includes WAL."""


class StatisticsReset(Exception):
    """The counters of a probe were reset between its two readings."""


@dataclass(frozen=True)
class Growth:
    """One row at both readings; ``begin`` is empty for a new row, whose counters started at zero."""

    begin: Row
    end: Row

    @cached_property
    def deltas(self) -> Mapping[str, float]:
        """Differences of the numeric columns that the server has."""
        return {
            column: float(end) - (numeric(self.begin, column) or 0.0)
            for column, end in self.end.items()
            if isinstance(end, (int, float))
        }


def numeric(row: Row, column: str) -> float | None:
    """Return a numeric column; None if it is missing."""
    value = row.get(column)
    return float(value) if isinstance(value, (int, float)) else None


def is_nested(row: Growth) -> bool:
    """Return whether a statement ran inside another one, whose time and blocks include it.

    Known from PostgreSQL 14 on. Otherwise all statements count as sent by clients.
    """
    return row.end.get("toplevel") == 0


def identity(probe: str, row: Row) -> tuple[object, ...]:
    """Return the values that identify a row of this probe."""
    return tuple(map(row.get, IDENTITY.get(probe, ())))


def grown(probe: str, begin: Sequence[Row], end: Sequence[Row]) -> list[Growth]:
    """Return each row of the second reading with the matching row of the first.

    A row that one reading lists, and the other may have among its others, is counted with the others of both:
    their sums could decrease otherwise. A probe without counters has no growth, and its rows may change.
    Raises StatisticsReset.
    """
    if probe not in COUNTERS:
        return []
    may_be_others = _sums(begin)
    if _sums(end):
        listed = {identity(probe, row) for row in begin}
        begin = _with_others(probe, begin, {identity(probe, row) for row in end})
        if may_be_others:
            end = _with_others(probe, end, listed)
    before = {identity(probe, row): row for row in begin}
    after = {identity(probe, row) for row in end}
    if probe not in MAY_VANISH and not _sums(end) and before.keys() - after:
        raise StatisticsReset
    found = []
    for row in end:
        first = before.get(identity(probe, row))
        if first is None and may_be_others and row.get("kind") != OTHERS:
            continue
        growth = Growth(first or {}, row)
        if first is not None and _was_reset(probe, growth):
            if row.get("kind") == OTHERS and probe in MAY_VANISH:
                continue
            raise StatisticsReset
        found.append(growth)
    return found


def _sums(rows: Sequence[Row]) -> bool:
    return any(row.get("kind") == OTHERS for row in rows)


def _with_others(probe: str, rows: Sequence[Row], listed: Collection[tuple[object, ...]]) -> list[Row]:
    """Return the listed rows, and those of the others, with all remaining rows added."""
    found: list[Row] = []
    others: dict[object, dict[str, float | int | str | None]] = {}
    for row in sorted(rows, key=lambda row: row.get("kind") != OTHERS):
        if row.get("kind") != OTHERS and identity(probe, row) in listed:
            found.append(row)
        elif (of := others.get(row.get(SPLIT_OTHERS))) is None:
            own = {column: row.get(column) for column in (SPLIT_OTHERS, *COUNTERS[probe]) if column in row}
            others[row.get(SPLIT_OTHERS)] = {**own, "kind": OTHERS}
        else:
            of.update(
                {c: (numeric(of, c) or 0.0) + (numeric(row, c) or 0.0) for c in COUNTERS[probe] & row.keys()}
            )
    return [*found, *others.values()]


def _was_reset(probe: str, growth: Growth) -> bool:
    own = () if growth.end.get("kind") == OTHERS else RESETS  # the others differ at each end
    return any(growth.begin.get(column) != growth.end.get(column) for column in own) or any(
        delta < 0 and column in COUNTERS[probe] and numeric(growth.begin, column) is not None
        for column, delta in growth.deltas.items()
    )


Gauges = Mapping[str, Sequence[Row]]
"""probe → rows of one reading."""


@dataclass(frozen=True)
class Missing:
    """Why a probe has no values."""

    absence: Absence
    reason: str


RESET = Missing(Absence.RESET, "its statistics were reset during the measurement")
EVICTED = Missing(Absence.OTHER, "pg_stat_statements evicted statements: increase pg_stat_statements.max")


@dataclass(frozen=True)
class Window:
    """Readings of one trial. ``transactions`` and ``driven_s`` (None or 0 if unknown) are in between.

    In the slices schedule the server is driven only for a part of the time, ``driven_s``; ``elapsed_s`` is
    all of it. ``growths`` has the rows of probes with two matching readings. ``first`` and ``last`` are the
    readings. ``final`` is the reading after a VACUUM if the study requests one, else the last. ``missing``
    has the reasons for the other probes.
    """

    transactions: float | None
    driven_s: float
    elapsed_s: float | None
    growths: Mapping[str, Sequence[Growth]] = field(default_factory=dict)
    first: Gauges = field(default_factory=dict)
    last: Gauges = field(default_factory=dict)
    final: Gauges = field(default_factory=dict)
    missing: Mapping[str, Missing] = field(default_factory=dict)

    def delta(self, probe: str, column: str) -> float | None:
        """Return the increase of a counter, over all rows that count; None if the server does not have it.

        Nested statements do not count, because the calling statement includes them.
        """
        return self._deltas.get(probe, {}).get(column)

    @cached_property
    def _deltas(self) -> Mapping[str, Mapping[str, float]]:
        found: dict[str, dict[str, float]] = {probe: {} for probe in self.growths}
        for probe, sums in found.items():
            where = WHERE.get(probe)
            for row in self.growths[probe]:
                if (where is None or row.end.get(where[0]) == where[1]) and not is_nested(row):
                    for column, delta in row.deltas.items():
                        sums[column] = sums.get(column, 0.0) + delta
        return found


def values(gauges: Gauges, probe: str, column: str) -> list[float]:
    """Return the values of all rows that have this column."""
    return [value for row in gauges.get(probe, ()) if (value := numeric(row, column)) is not None]


def total(gauges: Gauges, probe: str, column: str) -> float | None:
    """Return the sum over all rows that have this column; None if no row has it."""
    found = values(gauges, probe, column)
    return sum(found) if found else None


def window(readings: Sequence[StoredReading], transactions: float | None, driven_s: float) -> Window:
    """Combine the readings of one trial."""
    by_probe: dict[str, dict[Moment, StoredReading]] = {}
    for reading in readings:
        by_probe.setdefault(reading.probe, {})[Moment(reading.moment)] = reading
    gauges: dict[Moment, dict[str, Sequence[Row]]] = {moment: {} for moment in Moment}
    growths: dict[str, Sequence[Growth]] = {}
    missing: dict[str, Missing] = {}
    for probe, moments in by_probe.items():
        read = {moment: reading.rows for moment, reading in moments.items() if reading.rows is not None}
        if _evicted(read):
            missing[probe] = EVICTED
            continue
        if Moment.BEGIN not in read or Moment.END not in read:
            missing[probe] = _missing(moments)
        else:
            try:
                growths[probe] = grown(probe, read[Moment.BEGIN], read[Moment.END])
            except StatisticsReset:
                missing[probe] = RESET
                continue
        for moment, rows in read.items():
            gauges[moment][probe] = rows
    first, last, after = (gauges[moment] for moment in (Moment.BEGIN, Moment.END, Moment.AFTER))
    final = {**last, **after}
    return Window(transactions, driven_s, _elapsed_s(readings), growths, first, last, final, missing)


def _evicted(read: Mapping[Moment, Sequence[Row]]) -> bool:
    """Return whether the server evicted statements of any database between the readings: known from 14 on.

    The differences lack their calls.
    """
    ends = (read.get(moment, ())[:1] for moment in (Moment.BEGIN, Moment.END))
    counts = [numeric(row, "dealloc") or 0.0 for end in ends for row in end]
    return len(counts) == 2 and counts[0] < counts[1]


def _missing(moments: Mapping[Moment, StoredReading]) -> Missing:
    """Return the first reason of the readings; without one, the probe was not read."""
    for reading in moments.values():
        if reading.rows is None and reading.reason:
            return Missing(reading.absence or Absence.OTHER, reading.reason)
    return Missing(Absence.OTHER, "it was not read at both ends of the measured part")


def _elapsed_s(readings: Sequence[StoredReading]) -> float | None:
    ends = {
        moment: [reading.at_s for reading in readings if reading.moment == moment and reading.probe != SCAN]
        for moment in (Moment.BEGIN, Moment.END)
    }
    if not all(ends.values()):
        return None
    elapsed_s = max(ends[Moment.END]) - min(ends[Moment.BEGIN])
    return elapsed_s if elapsed_s > 0 else None
