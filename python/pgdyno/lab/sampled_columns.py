"""Values for the commands ``\\sample`` of scripts: drawn once from the loaded data, for all arms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pgdyno.caveats import Caveat, Code
from pgdyno.drive.engine_runs import SampleCommand, sample_commands
from pgdyno.errors import DatasetError, WorkloadError
from pgdyno.interruption import Interruption
from pgdyno.lab.arms import BuildArm
from pgdyno.lab.dataset_loading import DATASET_SEED, own_data_of
from pgdyno.lab.progress import PreparationStep, Watch
from pgdyno.server.limited_connection import cancel
from pgdyno.server.running import Connection
from pgdyno.study.pgbench_parameters import PgbenchParameters
from pgdyno.study.plan import Study, Workload
from pgdyno.workload.pgbench.sampled_values import BYTES_MAX, SampledValues, read_sample

if TYPE_CHECKING:
    from pgdyno.lab.prepare import Prepared


def with_samples(ready: Sequence[Prepared], watch: Watch, interruption: Interruption) -> list[Prepared]:
    """Return the cases with the values that their scripts draw.

    Arms with the same data draw from the same values, those of the first such arm. Raises UsageError
    (syntax), WorkloadError (a column that does not exist or has no value), ServerError, Interrupted.
    """
    samples = _Samples(watch, interruption)
    return [_with_samples(prepared, samples) for prepared in ready]


@dataclass
class _Samples:
    """Values by data and source."""

    watch: Watch
    interruption: Interruption
    commands: dict[str, list[SampleCommand]] = field(default_factory=dict)
    found: dict[tuple[str, str], SampledValues] = field(default_factory=dict)

    def of(self, workload: PgbenchParameters, arm: BuildArm) -> dict[str, SampledValues]:
        """Return the values of a workload by source, and read from the arm those that are new."""
        key = workload.model_dump_json()
        if key not in self.commands:
            self.commands[key] = sample_commands(workload)
        commands = {of.source: of for of in self.commands[key]}
        missing = [of for source, of in commands.items() if (_data(workload), source) not in self.found]
        if missing:
            self._read(workload, arm, missing, len(commands))
        return {source: self.found[_data(workload), source] for source in commands}

    def drawn_by(self, workload: Workload, arm: BuildArm) -> Workload:
        """Return the workload with its values, as constants for the simple protocol."""
        if not isinstance(workload, PgbenchParameters) or workload.data is None:
            return workload
        return draw_from(workload, self.of(workload, arm))

    def _read(
        self, workload: PgbenchParameters, arm: BuildArm, commands: Iterable[SampleCommand], columns: int
    ) -> None:
        self.interruption.check()
        self.watch(PreparationStep(f"sampling columns on {arm.name}"))
        arm.restore(0)
        try:
            arm.start()
            with arm.connect() as connection, self.interruption.tell(lambda: cancel(connection)):
                found = read_samples(connection, commands, columns, self.interruption)
                self.found |= {(_data(workload), source): sampled for source, sampled in found.items()}
        finally:
            arm.stop()


def read_samples(
    connection: Connection, commands: Iterable[SampleCommand], columns: int, interruption: Interruption
) -> dict[str, SampledValues]:
    """Return the values by source, and make the session read-only. ``columns`` share the memory.

    Raises WorkloadError (a column that does not exist or has no value), Interrupted.
    """
    connection.execute("SET default_transaction_read_only = on")
    connection.execute("SET client_encoding = 'UTF8'")
    found = {}
    for of in commands:
        try:
            found[of.source] = read_sample(connection, of.column, DATASET_SEED, BYTES_MAX // columns)
        except DatasetError as error:
            interruption.check()
            raise WorkloadError(f"{of}: {error}; correct the script or the data") from error
    return found


def draw_from(workload: PgbenchParameters, sampled: Mapping[str, SampledValues]) -> PgbenchParameters:
    """Return the workload with the values that it draws, as constants for the simple protocol."""
    is_simple = workload.protocol == "simple"
    return workload.with_sample_values(
        {source: of.constants() if is_simple else tuple(of.values) for source, of in sampled.items()}
    )


def _data(workload: PgbenchParameters) -> str:
    return str(sorted(workload.shape().items()))


def _with_samples(prepared: Prepared, samples: _Samples) -> Prepared:
    study = prepared.study
    arms = {arm.index: arm for arm in prepared.arms if isinstance(arm, BuildArm)}
    own = [index for index in arms if own_data_of(study.driving(index).workload) is not None]
    if not own:
        return prepared
    used: dict[int, dict[str, SampledValues]] = {}
    for index in own:
        workload = study.driving(index).workload
        assert isinstance(workload, PgbenchParameters)
        used[index] = samples.of(workload, arms[index])
    if not any(used.values()) and study.warmup_workload is None:
        return prepared
    described = [
        replace(record, dataset={**record.dataset, "samples": _facts(used[record.arm])})
        if used.get(record.arm)
        else record
        for record in prepared.records
    ]
    caveats = {of.text: of for sampled in used.values() for of in _caveats(sampled)}
    prepared.caveats.extend(caveats.values())
    return replace(prepared, study=_drawing(study, arms, samples), records=described)


def _drawing(study: Study, arms: Mapping[int, BuildArm], samples: _Samples) -> Study:
    """Return the study whose workloads draw from the values."""
    first = arms[min(arms)]
    fields: dict[str, Any] = {"workload": samples.drawn_by(study.workload, first)}
    if study.drivings is not None:
        fields["drivings"] = tuple(
            driving.model_copy(
                update={"workload": samples.drawn_by(driving.workload, arms.get(index, first))}
            )
            for index, driving in enumerate(study.drivings)
        )
    if study.warmup_workload is not None:
        fields["warmup_workload"] = samples.drawn_by(study.warmup_workload, first)
    return study.model_copy(update=fields)


def _facts(sampled: Mapping[str, SampledValues]) -> dict[str, object]:
    """Return what the results file stores: never a value."""
    return {
        source: {"values": len(of.values), "is_part": of.is_part, "digest": of.digest}
        for source, of in sampled.items()
    }


def _caveats(sampled: Mapping[str, SampledValues]) -> list[Caveat]:
    return [
        Caveat(Code.SAMPLE_IS_PART, {"column": source, "values": len(of.values)})
        for source, of in sampled.items()
        if of.is_part
    ]
