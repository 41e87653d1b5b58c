"""Values of each statement over the measured part: calls, mean and SD of its time, rows, blocks, WAL.

Statements are identified by their text, because their IDs differ between versions. Times are execution times
in ms, as in pg_stat_statements. Its standard deviation is that of all calls (divided by n, not n − 1).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pgdyno.analysis.telemetry.counters import COUNTERS, Growth, is_nested, numeric
from pgdyno.analysis.telemetry.metrics import MEAN_TIME, OF_STATEMENTS


@dataclass(frozen=True)
class Moments:
    """Mean of n values, and the sum of the squared deviations from it."""

    n: float
    mean: float
    squares: float

    @classmethod
    def of(cls, n: float, mean: float, stddev: float) -> Moments:
        """Return the moments for the standard deviation of all n values."""
        return cls(n, mean, stddev**2 * n)

    @property
    def stddev(self) -> float:
        """Standard deviation of all n values, at least 0 in spite of rounding."""
        return math.sqrt(max(0.0, self.squares) / self.n) if self.n else 0.0

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of both sets together.

        Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances",
        1979.
        """
        n = self.n + other.n
        if not n:
            return self
        apart = other.mean - self.mean
        mean = self.mean + apart * other.n / n
        return Moments(n, mean, self.squares + other.squares + apart**2 * self.n * other.n / n)

    def __sub__(self, first: Moments) -> Moments:
        """Return the moments of the values after the first ones: the inverse of the same formula."""
        n = self.n - first.n
        if n <= 0:
            return Moments(0, 0.0, 0.0)
        mean = (self.n * self.mean - first.n * first.mean) / n
        between = (mean - first.mean) ** 2 * first.n * n / self.n
        return Moments(n, mean, max(0.0, self.squares - first.squares - between))


@dataclass(frozen=True)
class Statement:
    """One text, over all its users and IDs. ``sums`` are the counters' differences by column.

    ``top_ms`` is the time of the calls that clients sent. Nested calls, which ``pg_stat_statements.track =
    all`` counts, are included in the times of the calling statements.
    """

    text: str
    time_ms: Moments
    sums: Mapping[str, float]
    top_ms: float

    @property
    def calls(self) -> float:
        """The number of calls."""
        return self.time_ms.n

    @property
    def total_ms(self) -> float:
        """Total time of all calls."""
        return self.calls * self.time_ms.mean

    def values(self, of_all_ms: float) -> dict[str, float]:
        """Return values by key. ``of_all_ms``: time of all client statements."""
        found = {
            "statement.calls": self.calls,
            MEAN_TIME: self.time_ms.mean,
            "statement.stddev_ms": self.time_ms.stddev,
            "statement.total_ms": self.total_ms,
            "statement.rows_per_call": self.sums.get("rows", 0.0) / self.calls,
        }
        if of_all_ms > 0:
            found["statement.share_of_time"] = 100 * self.total_ms / of_all_ms
        for metric in OF_STATEMENTS:
            if metric.formula is not None:
                (column,) = metric.formula.columns
                # A time of 0 means that timing is disabled (track_io_timing) or nothing was timed.
                is_timed = metric.formula.kind != "time_per_call" or self.sums.get(column)
                if column in self.sums and is_timed:
                    found[metric.key] = self.sums[column] / self.calls * metric.formula.scale
        if self.sums.get("plans"):
            found["statement.plan_mean_ms"] = self.sums["total_plan_time"] / self.sums["plans"]
        return found


def statements(rows: Iterable[Growth]) -> list[Statement]:
    """Return the statements executed between the readings, the one with the most time first."""
    found: dict[str, Statement] = {}
    for row in rows:
        text = row.end.get("query")
        if not isinstance(text, str):
            continue
        moments = _moments(row.end) - _moments(row.begin)
        if moments.n <= 0:
            continue
        sums = {
            column: delta for column in COUNTERS["statements"] if (delta := row.delta(column)) is not None
        }
        top_ms = 0.0 if is_nested(row) else moments.n * moments.mean
        if text in found:
            moments += found[text].time_ms
            sums = {column: sums.get(column, 0.0) + found[text].sums.get(column, 0.0) for column in sums}
            top_ms += found[text].top_ms
        found[text] = Statement(text, moments, sums, top_ms)
    return sorted(found.values(), key=lambda statement: -statement.total_ms)


def _moments(row: Mapping[str, float | int | str | None]) -> Moments:
    """Return the moments from calls, mean and standard deviation of a reading; empty for a missing row."""
    calls = numeric(row, "calls") or 0.0
    return Moments.of(calls, numeric(row, "mean_exec_time") or 0.0, numeric(row, "stddev_exec_time") or 0.0)
