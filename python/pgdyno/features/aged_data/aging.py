"""Data of an arm that are loaded, aged by transactions, and upgraded by pg_upgrade, in this order.

Each step makes a dataset from the dataset before it, in the cache with a key of its own (ADR 22).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
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
from pgdyno.measure.engine_runs import drive_specification, run_drive
from pgdyno.measure.progress import PreparationStep, Watch
from pgdyno.server.build_store import Store, system_builds
from pgdyno.server.builds import Build, create_extensions
from pgdyno.server.connections import cancel
from pgdyno.server.engine import Event
from pgdyno.server.processes import Cluster, InitOptions
from pgdyno.server.snapshots import DatasetKey, Make, restore
from pgdyno.study.plan import Driving
from pgdyno.study.schedule import TRANSACTIONS_LIMIT_S, PlannedSlice, Role
from pgdyno.study.workload_parameters import WorkloadParameters

AGE_CLIENTS = 8
"""Clients that age data: the same on every machine, because concurrency changes the order of rows."""


def is_aged(parameters: WorkloadParameters) -> bool:
    """Return whether the data are aged or upgraded."""
    return bool(parameters.aging())


def more_builds(
    workload: WorkloadParameters, arm: str, build: Build, of_arms: Sequence[Build], store: Store, watch: Watch
) -> Sequence[Build]:
    """Return the builds of an upgrade of the data. Raises UsageError, FetchError."""
    if not workload.is_upgraded:
        return ()
    watch(PreparationStep(f"finding the programs of pg_upgrade for {arm}", may_last=True))
    there = [*of_arms, *system_builds(), *store.cached()]
    found = upgrade_builds(workload.upgrade_from, arm, build, there, store)
    store.hold(found.old, found.new)
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
        return partial(_upgrade, maker, build, parameters, UpgradeBuilds(*more))
    return partial(_age, maker, build, parameters)


def _copied(
    maker: Maker, build: Build, before: WorkloadParameters, after: WorkloadParameters, data_dir: Path
) -> dict[str, Any]:
    """Copy the dataset that a step begins with. Return its details."""
    with maker.hold(build, before) as dataset:
        maker.require_room(after, dataset.snapshot.size_bytes)
        restore(dataset.snapshot, data_dir, maker.cache.account)
        return dict(dataset.details)


def _is_backup(parameters: WorkloadParameters) -> bool:
    own = own_data_of(parameters)
    return own is not None and own.form == "backup"


def _upgrade(
    maker: Maker, build: Build, parameters: WorkloadParameters, builds: UpgradeBuilds, data_dir: Path
) -> Mapping[str, Any]:
    """Make a dataset with pg_upgrade from one of the old server. Return the details of both."""
    old_dir, account, interruption = data_dir.with_name("old"), maker.cache.account, maker.interruption
    progress = maker.progress_of(parameters, build)
    progress("copy", 0.0)
    details = _copied(maker, builds.old, parameters.before_upgrade(), parameters, old_dir)
    old = OldCluster()
    if _is_backup(parameters):  # what the new cluster must share is unknown until the server runs
        settings = {**load_settings(builds.old), **NO_REPLICATION}
        with Cluster(builds.old, old_dir, account).start(settings) as server, server.connect() as connection:
            old = OldCluster.read(connection)
    progress("pg_upgrade", 0.0)
    upgrade(builds, old, old_dir, data_dir, account, interruption.check)
    database = details.get("database", parameters.kind)
    with (
        Cluster(build, data_dir, account).start(load_settings(build)) as server,
        server.connect(database) as connection,
        interruption.tell(lambda: cancel(connection)),
    ):
        create_extensions(connection, build)
        require_extensions(connection, parameters.data_name, build.label)
        collation = mismatched_collation(connection)
        if parameters.upgrade_analyze:
            progress("analyze", 0.0)
            connection.execute("ANALYZE")
        without_statistics = value_of(connection, WITHOUT_STATISTICS)
        interruption.check()
    return {
        **details,
        "upgraded_from": builds.old.label,
        "upgraded_by": builds.new.label,
        "without_statistics": without_statistics,
        "changes": [*details.get("changes", ()), *([collation] if collation else [])],
    }


def _age(maker: Maker, build: Build, parameters: WorkloadParameters, data_dir: Path) -> Mapping[str, Any]:
    """Make a dataset from another one by transactions of the workload. Return the details of both."""
    workload = parameters.before_aging()
    details = _copied(maker, build, workload, parameters, data_dir)
    # The settings of the load, with autovacuum as it is by default: arms share the dataset.
    settings = {**load_settings(build), "autovacuum": "on"}
    settings |= NO_REPLICATION if _is_backup(parameters) else {}
    with Cluster(build, data_dir, maker.cache.account).start(settings) as server:
        database = details.get("database", parameters.kind)
        target = (f"PostgreSQL {build.version}", server.conninfo(database))
        if isinstance(workload, OwnDataParameters) and workload.data is not None:
            commands = sample_commands(workload)
            with server.connect(database) as connection, maker.interruption.tell(lambda: cancel(connection)):
                sampled = read_samples(connection, commands, len(commands), maker.interruption)
            workload = draw_from(workload, sampled)
            # Fail before hours of aging.
            require_working_scripts(workload, target, maker.interruption)
        aged = _run_transactions(maker, build, parameters, workload, target)
        maker.progress_of(parameters, build)("checkpoint", 0.0)
        with server.connect(database) as connection:
            dead = value_of(connection, DEAD_ROWS)
    failed = f"{aged['failed']} of the {sum(aged.values())} transactions that aged them failed"
    changes = [*details.get("changes", ()), *([failed] if aged["failed"] else [])]
    return {**details, "changes": changes, "aged": {**aged, "dead_rows": dead}}


def _run_transactions(
    maker: Maker,
    build: Build,
    parameters: WorkloadParameters,
    workload: WorkloadParameters,
    target: tuple[str, str],
) -> dict[str, int]:
    """Run the transactions. Return their numbers by outcome. Raises DatasetError, Interrupted."""
    progress = maker.progress_of(parameters, build)
    clients = min(AGE_CLIENTS, parameters.age)
    each = -(-parameters.age // clients)
    slices = [PlannedSlice(0, Role.MEASURE, TRANSACTIONS_LIMIT_S, 0, transactions=each)]
    done = 0

    def on_event(event: Event) -> None:
        nonlocal done
        if event["event"] == "interval":
            done += sum(counts[name] for counts in event["kinds"].values() for name in OUTCOMES)
            progress("aging", min(1.0, done / (each * clients)))

    progress("aging", 0.0)
    driving = Driving(workload=workload, clients=clients)
    specification = drive_specification(driving, DATASET_SEED, slices, [target])
    run = run_drive(specification, maker.interruption, on_event)
    maker.interruption.check()
    if not run.complete or run.result is None:
        why = run.failure.message if run.failure is not None else "the engine stopped"
        raise DatasetError(f"the transactions that age the data ended early: {in_one_line(why)}")
    totals = run.result.targets[0].totals.values()
    aged = {name: sum(counts[name] for counts in totals) for name in OUTCOMES}
    if not aged["ok"] + aged["rolled_back"]:
        first = [
            f": {message_without_values(in_one_line(error['message']), error['sqlstate'] or '')}"
            for error in run.errors[:1]
        ]
        raise DatasetError(f"no transaction could age the data{''.join(first)}: correct the scripts")
    return aged


OUTCOMES = ("ok", "rolled_back", "failed")
DEAD_ROWS = "SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables"

DATA = DataKind(is_aged, key, make, more_builds)
