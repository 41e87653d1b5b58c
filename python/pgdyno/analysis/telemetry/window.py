"""The measured part of a trial as its probes saw it: differences of counters, and gauges at its two ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pgdyno.analysis.telemetry.counters import Growth, Row, StatisticsReset, grown, is_nested, number
from pgdyno.evidence.records import Moment, Reading

Gauges = Mapping[str, Sequence[Row]]
"""probe → what it read at one moment."""

RESET = "its statistics were reset while they were measured"
"""The reason of a probe that has no numbers although it was read."""


@dataclass(frozen=True)
class Window:
    """``transactions`` and ``driven_s`` are those between the readings; None or 0 where they are not known.

    In the slices schedule the server is driven for a part of the time only, ``driven_s``; ``elapsed_s`` is
    all of it. ``growths`` has the rows of the probes whose two readings go together, ``first`` and ``last``
    these readings, ``final`` the one after a VACUUM where the study asks for one, else the last; ``missing``
    says why the others are not there.
    """

    transactions: float | None
    driven_s: float
    elapsed_s: float | None
    growths: Mapping[str, Sequence[Growth]] = field(default_factory=dict)
    first: Gauges = field(default_factory=dict)
    last: Gauges = field(default_factory=dict)
    final: Gauges = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    def delta(self, probe: str, column: str, where: tuple[str, str] | None = None) -> float | None:
        """What a counter grew by, over all rows or those that have this value in this column; None where the
        server does not have it. A statement inside of another one is in that one's counters.
        """
        rows = [
            row
            for row in self.growths.get(probe, ())
            if (where is None or row.end.get(where[0]) == where[1]) and not is_nested(row)
        ]
        found = [delta for row in rows if (delta := row.delta(column)) is not None]
        return sum(found) if found else None


def values(gauges: Gauges, probe: str, column: str) -> list[float]:
    """Of all rows that have it."""
    return [value for row in gauges.get(probe, ()) if (value := number(row, column)) is not None]


def total(gauges: Gauges, probe: str, column: str) -> float | None:
    """The sum over all rows that have it; None where none has."""
    found = values(gauges, probe, column)
    return sum(found) if found else None


def window(readings: Sequence[Reading], transactions: float | None, driven_s: float) -> Window:
    """Puts the readings of one trial together."""
    by_probe: dict[str, dict[Moment, Reading]] = {}
    for reading in readings:
        by_probe.setdefault(reading.probe, {})[Moment(reading.moment)] = reading
    gauges: dict[Moment, dict[str, Sequence[Row]]] = {moment: {} for moment in Moment}
    growths: dict[str, Sequence[Growth]] = {}
    missing: dict[str, str] = {}
    for probe, moments in by_probe.items():
        read = {moment: reading.rows for moment, reading in moments.items() if reading.rows is not None}
        if Moment.BEGIN not in read or Moment.END not in read:
            missing[probe] = _reason(moments)
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


def _reason(moments: Mapping[Moment, Reading]) -> str:
    """Why a reading is missing: the first that says so, or that it was not taken."""
    said = [reading.reason for reading in moments.values() if reading.rows is None and reading.reason]
    return said[0] if said else "it was not read at both ends of the measured part"


def _elapsed_s(readings: Sequence[Reading]) -> float | None:
    ends = {
        moment: [reading.at_s for reading in readings if reading.moment == moment]
        for moment in (Moment.BEGIN, Moment.END)
    }
    if not all(ends.values()):
        return None
    elapsed_s = max(ends[Moment.END]) - min(ends[Moment.BEGIN])
    return elapsed_s if elapsed_s > 0 else None
