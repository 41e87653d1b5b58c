"""Formulas of quantities. One call creates text and function together, so reports show what was computed.

Δ in the text is the difference over the measured part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pgdyno.analysis.telemetry.counters import Gauges, Window, total, values
from pgdyno.units import PERCENT, US_PER_MS


class How(StrEnum):
    """Reference of a quantity."""

    PER_TRANSACTION = "per transaction"
    PER_SECOND = "per second"
    ABSOLUTE = "absolute"
    SHARE = "share"


@dataclass(frozen=True)
class Formula:
    """A formula: ``text`` describes ``of``, which returns None if the results file lacks the data."""

    text: str
    how: How
    of: Callable[[Window], float | None]


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


def _ratio(part: float | None, whole: float | None, scale: float = 1.0) -> float | None:
    return scale * part / whole if part is not None and whole else None


def _sum(*values: float | None) -> float | None:
    """Return the sum; None if any value is missing."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _of_columns(columns: Sequence[str]) -> str:
    return " + ".join(f"Δ {column}" for column in columns)


def _grown(end: Gauges, w: Window, probe: str, column: str, scale: float) -> float | None:
    before, after = total(w.first, probe, column), total(end, probe, column)
    return None if before is None or after is None else (after - before) * scale


@dataclass(frozen=True)
class FormulaSource:
    """Source of formulas for one probe; with ``where``, for rows with this value in this column."""

    probe: str
    where: tuple[str, str] | None = None

    def per_tx(self, *columns: str, scale: float = 1.0) -> Formula:
        """Divide differences of counters by the transactions executed in the same time."""
        summed = _of_columns(columns)
        return Formula(
            f"({summed}) / transactions" if len(columns) > 1 else f"{summed} / transactions",
            How.PER_TRANSACTION,
            lambda w: _ratio(_sum(*(self._delta(w, column) for column in columns)), w.transactions, scale),
        )

    def per_s(self, column: str, scale: float = 1.0) -> Formula:
        """Divide a difference by the time for which the driver drove this server."""
        return Formula(
            f"Δ {column} / seconds driven",
            How.PER_SECOND,
            lambda w: _ratio(self._delta(w, column), w.driven_s, scale),
        )

    def counted(self, *columns: str, scale: float = 1.0) -> Formula:
        """Return the differences themselves."""
        return Formula(
            _of_columns(columns),
            How.ABSOLUTE,
            lambda w: _scaled(_sum(*(self._delta(w, column) for column in columns)), scale),
        )

    def share(self, part: str, *rest: str) -> Formula:
        """Return one counter's share of its sum with others, in percent."""
        return Formula(
            f"Δ {part} / ({_of_columns((part, *rest))})",
            How.SHARE,
            lambda w: _ratio(
                self._delta(w, part), _sum(*(self._delta(w, c) for c in (part, *rest))), PERCENT
            ),
        )

    def part_of(self, part: str, whole: str) -> Formula:
        """Divide one counter by another that contains it, in percent."""
        return Formula(
            f"Δ {part} / Δ {whole}",
            How.SHARE,
            lambda w: _ratio(self._delta(w, part), self._delta(w, whole), PERCENT),
        )

    def at_begin(self, column: str, scale: float = 1.0) -> Formula:
        """Return a gauge before the measured part."""
        text = f"{column} at the beginning"
        return Formula(text, How.ABSOLUTE, lambda w: _scaled(total(w.first, self.probe, column), scale))

    def at_end(self, column: str, scale: float = 1.0) -> Formula:
        """Return a gauge after the measured part."""
        text = f"{column} at the end"
        return Formula(text, How.ABSOLUTE, lambda w: _scaled(total(w.last, self.probe, column), scale))

    def finally_(self, column: str, scale: float = 1.0) -> Formula:
        """Return a gauge at the end; after a VACUUM, if the study requests one."""
        text = f"{column} at the end, after VACUUM if requested"
        return Formula(text, How.ABSOLUTE, lambda w: _scaled(total(w.final, self.probe, column), scale))

    def growth(self, column: str, scale: float = 1.0) -> Formula:
        """Return the difference between end and beginning, which may be negative."""
        return Formula(
            f"{column} at the end − at the beginning",
            How.ABSOLUTE,
            lambda w: _grown(w.last, w, self.probe, column, scale),
        )

    def growth_finally(self, column: str, scale: float = 1.0) -> Formula:
        """Return the growth until after the VACUUM, if the study requests one."""
        return Formula(
            f"{column} at the end, after VACUUM if requested, − at the beginning",
            How.ABSOLUTE,
            lambda w: _grown(w.final, w, self.probe, column, scale),
        )

    def growth_per_tx(self, column: str) -> Formula:
        """Divide ``growth_finally`` by transactions."""
        return Formula(
            f"({column} at the end, after VACUUM if requested, − at the beginning) / transactions",
            How.PER_TRANSACTION,
            lambda w: _ratio(_grown(w.final, w, self.probe, column, 1.0), w.transactions),
        )

    def largest(self, column: str, scale: float = 1.0) -> Formula:
        """Return the largest value over all rows, at the end."""
        return Formula(
            f"largest {column} at the end",
            How.ABSOLUTE,
            lambda w: _scaled(max(values(w.last, self.probe, column), default=None), scale),
        )

    def timed(self, time_ms: str, what: str) -> Formula:
        """Return time in µs per transaction.

        If ``what`` happened but its time is 0, the server does not measure it (track_io_timing,
        track_wal_io_timing). Then the value is missing.
        """

        def of(w: Window) -> float | None:
            spent, happened = self._delta(w, time_ms), self._delta(w, what)
            if spent == 0 and happened:
                return None
            return _ratio(spent, w.transactions, US_PER_MS)

        return Formula(f"Δ {time_ms} / transactions, if timing is enabled", How.PER_TRANSACTION, of)

    def if_any(self, column: str, what: str) -> Formula:
        """Return a counter per transaction; missing if ``what`` is 0, when the server does not count it."""

        def of(w: Window) -> float | None:
            return _ratio(self._delta(w, column), w.transactions) if self._delta(w, what) else None

        return Formula(f"Δ {column} / transactions, if {what} are counted", How.PER_TRANSACTION, of)

    def _delta(self, w: Window, column: str) -> float | None:
        return w.delta(self.probe, column, self.where)
