"""Interface of a workload for the lab: its data on a server, and checks of a trial."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from pgdyno.engine import TargetResult

if TYPE_CHECKING:  # results have checks, too, and are read without a connection
    import psycopg


@dataclass(frozen=True)
class Check:
    """Result of a check of a trial or a database.

    ``statistic`` and ``p_value``: those of a statistical test. ``detail``: one line with the compared values
    and, if the check failed, the first violations. ``skipped``: it was not run, because it cannot hold;
    ``detail`` is the reason, and ``passed`` is true, so that the trial counts.
    """

    name: str
    passed: bool
    statistic: float | None = None
    p_value: float | None = None
    detail: str = ""
    skipped: bool = False


Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"
Connect = Callable[[], Connection]
"""Opens a new connection to the workload's database, in autocommit mode. Raises ConnectError."""

OnPhase = Callable[[str], None]
"""Called at the start of each phase, with its name."""


class TrialChecks(Protocol):
    """Checks of one trial on one server."""

    def begin(self, conn: Connection) -> None:
        """Read the values before the driver connects."""
        ...

    def end(self, connect: Connect, result: TargetResult, server_log: str | None) -> list[Check]:
        """Run all checks after the trial. The server must be idle.

        ``result`` is of the trial's target. ``server_log``: log during the trial, None if it
        is not readable. Raises ConnectError, DatasetError, ServerError.
        """
        ...


class Workload(Protocol):
    """A workload with its parameters: data on a server and checks."""

    @property
    def format(self) -> str:
        """Format of its data: a digest of everything that loading writes."""
        ...

    @property
    def bytes_completed(self) -> int:
        """Bytes that ``complete`` adds to the size forecast by the engine."""
        ...

    def require_replaceable(self, conn: Connection) -> None:
        """Raise DatasetError if pgdyno did not create the tables that ``complete`` replaces."""
        ...

    def complete(self, conn: Connection, on_phase: OnPhase) -> None:
        """Complete the engine's load; replaces results of an earlier call. Raises DatasetError."""
        ...

    def require(self, conn: Connection) -> None:
        """Raise DatasetError unless the database contains exactly these data, completely loaded."""
        ...

    def invariants(self, connect: Connect) -> list[Check]:
        """Check what holds at any time, provided that only this workload has changed its data.

        Raises ConnectError, DatasetError, ServerError.
        """
        ...

    def checks(self, clients: int, *, restored: bool) -> TrialChecks:
        """Return the checks of one trial. ``restored``: it begins with data as they were loaded."""
        ...
