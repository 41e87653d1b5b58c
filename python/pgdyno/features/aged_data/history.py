"""History of the data of an arm: loaded, aged by transactions, upgraded by pg_upgrade, in this order.

Each step makes a dataset from the dataset before it, in the cache with a key of its own (ADR 22).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgdyno.errors import DatasetError, WorkloadError, in_one_line
from pgdyno.features.aged_data.upgrade import OldCluster, UpgradeBuilds, upgrade
from pgdyno.features.own_data import loading
from pgdyno.features.own_data.checks import message_without_values
from pgdyno.features.own_data.loading import NO_REPLICATION, WITHOUT_STATISTICS, count_of, require_extensions
from pgdyno.features.own_data.sampling import draw_from, read_samples, sample_commands
from pgdyno.measure.dataset_loading import DATASET_SEED, Maker, dataset_key, load_settings, own_data_of
from pgdyno.measure.engine_runs import EngineRun, drive_specification, run_drive
from pgdyno.measure.preflight import MADE_BY_OTHERS, failures_of
from pgdyno.server.builds import Build, create_extensions
from pgdyno.server.connections import cancel
from pgdyno.server.engine import Event
from pgdyno.server.processes import Cluster, Connection, Server
from pgdyno.server.snapshots import Dataset, Datasets, Make, restore
from pgdyno.study.plan import Driving
from pgdyno.study.schedule import TRANSACTIONS_LIMIT_S, PlannedSlice, Role
from pgdyno.study.workload_parameters import WorkloadParameters
from pgdyno.workloads.pgbench.parameters import PgbenchParameters

AGE_CLIENTS = 8
"""Clients that age data: the same on every machine, because concurrency changes the order of rows."""


@dataclass(frozen=True)
class HistoryMaker:
    """Makes datasets with a history. ``maker`` loads them."""

    datasets: Datasets
    maker: Maker

    @contextlib.contextmanager
    def hold(
        self, build: Build, parameters: WorkloadParameters, builds: UpgradeBuilds | None
    ) -> Iterator[Dataset]:
        """Hold the dataset during the block; make it, and those before it, unless they are cached.

        Raises DatasetError, DiskFullError, WorkloadError (scripts fail), ServerError, Interrupted.
        """
        key = dataset_key(build, parameters, self.maker.init, builds)
        with self.datasets.hold(key, self._make(build, parameters, builds)) as dataset:
            yield dataset

    def _make(self, build: Build, parameters: WorkloadParameters, builds: UpgradeBuilds | None) -> Make:
        if parameters.is_upgraded:
            assert builds is not None
            return _Upgrade(self, build, parameters, builds).make
        if parameters.age:
            return _Aging(self, build, parameters).make
        return self.maker.make(build, parameters)


@dataclass(frozen=True)
class _Upgrade:
    """Makes a dataset with pg_upgrade from one of the old server."""

    history: HistoryMaker
    build: Build
    parameters: WorkloadParameters
    builds: UpgradeBuilds

    def make(self, data_dir: Path) -> Mapping[str, Any]:
        """Create the data directory. Return the details of the dataset before it, and of the upgrade."""
        maker, old_dir = self.history.maker, data_dir.with_name("old")
        progress = maker.progress_of(self.parameters, self.build)
        with self.history.hold(self.builds.old, self.parameters.before_upgrade(), None) as before:
            progress("copy", 0.0)
            maker.require_room(self.parameters, before.snapshot.size_bytes)
            restore(before.snapshot, old_dir, maker.account)
            details = dict(before.details)
        old = self._old_cluster(old_dir)
        progress("pg_upgrade", 0.0)
        upgrade(self.builds, old, old_dir, data_dir, maker.account, maker.interruption.check)
        with Cluster(self.build, data_dir, maker.account).start(load_settings(self.build)) as server:
            if self.parameters.upgrade_analyze:
                progress("analyze", 0.0)
            found = self._finished(server, details.get("database", self.parameters.kind))
            maker.interruption.check()
        changes = [*details.get("changes", ()), *found.pop("changes")]
        own = {"upgraded_from": self.builds.old.label, "upgraded_by": self.builds.new.label}
        return {**details, **own, **found, "changes": changes}

    def _old_cluster(self, old_dir: Path) -> OldCluster:
        """Return what the new cluster must share; that of a backup is unknown until its server runs."""
        own = own_data_of(self.parameters)
        if own is None or own.form != "backup":
            return OldCluster()
        cluster = Cluster(self.builds.old, old_dir, self.history.maker.account)
        with (
            cluster.start({**load_settings(self.builds.old), **NO_REPLICATION}) as server,
            server.connect() as connection,
        ):
            return OldCluster.read(connection)

    def _finished(self, server: Server, database: str) -> dict[str, Any]:
        interruption = self.history.maker.interruption
        with server.connect(database) as connection, interruption.tell(lambda: cancel(connection)):
            create_extensions(connection, self.build)
            extensions = loading.installed_extensions(connection)
            name = self.parameters.data_name
            require_extensions(connection, extensions, name, self.build.label)
            collation = loading.mismatched_collation(connection)
            if self.parameters.upgrade_analyze:
                connection.execute("ANALYZE")
            return {
                "without_statistics": count_of(connection, WITHOUT_STATISTICS),
                "changes": [collation] if collation else [],
            }


@dataclass(frozen=True)
class _Aging:
    """Makes a dataset from another one, by transactions of the workload."""

    history: HistoryMaker
    build: Build
    parameters: WorkloadParameters

    def make(self, data_dir: Path) -> Mapping[str, Any]:
        """Create the data directory. Return the details of the dataset before it, and of the transactions."""
        maker = self.history.maker
        before_aging = self.parameters.before_aging()
        with self.history.hold(self.build, before_aging, None) as before:
            maker.require_room(self.parameters, before.snapshot.size_bytes)
            restore(before.snapshot, data_dir, maker.account)
            details = dict(before.details)
        # The settings of the load, with autovacuum as it is by default: arms share the dataset.
        settings = {**load_settings(self.build), "autovacuum": "on"}
        if (own := own_data_of(self.parameters)) is not None and own.form == "backup":
            settings |= NO_REPLICATION
        with Cluster(self.build, data_dir, maker.account).start(settings) as server:
            database = details.get("database", self.parameters.kind)
            target = (f"PostgreSQL {self.build.version}", server.conninfo(database))
            workload = before_aging
            if own is not None:
                with server.connect(database) as connection:
                    workload = self._drawing(workload, connection)
                self._require_working_scripts(workload, target)
            aged = self._age(workload, target)
            maker.progress_of(self.parameters, self.build)("checkpoint", 0.0)
            with server.connect(database) as connection:
                dead = count_of(connection, DEAD_ROWS)
        changes = [*details.get("changes", ()), *_failures(aged, self.parameters)]
        return {**details, "changes": changes, "aged": {**aged, "dead_rows": dead}}

    def _drawing(self, workload: WorkloadParameters, connection: Connection) -> WorkloadParameters:
        """Return the workload with the values that its scripts sample. Raises UsageError, WorkloadError."""
        assert isinstance(workload, PgbenchParameters)
        commands = {of.source: of for of in sample_commands(workload)}
        interruption = self.history.maker.interruption
        with interruption.tell(lambda: cancel(connection)):
            found = read_samples(connection, commands.values(), len(commands), interruption)
        return draw_from(workload, found)

    def _require_working_scripts(self, workload: WorkloadParameters, target: tuple[str, str]) -> None:
        """Run each script once, so that an error does not appear only after hours. Raises WorkloadError."""
        scripts = workload.single_scripts()
        ignored = MADE_BY_OTHERS if len(scripts) > 1 else ()
        for name, one in scripts.items():
            for message in failures_of(one, target, ignored, self.history.maker.interruption):
                raise WorkloadError(f"{name} fails on {target[0]}: {message}; correct the script or the data")

    def _age(self, workload: WorkloadParameters, target: tuple[str, str]) -> dict[str, int]:
        """Run the transactions. Return their numbers by outcome. Raises DatasetError, Interrupted."""
        maker, age = self.history.maker, self.parameters.age
        progress = maker.progress_of(self.parameters, self.build)
        clients = min(AGE_CLIENTS, age)
        driving = Driving(workload=workload, clients=clients)  # type: ignore[arg-type]
        each = -(-age // clients)
        slices = [PlannedSlice(0, Role.MEASURE, TRANSACTIONS_LIMIT_S, 0, transactions=each)]
        done = 0

        def on_event(event: Event) -> None:
            nonlocal done
            if event["event"] == "interval":
                done += sum(_ended(counts) for counts in event["kinds"].values())
                progress("aging", min(1.0, done / (each * clients)))

        progress("aging", 0.0)
        specification = drive_specification(driving, DATASET_SEED, slices, [target])
        run = run_drive(specification, maker.interruption, on_event)
        maker.interruption.check()
        if not run.complete or run.result is None:
            why = run.failure.message if run.failure is not None else "the engine stopped"
            raise DatasetError(f"the transactions that age the data ended early: {in_one_line(why)}")
        totals = run.result.targets[0].totals.values()
        aged = {name: sum(counts[name] for counts in totals) for name in ("ok", "rolled_back", "failed")}
        if not aged["ok"] + aged["rolled_back"]:
            raise DatasetError(f"no transaction could age the data{_first_error(run)}: correct the scripts")
        return aged


DEAD_ROWS = "SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables"


def _ended(counts: Mapping[str, int]) -> int:
    return counts["ok"] + counts["rolled_back"] + counts["failed"]


def _first_error(run: EngineRun) -> str:
    if not run.errors:
        return ""
    first = run.errors[0]
    return f": {message_without_values(in_one_line(first['message']), first['sqlstate'] or '')}"


def _failures(aged: Mapping[str, int], parameters: WorkloadParameters) -> list[str]:
    if not aged["failed"]:
        return []
    return [f"{aged['failed']} of the {parameters.age} transactions that aged them failed"]
