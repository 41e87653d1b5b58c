"""Preflight check of custom scripts: each runs once on minimal data, before the dataset of a study is loaded.

Only errors that do not depend on the data count, such as an unknown column. Other errors end the study after
its first block (``block.require_working_kinds``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from psycopg import sql

from pgdyno.drive.drive_specification import drive_specification
from pgdyno.drive.engine_runs import run_drive
from pgdyno.errors import ServerError, WorkloadError
from pgdyno.interruption import Interruption
from pgdyno.lab.dataset_loading import dataset_key, init_options, load_new_database, load_settings
from pgdyno.lab.preflight import ArmRequest, EmptyClusters
from pgdyno.lab.progress import PreparationStep, Watch
from pgdyno.server.build import Build
from pgdyno.server.cluster import Cluster, InitOptions
from pgdyno.server.live_directories import LiveDirectory
from pgdyno.server.restore import restore
from pgdyno.server.snapshot import Snapshot, take
from pgdyno.study.pgbench_parameters import PgbenchParameters
from pgdyno.study.plan import Driving, Study
from pgdyno.study.schedule import PlannedSlice, Role
from pgdyno.study.sysbench_parameters import SysbenchParameters
from pgdyno.study.workload_parameters import WorkloadParameters

CERTAIN = ("42", "0A", "25006")
"""SQLSTATEs, or their first digits, that do not depend on rows: syntax, unknown objects and types, missing
features, a read-only transaction."""

MADE_BY_OTHERS = ("42P01", "42883", "42704")
"""SQLSTATEs of unknown tables, functions and types. With several scripts, another one may create them."""

SCRIPT_TIMEOUT_S = 5.0
"""Maximum time of a script. It is canceled after twice this time. Errors before the cancellation count."""

ROWS = 1000
"""Rows of each table of sysbench."""

Request = tuple[Study, Mapping[int, ArmRequest]]


def require_working_scripts(
    requests: Iterable[Request], clusters: EmptyClusters, watch: Watch, interruption: Interruption
) -> None:
    """Run each custom script of the data that are still to be loaded, with the settings of its arm.

    Raises WorkloadError with the script, the arm and the server's message; StartError, Interrupted.
    """
    tried = set()
    cached = clusters.cache.cached_datasets().names()
    with contextlib.ExitStack() as stack:
        trials = _MinimalData(clusters, stack, interruption)
        for study, wanted in requests:
            init = init_options(study)
            for index, arm in wanted.items():
                driving = study.driving(index)
                minimal = _minimal(driving.workload)
                if minimal is None:
                    continue
                settings = frozenset(arm.requested.settings.items())
                what = (arm.build.build_id, init, minimal.model_dump_json(), settings)
                key = dataset_key(arm.build, driving.workload, init, arm.upgrade)
                if what in tried or key.name in cached:
                    continue
                tried.add(what)
                interruption.check()
                watch(PreparationStep(f"testing the scripts on {arm.spec.name}", may_last=True))
                cluster = trials.restored(arm.build, minimal, init)
                if failure := _first_failure(arm, minimal, cluster, interruption):
                    raise WorkloadError(f"{failure}; correct the script or the arm. Nothing was loaded")


def _minimal(workload: WorkloadParameters) -> WorkloadParameters | None:
    """Return the workload with minimal data, or None if its scripts need no test, or data of their own."""
    if isinstance(workload, PgbenchParameters):
        if workload.data is not None:
            return None  # tested on these data, after they are loaded (own_data_preflight.py)
        own = tuple(script for script in workload.scripts if script.text is not None and script.weight)
        return workload.model_copy(update={"scripts": own, "scale": 1}) if own else None
    if isinstance(workload, SysbenchParameters):
        if workload.script.text is None or workload.has_own_data:
            return None
        return workload.model_copy(update={"table_size": min(ROWS, workload.n_rows)})
    return None


@dataclass
class _MinimalData:
    """Minimal data of scripts, loaded once for all arms with the same data, and restored for each of them:
    scripts change the data.
    """

    clusters: EmptyClusters
    stack: contextlib.ExitStack
    interruption: Interruption
    loaded: dict[Path, tuple[object, Snapshot]] = field(default_factory=dict)
    copies: dict[Path, LiveDirectory] = field(default_factory=dict)

    def restored(self, build: Build, workload: WorkloadParameters, init: InitOptions) -> Cluster:
        """Return a stopped cluster with the data of the workload. Raises ServerError, DatasetError."""
        cluster = self.clusters.of(build, init)
        place, data = cluster.data_dir, (workload.kind, dict(workload.shape()))
        if place not in self.loaded or self.loaded[place][0] != data:
            with cluster.start(load_settings(build)) as server:
                with server.connect() as connection:
                    name = sql.Identifier(workload.kind)
                    connection.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(name))
                load_new_database(server, workload, self.interruption, lambda *_: None, lambda _: None)
            self.loaded[place] = data, take(place)
        if place not in self.copies:
            runs = self.clusters.cache.live_runs()
            self.copies[place] = self.stack.enter_context(runs.open("try"))
        run, account = self.copies[place], self.clusters.cache.account
        restore(self.loaded[place][1], run.data_dir, account, sync=False)
        return Cluster(build, run.data_dir, account, run.log_path)


def _first_failure(
    arm: ArmRequest, workload: WorkloadParameters, cluster: Cluster, interruption: Interruption
) -> str:
    """Return script, arm and message of the first certain failure; empty without one."""
    with cluster.start(arm.requested.settings, optional=arm.requested.optional) as server:
        target = (arm.spec.name, server.conninfo(workload.kind))
        scripts = single_scripts(workload)
        ignored = MADE_BY_OTHERS if len(scripts) > 1 else ()
        for name, one in scripts.items():
            for message in failures_of(one, target, ignored, interruption):
                return f"{name} fails on {arm.spec.name}: {message}"
    return ""


def single_scripts(workload: WorkloadParameters) -> dict[str, WorkloadParameters]:
    """Return a workload for each script, by its name."""
    if isinstance(workload, PgbenchParameters):
        return {one.name: workload.model_copy(update={"scripts": (one,)}) for one in workload.scripts}
    return {workload.name: workload}


def failures_of(
    workload: WorkloadParameters, target: tuple[str, str], ignored: Sequence[str], interruption: Interruption
) -> Sequence[str]:
    """Run one transaction of one client. Return the messages of its certain failures, except ``ignored``."""
    driving = Driving.model_validate({"workload": workload, "clients": 1, "retries_max": 0})
    once = PlannedSlice(0, Role.MEASURE, SCRIPT_TIMEOUT_S, 0, transactions=1)
    specification: dict[str, Any] = drive_specification(driving, 1, [once], [target])
    specification |= {"drain_timeout_s": SCRIPT_TIMEOUT_S}
    run = run_drive(specification, interruption, lambda _: None)
    interruption.check()
    if run.failure is not None:
        raise ServerError(f"{target[0]}: {run.failure.message}")
    found = [(str(one["sqlstate"]), str(one["message"])) for one in run.errors]
    return [text for state, text in found if state.startswith(CERTAIN) and state not in ignored]
