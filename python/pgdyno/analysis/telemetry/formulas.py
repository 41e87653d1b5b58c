"""How a number is made of what probes read. A formula is text and function made by one call, so that what a
report says of a number is what was computed.

In the text Δ is the difference over the measured part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pgdyno.analysis.telemetry.counters import Gauges, Window, total, values
from pgdyno.units import PERCENT, US_PER_MS


class How(StrEnum):
    """What a quantity is relative to."""

    PER_TRANSACTION = "per transaction"
    PER_SECOND = "per second"
    ABSOLUTE = "absolute"
    SHARE = "share"


@dataclass(frozen=True)
class Formula:
    """``text`` says what ``of`` computes; None where the evidence does not have it."""

    text: str
    how: How
    of: Callable[[Window], float | None]


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


def _ratio(part: float | None, whole: float | None, scale: float = 1.0) -> float | None:
    return scale * part / whole if part is not None and whole else None


def _sum(*values: float | None) -> float | None:
    """None where one of them is not there."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _of_columns(columns: Sequence[str]) -> str:
    return " + ".join(f"Δ {column}" for column in columns)


def _grown(end: Gauges, w: Window, probe: str, column: str, scale: float) -> float | None:
    before, after = total(w.first, probe, column), total(end, probe, column)
    return None if before is None or after is None else (after - before) * scale


@dataclass(frozen=True)
class Source:
    """Makes formulas of what one probe reads; with ``where``, of the rows with this value in this column."""

    probe: str
    where: tuple[str, str] | None = None

    def per_tx(self, *columns: str, scale: float = 1.0) -> Formula:
        """Differences of counters, by the transactions that the driver had executed meanwhile."""
        summed = _of_columns(columns)
        return Formula(
            f"({summed}) / transactions" if len(columns) > 1 else f"{summed} / transactions",
            How.PER_TRANSACTION,
            lambda w: _ratio(_sum(*(self._delta(w, column) for column in columns)), w.transactions, scale),
        )

    def per_s(self, column: str, scale: float = 1.0) -> Formula:
        """By the time for which the driver drove this server."""
        return Formula(
            f"Δ {column} / seconds driven",
            How.PER_SECOND,
            lambda w: _ratio(self._delta(w, column), w.driven_s, scale),
        )

    def counted(self, *columns: str, scale: float = 1.0) -> Formula:
        """The differences themselves."""
        return Formula(
            _of_columns(columns),
            How.ABSOLUTE,
            lambda w: _scaled(_sum(*(self._delta(w, column) for column in columns)), scale),
        )

    def share(self, part: str, *rest: str) -> Formula:
        """One counter's part of it and others together, in percent."""
        return Formula(
            f"Δ {part} / ({_of_columns((part, *rest))})",
            How.SHARE,
            lambda w: _ratio(
                self._delta(w, part), _sum(*(self._delta(w, c) for c in (part, *rest))), PERCENT
            ),
        )

    def part_of(self, part: str, whole: str) -> Formula:
        """One counter by another that contains it, in percent."""
        return Formula(
            f"Δ {part} / Δ {whole}",
            How.SHARE,
            lambda w: _ratio(self._delta(w, part), self._delta(w, whole), PERCENT),
        )

    def at_begin(self, column: str, scale: float = 1.0) -> Formula:
        """A gauge before anything was measured."""
        text = f"{column} at the beginning"
        return Formula(text, How.ABSOLUTE, lambda w: _scaled(total(w.first, self.probe, column), scale))

    def at_end(self, column: str, scale: float = 1.0) -> Formula:
        """A gauge when the measured part was over."""
        text = f"{column} at the end"
        return Formula(text, How.ABSOLUTE, lambda w: _scaled(total(w.last, self.probe, column), scale))

    def finally_(self, column: str, scale: float = 1.0) -> Formula:
        """A gauge at the end; after a VACUUM, where the study asks for one."""
        text = f"{column} at the end, after the VACUUM where there is one"
        return Formula(text, How.ABSOLUTE, lambda w: _scaled(total(w.final, self.probe, column), scale))

    def growth(self, column: str, scale: float = 1.0) -> Formula:
        """From the beginning to the end: it can be negative."""
        return Formula(
            f"{column} at the end − at the beginning",
            How.ABSOLUTE,
            lambda w: _grown(w.last, w, self.probe, column, scale),
        )

    def growth_finally(self, column: str, scale: float = 1.0) -> Formula:
        """As ``growth``; to after the VACUUM, where the study asks for one."""
        return Formula(
            f"{column} at the end, after the VACUUM where there is one, − at the beginning",
            How.ABSOLUTE,
            lambda w: _grown(w.final, w, self.probe, column, scale),
        )

    def growth_per_tx(self, column: str) -> Formula:
        """As ``growth_finally``, by transactions."""
        return Formula(
            f"({column} at the end, after the VACUUM where there is one, − at the beginning) / transactions",
            How.PER_TRANSACTION,
            lambda w: _ratio(_grown(w.final, w, self.probe, column, 1.0), w.transactions),
        )

    def largest(self, column: str, scale: float = 1.0) -> Formula:
        """The largest over all rows, at the end."""
        return Formula(
            f"largest {column} at the end",
            How.ABSOLUTE,
            lambda w: _scaled(max(values(w.last, self.probe, column), default=None), scale),
        )

    def timed(self, time_ms: str, what: str) -> Formula:
        """Time in µs per transaction.

        Where ``what`` it is of happened and took no time at all, the server was not asked to take the time
        (track_io_timing, track_wal_io_timing): then there is no number.
        """

        def of(w: Window) -> float | None:
            spent, happened = self._delta(w, time_ms), self._delta(w, what)
            if spent == 0 and happened:
                return None
            return _ratio(spent, w.transactions, US_PER_MS)

        return Formula(f"Δ {time_ms} / transactions, where it is timed", How.PER_TRANSACTION, of)

    def if_any(self, column: str, what: str) -> Formula:
        """Per transaction; no number where there was none of ``what``: the server does not count it then."""

        def of(w: Window) -> float | None:
            return _ratio(self._delta(w, column), w.transactions) if self._delta(w, what) else None

        return Formula(f"Δ {column} / transactions, where {what} are counted", How.PER_TRANSACTION, of)

    def _delta(self, w: Window, column: str) -> float | None:
        return w.delta(self.probe, column, self.where)
