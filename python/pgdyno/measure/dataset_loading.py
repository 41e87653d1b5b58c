"""Loading of the dataset of an arm: initdb, load by the engine, clean shutdown. The result is cached."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg import sql

from pgdyno.errors import DatasetError, DiskFullError
from pgdyno.features.aged_data.upgrade import UpgradeBuilds
from pgdyno.features.own_data.loading import FORMAT as OWN_FORMAT
from pgdyno.features.own_data.loading import OwnDataMaker
from pgdyno.features.own_data.plan import OwnData
from pgdyno.interruption import Interruption
from pgdyno.measure.engine_runs import OnLoad, run_load
from pgdyno.measure.progress import LoadProgress, Watch
from pgdyno.server.builds import PRELOAD_SETTING, Build, create_extensions
from pgdyno.server.connections import cancel
from pgdyno.server.directories import Account, free_bytes
from pgdyno.server.engine import Event
from pgdyno.server.processes import Cluster, InitOptions, Server
from pgdyno.server.remote import database_name
from pgdyno.server.snapshots import DatasetKey, Make
from pgdyno.study.plan import Study
from pgdyno.study.workload_parameters import WorkloadParameters
from pgdyno.units import format_setting_size, format_size
from pgdyno.workloads.pgbench.parameters import PgbenchParameters
from pgdyno.workloads.registry import workload_of
from pgdyno.workloads.workload import Connect

DATASET_SEED = 1
"""Seed of all datasets, so that studies share them. The seed of the clients varies by block."""


@dataclass(frozen=True)
class Place:
    """Target database of a load. ``into_existing``: data of an earlier load may be replaced. ``replace``:
    pgbench tables may be replaced, whoever created them.
    """

    conninfo: str
    connect: Connect
    into_existing: bool = False
    replace: bool = False


def load_data(
    place: Place,
    parameters: WorkloadParameters,
    interruption: Interruption,
    on_progress: OnLoad,
    on_forecast: Callable[[int], None],
    *,
    connections: int | None = None,
    seed: int = DATASET_SEED,
) -> Event:
    """Load the data and return the ``result`` of the engine.

    Calls ``on_forecast`` with the expected size in bytes before the first row; an exception from it ends the
    load. Raises DatasetError, Interrupted.
    """
    workload = workload_of(parameters)
    if place.into_existing:
        with place.connect() as connection:
            workload.require_replaceable(connection)
    specification = load_specification(place, parameters, connections=connections, seed=seed)
    result = run_load(
        specification,
        interruption,
        on_progress,
        on_forecast=lambda size_bytes: on_forecast(size_bytes + workload.bytes_completed),
    )
    with place.connect() as connection, interruption.tell(lambda: cancel(connection)):
        try:
            workload.complete(connection, lambda phase: on_progress(phase, 0.0))
        except (psycopg.Error, DatasetError) as error:
            if interruption.requested:
                raise interruption.interrupted("the load was interrupted; its data are incomplete") from error
            raise
    return result


def load_new_database(
    server: Server,
    parameters: WorkloadParameters,
    interruption: Interruption,
    on_progress: OnLoad,
    on_forecast: Callable[[int], None],
) -> None:
    """Load the data into a new database, named after the workload, with the extensions of the build.

    Raises ServerError, DatasetError, Interrupted.
    """
    database = parameters.kind
    with server.connect() as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
    with server.connect(database) as connection:
        create_extensions(connection, server.build)
    place = Place(server.conninfo(database), lambda: server.connect(database))
    load_data(place, parameters, interruption, on_progress, on_forecast)


def load_specification(
    place: Place,
    parameters: WorkloadParameters,
    *,
    connections: int | None = None,
    seed: int = DATASET_SEED,
) -> dict[str, Any]:
    """Return the specification for the engine's ``load`` (docs/reference/engine-protocol.md).

    The default is one connection per core.
    """
    return {
        "conninfo": place.conninfo,
        "workload": parameters.to_load(),
        "seed": seed,
        "connections": connections or max(2, psutil.cpu_count() or 2),
        "into_existing": place.into_existing,
        "replace": place.replace,
    }


WAL_RESERVE_BYTES = 2 << 30
"""Disk space of a server in addition to its data: WAL up to the default max_wal_size, and growth."""


@dataclass(frozen=True)
class Maker:
    """Creates datasets. ``cache``: path on the disk for the data. ``copies``: number of live copies of each
    that the same disk must hold, in addition to ``promised_bytes`` for others.
    """

    cache: Path
    account: Account
    copies: int
    watch: Watch
    interruption: Interruption
    init: InitOptions
    promised_bytes: int = 0
    clients: Sequence[Build] = ()
    """Builds that may have psql and pg_restore, for own data."""

    def make(self, build: Build, parameters: WorkloadParameters) -> Make:
        """Return the function with which ``Datasets.hold`` creates a data directory.

        That function raises DiskFullError, DatasetError.
        """
        progress = self.progress_of(parameters, build)

        def require_room(size_bytes: int) -> None:
            self.require_room(parameters, size_bytes)

        if (own := own_data_of(parameters)) is not None:
            return OwnDataMaker(
                own,
                build,
                [build, *self.clients],
                self.account,
                self.init,
                load_settings(build),
                self.interruption,
                progress,
                require_room,
            ).make

        def create(data_dir: Path) -> None:
            progress("initdb", 0.0)
            cluster = Cluster(build, data_dir, self.account)
            cluster.initdb(self.init)
            with cluster.start(load_settings(build)) as server:
                load_new_database(server, parameters, self.interruption, progress, require_room)
                self.interruption.check()
                progress("checkpoint", 0.0)

        return create

    def progress_of(self, parameters: WorkloadParameters, build: Build) -> OnLoad:
        """Return the function that reports the phases of one dataset."""
        name = f"{parameters.data_name}, PostgreSQL {build.version}"
        return lambda phase, share: self.watch(LoadProgress(name, phase, share))

    def require_room(self, parameters: WorkloadParameters, size_bytes: int) -> None:
        """Raise DiskFullError if a dataset of this size and its live copies do not fit."""
        require_space(self.cache, size_bytes, self.copies, parameters.SMALLER, self.promised_bytes)


def require_space(
    cache: Path, bytes_estimated: int, copies: int, smaller: str, promised_bytes: int = 0
) -> None:
    """Raise DiskFullError if the disk of the cache cannot hold the dataset, its live copies and
    ``promised_bytes`` for other datasets. ``smaller`` is the remedy in the message.
    """
    needed = bytes_estimated * (1 + copies) + promised_bytes + WAL_RESERVE_BYTES
    free = free_bytes(cache)
    if needed > free:
        what = (
            f"the dataset and {copies} live copies of it"
            if bytes_estimated
            else "the live copies of all data"
        )
        raise DiskFullError(
            f"{what} need about {format_size(needed)}, "
            f"but only {format_size(free)} are free on the disk of the cache {cache}: {smaller}, "
            "run pgdyno cache prune, or set PGDYNO_CACHE to a larger disk"
        )


def load_settings(build: Build) -> Mapping[str, str]:
    """Return the settings of the server during a load. The snapshot follows a clean shutdown, so they have no
    effect on trials.

    With minimal WAL, COPY into a table of the same transaction writes only the table, and no WAL. fsync stays
    on. Autovacuum is off, so that it does not interfere: the loader leaves nothing for it to do.
    """
    memory = psutil.virtual_memory().total
    preloaded = {PRELOAD_SETTING: ",".join(build.libraries)} if build.libraries else {}
    return {
        **preloaded,
        "wal_level": "minimal",
        "max_wal_senders": "0",
        "max_wal_size": "8GB",
        "checkpoint_timeout": "1h",
        "synchronous_commit": "off",
        "autovacuum": "off",
        "shared_buffers": format_setting_size(min(1 << 30, memory // 16 >> 20 << 20)),
        "maintenance_work_mem": format_setting_size(min(1 << 30, memory // 32 >> 20 << 20)),
    }


def init_options(study: Study) -> InitOptions:
    """Return the options of initdb for the datasets of a study."""
    return InitOptions(checksums=study.checksums, wal_segment_mb=study.wal_segment_mb)


def own_data_of(parameters: WorkloadParameters) -> OwnData | None:
    """Return the user's own data of a workload; None if its data are generated."""
    return parameters.data if isinstance(parameters, PgbenchParameters) else None


