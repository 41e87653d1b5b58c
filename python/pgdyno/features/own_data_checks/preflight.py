"""Own data in a study: read and tested before the first block, checked after each trial.

- Removal of the values of rows from errors and logs of servers on data of the user.
- Invariants of the user after a trial: queries that must return no row.
- Values of columns for the commands ``\\sample`` of scripts: the same for the same data and seed.
- Preflight: the source before it is loaded, scripts and invariants before the first block.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import psycopg
from psycopg import sql

from pgdyno.caveats import Caveat
from pgdyno.errors import DatasetError, ServerError, UsageError, WorkloadError
from pgdyno.features.dumps.dump import unquoted
from pgdyno.features.own_data.loading import require_importable
from pgdyno.features.own_data.plan import Invariant, OwnData, OwnDataParameters
from pgdyno.features.own_data.source import named_data, own_data_of
from pgdyno.interruption import Interruption
from pgdyno.measure.arms import BuildArm, Prepared, Redaction
from pgdyno.measure.dataset_loading import DATASET_SEED
from pgdyno.measure.engine_runs import checked_scripts
from pgdyno.measure.preflight import first_failure
from pgdyno.measure.prepare import Preparation
from pgdyno.measure.progress import PreparationStep, Warned, Watch
from pgdyno.results.records import Check
from pgdyno.server.cache_directory import Cache
from pgdyno.server.connections import cancel
from pgdyno.server.processes import Connection
from pgdyno.study.plan import Study
from pgdyno.study.workload_parameters import Workload, WorkloadParameters
from pgdyno.units import counted
from pgdyno.workloads import workload as workloads
from pgdyno.workloads.workload import INVARIANT, Connect

# ----------------------------------------------------------------------
# Removal of the values of rows from errors and logs of servers on data of the user.
# ----------------------------------------------------------------------

HIDDEN = "…"

_QUOTED = re.compile(r'"[^"\n]*"')
_OF_NAMES = re.compile(
    r"\b(relation|table|view|index|column|constraint|database|schema|sequence|trigger|function|type|role|"
    r"extension|parameter|partition|statement|portal|policy|of)\s*$"
)
_ERROR = re.compile(r"^(?P<start>.*?\b(?:ERROR|FATAL|PANIC|WARNING|NOTICE|INFO):  )(?P<text>.*)$")
_MORE = re.compile(r"^(?P<start>.*? (?:DETAIL|HINT|CONTEXT|STATEMENT|QUERY):  ).*$")
_SAFE = ("08", "0A", "25", "3D", "40", "42", "53", "55", "57", "58")
"""Classes of SQLSTATEs whose messages have no values of rows."""


def redaction(parameters: WorkloadParameters) -> Redaction | None:
    """Return the removal of values if the rows are those of the user."""
    return Redaction(log_without_values, message_without_values) if own_data_of(parameters) else None


def message_without_values(message: str, sqlstate: str) -> str:
    """Return an error message with names of objects, but without values, and without its detail.

    A message of RAISE can contain anything, so nothing of it is left.
    """
    if sqlstate.startswith("P0"):
        return f"a message of RAISE{HIDDEN}"
    return message if sqlstate.startswith(_SAFE) else _without_quotes(message.split("; ", 1)[0])


def log_without_values(log: str) -> str:
    """Return a server log without values in errors, and without details and statements. Lines stay lines."""
    return "\n".join(map(_line, log.split("\n")))


def _line(line: str) -> str:
    if line.startswith("\t"):
        return f"\t{HIDDEN}"
    if found := _MORE.match(line):
        return f"{found['start']}{HIDDEN}"
    if found := _ERROR.match(line):
        return f"{found['start']}{_without_quotes(found['text'])}"
    return line


def _without_quotes(text: str) -> str:
    """Return the text without quoted words, except names of objects."""

    def shown(quoted: re.Match[str]) -> str:
        return quoted[0] if _OF_NAMES.search(text[: quoted.start()]) else f'"{HIDDEN}"'

    return _QUOTED.sub(shown, text)


# ----------------------------------------------------------------------
# Invariants of the user after a trial: queries that must return no row.
# ----------------------------------------------------------------------


def check_after_trial(parameters: WorkloadParameters, connect: Connect) -> list[Check]:
    """Check the invariants of a workload."""
    return check_invariants(connect, parameters.checks if isinstance(parameters, OwnDataParameters) else ())


def check_invariants(connect: Connect, invariants: Sequence[Invariant]) -> list[Check]:
    """Run each query in a read-only session. A check fails if its query returns a row.

    Only the number of rows reaches pgdyno, never their values. Raises ConnectError, ServerError (a statement
    that is no query, or fails).
    """
    if not invariants:
        return []
    with closing(connect()) as conn:
        conn.execute("SET default_transaction_read_only = on")
        conn.execute("SET application_name = 'pgdyno check'")
        return [_check(conn, one.name, query) for one in invariants for query in one.queries()]


LINE_MAX = 100
"""Maximum number of characters of a quoted query."""


def _check(conn: psycopg.Connection[tuple[int, ...]], name: str, query: str) -> Check:
    line = query.splitlines()[0].strip()
    shown = f"{name}: {line if len(line) <= LINE_MAX else f'{line[:LINE_MAX]}…'}"
    try:
        # A line break, because the query may end with a comment.
        ((n,),) = conn.execute(f"SELECT count(*) FROM (\n{query}\n) AS violations".encode()).fetchall()
    except psycopg.Error as error:
        raise ServerError(
            f"the check {shown} failed: {workloads.first_line(error)}: each statement of --check must be "
            "a query"
        ) from error
    return Check(f"{INVARIANT}{shown}", n == 0, float(n), None, f"returned {counted(n, 'row')}")


# ----------------------------------------------------------------------
# Values of columns for the commands ``\sample`` of scripts: the same for the same data and seed.
# ----------------------------------------------------------------------


Weighting = Literal["uniform", "frequency"]
"""uniform: every distinct value is equally likely; frequency: every row is."""

_IDENTIFIER = r'(?:"(?:[^"]|"")+"|[^\W\d][\w$]*)'
_SOURCE = re.compile(rf"({_IDENTIFIER}(?:\.{_IDENTIFIER}){{1,2}})(?:\s+(uniform|frequency))?", re.IGNORECASE)


@dataclass(frozen=True)
class ColumnSample:
    """A column and how its values are weighted. ``table`` has one name, or schema and name."""

    table: tuple[str, ...]
    column: str
    weighting: Weighting = "uniform"

    @classmethod
    def parse(cls, text: str) -> ColumnSample:
        """Parse ``table.column`` or ``schema.table.column``, and the weighting. Raises ValueError."""
        found = _SOURCE.fullmatch(text)
        if found is None:
            raise ValueError(
                f"{text!r} does not have the form table.column or schema.table.column, with uniform or "
                "frequency after it"
            )
        *table, column = map(unquoted, re.findall(_IDENTIFIER, found[1]))
        is_by_row = (found[2] or "").lower() == "frequency"
        return cls(tuple(table), column, "frequency" if is_by_row else "uniform")


Sampled = Mapping[str, tuple[str, ColumnSample]]
r"""Columns of commands ``\sample`` by source, which is the text after FROM, each with script and command."""


def sample_commands(parameters: OwnDataParameters) -> Sampled:
    """Return the columns that the scripts sample. Raises UsageError."""
    found = {}
    for of in checked_scripts(parameters)["samples"]:
        command = f"{of['script']}: {of['command']}"
        try:
            found[of["source"]] = command, ColumnSample.parse(of["source"])
        except ValueError as error:
            raise UsageError(f"{command}: {error}") from error
    return found


VALUES_MAX = 100_000
"""Maximum number of values of a column: they are in the memory of the driver, once per server."""

BYTES_MAX = 64 << 20
"""Maximum size of the values of all columns. Each block sends them to the driver."""

_SQL = resources.files(__package__).joinpath("sql")
KIND_OF_COLUMN = (
    "SELECT relkind IN ('r', 'p', 'm'), typcategory = 'N' FROM pg_class AS c"
    " JOIN pg_attribute ON attrelid = c.oid JOIN pg_type AS t ON t.oid = atttypid"
    " WHERE c.oid = %s::regclass AND attname = %s"
)
"""Query for two facts of a column: its relation has a ctid (a table or a materialized view), and its type is
a number."""
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
            row = conn.execute(KIND_OF_COLUMN, (table.as_string(conn), of.column)).fetchone()
            has_addresses, is_number = row or (True, False)  # the next statement fails without a row
            if of.weighting == "frequency" and not has_addresses:
                raise DatasetError(f"{of.table[-1]} is no table: use uniform")
            with conn.cursor(name="pgdyno_sample") as cursor:
                cursor.itersize = 1000
                text = _SQL.joinpath(f"sample_{of.weighting}.sql").read_text(encoding="utf-8")
                cursor.execute(sql.SQL(text).format(**names))
                for (value,) in cursor:
                    size_bytes += len(value.encode())
                    if values and (len(values) == VALUES_MAX or size_bytes > bytes_max):
                        return SampledValues(values, is_number, is_part=True)
                    values.append(value)
    except psycopg.Error as error:
        raise DatasetError(workloads.first_line(error)) from error
    if not values:
        raise DatasetError("the column has no value")
    return SampledValues(values, is_number, is_part=False)


def read_samples(
    connection: Connection, commands: Sampled, columns: int, interruption: Interruption
) -> dict[str, SampledValues]:
    """Return the values by source, and make the session read-only. ``columns`` share the memory.

    Raises WorkloadError (a column that does not exist or has no value), Interrupted.
    """
    connection.execute("SET default_transaction_read_only = on")
    connection.execute("SET client_encoding = 'UTF8'")
    found = {}
    for source, (command, column) in commands.items():
        try:
            found[source] = read_sample(connection, column, DATASET_SEED, BYTES_MAX // columns)
        except DatasetError as error:
            interruption.check()
            raise WorkloadError(f"{command}: {error}; correct the script or the data") from error
    return found


def draw_from(workload: OwnDataParameters, sampled: Mapping[str, SampledValues]) -> OwnDataParameters:
    """Return the workload with the values that it draws, as constants for the simple protocol."""
    is_simple = workload.protocol == "simple"
    return workload.with_sample_values(
        {source: of.constants() if is_simple else tuple(of.values) for source, of in sampled.items()}
    )


# ----------------------------------------------------------------------
# Preflight: the source before it is loaded, scripts and invariants before the first block.
# ----------------------------------------------------------------------


def with_own_data(study: Study, cache: Cache, watch: Watch, interruption: Interruption) -> Study:
    """Return the study with everything that determines its own data; a DSN is read now.

    Raises UsageError, ServerError, DatasetError, Interrupted.
    """
    if all(own_data_of(study.driving(index).workload) is None for index in range(len(study.arms))):
        return study
    if dsn := next((arm for arm in study.arms if arm.is_dsn), None):
        raise UsageError(
            f"--data requires servers that pgdyno starts (got {dsn.name}, a running server): name a version "
            "or a directory"
        )
    store = named_data(cache, lambda text: watch(Warned(text)))
    found: dict[str, OwnData] = {}

    def resolved(workload: Workload, _: int) -> Workload:
        if not isinstance(workload, OwnDataParameters) or workload.data is None:
            return workload
        sample_commands(workload)  # an error in them is reported before the data are read
        key = workload.data.model_dump_json()
        if key not in found:
            watch(PreparationStep(f"reading {workload.data.label}"))
            data = found[key] = store.resolved(workload.data, interruption.check)
            if data.form == "backup" and Path(data.path).exists():
                require_importable(Path(data.path))
        return workload.model_copy(update={"data": found[key]})

    return _with_workloads(study, resolved)


def _with_workloads(study: Study, changed: Callable[[Workload, int], Workload]) -> Study:
    """Return the study with other workloads. ``changed`` takes a workload and the index of its arm."""
    fields: dict[str, Any] = {"workload": changed(study.workload, 0)}
    if study.drivings is not None:
        fields["drivings"] = tuple(
            driving.model_copy(update={"workload": changed(driving.workload, index)})
            for index, driving in enumerate(study.drivings)
        )
    if study.warmup_workload is not None:
        fields["warmup_workload"] = changed(study.warmup_workload, 0)
    return study.model_copy(update=fields)


def own_data_caveats(study: Study, index: int, facts: Mapping[str, object]) -> Iterator[Caveat]:
    """Yield the caveats of the data of one arm from the facts of its dataset."""
    workload = study.driving(index).workload
    own = own_data_of(workload)
    data = f"{workload.data_name if own is None else own.label}{workload.aging_text if own else ''}"
    if n_tables := facts.get("without_statistics"):
        tables = counted(int(str(n_tables)), "table")
        yield Caveat.of("data-without-statistics", data=data, tables=tables)
    changes = facts.get("changes")
    if isinstance(changes, list) and changes:
        yield Caveat.of("data-changed", data=data, changes="; ".join(changes))


def with_tested_data(ready: list[Prepared], watch: Watch, interruption: Interruption) -> list[Prepared]:
    """Return the cases with the values that their scripts draw, after a test of scripts and invariants.

    Arms with the same data draw from the same values, those of the first such arm. Raises UsageError,
    WorkloadError (a column that does not exist or has no value), DatasetError, ServerError, Interrupted.
    """
    samples = _Samples(watch, interruption)
    ready = [_with_samples(prepared, samples) for prepared in ready]
    require_working_own_data(ready, watch, interruption)
    return ready


@dataclass
class _Samples:
    """Values by data and source."""

    watch: Watch
    interruption: Interruption
    commands: dict[str, Sampled] = field(default_factory=dict)
    found: dict[tuple[str, str], SampledValues] = field(default_factory=dict)

    def of(self, workload: Workload, arm: BuildArm) -> dict[str, SampledValues]:
        """Return the values of a workload by source, and read from the arm those that are new."""
        if not isinstance(workload, OwnDataParameters) or workload.data is None:
            return {}
        key, data = workload.model_dump_json(), str(sorted(workload.shape().items()))
        if key not in self.commands:
            self.commands[key] = sample_commands(workload)
        commands = self.commands[key]
        if missing := {source: of for source, of in commands.items() if (data, source) not in self.found}:
            self.interruption.check()
            self.watch(PreparationStep(f"sampling columns on {arm.name}"))
            arm.restore(0)
            try:
                arm.start()
                with arm.connect() as connection, self.interruption.tell(lambda: cancel(connection)):
                    new = read_samples(connection, missing, len(commands), self.interruption)
            finally:
                arm.stop()
            self.found |= {(data, source): sampled for source, sampled in new.items()}
        return {source: self.found[data, source] for source in commands}


def _with_samples(prepared: Prepared, samples: _Samples) -> Prepared:
    built = {arm.index: arm for arm in prepared.arms if isinstance(arm, BuildArm)}
    workloads_of = {index: prepared.study.driving(index).workload for index in built}
    arms = {index: arm for index, arm in built.items() if own_data_of(workloads_of[index])}
    if not arms:
        return prepared
    used = {index: samples.of(workloads_of[index], arm) for index, arm in arms.items()}

    def drawing(workload: Workload, index: int) -> Workload:
        if not isinstance(workload, OwnDataParameters) or workload.data is None:
            return workload
        return draw_from(workload, samples.of(workload, arms.get(index) or arms[min(arms)]))

    described = []
    for record in prepared.records:
        sampled = used.get(record.arm, {})  # the results file stores no value
        facts = {
            source: {"values": len(of.values), "is_part": of.is_part, "digest": of.digest}
            for source, of in sampled.items()
        }
        dataset = {**record.dataset, "samples": facts} if facts else record.dataset
        described.append(replace(record, dataset=dataset))
    prepared.caveats.extend(sample_caveats(used.values()))
    return replace(prepared, study=_with_workloads(prepared.study, drawing), records=described)


def sample_caveats(used: Iterable[Mapping[str, SampledValues]]) -> list[Caveat]:
    """Return a caveat per column of which only a part is drawn, and per number of its values.

    ``used``: the values of each arm, by column.
    """
    parts = ((column, len(of.values)) for sampled in used for column, of in sampled.items() if of.is_part)
    return [Caveat.of("sample-is-part", column=name, values=n) for name, n in dict.fromkeys(parts)]


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
    assert isinstance(workload, OwnDataParameters)
    arm.restore(0)
    try:
        arm.start()
        for check in check_invariants(arm.connect, workload.checks):
            if not check.passed:
                raise DatasetError(
                    f"{check.name} {check.detail} before the measurement: correct the data or the query"
                )
        require_working_scripts(workload, (arm.name, arm.conninfo()), interruption)
    finally:
        arm.stop()


def require_working_scripts(
    workload: WorkloadParameters, target: tuple[str, str], interruption: Interruption
) -> None:
    """Run each script once. Raises WorkloadError."""
    if failure := first_failure(workload, target, interruption):
        raise WorkloadError(f"{failure}; correct the script or the data")


PREPARATION = Preparation(with_own_data, with_tested_data, own_data_caveats, redaction)
