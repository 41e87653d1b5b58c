"""Loading of the dataset of an arm: initdb, load by the engine, clean shutdown. The result is cached."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg import sql

from pgdyno.errors import DatasetError, DiskFullError
from pgdyno.hooks import Hooks
from pgdyno.interruption import Interruption
from pgdyno.measure.engine_runs import OnLoad, run_load
from pgdyno.measure.progress import LoadProgress, Watch
from pgdyno.server.build_store import Store
from pgdyno.server.builds import PRELOAD_SETTING, Build, create_extensions
from pgdyno.server.cache_directory import Cache
from pgdyno.server.connections import cancel
from pgdyno.server.directories import free_bytes
from pgdyno.server.engine import Event
from pgdyno.server.processes import Cluster, InitOptions, Server
from pgdyno.server.snapshots import Dataset, DatasetKey, Make
from pgdyno.study.plan import Study
from pgdyno.study.workload_parameters import WorkloadParameters
from pgdyno.units import format_setting_size, format_size
from pgdyno.workloads.workload import Connect, workload_of

DATASET_SEED = 1
"""Seed of all datasets, so that studies share them. The seed of the clients varies by block."""


@dataclass(frozen=True)
class Place:
    """Target database of a load. ``into_existing``: data of an earlier load may be replaced. ``replace``:
    pgbench tables may be replaced, whoever created them. ``further``: what the load creates besides the data.
    """

    conninfo: str
    connect: Connect
    into_existing: bool = False
    replace: bool = False
    further: Mapping[str, Any] = field(default_factory=dict)


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
    place: Place, parameters: WorkloadParameters, *, connections: int | None = None, seed: int = DATASET_SEED
) -> dict[str, Any]:
    """Return the specification for the engine's ``load`` (docs/reference/engine-protocol.md).

    The default is one connection per core.
    """
    return {
        "conninfo": place.conninfo,
        "workload": {**parameters.to_load(), **place.further},
        "seed": seed,
        "connections": connections or max(2, psutil.cpu_count() or 2),
        "into_existing": place.into_existing,
        "replace": place.replace,
    }


WAL_RESERVE_BYTES = 2 << 30
"""Disk space of a server in addition to its data: WAL up to the default max_wal_size, and growth."""


@dataclass(frozen=True)
class Maker:
    """Creates datasets in the cache. ``copies``: number of live copies of each that the same disk must hold,
    in addition to ``promised_bytes`` for others.
    """

    cache: Cache
    copies: int
    watch: Watch
    interruption: Interruption
    init: InitOptions
    promised_bytes: int = 0

    @contextlib.contextmanager
    def hold(
        self, build: Build, parameters: WorkloadParameters, more: Sequence[Build] = ()
    ) -> Iterator[Dataset]:
        """Hold the dataset during the block; make it, and those before it, unless they are cached.

        ``more``: further builds that its kind needs. Raises DatasetError, DiskFullError, WorkloadError
        (scripts fail), ServerError, Interrupted.
        """
        kind = data_kind(parameters)
        key, make = kind.key(build, parameters, self.init, more), kind.make(self, build, parameters, more)
        with self.cache.cached_datasets().hold(key, make) as dataset:
            yield dataset

    def progress_of(self, parameters: WorkloadParameters, build: Build) -> OnLoad:
        """Return the function that reports the phases of one dataset."""
        name = f"{parameters.data_name}, PostgreSQL {build.version}"
        return lambda phase, share: self.watch(LoadProgress(name, phase, share))

    def require_room(self, parameters: WorkloadParameters, size_bytes: int) -> None:
        """Raise DiskFullError if a dataset of this size and its live copies do not fit."""
        require_space(self.cache.root, size_bytes, self.copies, parameters.SMALLER, self.promised_bytes)


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


@dataclass(frozen=True)
class DataKind:
    """A way to make data. ``makes``: whether the data of a workload are made in this way, and no other.

    ``key``, ``make``: the key of a dataset in the cache, and the function that creates its data directory and
    raises DiskFullError, DatasetError. ``more_builds``: finds builds that these need beside that of the arm,
    given its name, its build and the builds of all arms. Raises UsageError, FetchError.
    """

    makes: Callable[[WorkloadParameters], bool]
    key: Callable[[Build, WorkloadParameters, InitOptions, Sequence[Build]], DatasetKey]
    make: Callable[[Maker, Build, WorkloadParameters, Sequence[Build]], Make]
    more_builds: Callable[
        [WorkloadParameters, str, Build, Sequence[Build], Store, Watch], Sequence[Build]
    ] = lambda *_: ()


DATA_KINDS: Hooks[DataKind] = Hooks("data")


def data_kind(parameters: WorkloadParameters) -> DataKind:
    """Return the way to make the data of a workload: that of a feature, else a load by the engine."""
    return next((kind for kind in DATA_KINDS if kind.makes(parameters)), BY_ENGINE)


def dataset_key(
    build: Build, parameters: WorkloadParameters, init: InitOptions, more: Sequence[Build] = ()
) -> DatasetKey:
    """Return the key of the cached dataset. ``more``: further builds that its kind needs."""
    return data_kind(parameters).key(build, parameters, init, more)


def _key_of_load(
    build: Build, parameters: WorkloadParameters, init: InitOptions, _: Sequence[Build]
) -> DatasetKey:
    return DatasetKey(
        build.build_id,
        init,
        parameters.kind,
        parameters.shape(),
        DATASET_SEED,
        workload_of(parameters).format,
        parameters.label,
    )


def _make_by_engine(maker: Maker, build: Build, parameters: WorkloadParameters, _: Sequence[Build]) -> Make:
    progress = maker.progress_of(parameters, build)

    def create(data_dir: Path) -> None:
        progress("initdb", 0.0)
        cluster = Cluster(build, data_dir, maker.cache.account)
        cluster.initdb(maker.init)
        with cluster.start(load_settings(build)) as server:
            require_room = partial(maker.require_room, parameters)
            load_new_database(server, parameters, maker.interruption, progress, require_room)
            maker.interruption.check()
            progress("checkpoint", 0.0)

    return create


BY_ENGINE = DataKind(lambda _: True, _key_of_load, _make_by_engine)
