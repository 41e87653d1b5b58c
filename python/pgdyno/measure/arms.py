"""Interface of an arm for the lab, and its implementation for builds.

A feature supplies the arms on running servers.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psycopg

from pgdyno.caveats import Caveat
from pgdyno.errors import ServerError
from pgdyno.hooks import Hooks
from pgdyno.interruption import Interruption
from pgdyno.measure.host_counters import wait_until_reaped
from pgdyno.measure.progress import Watch
from pgdyno.results import records
from pgdyno.server import processes, snapshots
from pgdyno.server.builds import Build
from pgdyno.server.directories import Account
from pgdyno.server.processes import READY_TIMEOUT_S, RECOVERY_TIMEOUT_S, Cluster, LiveDirectory, Server
from pgdyno.server.snapshots import Snapshot, restore
from pgdyno.study.plan import Study
from pgdyno.study.schedule import place_of


@dataclass(frozen=True)
class Prepared:
    """Arms that are ready to run. ``study``: the requested one, or the same with a schedule that fits.

    ``in_effect``: settings by arm, tested, or those of a running server on this machine. ``aa``: the A/A
    comparison of each arm with a second server. ``why_no_aa``: the reason if there are no A/A blocks.
    """

    study: Study
    arms: Sequence[LabArm]
    records: Sequence[records.Arm]
    caveats: list[Caveat]
    data_path: Path
    aa: Mapping[int, Prepared] = field(default_factory=dict)
    why_no_aa: str = ""
    in_effect: Mapping[int, Mapping[str, str]] = field(default_factory=dict)


Connection = psycopg.Connection[tuple[Any, ...]]


class LabArm(Protocol):
    """One arm in all blocks. The lab calls restore, start, stop, in this order, once per block.

    ``shares_server``: it takes turns with another arm on one server, whose counters include both.
    """

    index: int
    name: str
    shares_server: bool

    def restore(self, block: int, /) -> None:
        """Restore the data from the snapshot. Raises ServerError, DatasetError, DiskFullError."""

    def is_restored(self) -> bool:
        """Return whether ``restore`` restores the data, or leaves them unchanged."""

    def start(self) -> None:
        """Start the server with the settings of the arm and verify them. Raises StartError, ConnectError."""

    def stop(self) -> None:
        """End the server immediately: its data are not needed. Never raises; safe to call twice."""

    def conninfo(self) -> str:
        """Return the connection string of the workload's database. It may contain a password: do not print
        it."""

    def connect(self) -> Connection:
        """Connect to the workload's database. Raises ConnectError."""

    def is_local(self) -> bool:
        """Return whether the server runs on this machine."""

    def data_path(self) -> Path | None:
        """Return the directory of its data on this machine; None if unknown."""

    def drop_cache(self) -> float:
        """Evict the files of the stopped server from the page cache. Return the share that remains.

        Raises UsageError for a running server.
        """

    def recover(self) -> float:
        """Crash the server and start it again. Return the seconds until it accepts connections."""

    def restart(self) -> float:
        """Restart the server. Return the seconds of shutdown and start."""

    def postmaster_pid(self) -> int | None:
        """Return the process ID of the postmaster; None if it is not a visible local process."""

    def log(self) -> str | None:
        """Return the server log since the start; None if it is not readable."""

    def effective(self) -> Mapping[str, str]:
        """Return every setting in effect, as SHOW prints it."""

    def dropped(self) -> Mapping[str, str]:
        """Return the settings of its profiles that are not in effect, each with the reason."""


@dataclass(frozen=True)
class RunningArm:
    """An arm on a running server, and its records in the results file: server, dataset and caveats."""

    arm: LabArm
    server: Mapping[str, object]
    dataset: Mapping[str, object]
    caveats: Sequence[Caveat]


@dataclass(frozen=True)
class RunningServers:
    """Arms on servers that pgdyno does not start, and its databases there. A feature supplies them.

    ``require_usable``: checks the servers before anything is loaded. ``few_connections``: by arm the needed
    and the available connections, where these are too few. ``open``: returns a function that prepares an arm
    until the stack closes. ``shared``: marks the arms that take turns on one server, and returns caveats.
    ``list_databases``: prints those on a server, as JSON if true. ``prune_databases``: prints the unused
    ones, and drops them unless the second argument is true. All raise ConnectError, DatasetError, UsageError.
    """

    require_usable: Callable[[Study, Watch], None]
    few_connections: Callable[[Study], Mapping[int, tuple[int, int]]]
    open: Callable[[Watch, Interruption, contextlib.ExitStack], Callable[[Study, int], RunningArm]]
    shared: Callable[[Study, Sequence[LabArm]], Sequence[Caveat]]
    list_databases: Callable[[str, bool], None]
    prune_databases: Callable[[str, bool, bool], None]


RUNNING_SERVERS: Hooks[RunningServers] = Hooks("running_servers")


