"""An arm as the lab sees it, and its form on a build of ours: restored data, a started server.

``BuildArm`` starts a server of its own from a snapshot; ``DsnArm`` (``dsn.py``) copies a database on a server
that runs already.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psycopg

from pgdyno.errors import ServerError
from pgdyno.server import page_cache
from pgdyno.server.build import Build
from pgdyno.server.cluster import READY_TIMEOUT_S, Cluster
from pgdyno.server.live_directories import Run
from pgdyno.server.restore import restore
from pgdyno.server.running import Server
from pgdyno.server.server_account import Account
from pgdyno.server.snapshot import Snapshot

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


RECOVERY_TIMEOUT_S = 3600.0
"""A server replays some 50 to 500 MB of WAL a second, and there may be tens of GB of it."""


@dataclass
class BuildArm:
    """See LabArm. ``settings`` are checked already; ``optional`` ones may be dropped by the version."""

    index: int
    name: str
    build: Build
    database: str
    settings: Mapping[str, str]
    optional: Collection[str]
    snapshot: Snapshot
    run: Run
    account: Account
    shares_server: bool = False
    _server: Server | None = None
    _log_of_no_start: str | None = None

    def restore(self) -> None:
        """Copies what differs from the snapshot, and starts a new log."""
        restore(self.snapshot, self.run.data_dir, self.account)
        self.run.log_path.unlink(missing_ok=True)
        self._log_of_no_start = None

    def start(self) -> None:
        """Starts the server on the restored data."""
        self._start(READY_TIMEOUT_S)

    def recover(self) -> float:
        """Crashes the server and starts it again: seconds until it accepts connections, all its WAL since the
        last checkpoint replayed. The operating system's cache stays as it is.

        ``log`` is that of the new start. Raises ServerError where it had ended before, StartError.
        """
        self.running.stop("immediate")
        return self._start(RECOVERY_TIMEOUT_S).ready_s

    def restart(self) -> float:
        """Restarts the server in order: seconds from the request until it accepts connections, its checkpoint
        included. ``log`` is that of the new start. Raises ServerError, StartError.
        """
        begun_s = time.monotonic()
        self.running.stop("fast")
        stopped_s = time.monotonic() - begun_s
        return stopped_s + self._start(READY_TIMEOUT_S).ready_s

    def _start(self, ready_timeout_s: float) -> Server:
        self._server = None
        cluster = Cluster(self.build, self.run.data_dir, self.account, self.run.log_path)
        try:
            self._server = cluster.start(
                self.settings, optional=self.optional, ready_timeout_s=ready_timeout_s
            )
        except ServerError:
            with contextlib.suppress(OSError):
                self._log_of_no_start = self.run.log_path.read_text(errors="replace")
            raise
        return self._server

    def stop(self) -> None:
        """Ends it at once: the next restore makes the data good again."""
        if self._server is not None:
            with contextlib.suppress(ServerError):
                self._server.stop("immediate")
            self._server.abandon()
            self._server = None

    def data_path(self) -> Path:
        """The live directory."""
        return self.run.data_dir

    def drop_cache(self) -> float:
        """Of the restored data, before the start."""
        return page_cache.drop(self.run.data_dir)

    def conninfo(self) -> str:
        """Of the workload's database."""
        return self.running.conninfo(self.database)

    def connect(self) -> Connection:
        """To the workload's database."""
        return self.running.connect(self.database)

    def is_restored(self) -> bool:
        """Always."""
        return True

    def is_local(self) -> bool:
        """Always."""
        return True

    def postmaster_pid(self) -> int | None:
        """While it runs."""
        return self._server.postmaster_pid if self._server else None

    def log(self) -> str | None:
        """Of this start, also where it came to nothing."""
        return self._server.log() if self._server else self._log_of_no_start

    def effective(self) -> Mapping[str, str]:
        """As verified after the start."""
        return self.running.effective

    def dropped(self) -> Mapping[str, str]:
        """As found after the start."""
        return self.running.dropped

    @property
    def running(self) -> Server:
        """The server. Raises ServerError when it was not started."""
        if self._server is None:
            raise ServerError(f"the server of {self.name} is not running")
        return self._server
