"""Arms for a study: servers that we start, and running servers.

- Interface of an arm for the lab, and its implementation for builds.
- Arm on a running server: each trial uses a copy of a database that pgdyno has loaded.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psycopg

from pgdyno.caveats import Caveat
from pgdyno.errors import DatasetError, DiskFullError, ServerError, UsageError
from pgdyno.interruption import Interruption
from pgdyno.measure.dataset_loading import Place, dataset_database_name, load_data
from pgdyno.measure.host_counters import wait_until_reaped
from pgdyno.measure.progress import LoadProgress, PreparationStep, Warned, Watch
from pgdyno.results import records
from pgdyno.server import snapshots
from pgdyno.server.builds import Build
from pgdyno.server.connections import Dsn
from pgdyno.server.directories import Account
from pgdyno.server.processes import READY_TIMEOUT_S, RECOVERY_TIMEOUT_S, Cluster, LiveDirectory, Server
from pgdyno.server.remote import (
    INCOMPLETE,
    PRISTINE,
    Description,
    Remote,
    TrialCopy,
    free_for_data,
    local_postmaster,
    lock_of,
    take_lock,
)
from pgdyno.server.snapshots import Snapshot, restore
from pgdyno.study.arm_spec import ArmSpec
from pgdyno.study.plan import Study
from pgdyno.study.schedule import place_of
from pgdyno.study.workload_parameters import WorkloadParameters
from pgdyno.units import format_size
from pgdyno.workloads.registry import workload_of

# ----------------------------------------------------------------------
# Interface of an arm for the lab, and its implementation for builds.
#
# ``BuildArm`` restores a snapshot and starts a server. ``DsnArm`` copies a database on a
# running server.
# ----------------------------------------------------------------------


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


# ----------------------------------------------------------------------
# Arm on a running server: each trial uses a copy of a database that pgdyno has loaded.
#
# With ``--into-existing`` the trials use the database of the DSN: nothing is created or restored.
# ----------------------------------------------------------------------


@dataclass
class DsnArm:
    """See LabArm. ``copy`` is created for each trial; None if data are not restored."""

    index: int
    name: str
    remote: Remote
    description: Description
    database: str
    copy: TrialCopy | None
    dataset: Mapping[str, object] = field(default_factory=dict)
    shares_server: bool = False
    _postmaster_pid: int | None = field(default=None, init=False)

    @property
    def facts(self) -> Mapping[str, object]:
        """Facts about the server for the results file."""
        return {
            "provider": "dsn",
            "version": str(self.description.version),
            "label": f"PostgreSQL {self.description.version}",
            "build_id": f"dsn {self.remote.dsn.shown}",
            "version_text": self.description.version_text,
        }

    def restore(self, _block: int) -> None:
        """Create a new copy of the loaded database."""
        if self.copy is not None:
            self.copy.restore()

    def is_restored(self) -> bool:
        """Return whether each trial has its own copy."""
        return self.copy is not None

    def start(self) -> None:
        """Check that the server answers, and find its postmaster if it is local."""
        with self.connect() as connection:
            connection.execute("SELECT 1")
            self._postmaster_pid = local_postmaster(connection) if self.is_local() else None

    def stop(self) -> None:
        """Do nothing: the server continues to run."""

    def conninfo(self) -> str:
        """Return the connection string of the trial's database."""
        return self.remote.dsn.with_database(self.database).conninfo

    def connect(self) -> Connection:
        """Connect to the trial's database."""
        return self.remote.connect(self.database)

    def is_local(self) -> bool:
        """Return whether the connection has a local address."""
        return self.description.is_local

    def data_path(self) -> Path | None:
        """Return None: its files are not accessible."""
        return None

    def drop_cache(self) -> float:
        """Raise UsageError, because it requires a restart."""
        raise UsageError(_NOT_RESTARTED.format(what="a cold cache", arm=self.name))

    def recover(self) -> float:
        """Raise UsageError, because it requires a crash."""
        raise UsageError(_NOT_RESTARTED.format(what="the recovery time", arm=self.name))

    def restart(self) -> float:
        """Raise UsageError, because it requires a restart."""
        raise UsageError(_NOT_RESTARTED.format(what="the restart time", arm=self.name))

    def postmaster_pid(self) -> int | None:
        """Return the postmaster found by ``start``, if it is a visible process of this machine."""
        return self._postmaster_pid

    def log(self) -> str | None:
        """Return None: the log is not accessible."""
        return None

    def effective(self) -> Mapping[str, str]:
        """Return the settings read at the beginning."""
        return self.description.effective

    def dropped(self) -> Mapping[str, str]:
        """Return an empty dictionary: no settings are requested."""
        return {}


_NOT_RESTARTED = "{arm} is a running server, which pgdyno does not restart: use a build to measure {what}"


