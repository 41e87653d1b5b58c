"""History of the data of an arm: loaded, aged by transactions, upgraded by pg_upgrade, in this order.

Each step makes a dataset from the dataset before it, in the cache with a key of its own (ADR 22).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pgdyno.errors import DatasetError, in_one_line
from pgdyno.features.aged_data.upgrade import OldCluster, UpgradeBuilds, upgrade, upgrade_builds
from pgdyno.features.own_data.loading import (
    NO_REPLICATION,
    WITHOUT_STATISTICS,
    mismatched_collation,
    require_extensions,
)
from pgdyno.features.own_data.plan import OwnDataParameters
from pgdyno.features.own_data.source import own_data_of, value_of
from pgdyno.features.own_data_checks.preflight import (
    draw_from,
    message_without_values,
    read_samples,
    require_working_scripts,
    sample_commands,
)
from pgdyno.measure.dataset_loading import DATASET_SEED, DataKind, Maker, dataset_key, load_settings
from pgdyno.measure.engine_runs import EngineRun, drive_specification, run_drive
from pgdyno.measure.progress import PreparationStep, Watch
from pgdyno.server.build_store import Store, system_builds
from pgdyno.server.builds import Build, create_extensions
from pgdyno.server.connections import cancel
from pgdyno.server.engine import Event
from pgdyno.server.processes import Cluster, Connection, InitOptions, Server
from pgdyno.server.snapshots import DatasetKey, Make, restore
from pgdyno.study.plan import Driving
from pgdyno.study.schedule import TRANSACTIONS_LIMIT_S, PlannedSlice, Role
from pgdyno.study.workload_parameters import WorkloadParameters

AGE_CLIENTS = 8
"""Clients that age data: the same on every machine, because concurrency changes the order of rows."""


def has_history(parameters: WorkloadParameters) -> bool:
    """Return whether the data are aged or upgraded."""
    return bool(parameters.history())


def more_builds(
    workload: WorkloadParameters,
    arm: str,
    build: Build,
    of_arms: Sequence[Build],
    store: Store,
    watch: Watch,
) -> Sequence[Build]:
    """Return the builds of an upgrade of the data. Raises UsageError, FetchError."""
    if not workload.is_upgraded:
        return ()
    watch(PreparationStep(f"finding the programs of pg_upgrade for {arm}", may_last=True))
    there = [*of_arms, *system_builds(), *store.cached()]
    found = upgrade_builds(workload.upgrade_from, arm, build, there, store)
    workload.before_upgrade().require_major(found.old.version.major, f"pg_upgrade:{workload.upgrade_from}")
    return found.old, found.new


def key(build: Build, parameters: WorkloadParameters, init: InitOptions, more: Sequence[Build]) -> DatasetKey:
    """Return the key of the dataset: a step adds itself to the key of the dataset before it."""
    own: dict[str, int | str]
    if parameters.is_upgraded:
        old, _ = more
        before = dataset_key(old, parameters.before_upgrade(), init)
        own = {"upgraded_from": before.build_id, "upgrade_analyze": int(parameters.upgrade_analyze)}
        label = f"{before.label}-from{old.version.major}"
    else:
        before = dataset_key(build, parameters.before_aging(), init)
        deviations = [deviation.name for deviation in parameters.deviations]
        work = json.dumps([parameters.kind, parameters.work(), deviations])
        own = {"age": parameters.age, "aged_by": hashlib.sha256(work.encode()).hexdigest()[:16]}
        label = f"{before.label}-aged"
    return replace(before, build_id=build.build_id, scale={**before.scale, **own}, label=label)


def make(maker: Maker, build: Build, parameters: WorkloadParameters, more: Sequence[Build]) -> Make:
    """Return the function that creates the data directory."""
    if parameters.is_upgraded:
        return _Upgrade(maker, build, parameters, UpgradeBuilds(*more)).make
    return _Aging(maker, build, parameters).make


@dataclass(frozen=True)
class _Upgrade:
    """Makes a dataset with pg_upgrade from one of the old server."""

    maker: Maker
    build: Build
    parameters: WorkloadParameters
    builds: UpgradeBuilds

    def make(self, data_dir: Path) -> Mapping[str, Any]:
        """Create the data directory. Return the details of the dataset before it, and of the upgrade."""
        maker, old_dir = self.maker, data_dir.with_name("old")
        progress = maker.progress_of(self.parameters, self.build)
        with self.maker.hold(self.builds.old, self.parameters.before_upgrade()) as before:
            progress("copy", 0.0)
            maker.require_room(self.parameters, before.snapshot.size_bytes)
            restore(before.snapshot, old_dir, maker.cache.account)
            details = dict(before.details)
        old = self._old_cluster(old_dir)
        progress("pg_upgrade", 0.0)
        upgrade(self.builds, old, old_dir, data_dir, maker.cache.account, maker.interruption.check)
        with Cluster(self.build, data_dir, maker.cache.account).start(load_settings(self.build)) as server:
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
        cluster = Cluster(self.builds.old, old_dir, self.maker.cache.account)
        with (
            cluster.start({**load_settings(self.builds.old), **NO_REPLICATION}) as server,
            server.connect() as connection,
        ):
            return OldCluster.read(connection)

    def _finished(self, server: Server, database: str) -> dict[str, Any]:
        interruption = self.maker.interruption
        with server.connect(database) as connection, interruption.tell(lambda: cancel(connection)):
            create_extensions(connection, self.build)
            require_extensions(connection, self.parameters.data_name, self.build.label)
            collation = mismatched_collation(connection)
            if self.parameters.upgrade_analyze:
                connection.execute("ANALYZE")
            return {
                "without_statistics": value_of(connection, WITHOUT_STATISTICS),
                "changes": [collation] if collation else [],
            }


@dataclass(frozen=True)
class _Aging:
    """Makes a dataset from another one, by transactions of the workload."""

    maker: Maker
    build: Build
    parameters: WorkloadParameters

    def make(self, data_dir: Path) -> Mapping[str, Any]:
        """Create the data directory. Return the details of the dataset before it, and of the transactions."""
        maker = self.maker
        before_aging = self.parameters.before_aging()
        with self.maker.hold(self.build, before_aging) as before:
            maker.require_room(self.parameters, before.snapshot.size_bytes)
            restore(before.snapshot, data_dir, maker.cache.account)
            details = dict(before.details)
        # The settings of the load, with autovacuum as it is by default: arms share the dataset.
        settings = {**load_settings(self.build), "autovacuum": "on"}
        if (own := own_data_of(self.parameters)) is not None and own.form == "backup":
            settings |= NO_REPLICATION
        with Cluster(self.build, data_dir, maker.cache.account).start(settings) as server:
            database = details.get("database", self.parameters.kind)
            target = (f"PostgreSQL {self.build.version}", server.conninfo(database))
            workload = before_aging
            if own is not None:
                with server.connect(database) as connection:
                    workload = self._drawing(workload, connection)
                # Fail before hours of aging.
                require_working_scripts(workload, target, maker.interruption)
            aged = self._age(workload, target)
            maker.progress_of(self.parameters, self.build)("checkpoint", 0.0)
            with server.connect(database) as connection:
                dead = value_of(connection, DEAD_ROWS)
        changes = [*details.get("changes", ()), *_failures(aged, self.parameters)]
        return {**details, "changes": changes, "aged": {**aged, "dead_rows": dead}}

    def _drawing(self, workload: WorkloadParameters, connection: Connection) -> WorkloadParameters:
        """Return the workload with the values that its scripts sample. Raises UsageError, WorkloadError."""
        assert isinstance(workload, OwnDataParameters)
        commands = sample_commands(workload)
        interruption = self.maker.interruption
        with interruption.tell(lambda: cancel(connection)):
            found = read_samples(connection, commands, len(commands), interruption)
        return draw_from(workload, found)

    def _age(self, workload: WorkloadParameters, target: tuple[str, str]) -> dict[str, int]:
        """Run the transactions. Return their numbers by outcome. Raises DatasetError, Interrupted."""
        maker, age = self.maker, self.parameters.age
        progress = maker.progress_of(self.parameters, self.build)
        clients = min(AGE_CLIENTS, age)
        driving = Driving(workload=workload, clients=clients)
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


DATA = DataKind(has_history, key, make, more_builds)
