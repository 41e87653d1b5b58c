"""Each statement over the measured part: calls, mean and standard deviation of its time, rows, blocks, WAL.

Statements are known by their text, for their ids differ between versions. Times are those of execution in
ms, as pg_stat_statements has them; its standard deviation is that of all calls (divided by n, not n − 1).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pgdyno.analysis.telemetry.counters import COUNTERS, Growth, is_nested, number

BLOCK_COLUMNS = ("hit", "read", "dirtied", "written")


@dataclass(frozen=True)
class Moments:
    """Of n values: their mean, and the sum of the squared deviations from it."""

    n: float
    mean: float
    squares: float

    @classmethod
    def of(cls, n: float, mean: float, stddev: float) -> Moments:
        """From the standard deviation of all n."""
        return cls(n, mean, stddev**2 * n)

    @property
    def stddev(self) -> float:
        """Of all n; rounding can make a sum of squares seem to fall a little, but not below 0 here."""
        return math.sqrt(max(0.0, self.squares) / self.n) if self.n else 0.0

    def __add__(self, other: Moments) -> Moments:
        """Both together: Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
        sample variances", 1979.
        """
        n = self.n + other.n
        if not n:
            return self
        apart = other.mean - self.mean
        mean = self.mean + apart * other.n / n
        return Moments(n, mean, self.squares + other.squares + apart**2 * self.n * other.n / n)

    def __sub__(self, first: Moments) -> Moments:
        """What came after the first ones: the same formula, solved for its second part."""
        n = self.n - first.n
        if n <= 0:
            return Moments(0, 0.0, 0.0)
        mean = (self.n * self.mean - first.n * first.mean) / n
        between = (mean - first.mean) ** 2 * first.n * n / self.n
        return Moments(n, mean, max(0.0, self.squares - first.squares - between))


@dataclass(frozen=True)
class Statement:
    """One text, over all users and ids that it has. ``sums`` are the counters' differences by column.

    ``top_ms`` is the time of the calls that clients sent. Those inside of functions, which are counted with
    ``pg_stat_statements.track = all``, are in the times of the statements that called the functions.
    """

    text: str
    time_ms: Moments
    sums: Mapping[str, float]
    top_ms: float

    @property
    def calls(self) -> float:
        """How often it was executed."""
        return self.time_ms.n

    @property
    def total_ms(self) -> float:
        """All calls together."""
        return self.calls * self.time_ms.mean

    def values(self, of_all_ms: float) -> dict[str, float]:
        """By the keys of ``quantities.OF_STATEMENTS``. ``of_all_ms``: the time of all that clients sent."""
        found = {
            "calls": self.calls,
            "mean_ms": self.time_ms.mean,
            "stddev_ms": self.time_ms.stddev,
            "total_ms": self.total_ms,
            "rows_per_call": self.sums.get("rows", 0.0) / self.calls,
        }
        if of_all_ms > 0:
            found["share_of_time"] = 100 * found["total_ms"] / of_all_ms
        per_call = {
            **{f"blocks_{kind}_per_call": f"shared_blks_{kind}" for kind in BLOCK_COLUMNS},
            "wal_bytes_per_call": "wal_bytes",
            "fpi_per_call": "wal_fpi",
        }
        found |= {
            key: self.sums[column] / self.calls for key, column in per_call.items() if column in self.sums
        }
        timed = {"read_ms_per_call": "shared_blk_read_time", "write_ms_per_call": "shared_blk_write_time"}
        # No time at all is one that was not asked for (track_io_timing), or there was nothing to time.
        found |= {
            key: self.sums[column] / self.calls for key, column in timed.items() if self.sums.get(column)
        }
        if self.sums.get("plans"):
            found["plan_mean_ms"] = self.sums["total_plan_time"] / self.sums["plans"]
        return found


def statements(rows: Iterable[Growth]) -> list[Statement]:
    """Those that were executed between the readings, the one with the most time first."""
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
    """From calls, mean and standard deviation of a reading; nothing of a row that was not there."""
    calls = number(row, "calls") or 0.0
    return Moments.of(calls, number(row, "mean_exec_time") or 0.0, number(row, "stddev_exec_time") or 0.0)
