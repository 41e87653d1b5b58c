"""Loads the dataset of an arm: initdb, load by the engine, clean stop. Once; it is cached."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg import sql

from pgdyno.drive.engine_runs import OnLoad, run_load
from pgdyno.engine import Event
from pgdyno.errors import DatasetError, DiskFullError
from pgdyno.interruption import Interruption
from pgdyno.lab.progress import Load, Watch
from pgdyno.server.build import Build
from pgdyno.server.cluster import Cluster, InitOptions
from pgdyno.server.datasets import DatasetKey
from pgdyno.server.limited_connection import cancel
from pgdyno.server.ownership_marker import database_name
from pgdyno.server.server_account import Account, free_bytes
from pgdyno.study.plan import Study
from pgdyno.study.workload_parameters import WorkloadParameters
from pgdyno.units import format_setting_size, format_size
from pgdyno.workload.interface import Connect
from pgdyno.workload.workloads import workload_of

DATASET_SEED = 1
"""One seed for all, so that studies share datasets; what varies by block is the clients' seed."""


@dataclass(frozen=True)
class Place:
    """A database that is to be loaded. ``into_existing``: what an earlier load left there may be replaced.
    ``replace``: pgbench's tables may be replaced, whoever made them.
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
    """Loads all of it and returns the engine's ``result``.

    ``on_forecast`` is called with the bytes that everything will take, before a row is sent; an exception
    from it ends the load. Raises DatasetError, Interrupted.
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
                raise interruption.interrupted(
                    "the load was stopped at your request; its data are not whole"
                ) from error
            raise
    return result


def load_specification(
    place: Place,
    parameters: WorkloadParameters,
    *,
    connections: int | None = None,
    seed: int = DATASET_SEED,
) -> dict[str, Any]:
    """For the engine's ``load`` (docs/reference/engine-protocol.md). By default a connection per core."""
    return {
        "conninfo": place.conninfo,
        "workload": parameters.to_load(),
        "seed": seed,
        "connections": connections or max(2, psutil.cpu_count() or 2),
        "into_existing": place.into_existing,
        "replace": place.replace,
    }


WAL_RESERVE_BYTES = 2 << 30
"""What a running server needs beside its data: WAL up to PostgreSQL's default max_wal_size, and growth."""


@dataclass(frozen=True)
class Maker:
    """Makes datasets; ``copies`` live copies of each will be needed on the same disk, beside what is
    promised to others. ``cache`` is where that disk is asked for its space.
    """

    cache: Path
    account: Account
    copies: int
    watch: Watch
    interruption: Interruption
    init: InitOptions
    promised_bytes: int = 0

    def make(self, build: Build, parameters: WorkloadParameters) -> Callable[[Path], None]:
        """What ``Datasets.hold`` calls to create a data directory. Raises DiskFullError, DatasetError."""
        name, database = f"{parameters.data_name}, PostgreSQL {build.version}", parameters.kind

        def progress(phase: str, share: float) -> None:
            self.watch(Load(name, phase, share))

        def create(data_dir: Path) -> None:
            progress("initdb", 0.0)
            cluster = Cluster(build, data_dir, self.account)
            cluster.initdb(self.init)
            with cluster.start(load_settings()) as server:
                with server.connect() as connection:
                    connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
                load_data(
                    Place(server.conninfo(database), lambda: server.connect(database)),
                    parameters,
                    self.interruption,
                    progress,
                    lambda size_bytes: require_space(
                        self.cache, size_bytes, self.copies, parameters.SMALLER, self.promised_bytes
                    ),
                )
                self.interruption.check()
                progress("checkpoint", 0.0)

        return create


def require_space(
    cache: Path, bytes_estimated: int, copies: int, smaller: str, promised_bytes: int = 0
) -> None:
    """Raises DiskFullError when the disk under the cache cannot hold the dataset, its live copies, and what
    is promised to other ones; ``smaller`` says how to want less.
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


def load_settings() -> Mapping[str, str]:
    """For the server while it loads; the snapshot is taken after a clean stop, so nothing of it remains.

    Minimal WAL: COPY into a table of the same transaction then writes the table to disk and not the WAL,
    too. fsync stays on. Autovacuum is off, so that it does not come between: the loader leaves nothing for
    it to do.
    """
    memory = psutil.virtual_memory().total
    return {
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
    """What initdb is told of a study's datasets."""
    return InitOptions(checksums=study.checksums, wal_segment_mb=study.wal_segment_mb)


def dataset_key(build: Build, parameters: WorkloadParameters, init: InitOptions) -> DatasetKey:
    """What makes a cached dataset the right one."""
    return DatasetKey(
        build.build_id,
        init,
        parameters.kind,
        parameters.shape(),
        DATASET_SEED,
        workload_of(parameters).format,
        parameters.label,
    )


def pristine_name(parameters: WorkloadParameters) -> str:
    """The database on a running server that holds this dataset: the same name for no other."""
    facts = [dict(parameters.shape()), DATASET_SEED, workload_of(parameters).format]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return database_name(parameters.kind, parameters.label.partition("-")[0], digest[:12])
