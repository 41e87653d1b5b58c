"""Running servers: arms on them, and the output of ``pgdyno cache --dsn``.

- Arms on running servers: each trial uses a copy of a database that pgdyno has loaded. With
  ``--into-existing`` the trials use the database of the DSN: nothing is created or restored.
- Output of ``pgdyno cache --dsn``: the databases of pgdyno on a running server.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import psycopg
from rich.table import Table
from rich.text import Text

from pgdyno.caveats import Caveat
from pgdyno.cli.console import out, print_json, say
from pgdyno.errors import DatasetError, DiskFullError, ServerError, UsageError
from pgdyno.features.running_server.remote import (
    INCOMPLETE,
    PRISTINE,
    Description,
    OwnDatabase,
    Remote,
    TrialCopy,
    connections_max,
    database_name,
    free_for_data,
    local_postmaster,
    lock_of,
    take_lock,
)
from pgdyno.interruption import Interruption
from pgdyno.measure.arms import LabArm, RunningArm, RunningServers
from pgdyno.measure.dataset_loading import DATASET_SEED, Place, load_data
from pgdyno.measure.preflight import OWN_CONNECTIONS
from pgdyno.measure.progress import LoadProgress, PreparationStep, Warned, Watch
from pgdyno.measure.trial import untested_version
from pgdyno.server.connections import Dsn
from pgdyno.server.processes import Connection
from pgdyno.study.arm_spec import ArmSpec
from pgdyno.study.plan import Study
from pgdyno.study.workload_parameters import WorkloadParameters
from pgdyno.units import counted, format_size
from pgdyno.workloads.workload import workload_of

# ----------------------------------------------------------------------
# Arms on running servers.
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
        if study.cache_state == "cold" or study.recovery or study.checkpoint_after:
            what = "a cold cache" if study.cache_state == "cold" else "the time of a restart"
            raise UsageError(_NOT_RESTARTED.format(what=what, arm=spec.name))
        watch(PreparationStep(f"connecting to {spec.name}"))
        remote = Remote(Dsn(spec.server))
        if not study.into_existing:
            workload = study.driving(index).workload
            workload.to_load()  # raises UsageError if no load makes the data
            workload.require_major(remote.check().version.major, spec.name)
            continue
        _existing(index, spec, study, remote)
        other = seen.setdefault(remote.identity(), spec.name)
        if other != spec.name:
            raise UsageError(
                f"{other} and {spec.name} are the same database: with --into-existing each arm "
                "needs its own, because data are not restored"
            )


def few_connections(study: Study) -> dict[int, tuple[int, int]]:
    """Return by arm the needed and the available connections, where these are too few. Raises ConnectError.

    Arms on one server share its connections if they take turns, because all clients stay connected.
    """
    most: dict[int, int] = {}
    on: dict[object, list[int]] = {}
    for index, spec in enumerate(study.arms):
        if spec.is_dsn:
            remote = Remote(Dsn(spec.server))
            with remote.connect() as connection:
                most[index] = connections_max(connection)
            on.setdefault(remote.identity()[0] if study.is_together else index, []).append(index)
    needed = {
        index: sum(study.driving(one).clients + OWN_CONNECTIONS for one in sharing)
        for sharing in on.values()
        for index in sharing
    }
    return {index: (needed[index], most[index]) for index in most if needed[index] > most[index]}


def open_arms(
    watch: Watch, interruption: Interruption, stack: contextlib.ExitStack
) -> Callable[[Study, int], RunningArm]:
    """Return a function that prepares an arm. Cases with the same data share it until the stack closes."""
    opened: dict[tuple[str, str, int], DsnArm] = {}

    def prepare(study: Study, index: int) -> RunningArm:
        spec, workload = study.arms[index], study.driving(index).workload
        place = (spec.server, f"{workload.kind} {sorted(workload.shape().items())}", index)
        if place not in opened:
            opened[place] = stack.enter_context(open_dsn_arm(index, spec, study, watch, interruption))
        arm = replace(opened[place], name=spec.name)
        caveats = [*untested_version(spec.name, arm.description.version)]
        caveats.append(Caveat.of("server-not-restarted", arm=spec.name))
        if study.into_existing:
            caveats.append(Caveat.of("data-not-restored", arm=spec.name))
        return RunningArm(arm, arm.facts, arm.dataset, caveats)

    return prepare


def mark_shared(study: Study, arms: Sequence[LabArm]) -> list[Caveat]:
    """Mark the arms that take turns on the same running server. Return a caveat for each such server."""
    on: dict[object, list[DsnArm]] = {}
    for arm in arms if study.schedule == "slices" else ():
        if isinstance(arm, DsnArm):
            on.setdefault(arm.remote.identity()[0], []).append(arm)
    groups = [sharing for sharing in on.values() if len(sharing) > 1]
    for arm in (arm for sharing in groups for arm in sharing):
        arm.shares_server = True
    return [Caveat.of("one-server", arms=", ".join(arm.name for arm in sharing)) for sharing in groups]


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


def dataset_database_name(parameters: WorkloadParameters) -> str:
    """Return the name of the database with this dataset on a running server, unique for each dataset."""
    facts = [dict(parameters.shape()), DATASET_SEED, workload_of(parameters).format]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return database_name(parameters.kind, parameters.label.partition("-")[0], digest[:12])


# ----------------------------------------------------------------------
# Output of ``pgdyno cache --dsn``: the databases of pgdyno on a running server.
# ----------------------------------------------------------------------


def list_databases(dsn: str, as_json: bool) -> None:
    """Print the databases. Raises ConnectError."""
    _print_databases(Remote(Dsn(dsn)).describe_databases(), "", as_json)


def prune_databases(dsn: str, dry_run: bool, as_json: bool) -> None:
    """Drop the unused databases of studies, unless ``dry_run``, and print them. Raises ConnectError,
    DatasetError.
    """
    remote = Remote(Dsn(dsn))
    databases = remote.describe_databases() if dry_run else remote.prune()
    free = [of for of in databases if of.is_of_study and not of.in_use]
    _print_databases(free, " would be dropped" if dry_run else " dropped", as_json)


def _print_databases(found: Sequence[OwnDatabase], verb: str, as_json: bool) -> None:
    if as_json:
        print_json({"databases": [asdict(of) for of in found]})
        return
    size = format_size(sum(of.size_bytes for of in found))
    say(f"{counted(len(found), 'database')}{verb}, {size}")
    table = Table("name", "purpose", "size", "", box=None)
    for of in found:
        # Text: no markup in names and comments, which others can set.
        cells = (of.name, of.purpose, format_size(of.size_bytes), _state(of))
        table.add_row(*map(Text, cells))
    if found:
        out.print(table)


def _state(of: OwnDatabase) -> str:
    return "in use" if of.in_use else "" if of.is_of_study else "kept: not of a study"


RUNNING_SERVERS = RunningServers(
    require_usable, few_connections, open_arms, mark_shared, list_databases, prune_databases
)
