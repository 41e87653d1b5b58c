"""An arm on a server that runs already: each trial gets a copy of a pristine database of pgdyno's own.

With ``--into-existing`` it is the very database that the DSN names, as it is: nothing is created or restored.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import psutil

from pgdyno.drive.load import run_load
from pgdyno.errors import DatasetError, ServerError
from pgdyno.estimate import counted
from pgdyno.interruption import Interruption
from pgdyno.lab.arm import Connection
from pgdyno.lab.dataset import DATASET_FORMAT, DATASET_SEED, load_specification
from pgdyno.lab.progress import Load, Watch
from pgdyno.server.dsn import Dsn
from pgdyno.server.remote import Description, Remote, database_name
from pgdyno.study.arm import ArmSpec
from pgdyno.study.plan import Study
from pgdyno.workload.tpcc.dataset import read_mark

START_TIME_TOLERANCE_S = 5.0
"""Between the postmaster's start by its own clock and by the kernel's, which counts ticks since boot."""

_TRIAL_PURPOSE = re.compile(r"a trial's copy, of process (?P<pid>\d+) on (?P<host>.*)")


@dataclass
class DsnArm:
    """See LabArm. ``pristine`` is the database that is copied, or None where nothing is restored."""

    index: int
    name: str
    remote: Remote
    description: Description
    database: str
    pristine: str | None
    dataset: Mapping[str, object] = field(default_factory=dict)

    @property
    def facts(self) -> Mapping[str, object]:
        """What the evidence keeps of the server."""
        return {
            "provider": "dsn",
            "version": str(self.description.version),
            "label": f"PostgreSQL {self.description.version}",
            "build_id": f"dsn {self.remote.dsn.shown}",
            "version_text": self.description.version_text,
        }

    def restore(self) -> None:
        """A fresh copy of the pristine database."""
        if self.pristine is not None:
            self.remote.drop(self.database)
            self.remote.create(self.database, trial_purpose(os.getpid()), template=self.pristine)

    def start(self) -> None:
        """It runs already; this only makes sure of it."""
        with self.connect() as connection:
            connection.execute("SELECT 1")

    def stop(self) -> None:
        """It goes on running."""

    def conninfo(self) -> str:
        """Of the trial's database."""
        return self.remote.dsn.with_database(self.database).conninfo

    def connect(self) -> Connection:
        """To the trial's database."""
        return self.remote.connect(self.database)

    def is_local(self) -> bool:
        """By the address of the connection."""
        return self.description.is_local

    def postmaster_pid(self) -> int | None:
        """The postmaster, where the server is a process of this machine that we can see."""
        if not self.is_local():
            return None
        with self.connect() as connection:
            row = connection.execute(
                "SELECT pg_backend_pid(), extract(epoch FROM pg_postmaster_start_time())::float8"
            ).fetchone()
            assert row is not None
            try:
                parent = psutil.Process(row[0]).parent()
                # In a container the numbers are of another world: only the right start time makes it ours.
                if parent is not None and abs(parent.create_time() - row[1]) < START_TIME_TOLERANCE_S:
                    return parent.pid
            except psutil.Error:
                return None
        return None

    def log(self) -> str | None:
        """Out of our reach."""
        return None

    def effective(self) -> Mapping[str, str]:
        """As read at the beginning."""
        return self.description.effective

    def dropped(self) -> Mapping[str, str]:
        """Nothing was asked of its settings."""
        return {}


def require_usable(spec: ArmSpec, study: Study) -> None:
    """Before anything is loaded for another arm. Raises ConnectError, DatasetError."""
    remote = Remote(Dsn(spec.server))
    if study.into_existing:
        _existing(0, spec, study, remote)
    else:
        remote.check()


@contextlib.contextmanager
def open_dsn_arm(
    index: int, spec: ArmSpec, study: Study, watch: Watch, interruption: Interruption
) -> Iterator[DsnArm]:
    """The arm with its dataset in place; the trial's copy is dropped in the end, the pristine one is kept.

    Raises ConnectError, DatasetError, Interrupted.
    """
    remote = Remote(Dsn(spec.server))
    if study.into_existing:
        yield _existing(index, spec, study, remote)
        return
    description = remote.check()
    drop_copies_of_the_dead(remote)
    pristine = database_name("tpcc", f"w{study.workload.warehouses}", f"s{DATASET_SEED}f{DATASET_FORMAT}")
    _make_pristine(remote, pristine, study, watch, interruption)
    trial = database_name("tpcc", f"w{study.workload.warehouses}", "trial", os.getpid(), index)
    arm = DsnArm(index, spec.name, remote, description, trial, pristine, {"name": pristine})
    try:
        yield arm
    finally:
        with contextlib.suppress(ServerError, DatasetError):
            remote.drop(trial)


def trial_purpose(pid: int) -> str:
    """Stands in a copy's mark: whose it is."""
    return f"a trial's copy, of process {pid} on {socket.gethostname()}"


def drop_copies_of_the_dead(remote: Remote) -> None:
    """What a pgdyno of this machine left because it was killed. One in use is refused by the server."""
    for name, purpose in remote.own_databases().items():
        found = _TRIAL_PURPOSE.fullmatch(purpose)
        if found and found["host"] == socket.gethostname() and not psutil.pid_exists(int(found["pid"])):
            with contextlib.suppress(ServerError, DatasetError):
                remote.drop(name)


def _existing(index: int, spec: ArmSpec, study: Study, remote: Remote) -> DsnArm:
    description = remote.check(must_create=False)
    with remote.connect() as connection:
        mark = read_mark(connection)
        database = connection.info.dbname
    if mark.scale != study.workload.warehouses:
        raise DatasetError(
            f"{database} holds {counted(mark.scale, 'warehouse')}, not {study.workload.warehouses}: "
            f"pass --warehouses {mark.scale}, or load it again"
        )
    return DsnArm(index, spec.name, remote, description, database, None, {"name": database})


def _make_pristine(remote: Remote, name: str, study: Study, watch: Watch, interruption: Interruption) -> None:
    """Loads the pristine database unless it is there and whole."""
    if name in remote.own_databases():
        if _is_whole(remote, name, study.workload.warehouses):
            return
        # Left by a load that was killed. If one is under way instead, PostgreSQL refuses to drop it.
        remote.drop(name)
    remote.create(name, f"tpcc, {counted(study.workload.warehouses, 'warehouse')}, pristine")
    try:
        run_load(
            load_specification(remote.dsn.with_database(name).conninfo, study.workload),
            interruption,
            lambda phase, share: watch(Load(name, phase, share)),
            on_forecast=lambda _: None,  # the disk is the server's; if it is full, the load says so
        )
    except BaseException:
        with contextlib.suppress(ServerError, DatasetError):
            remote.drop(name)
        raise


def _is_whole(remote: Remote, name: str, warehouses: int) -> bool:
    with remote.connect(name) as connection:
        try:
            return read_mark(connection).scale == warehouses
        except DatasetError:
            return False
