"""What the lab needs of an arm: pristine data, a server that runs, and its end. Two kinds have it.

``BuildArm`` starts a server of its own from a snapshot; ``DsnArm`` (``dsn.py``) copies a database on a server
that runs already.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import psycopg

Connection = psycopg.Connection[tuple[Any, ...]]


class LabArm(Protocol):
    """One arm, through all blocks. The lab calls restore, start, stop, in this order, once a block.

    ``shares_server``: it takes turns with another arm on one server, whose counters are of both.
    """

    index: int
    name: str
    shares_server: bool

    def restore(self) -> None:
        """Makes the data pristine. Raises ServerError, DatasetError, DiskFullError."""
        ...

    def is_restored(self) -> bool:
        """Whether ``restore`` makes the data pristine, or leaves them as they are."""
        ...

    def start(self) -> None:
        """Starts the server with the arm's settings and checks them. Raises StartError, ConnectError."""
        ...

    def stop(self) -> None:
        """Ends the server at once: its data are not needed any more. Never raises; safe to call twice."""
        ...

    def conninfo(self) -> str:
        """Of the workload's database, for the engine. It may hold a password: never to be shown."""
        ...

    def connect(self) -> Connection:
        """A connection to the workload's database. Raises ConnectError."""
        ...

    def is_local(self) -> bool:
        """Whether the server runs on this machine."""
        ...

    def data_path(self) -> Path | None:
        """Where its data lie on this machine, or None where we do not see that."""
        ...

    def drop_cache(self) -> float:
        """Takes the stopped server's files out of the operating system's cache; the share of them that stays.
        Raises UsageError where the server is not ours to stop.
        """
        ...

    def recover(self) -> float:
        """Kills the server as a crash would and starts it again; seconds until it took connections."""
        ...

    def restart(self) -> float:
        """Stops it in order and starts it again; seconds of both."""
        ...

    def postmaster_pid(self) -> int | None:
        """The postmaster's process, or None where the server is not a process of ours."""
        ...

    def log(self) -> str | None:
        """What the server has logged since its start, or None where we cannot read it."""
        ...

    def effective(self) -> Mapping[str, str]:
        """Every setting in effect, as SHOW spells it."""
        ...

    def dropped(self) -> Mapping[str, str]:
        """Settings of its profiles that the server did not take, each with the reason."""
        ...