def require_usable(study: Study, watch: Watch) -> None:
    """Check all running servers before anything is loaded. Raises ConnectError, DatasetError, UsageError."""
    seen: dict[tuple[object, ...], str] = {}
    for index, spec in enumerate(study.arms):
        if not spec.is_dsn:
            continue
        if study.cache_state == "cold" or study.recovery:
            what = "a cold cache" if study.cache_state == "cold" else "the recovery time"
            raise UsageError(_NOT_RESTARTED.format(what=what, arm=spec.name))
        watch(PreparationStep(f"connecting to {spec.name}"))
        remote = Remote(Dsn(spec.server))
        if not study.into_existing:
            study.driving(index).workload.require_major(remote.check().version.major, spec.name)
            continue
        _existing(index, spec, study, remote)
        other = seen.setdefault(remote.identity(), spec.name)
        if other != spec.name:
            raise UsageError(
                f"{other} and {spec.name} are the same database: with --into-existing each arm "
                "needs its own, because data are not restored"
            )


@contextlib.contextmanager
def open_dsn_arm(
    index: int, spec: ArmSpec, study: Study, watch: Watch, interruption: Interruption
) -> Iterator[DsnArm]:
    """Provide the arm with its dataset. At the end the copy is dropped; the loaded database is kept.

    Raises ConnectError, DatasetError, Interrupted.
    """
    remote = Remote(Dsn(spec.server))
    if study.into_existing:
        yield _existing(index, spec, study, remote)
        return
    description = remote.check()
    remote.drop_what_nobody_holds()
    workload = study.driving(index).workload
    pristine = dataset_database_name(workload)
    copies = sum(arm.is_dsn for arm in study.arms)
    copy = TrialCopy(remote, pristine)
    try:
        copy.hold()
        _load_once(remote, pristine, workload, copies, watch, interruption)
        yield DsnArm(index, spec.name, remote, description, copy.name, copy, {"name": pristine})
    finally:
        copy.end()
    if all(arm.server != spec.server for arm in study.arms[:index]):
        with contextlib.suppress(ServerError, DatasetError, psycopg.Error):
            size = format_size(remote.size_bytes(pristine))
            command = f"pgdyno cache prune --dsn {shlex.quote(remote.dsn.shown)}"
            watch(Warned(f"{spec.name} keeps the dataset for later studies ({size}); to drop it: {command}"))


def _existing(index: int, spec: ArmSpec, study: Study, remote: Remote) -> DsnArm:
    description = remote.check(must_create=False)
    with remote.connect() as connection:
        workload_of(study.driving(index).workload).require(connection)
        database = connection.info.dbname
    return DsnArm(index, spec.name, remote, description, database, None, {"name": database})


def _load_once(
    remote: Remote,
    name: str,
    workload: WorkloadParameters,
    copies: int,
    watch: Watch,
    interruption: Interruption,
) -> None:
    """Load the database unless it exists and is complete. Only one pgdyno loads it at a time."""

    def while_waiting() -> None:
        watch(LoadProgress(name, "waiting for another pgdyno", 0.0))
        interruption.check()

    def on_forecast(size_bytes: int) -> None:
        what = f"the dataset and {_copies(copies)} of it need"
        if not require_room(remote, what, size_bytes * (1 + copies), workload.SMALLER):
            watch(Warned(f"{remote.dsn}: the free disk space of the server is unknown"))

    with remote.maintenance().connect() as turn:
        take_lock(turn, lock_of(name), while_waiting)
        if (purpose := remote.own_databases().get(name)) is not None:
            if purpose != INCOMPLETE and _is_complete(remote, name, workload):
                what, size_bytes = f"{_copies(copies)} of the dataset need", remote.size_bytes(name)
                require_room(remote, what, size_bytes * copies, workload.SMALLER)
                return
            # Left by a load that was killed: we have its lock.
            remote.drop(name)
        with remote.making(name, f"{workload.data_name}{PRISTINE}"):
            load_data(
                Place(remote.dsn.with_database(name).conninfo, lambda: remote.connect(name)),
                workload,
                interruption,
                lambda phase, share: watch(LoadProgress(name, phase, share)),
                on_forecast,
            )


def _copies(n: int) -> str:
    return "a copy" if n == 1 else f"{n} copies"


def require_room(remote: Remote, what: str, needed_bytes: int, smaller: str) -> bool:
    """Return whether the free space of a running server is known. Raises DiskFullError if it is too small.

    ``what``: the beginning of the message, subject and verb. ``smaller``: the remedy.
    """
    with remote.connect() as connection:
        free = free_for_data(connection)
    if free is not None and needed_bytes > free:
        raise DiskFullError(
            f"{what} about {format_size(needed_bytes)}, but only {format_size(free)} are free on the disk of "
            f"{remote.dsn}: {smaller}, or free disk space"
        )
    return free is not None


def _is_complete(remote: Remote, name: str, parameters: WorkloadParameters) -> bool:
    with remote.connect(name) as connection:
        try:
            workload_of(parameters).require(connection)
        except DatasetError:
            return False
        except psycopg.errors.InsufficientPrivilege as error:
            raise DatasetError(
                f"the database {name} on {remote.dsn} belongs to another role: connect as that role, "
                "or drop the database"
            ) from error
    return True