def dataset_key(
    build: Build, parameters: WorkloadParameters, init: InitOptions, builds: UpgradeBuilds | None = None
) -> DatasetKey:
    """Return the key of the cached dataset. ``builds``: of the upgrade; None if it is not upgraded.

    A step of its history adds itself to the key of the dataset before it.
    """
    own: dict[str, int | str]
    if parameters.is_upgraded:
        assert builds is not None
        before = dataset_key(builds.old, parameters.before_upgrade(), init)
        own = {"upgraded_from": before.build_id, "upgrade_analyze": int(parameters.upgrade_analyze)}
        label = f"{before.label}-from{builds.old.version.major}"
    elif parameters.age:
        before = dataset_key(build, parameters.before_aging(), init)
        deviations = [deviation.name for deviation in parameters.deviations]
        work = json.dumps([parameters.kind, parameters.work(), deviations])
        own = {"age": parameters.age, "aged_by": hashlib.sha256(work.encode()).hexdigest()[:16]}
        label = f"{before.label}-aged"
    else:
        return _key_of_load(build, parameters, init)
    return replace(before, build_id=build.build_id, scale={**before.scale, **own}, label=label)


def _key_of_load(build: Build, parameters: WorkloadParameters, init: InitOptions) -> DatasetKey:
    """Return the key of loaded data. A backup belongs to a major version, other data to a build."""
    if (own := own_data_of(parameters)) is not None:
        is_backup = own.form == "backup"
        return DatasetKey(
            "-".join(filter(None, (f"postgresql-{build.version.major}", build.extensions_digest)))
            if is_backup
            else build.build_id,
            InitOptions() if is_backup else init,
            "data",
            own.shape(),
            DATASET_SEED,
            OWN_FORMAT,
            parameters.label,
        )
    return DatasetKey(
        build.build_id,
        init,
        parameters.kind,
        parameters.shape(),
        DATASET_SEED,
        workload_of(parameters).format,
        parameters.label,
    )


def dataset_database_name(parameters: WorkloadParameters) -> str:
    """Return the name of the database with this dataset on a running server, unique for each dataset."""
    facts = [dict(parameters.shape()), DATASET_SEED, workload_of(parameters).format]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return database_name(parameters.kind, parameters.label.partition("-")[0], digest[:12])
