r"""Columns that scripts draw values from, and the values.

- Commands ``\sample`` of scripts.
- Values of a column for ``\sample``: a random part of them, the same for the same data and seed.
- Values for the commands ``\sample`` of scripts: drawn once from the loaded data, for all arms.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from pgdyno.caveats import Caveat, Code
from pgdyno.errors import DatasetError, UsageError, WorkloadError
from pgdyno.features.own_data.plan import ColumnSample
from pgdyno.features.own_data.source import own_data_of
from pgdyno.interruption import Interruption
from pgdyno.measure.arms import BuildArm
from pgdyno.measure.dataset_loading import DATASET_SEED
from pgdyno.measure.engine_runs import checked_scripts
from pgdyno.measure.progress import PreparationStep, Watch
from pgdyno.server.connections import cancel
from pgdyno.server.processes import Connection
from pgdyno.study.plan import Study, Workload
from pgdyno.workloads.pgbench.parameters import PgbenchParameters
from pgdyno.workloads.workload import first_line

if TYPE_CHECKING:
    from pgdyno.measure.arms import Prepared


# ----------------------------------------------------------------------
# Commands ``\sample`` of scripts.
# ----------------------------------------------------------------------


@dataclass(frozen=True)
class SampleCommand:
    r"""A command ``\sample`` of a script. ``source`` is its text after FROM, and ``column`` its meaning."""

    script: str
    text: str
    source: str
    column: ColumnSample

    def __str__(self) -> str:
        """Return script and command, for messages."""
        return f"{self.script}: {self.text}"


def sample_commands(parameters: PgbenchParameters) -> list[SampleCommand]:
    r"""Return the commands ``\sample`` of all scripts. Raises UsageError."""
    found = []
    for of in checked_scripts(parameters)["samples"]:
        try:
            column = ColumnSample.parse(of["source"])
        except ValueError as error:
            raise UsageError(f"{of['script']}: {of['command']}: {error}") from error
        found.append(SampleCommand(of["script"], of["command"], of["source"], column))
    return found


# ----------------------------------------------------------------------
# Values of a column for ``\sample``: a random part of them, the same for the same data and seed.
# ----------------------------------------------------------------------

VALUES_MAX = 100_000
"""Maximum number of values of a column: they are in the memory of the driver, once per server."""

BYTES_MAX = 64 << 20
"""Maximum size of the values of all columns. Each block sends them to the driver."""

_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?")


@dataclass(frozen=True)
class SampledValues:
    """Values of a column as texts. ``is_number``: they need no quotes in SQL. ``is_part``: there are more."""

    values: Sequence[str]
    is_number: bool
    is_part: bool

    @property
    def digest(self) -> str:
        """A digest of the values in their order, which does not reveal them."""
        return hashlib.sha256("\0".join(self.values).encode()).hexdigest()[:16]

    def constants(self) -> tuple[str, ...]:
        """Return the values as SQL constants, for the simple query protocol."""
        return tuple(
            value if self.is_number and _NUMBER.fullmatch(value) else sql.Literal(value).as_string(None)
            for value in self.values
        )


def read_sample(conn: Connection, of: ColumnSample, seed: int, bytes_max: int = BYTES_MAX) -> SampledValues:
    """Read up to VALUES_MAX values other than null in a transaction.

    Raises DatasetError: no such column, no value, or rows without an address (``frequency`` of a view).
    """
    table, column = sql.Identifier(*of.table), sql.Identifier(of.column)
    names = {
        "table": table,
        "column": column,
        "seed": sql.Literal(str(seed)),
        "limit": sql.Literal(VALUES_MAX + 1),
    }
    values: list[str] = []
    size_bytes = 0
    try:
        with conn.transaction():
            is_number = _is_number(conn, table, column)
            if of.weighting == "frequency" and not _has_row_addresses(conn, table):
                raise DatasetError(f"{of.table[-1]} is no table: use uniform")
            with conn.cursor(name="pgdyno_sample") as cursor:
                cursor.itersize = 1000
                cursor.execute(sql.SQL(_statement(of.weighting)).format(**names))
                for (value,) in cursor:
                    size_bytes += len(value.encode())
                    if values and (len(values) == VALUES_MAX or size_bytes > bytes_max):
                        return SampledValues(values, is_number, is_part=True)
                    values.append(value)
    except psycopg.Error as error:
        raise DatasetError(first_line(error)) from error
    if not values:
        raise DatasetError("the column has no value")
    return SampledValues(values, is_number, is_part=False)


def _statement(weighting: str) -> str:
    return resources.files(__package__).joinpath("sql", f"sample_{weighting}.sql").read_text(encoding="utf-8")


def _is_number(conn: Connection, table: sql.Identifier, column: sql.Identifier) -> bool:
    """Return whether the type of the column is a number, or a domain over one."""
    described = conn.execute(sql.SQL("SELECT {} FROM {} LIMIT 0").format(column, table)).description
    assert described is not None
    row = conn.execute("SELECT typcategory FROM pg_type WHERE oid = %s", (described[0].type_code,)).fetchone()
    return row is not None and row[0] == "N"


def _has_row_addresses(conn: Connection, table: sql.Identifier) -> bool:
    """Return whether rows have a ctid: those of tables and materialized views, not of views."""
    name = table.as_string(conn)
    row = conn.execute("SELECT relkind FROM pg_class WHERE oid = %s::regclass", (name,)).fetchone()
    return row is not None and row[0] in {"r", "p", "m"}


# ----------------------------------------------------------------------
# Values for the commands ``\sample`` of scripts: drawn once from the loaded data, for all arms.
# ----------------------------------------------------------------------


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
