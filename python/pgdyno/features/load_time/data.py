"""Workload load on servers: an empty database before each trial, and the checks after it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from psycopg import sql

from pgdyno.errors import UsageError
from pgdyno.features.load_time.parameters import KIND, LoadParameters
from pgdyno.interruption import Interruption
from pgdyno.measure.dataset_loading import BY_ENGINE, DataKind, Maker, data_kind, load_settings
from pgdyno.measure.prepare import Preparation
from pgdyno.measure.progress import Watch
from pgdyno.results.records import Check
from pgdyno.server.builds import Build, create_extensions
from pgdyno.server.cache_directory import Cache
from pgdyno.server.engine import TargetResult
from pgdyno.server.processes import Cluster, Connection, InitOptions
from pgdyno.server.snapshots import DatasetKey, Make
from pgdyno.study.plan import Study
from pgdyno.study.workload_parameters import WorkloadParameters
from pgdyno.workloads.server_log import check_log, counted_in
from pgdyno.workloads.workload import Connect, Workload, workload_of


@dataclass(frozen=True)
class Load(Workload):
    """See Workload. A trial begins with an empty database and ends with the data."""

    parameters: LoadParameters
    format: str = "empty"

    @property
    def loaded(self) -> Workload:
        """The workload whose data are loaded."""
        return workload_of(self.parameters.loaded)

    def require(self, conn: Connection) -> None:
        """Check that the data are completely loaded."""
        self.loaded.require(conn)

    def invariants(self, connect: Connect) -> list[Check]:
        """Check the invariants of the loaded data."""
        return self.loaded.invariants(connect)

    def checks(self, clients: int, *, restored: bool) -> LoadChecks:
        """Return the checks of a trial."""
        del clients, restored
        return LoadChecks(self)


@dataclass(frozen=True)
class LoadChecks:
    """See TrialChecks."""

    workload: Load

    def begin(self, conn: Connection) -> None:
        """Do nothing: there are no data."""

    def end(self, connect: Connect, result: TargetResult, server_log: str | None) -> list[Check]:
        """Check that the data are complete, their invariants, and the log."""
        with closing(connect()) as conn:
            self.workload.require(conn)
        checks = [Check("complete data", True), *self.workload.invariants(connect)]
        if server_log is not None:
            checks.append(check_log(server_log, counted_in(result.totals.values())))
        return checks


WORKLOAD = (LoadParameters, Load)


def _key(build: Build, _: WorkloadParameters, init: InitOptions, __: Sequence[Build]) -> DatasetKey:
    return DatasetKey(build.build_id, init, KIND, {}, 0, "empty", "empty")


def _make(maker: Maker, build: Build, parameters: WorkloadParameters, _: Sequence[Build]) -> Make:
    return partial(_create, maker, build, parameters)


def _create(maker: Maker, build: Build, parameters: WorkloadParameters, data_dir: Path) -> None:
    """Create a cluster with an empty database. Raises DiskFullError, ServerError, Interrupted."""
    maker.require_room(parameters, round(parameters.units * parameters.unit_bytes))
    maker.progress_of(parameters, build)("initdb", 0.0)
    cluster = Cluster(build, data_dir, maker.cache.account)
    cluster.initdb(maker.init)
    with cluster.start(load_settings(build)) as server:
        with server.connect() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(KIND)))
        with server.connect(KIND) as connection:
            create_extensions(connection, build)
        maker.interruption.check()


DATA = DataKind(lambda parameters: isinstance(parameters, LoadParameters), _key, _make)


def _require_loads(study: Study, _: Cache, __: Watch, ___: Interruption) -> Study:
    """Return the study. Raises UsageError for a load on a running server, or of data of the user."""
    for index, arm in enumerate(study.arms):
        workload = study.driving(index).workload
        if not isinstance(workload, LoadParameters):
            continue
        if arm.is_dsn:
            raise UsageError(
                f"the workload load requires servers that pgdyno starts (got {arm.name}, a running server): "
                "name a version or a directory"
            )
        if data_kind(workload.loaded) is not BY_ENGINE:
            raise UsageError(
                f"the workload load cannot load {workload.loaded.data_name}: name a workload's data"
            )
    return study


PREPARATION = Preparation(_require_loads)
