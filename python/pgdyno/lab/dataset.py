"""Makes the dataset of an arm on a build of ours: initdb, load, a clean stop. Once; it is cached."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from psycopg import sql

from pgdyno.drive.load import run_load
from pgdyno.engine import dataset_format
from pgdyno.errors import DiskFullError
from pgdyno.estimate import counted
from pgdyno.interruption import Interruption
from pgdyno.lab.progress import Load, Watch
from pgdyno.server.build import Build
from pgdyno.server.cluster import Cluster, InitOptions
from pgdyno.server.datasets import DatasetKey
from pgdyno.server.mark import database_name
from pgdyno.server.user import Account, free_bytes
from pgdyno.study.plan import TpccParameters
from pgdyno.units import format_setting_size, format_size

DATABASE = "tpcc"
DATASET_SEED = 1
"""One seed for all, so that studies share datasets; what varies by block is the clients' seed."""

INIT = InitOptions()

WAL_RESERVE_BYTES = 2 << 30
"""What a running server needs beside its data: WAL up to PostgreSQL's default max_wal_size, and growth."""


@dataclass(frozen=True)
class Maker:
    """Makes datasets; ``copies`` live copies of each will be needed on the same disk."""

    account: Account
    copies: int
    watch: Watch
    interruption: Interruption

    def make(self, build: Build, workload: TpccParameters) -> Callable[[Path], None]:
        """What ``Datasets.hold`` calls to create a data directory. Raises DiskFullError, DatasetError."""
        name = f"tpcc, {counted(workload.warehouses, 'warehouse')}, PostgreSQL {build.version}"

        def progress(phase: str, share: float) -> None:
            self.watch(Load(name, phase, share))

        def create(data_dir: Path) -> None:
            progress("initdb", 0.0)
            cluster = Cluster(build, data_dir, self.account)
            cluster.initdb(INIT)
            with cluster.start(load_settings()) as server:
                with server.connect() as connection:
                    connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
                run_load(
                    load_specification(server.conninfo(DATABASE), workload),
                    self.interruption,
                    progress,
                    on_forecast=lambda size_bytes: require_space(data_dir, size_bytes, self.copies),
                )
                self.interruption.check()
                progress("checkpoint", 0.0)

        return create


def require_space(path: Path, bytes_estimated: int, copies: int) -> None:
    """Raises DiskFullError when the disk under ``path`` cannot hold the dataset and its live copies."""
    needed = bytes_estimated * (1 + copies) + WAL_RESERVE_BYTES
    free = free_bytes(path)
    if needed > free:
        raise DiskFullError(
            f"the dataset and {copies} live copies of it need about {format_size(needed)}, "
            f"but only {format_size(free)} are free on the disk of {path}: take fewer warehouses, "
            "prune (pgdyno cache prune), or set PGDYNO_CACHE to a larger disk"
        )


def load_specification(
    conninfo: str,
    workload: TpccParameters,
    *,
    connections: int | None = None,
    seed: int = DATASET_SEED,
    into_existing: bool = False,
) -> dict[str, Any]:
    """For the engine's ``load`` (docs/engine.md). By default a connection per core."""
    return {
        "conninfo": conninfo,
        "workload": {"kind": workload.kind, "warehouses": workload.warehouses},
        "seed": seed,
        "connections": connections or max(2, psutil.cpu_count() or 2),
        "into_existing": into_existing,
    }


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


def dataset_key(build: Build, workload: TpccParameters) -> DatasetKey:
    """What makes a cached dataset the right one."""
    return DatasetKey(
        build.build_id,
        INIT,
        workload.kind,
        {"warehouses": workload.warehouses},
        DATASET_SEED,
        dataset_format(workload.kind),
    )


def pristine_name(workload: TpccParameters) -> str:
    """The database on a running server that holds this dataset."""
    return database_name(
        workload.kind, f"w{workload.warehouses}", f"s{DATASET_SEED}f{dataset_format(workload.kind)}"
    )
