"""Interface of a workload for the lab: its data on a server, and checks of a trial."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import psycopg


@dataclass(frozen=True)
class Check:
    """One statement about a trial or a database, and whether it holds.

    ``statistic`` and ``p_value`` are there where the check is a statistical test; ``detail`` says in a line
    what was compared and, of a failed check, what was found first.
    """

    name: str
    passed: bool
    statistic: float | None = None
    p_value: float | None = None
    detail: str = ""


Connection = psycopg.Connection[tuple[Any, ...]]
Connect = Callable[[], Connection]
"""Gives a new connection to the workload's database, in autocommit mode. Raises ConnectError."""

OnPhase = Callable[[str], None]
"""Called as each thing to do begins, with its name in a word or two."""


class TrialChecks(Protocol):
    """The checks of one trial on one server."""

    def begin(self, conn: Connection) -> None:
        """Reads what must be known from before the driver connects."""
        ...

    def end(self, connect: Connect, result: Mapping[str, Any], server_log: str | None) -> list[Check]:
        """Everything that must hold after the trial. The server must be idle.

        ``result`` is the target's part of the engine's result; ``server_log`` what the server said during the
        trial, None where we cannot read it. Raises ConnectError, DatasetError, ServerError.
        """
        ...


class Workload(Protocol):
    """A workload with its parameters, as it is on servers."""

    @property
    def format(self) -> str:
        """Of its data: a digest of all that loading writes. Data of another format are other data."""
        ...

    @property
    def bytes_completed(self) -> int:
        """What ``complete`` adds to the engine's forecast of the data's size."""
        ...

    def require_replaceable(self, conn: Connection) -> None:
        """Check that ``complete`` may replace what is there. Raises DatasetError: it is not ours."""
        ...

    def complete(self, conn: Connection, on_phase: OnPhase) -> None:
        """Do what is left after the engine's load; replace what an earlier one left. Raises DatasetError."""
        ...

    def require(self, conn: Connection) -> None:
        """Raises DatasetError unless the database holds exactly these data, loaded to the end."""
        ...

    def checks(self, clients: int, *, restored: bool) -> TrialChecks:
        """For one trial of so many clients; ``restored`` if it begins with pristine data."""
        ...