def running_servers(study: Study) -> Iterator[RunningServers]:
    """Iterate over the supplier of the running servers of a study, if any. Raises UsageError without one."""
    if running := [arm.name for arm in study.arms if arm.is_dsn]:
        yield RUNNING_SERVERS.require(f"the running server {running[0]}")


@contextlib.contextmanager
def brief_session(arm: LabArm) -> Iterator[Connection]:
    """Connect to the workload's database. At the end, wait until a local server has ended the session, so
    that its CPU time is not counted later. Raises ConnectError.
    """
    with contextlib.closing(arm.connect()) as connection:
        pid = connection.info.backend_pid
        yield connection
    if arm.postmaster_pid() is not None:
        wait_until_reaped(pid)


@dataclass
class Placement:
    """The live directories of a dataset, which its arms exchange from block to block (``place_of``)."""

    data: str
    directories: list[LiveDirectory]

    def directory(self, seed: int, block: int, position: int) -> LiveDirectory:
        """Return the directory of an arm in one block."""
        return self.directories[place_of(seed, self.data, block, position, len(self.directories))]


@dataclass(frozen=True)
class Redaction:
    """Removal of the values of rows from a server log, and from an error message with its SQLSTATE."""

    log: Callable[[str], str]
    message: Callable[[str, str], str]


@dataclass
class BuildArm:
    """See LabArm. ``settings`` are validated; the version may lack ``optional`` ones.

    ``position`` is its number among the arms with the same data, and ``seed`` that of the study.
    """

    index: int
    name: str
    build: Build
    database: str
    settings: Mapping[str, str]
    optional: Collection[str]
    snapshot: Snapshot
    placement: Placement
    position: int
    seed: int
    account: Account
    shares_server: bool = False
    redaction: Redaction | None = None  # if the rows are those of the user
    before_restore: Callable[[LiveDirectory], None] = lambda _: None
    _server: Server | None = None
    _run: LiveDirectory | None = None
    _log_of_no_start: str | None = None

    @property
    def run(self) -> LiveDirectory:
        """The live directory of the current block."""
        assert self._run is not None, "restore comes first"
        return self._run

    def restore(self, block: int) -> None:
        """Choose the live directory of the block, copy the files that differ, and delete the log."""
        self._run = self.placement.directory(self.seed, block, self.position)
        self.before_restore(self.run)
        restore(self.snapshot, self.run.data_dir, self.account)
        self.run.log_path.unlink(missing_ok=True)
        self._log_of_no_start = None

    def start(self) -> None:
        """Start the server on the restored data."""
        self._start(READY_TIMEOUT_S)

    def recover(self) -> float:
        """Crash the server and start it again. Return the seconds until it accepts connections, after replay
        of all WAL since the last checkpoint. The page cache stays unchanged.

        ``log`` is that of the new start. Raises ServerError if it had exited before, StartError.
        """
        self.running.stop("immediate")
        return self._start(RECOVERY_TIMEOUT_S).ready_s

    def restart(self) -> float:
        """Restart the server. Return the seconds from the request until it accepts connections, including its
        shutdown checkpoint. ``log`` is that of the new start. Raises ServerError, StartError.
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
        """End the server immediately. The next restore repairs the data."""
        if self._server is not None:
            with contextlib.suppress(ServerError):
                self._server.stop("immediate")
            self._server.abandon()
            processes.clear_after_kill(self.run.data_dir, self.account)  # else they run on beside other arms
            self._server = None

    def data_path(self) -> Path:
        """Return the live directory."""
        return self.run.data_dir

    def drop_cache(self) -> float:
        """Evict the restored data from the page cache, before the start."""
        return snapshots.evict(self.run.data_dir)

    def conninfo(self) -> str:
        """Return the connection string of the workload's database."""
        return self.running.conninfo(self.database)

    def connect(self) -> Connection:
        """Connect to the workload's database."""
        return self.running.connect(self.database)

    def is_restored(self) -> bool:
        """Return True."""
        return True

    def is_local(self) -> bool:
        """Return True."""
        return True

    def postmaster_pid(self) -> int | None:
        """Return the process ID of the postmaster while it runs."""
        return self._server.postmaster_pid if self._server else None

    def log(self) -> str | None:
        """Return the log of this start, also of a failed one."""
        log = self._server.log() if self._server else self._log_of_no_start
        return log if log is None or self.redaction is None else self.redaction.log(log)

    def effective(self) -> Mapping[str, str]:
        """Return the settings verified after the start."""
        return self.running.effective

    def dropped(self) -> Mapping[str, str]:
        """Return the optional settings not in effect after the start."""
        return self.running.dropped

    @property
    def running(self) -> Server:
        """The server. Raises ServerError if it was not started."""
        if self._server is None:
            raise ServerError(f"the server of {self.name} is not running")
        return self._server
