"""Sites of crash tests: a simulated disk, a real machine, a standby.

- Places of a cluster that is to crash: a directory, or a disk whose power can be cut.
- Crashes of a running server that the user causes, such as a power cut of its machine.
- A synchronous standby of the server that is to crash: its start, and what becomes of it after the crash.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psycopg

from pgdyno.errors import ConnectError, DiskFullError, EngineError, ServerError, in_one_line
from pgdyno.features.crash_disk.disk import FaultyDisk, create_image, run_step
from pgdyno.features.crash_disk.ledger import (
    ACKNOWLEDGED,
    Aftermath,
    AuditInput,
    acknowledged_before,
    crash_load,
    create_ledger,
    examine_rows,
    read_ledger,
)
from pgdyno.features.crash_disk.plan import CrashKind, CrashPlan, DiskBehavior, planned_crash
from pgdyno.features.crash_disk.records import Crash
from pgdyno.features.running_server.remote import Remote, database_name
from pgdyno.interruption import Interruption, stopping
from pgdyno.measure.dataset_loading import WAL_RESERVE_BYTES, Place, load_data
from pgdyno.server.builds import Build
from pgdyno.server.directories import Account, sync_file_system
from pgdyno.server.processes import (
    RECOVERY_TIMEOUT_S,
    Cluster,
    Connection,
    InitOptions,
    LiveDirectory,
    Server,
    run_tool,
)
from pgdyno.units import format_size
from pgdyno.workloads.workload import Connect

# ----------------------------------------------------------------------
# Places of a cluster that is to crash: a directory, or a disk whose power can be cut.
#
# A place has a template for each build, a stopped cluster with empty tables, from which each crash starts. A
# life lasts from one start of the cluster to its crash or stop.
# ----------------------------------------------------------------------

COPY_TIMEOUT_S = 120.0
"""Timeout of the copy of a template of about 100 MB."""


@dataclass
class Life:
    """One life of a cluster. ``disk`` is None without a simulated disk."""

    cluster: Cluster
    disk: FaultyDisk | None = None


@dataclass
class CrashSite:
    """A place in a live directory, for one cluster at a time: a data directory on the file system of the
    cache, or for power cuts on a simulated disk, whose image is copied from the template.
    """

    run: LiveDirectory
    account: Account
    plan: CrashPlan
    templates: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._is_disk = self.plan.kind is CrashKind.POWER
        self._image = self.run.path / "disk.img"

    def prepare(self, build: Build, interruption: Interruption) -> None:
        """Create the template of a build. Raises ServerError, DatasetError, DiskFullError, Interrupted."""
        template = self._template(build)
        if not self._is_disk:
            template.mkdir(mode=0o711)
            log_path = self.run.path / "preparation.log"
            self._fill(Cluster(build, template / "data", self.account, log_path), interruption)
            return
        self._link_data()
        create_image(template, self.plan.disk_bytes)
        with FaultyDisk.attach(self.run.path, template, self.plan.file_system) as disk:
            disk.format()
            disk.mount()
            self._fill(self._cluster(build, disk.root / "data"), interruption)

    def restore(self, build: Build) -> None:
        """Replace the cluster by the template."""
        template = self._template(build)
        if self._is_disk:
            self._link_data()
            self._image.unlink(missing_ok=True)
            copied = ["--sparse=always", str(template), str(self._image)]
        else:
            shutil.rmtree(self.run.data_dir, ignore_errors=True)
            copied = ["-a", str(template / "data"), str(self.run.data_dir)]
        run_step(["cp", "--reflink=auto", *copied], COPY_TIMEOUT_S)

    @contextlib.contextmanager
    def live(self, build: Build) -> Iterator[Life]:
        """Begin a life. Raises ServerError if the disk cannot be mounted."""
        if not self._is_disk:
            yield Life(self._cluster(build, self.run.data_dir))
            return
        lies = self.plan.disk is DiskBehavior.LYING
        with FaultyDisk.attach(self.run.path, self._image, self.plan.file_system, lies=lies) as disk:
            disk.mount()
            yield Life(self._cluster(build, disk.root / "data"), disk)

    def _link_data(self) -> None:
        """Create the name under which cleanup after a kill looks for the server."""
        if not self.run.data_dir.is_symlink():
            self.run.data_dir.symlink_to(Path("disk", "data"))

    def _fill(self, cluster: Cluster, interruption: Interruption) -> None:
        cluster.initdb(InitOptions(checksums=self.plan.checksums, wal_segment_mb=self.plan.wal_segment_mb))
        with cluster.start() as server:
            fill_database(self.plan, server.conninfo(), server.connect, interruption, self._require_space)

    def _require_space(self, bytes_expected: int) -> None:
        """Raise DiskFullError if the data, and as much again, do not fit on the simulated disk."""
        needed = 2 * bytes_expected + WAL_RESERVE_BYTES
        if self._is_disk and needed > self.plan.disk_bytes:
            raise DiskFullError(
                f"the data need a simulated disk of {format_size(needed)}, and it has "
                f"{format_size(self.plan.disk_bytes)}: use a larger --disk-size, or a smaller --scale"
            )

    def _template(self, build: Build) -> Path:
        return self.templates.setdefault(build.build_id, self.run.path / f"template-{len(self.templates)}")

    def _cluster(self, build: Build, data_dir: Path) -> Cluster:
        return Cluster(build, data_dir, self.account, self.run.log_path)


def fill_database(
    plan: CrashPlan,
    conninfo: str,
    connect: Connect,
    interruption: Interruption,
    require_space: Callable[[int], None] = lambda _: None,
) -> None:
    """Load the data of the workload, and create the tables of the ledger."""
    if plan.parameters is not None:
        load_data(Place(conninfo, connect), plan.parameters, interruption, lambda *_: None, require_space)
    with contextlib.closing(connect()) as connection:
        create_ledger(connection, plan.clients, plan.slots)
        connection.execute("vacuum analyze")


def settle(life: Life) -> None:
    """Write back everything, so that a crash finds a machine that has run for a while. From then on the disk
    counts the requests of the load.
    """
    if life.disk is not None:
        sync_file_system(life.disk.root)
        life.disk.restart_counts()


# ----------------------------------------------------------------------
# Crashes of a running server that the user causes, such as a power cut of its machine.
#
# The clients and the ledger run here, on a machine that keeps its power. Files beside the results file hold
# the ledger and, once the server is gone, its start time. A restarted pgdyno then continues with the audit.
# ----------------------------------------------------------------------

SILENCE_S = 10.0
"""Time without an acknowledged commit after which the server counts as gone. A checkpoint can stall all
clients for seconds."""

POLL_S = 1.0


@dataclass
class RealCrashes:
    """Crashes of the server of a connection string, one after the other."""

    plan: CrashPlan
    remote: Remote
    results: Path
    say: Callable[[str], None]
    interruption: Interruption
    show: Callable[[str], None] = lambda _: None
    """Called with each step."""

    def __post_init__(self) -> None:
        self._database = database_name("crash", self.plan.workload, f"{self.plan.seed:012x}")
        self._ledger, self._pending = (self.results.with_suffix(of) for of in (".ledger", ".pending"))

    def crash(self, number: int) -> Crash:
        """Run clients until the server is gone, wait until it is back, and audit it.

        Raises ServerError (it did not restart), DatasetError, EngineError, Interrupted.
        """
        planned = planned_crash(self.plan, number, 0)
        begun_unix_s, begun_s = time.time(), time.monotonic()
        started_at = self._started_before(number)
        if started_at is None:
            self.show("loading the data")
            started_at = self._prepare()
            conninfo = self.remote.dsn.with_database(self._database).conninfo
            with crash_load(self.plan, planned, conninfo, self._ledger, self.interruption) as load:
                self.say(f"clients are writing to {self.remote.dsn}: cut the power of its machine now")
                self.show("waiting for the crash")
                load.wait_for_silence(self._ledger, SILENCE_S)
            # Not before: a restart after an interrupt of the load is no crash.
            self._pending.write_text(json.dumps({"number": number, "started_at": started_at}))
        self.say("the server is gone; waiting until it accepts connections: start its machine and the server")
        self.show("waiting for the server")
        self._wait_for_restart(started_at)
        self.show("checking commits, tables and indexes")
        records = read_ledger(self._ledger)
        acknowledged = records[records["event"] == ACKNOWLEDGED]
        if not len(acknowledged):
            self._pending.unlink()
            raise EngineError("no transaction was acknowledged before the crash: repeat the command")
        # The server may have committed what clients sent after the last answer.
        crash_ns = int(records["at_ns"].max(initial=0)) + 1
        found = Aftermath(unchecked=["log", "checksums"])
        of = AuditInput(self.plan, planned, records, crash_ns)
        examine_rows(found, lambda: self.remote.connect(self._database), of)
        first_ns = int(acknowledged["at_ns"].min(initial=crash_ns))
        return Crash(
            number=number,
            arm=0,
            started_unix_s=begun_unix_s,
            took_s=time.monotonic() - begun_s,
            active_s=(crash_ns - first_ns) / 1e9,
            survivors=None,
            acknowledged=acknowledged_before(records, crash_ns),
            **found.recorded,
        )

    def forget(self) -> None:
        """Remove the files and the database of an earlier crash."""
        self._pending.unlink(missing_ok=True)
        self._ledger.unlink(missing_ok=True)
        self.remote.drop(self._database)

    def _prepare(self) -> str:
        """Create the tables. Return the start time of the server."""
        self.forget()
        conninfo = self.remote.dsn.with_database(self._database).conninfo
        with self.remote.making(self._database, "a crash test"):
            connect = partial(self.remote.connect, self._database)
            fill_database(self.plan, conninfo, connect, self.interruption)
        with contextlib.closing(self.remote.connect()) as connection:
            with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
                connection.execute("checkpoint")  # so that the tables survive even with fsync = off
            return _started_at(connection)

    def _started_before(self, number: int) -> str | None:
        """Return the start time of the server before a crash whose audit is missing; None without one."""
        if not (self._pending.exists() and self._ledger.exists()):
            return None
        pending = json.loads(self._pending.read_text())
        if pending["number"] != number or not self._ledger.stat().st_size:
            return None
        with contextlib.suppress(ConnectError), contextlib.closing(self.remote.connect()) as connection:
            if _started_at(connection) == pending["started_at"]:
                return None  # it was only silent
        return str(pending["started_at"])

    def _wait_for_restart(self, started_at: str) -> None:
        while True:
            with contextlib.suppress(ConnectError), contextlib.closing(self.remote.connect()) as connection:
                if _started_at(connection) != started_at:
                    return
                self._pending.unlink()
                raise ServerError(
                    f"{self.remote.dsn} did not restart, but answered no client for {SILENCE_S:g} s or ended "
                    "their sessions: nothing is recorded; repeat the command"
                )
            woken = threading.Event()
            with self.interruption.tell(woken.set):
                woken.wait(POLL_S)
            self.interruption.check()


def _text_of(connection: Connection, query: str) -> str:
    """Return the only value of a query."""
    ((value,),) = connection.execute(query.encode()).fetchall()
    return str(value)


def _started_at(connection: Connection) -> str:
    return _text_of(connection, "select pg_postmaster_start_time()::text")


# ----------------------------------------------------------------------
# A synchronous standby of the server that is to crash: its start, and what becomes of it after the crash.
# ----------------------------------------------------------------------

NAME = "pgdyno_standby"

SYNCHRONOUS: Mapping[str, str] = {"synchronous_standby_names": f'"{NAME}"'}
"""Settings of the primary; those of the arm take precedence."""

TIMEOUT_S = 60.0
"""Timeout for becoming synchronous, catching up or a promotion."""

STANDBY_POLL_S = 0.01

SIGNAL_FILE_FROM = 12
"""First major version with standby.signal in place of recovery.conf."""


def start_standby(
    cluster: Cluster, primary: Server, settings: Mapping[str, str], optional: Collection[str]
) -> Server:
    """Start a copy of a primary's data directory, stopped or crashed, as its standby. Raises ServerError.

    The primary may be gone: the standby then replays what it has.
    """
    quoted = primary.conninfo().replace("'", "''") + f" application_name={NAME}"
    lines = [f"primary_conninfo = '{quoted}'"]
    if cluster.build.version.major >= SIGNAL_FILE_FROM:
        config, signal = "postgresql.auto.conf", "standby.signal"
    else:
        config = signal = "recovery.conf"
        lines += ["standby_mode = 'on'", "recovery_target_timeline = 'latest'"]
    for name in dict.fromkeys((signal, config)):
        path = cluster.data_dir / name
        path.touch()
        cluster.account.own(path)
    (cluster.data_dir / config).write_text("\n".join(lines) + "\n")
    # Otherwise it never becomes ready. After its promotion it has no standby to wait for.
    own = {**settings, "hot_standby": "on", "synchronous_standby_names": ""}
    return cluster.start(own, optional=optional, ready_timeout_s=RECOVERY_TIMEOUT_S)


def wait_synchronous(primary: Server) -> None:
    """Wait until the standby streams and commits wait for it. Raises ServerError."""
    with contextlib.closing(primary.connect()) as connection:
        _wait(
            connection,
            f"select 1 from pg_stat_replication where application_name = '{NAME}' and state = 'streaming' "
            "and sync_state in ('sync', 'quorum')",
            "the standby did not become synchronous: remove settings of the arm that prevent it, such as "
            "synchronous_standby_names, wal_level and max_wal_senders",
        )


def catch_up(standby: Server, primary: Server) -> None:
    """Wait until the standby has replayed all that its primary has written. Raises ServerError."""
    with contextlib.closing(primary.connect()) as connection:
        try:
            position = _text_of(connection, "select pg_current_wal_insert_lsn()::text")
        except psycopg.Error as error:
            raise ServerError(f"the primary of the standby failed: {in_one_line(str(error))}") from error
    with contextlib.closing(standby.connect()) as connection:
        _wait(
            connection,
            f"select 1 where pg_last_wal_replay_lsn() >= '{position}'",
            "the standby did not catch up with its primary",
        )


def promote(cluster: Cluster) -> None:
    """Promote the standby on this data directory, wait until it accepts changes. Raises ServerError."""
    options = ("--pgdata", str(cluster.data_dir), "--wait", "--timeout", f"{TIMEOUT_S:.0f}")
    command = [str(cluster.build.program("pg_ctl")), "promote", *options]
    try:
        done = run_tool(command, cluster.account, TIMEOUT_S + 10)
    except subprocess.TimeoutExpired as error:
        raise ServerError(f"the standby was not promoted within {TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        raise ServerError(f"the standby was not promoted: {in_one_line(done.stderr or done.stdout)}")


def _wait(connection: Connection, condition: str, otherwise: str) -> None:
    begun_s = time.monotonic()
    while True:
        try:
            if connection.execute(condition.encode()).fetchone() is not None:
                return
        except psycopg.Error as error:
            raise ServerError(f"{otherwise}: {in_one_line(str(error))}") from error
        if stopping.is_over(begun_s):
            raise ServerError("interrupted while waiting for the standby")
        if time.monotonic() > begun_s + TIMEOUT_S:
            raise ServerError(otherwise)
        time.sleep(STANDBY_POLL_S)
