"""Preflight of own data: the source before they are loaded, scripts and invariants before the first block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgdyno.caveats import Caveat, Code
from pgdyno.errors import DatasetError, UsageError, WorkloadError
from pgdyno.features.own_data.checks import check_invariants
from pgdyno.features.own_data.loading import require_importable
from pgdyno.features.own_data.sampling import sample_commands, with_samples
from pgdyno.features.own_data.source import NamedDataStore, installed_clients, own_data_of
from pgdyno.interruption import Interruption
from pgdyno.measure.arms import BuildArm
from pgdyno.measure.preflight import MADE_BY_OTHERS, failures_of
from pgdyno.measure.progress import PreparationStep, Warned, Watch
from pgdyno.server.cache_directory import Cache
from pgdyno.study.plan import Driving, Study, Workload
from pgdyno.study.workload_parameters import WorkloadParameters
from pgdyno.units import counted
from pgdyno.workloads.pgbench.parameters import PgbenchParameters

if TYPE_CHECKING:
    from pgdyno.measure.arms import Prepared


def named_data(cache: Cache, warn: Callable[[str], None] = lambda _: None) -> NamedDataStore:
    """Return the user's data in the cache."""
    return NamedDataStore(cache.data, lambda: installed_clients(cache.store()), warn)


def with_own_data(study: Study, cache: Cache, watch: Watch, interruption: Interruption) -> Study:
    """Return the study with everything that determines its own data; a DSN is read now.

    Raises UsageError, ServerError, DatasetError, Interrupted.
    """
    drivings = [study.driving(index) for index in range(len(study.arms))]
    if all(own_data_of(driving.workload) is None for driving in drivings):
        return study
    if dsn := next((arm for arm in study.arms if arm.is_dsn), None):
        raise UsageError(
            f"--data requires servers that pgdyno starts (got {dsn.name}, a running server): name a version "
            "or a directory"
        )
    fields: dict[str, Any] = {"workload": _found(study, cache, watch, interruption)}
    if study.drivings is not None:
        own = [_found(driving, cache, watch, interruption) for driving in drivings]
        fields["drivings"] = tuple(
            driving.model_copy(update={"workload": workload})
            for driving, workload in zip(drivings, own, strict=True)
        )
    if study.warmup_workload is not None:
        data = own_data_of(fields["workload"])
        fields["warmup_workload"] = study.warmup_workload.model_copy(update={"data": data})
    return study.model_copy(update=fields)


def _found(driving: Driving, cache: Cache, watch: Watch, interruption: Interruption) -> Workload:
    workload = driving.workload
    if not isinstance(workload, PgbenchParameters) or workload.data is None:
        return workload
    sample_commands(workload)  # an error in them is reported before the data are read
    watch(PreparationStep(f"reading {workload.data.label}"))
    data = named_data(cache, lambda text: watch(Warned(text))).resolved(workload.data, interruption.check)
    if data.form == "backup" and Path(data.path).exists():
        require_importable(Path(data.path))
    return workload.model_copy(update={"data": data})


def own_data_caveats(study: Study, index: int, facts: Mapping[str, object]) -> Iterator[Caveat]:
    """Yield the caveats of the data of one arm from the facts of its dataset."""
    workload = study.driving(index).workload
    own = own_data_of(workload)
    data = f"{workload.data_name if own is None else own.label}{workload.history_text if own else ''}"
    if n_tables := facts.get("without_statistics"):
        tables = counted(int(str(n_tables)), "table")
        yield Caveat(Code.DATA_WITHOUT_STATISTICS, {"data": data, "tables": tables})
    changes = facts.get("changes")
    if isinstance(changes, list) and changes:
        yield Caveat(Code.DATA_CHANGED, {"data": data, "changes": "; ".join(changes)})


def with_tested_data(ready: list[Prepared], watch: Watch, interruption: Interruption) -> list[Prepared]:
    """Return the cases with the values that their scripts draw, after a test of scripts and invariants.

    Raises UsageError, WorkloadError, DatasetError, ServerError, Interrupted.
    """
    ready = with_samples(ready, watch, interruption)
    require_working_own_data(ready, watch, interruption)
    return ready


def require_working_own_data(ready: Sequence[Prepared], watch: Watch, interruption: Interruption) -> None:
    """Run the scripts and invariants once on the loaded data of each arm, which the next restore repairs.

    Raises WorkloadError (a script fails, whatever the rows), DatasetError (an invariant does not hold before
    the measurement), ServerError.
    """
    tried = set()
    for prepared in ready:
        for arm in prepared.arms:
            workload = prepared.study.driving(arm.index).workload
            if not isinstance(arm, BuildArm) or own_data_of(workload) is None:
                continue
            what = (arm.snapshot.data_dir, frozenset(arm.settings.items()), workload.model_dump_json())
            if what not in tried:
                tried.add(what)
                interruption.check()
                watch(PreparationStep(f"testing the scripts on {arm.name}"))
                _try(arm, workload, interruption)


def _try(arm: BuildArm, workload: WorkloadParameters, interruption: Interruption) -> None:
    assert isinstance(workload, PgbenchParameters)
    arm.restore(0)
    try:
        arm.start()
        for check in check_invariants(arm.connect, workload.checks):
            if not check.passed:
                raise DatasetError(
                    f"{check.name} {check.detail} before the measurement: correct the data or the query"
                )
        scripts = workload.single_scripts()
        ignored = MADE_BY_OTHERS if len(scripts) > 1 else ()
        for name, one in scripts.items():
            for message in failures_of(one, (arm.name, arm.conninfo()), ignored, interruption):
                raise WorkloadError(f"{name} fails on {arm.name}: {message}; correct the script or the data")
    finally:
        arm.stop()
