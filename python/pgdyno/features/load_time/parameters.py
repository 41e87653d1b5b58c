"""Parameters of the workload ``load`` (README.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from pgdyno.errors import StudyFileError, UsageError
from pgdyno.study.study_file import StudyFile
from pgdyno.study.workload_parameters import Pace, WorkloadParameters, workload_from

KIND = "load"

VACUUM_JOBS_MAX = 1000
"""Maximum number of connections, each with its own thread in the engine."""


class LoadParameters(WorkloadParameters):
    """A dataset, which the clients load together. A transaction is a load."""

    PACE: ClassVar[Pace] = Pace("loads/h", KIND, 3600.0)
    SMALLER: ClassVar[str] = "use a smaller dataset"
    SIZE: ClassVar[str] = "size"
    HAS_PACING: ClassVar[bool] = False
    HAS_OPTIONS: ClassVar[bool] = False

    kind: Literal["load"] = "load"
    dataset: Mapping[str, Any] = Field(
        description="load: workload whose data each trial loads, for example kind tpcc and warehouses."
    )
    vacuum_jobs: int | None = Field(
        default=None,
        ge=1,
        le=VACUUM_JOBS_MAX,
        description="load: number of connections that run VACUUM and ANALYZE in parallel, at most one per "
        "table. [default: as many as load]",
    )

    @field_validator("dataset")
    @classmethod
    def _is_a_workload(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        loaded = workload_from(dict(given))
        if isinstance(loaded, LoadParameters) or loaded.aging():
            raise ValueError(
                "must be a workload whose data are loaded, without age and upgrade_from: remove them"
            )
        try:
            loaded.to_load()
        except UsageError as error:
            raise ValueError(str(error)) from error
        return loaded.model_dump()

    @model_validator(mode="after")
    def _begins_empty(self) -> LoadParameters:
        if self.aging():
            raise ValueError("age and upgrade_from change data before a trial, and a load begins without any")
        return self

    @property
    def loaded(self) -> WorkloadParameters:
        """The workload whose data are loaded."""
        return workload_from(self.dataset)

    @property
    def size(self) -> str:
        """The size of the data that are loaded."""
        return self.loaded.size

    @property
    def label(self) -> str:
        """A label for file names: a trial begins without data."""
        return "empty"

    @property
    def units(self) -> int:
        """The size in units of the workload whose data are loaded."""
        return self.loaded.units

    @property
    def unit_bytes(self) -> float:
        """The size of a unit of these data."""
        return self.loaded.unit_bytes

    def shape(self) -> Mapping[str, int | str]:
        """Return the data that are loaded, as text."""
        return {"dataset": json.dumps([self.loaded.kind, dict(self.loaded.shape())], sort_keys=True)}

    def work(self) -> str:
        """Return the data that are loaded."""
        return str(self.shape()["dataset"])

    def kinds(self) -> Sequence[str]:
        """Return the only kind of transaction."""
        return (KIND,)

    @property
    def major_min(self) -> int:
        """The oldest major version of PostgreSQL that supports the data."""
        return self.loaded.major_min

    @property
    def data_name(self) -> str:
        """The name of the data: ``load of tpcc, 4 warehouses``."""
        return f"load of {self.loaded.data_name}"

    def to_load(self) -> dict[str, Any]:
        """Return the data that are loaded."""
        return self.loaded.to_load()

    def to_drive(self) -> dict[str, Any]:
        """Return all parameters, for ``LoadDrive``."""
        return self.model_dump()


def errors_of(file: StudyFile) -> Iterator[StudyFileError]:
    """Yield the errors of a study file whose trials are loads."""
    tables = [file.workload, *(level.value for level in file.factors.get("workload", ()))]
    if not any(isinstance(table, Mapping) and table.get("kind") == KIND for table in tables):
        return
    if file.run.transactions != 1:
        yield StudyFileError(("run", "transactions"), "must be 1 with the workload load: a trial is one load")
    if file.run.warmup_s != 0:
        yield StudyFileError(("run", "warmup"), 'must be "0s" with the workload load: it begins without data')
    for place, value in ((("drive", "rate"), file.drive.rate), (("run", "capacity"), file.run.capacity)):
        if value is not None or place[1] in file.factors:
            yield StudyFileError(place, "cannot be combined with the workload load: remove it")
    if file.source is not None and file.source.machine is not None:
        yield StudyFileError(("source", "machine"), "a study of loads is not fitted to a machine: remove it")
    if file.fleet.drivers is not None:
        yield StudyFileError(("fleet", "drivers"), "cannot load data: remove it, or use another workload")
