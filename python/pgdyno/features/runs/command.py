"""Single runs without a comparison: ``pgdyno load``, ``check``, ``drive`` and ``pgbench``.

- Options of the workload, for each command.
- ``pgdyno load``: load the data of a workload into a database on any server.
- ``pgdyno check``: check the consistency of the data of a workload, read-only.
- ``pgdyno pgbench``: replace this process with the engine's pgbench-compatible program.
- ``pgdyno drive``: one run of a workload against one loaded database, without comparison.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from importlib import resources
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand

from pgdyno.analysis.telemetry.percentiles import Latencies
from pgdyno.cli import options
from pgdyno.cli.console import err, out, print_json, say
from pgdyno.cli.options import ClientOptions
from pgdyno.cli.workload_options import (
    WORKLOAD_OPTIONS,
    PgbenchCalls,
    PgbenchData,
    PgbenchScripts,
    TpccCalls,
    TpccData,
    TpccDialect,
    Which,
    WorkloadOptions,
)
from pgdyno.errors import DatasetError, PgdynoError, ServerError, UsageError, in_one_line
from pgdyno.features.running_server.arms import require_room
from pgdyno.features.running_server.remote import INCOMPLETE, Remote, lock_of, take_lock
from pgdyno.interruption import Interruption
from pgdyno.measure.dataset_loading import DATASET_SEED, Place, load_data
from pgdyno.measure.engine_runs import EngineRun, drive_specification, examine_scripts, run_drive
from pgdyno.measure.trial import status_of, untested_version
from pgdyno.results.codec import pairs_from
from pgdyno.results.records import Check, TrialStatus
from pgdyno.server.builds import version_of
from pgdyno.server.connections import Dsn
from pgdyno.server.engine import PGBENCH, Event, find_program
from pgdyno.server.processes import Connection, keep_idle, require_no_crash
from pgdyno.study.defaults import DISCARD_S, default_clients
from pgdyno.study.schedule import PlannedSlice, Role
from pgdyno.study.workload_parameters import Pace, RequiredRate, WorkloadParameters
from pgdyno.units import ABSENT, counted, format_duration, format_size, group_digits, parse_duration_s
from pgdyno.workloads.pgbench.data import read_scale
from pgdyno.workloads.pgbench.parameters import PgbenchParameters
from pgdyno.workloads.tpcc.checks import (
    OwnershipMarker,
    check_conditions,
    create_views,
    read_marker,
    require_warehouses,
)
from pgdyno.workloads.tpcc.dialects import DEVIATIONS, in_order
from pgdyno.workloads.tpcc.parameters import TpccParameters
from pgdyno.workloads.workload import workload_of

# ----------------------------------------------------------------------
# Options of the workload, for each command.
# ----------------------------------------------------------------------


class SingleRunOptions(WorkloadOptions):
    """Base class of the options of single runs."""

    @classmethod
    def types(cls) -> Sequence[Any]:
        """Return the types of the groups without those of comparisons only."""
        return Which, *cls.OWN, *(group for group in WORKLOAD_OPTIONS if not group.IN_COMPARISONS_ONLY)


class LoadOptions(SingleRunOptions):
    """Options of the data of a workload."""

    OWN = (TpccData, TpccDialect, PgbenchData)


class DriveOptions(SingleRunOptions):
    """Options of the transactions of a workload."""

    OWN = (TpccCalls, TpccDialect, PgbenchScripts, PgbenchCalls)


class CheckOptions(WorkloadOptions):
    """Options of the checks of data."""

    OWN = (TpccDialect, PgbenchScripts, PgbenchCalls)

    @classmethod
    def types(cls) -> Sequence[Any]:
        """Return the types of the groups; workloads of features have no checks of this kind."""
        return Which, *cls.OWN


def _parameters(workload: WorkloadOptions) -> WorkloadParameters:
    """Return the parameters, by default with a warehouse for each set of tables. Raises UsageError."""
    sets, warehouses = workload.given.get("table_sets", 1), workload.given.get("warehouses")
    if warehouses is not None and warehouses < sets:
        raise UsageError(f"--table-sets={sets} requires {sets} warehouses or more (got {warehouses})")
    return workload.parameters(lambda _: sets)


# ----------------------------------------------------------------------
# ``pgdyno load``: load the data of a workload into a database on any server.
# ----------------------------------------------------------------------


FIXED_IN_ROUTINES = frozenset(
    {
        "uniform-items",
        "supply-from-all",
        "unsorted-lines",
        "no-rollback",
        "literal-last-name",
        "unused-item-committed",
    }
)
"""Deviations of what the functions for HammerDB draw and look up, which is as HammerDB has it."""


def load(
    dsn: options.Dsn,
    *,
    workload: LoadOptions,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            max=options.SEED_MAX,
            help="tpcc and sysbench: seed of the data; the same seed gives the same data. "
            f"[default: {DATASET_SEED}]",
        ),
    ] = None,
    connections: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=64,
            help="Number of connections that load in parallel, 1 to 64. [default: one per core]",
        ),
    ] = None,
    into_existing: options.IntoExisting = False,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="pgbench: with --into-existing, overwrite pgbench_* tables that pgdyno did not load. "
            "Deletes their rows.",
        ),
    ] = False,
    hammerdb_routines: Annotated[
        bool,
        typer.Option(
            "--hammerdb-routines",
            help="tpcc with a dialect of HammerDB: create the functions that HammerDB 4.1 and later call.",
        ),
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Load the data of a workload into a database.

    Creates the database named in the DSN. An existing database is an error, unless an interrupted load left
    it incomplete or --into-existing is given. --into-existing replaces data that pgdyno loaded before; other
    tables and functions of the same names are an error. --replace overwrites such tables of pgbench.
    Examples:

    \b
      pgdyno load postgresql://localhost/tpcc --warehouses 10
      pgdyno load postgresql://localhost/bench --workload pgbench --scale 10 --partitions 4
      pgdyno load postgresql://localhost/sbtest --workload sysbench --tables 8 --table-size 100000
    """
    target = Dsn(dsn)
    if seed is not None and workload.which.workload == "pgbench":
        raise UsageError(f"--seed {seed} requires --workload tpcc: pgbench tables contain no random data")
    if replace and not (into_existing and workload.which.workload == "pgbench"):
        raise UsageError(
            "--replace requires --into-existing and --workload pgbench; "
            "other tables are replaced only if pgdyno loaded them"
        )
    parameters = _parameters(workload)
    further: dict[str, Any] = {}
    if hammerdb_routines:
        if not (isinstance(parameters, TpccParameters) and parameters.dialect.startswith("hammerdb")):
            raise UsageError("--hammerdb-routines requires --workload tpcc and --dialect hammerdb")
        given = {name.removeprefix("-") for name in parameters.deviate.split(",")}
        if fixed := sorted(given & FIXED_IN_ROUTINES):
            raise UsageError(
                f"--hammerdb-routines draws lines and customers as HammerDB does: remove "
                f"{', '.join(fixed)} from --deviate"
            )
        further = {"hammerdb_routines": [one.name for one in parameters.deviations]}
    remote = Remote(target)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())

    def on_forecast(size_bytes: int) -> None:
        is_known = require_room(remote, "the data need", size_bytes, parameters.SMALLER)
        if not quiet:
            warning = "" if is_known else "; the free disk space of the server is unknown"
            say(forecast(parameters, size_bytes) + warning)

    with (
        Interruption() as interruption,
        database(target, into_existing),
        Progress(*columns, console=err, disable=quiet) as progress,
    ):
        task = progress.add_task("connect", total=1.0)
        result = load_data(
            Place(target.conninfo, remote.connect, into_existing, replace, further),
            parameters,
            interruption,
            lambda phase, share: progress.update(task, description=f"{phase:8}", completed=share),
            on_forecast,
            connections=connections,
            seed=DATASET_SEED if seed is None else seed,
        )
    if json:
        print_json({key: value for key, value in result.items() if key != "event"})
    else:
        typer.echo(load_summary(result))
    return 0


def forecast(parameters: WorkloadParameters, size_bytes: int) -> str:
    """Return the expected size on disk, as text."""
    if not size_bytes:
        return f"{parameters.size}: only the script knows how much disk space they take"
    return f"{parameters.size} will take {format_size(size_bytes)}"


@contextlib.contextmanager
def database(target: Dsn, into_existing: bool) -> Iterator[None]:
    """Create the database of the DSN, and drop it again if the load fails.

    With ``into_existing`` the database must exist and is kept. A database that a killed load left incomplete
    is replaced. Raises UsageError if the database exists already.
    """
    if into_existing:
        with Remote(target).connect():
            pass
        yield
        return
    name = target.database
    maintenance = Remote(target.with_database("postgres"))
    maintenance.drop_what_nobody_holds()

    def refuse() -> None:
        raise UsageError(
            f"another pgdyno is loading the database {name}: wait until it ends, or name another database"
        )

    with maintenance.connect() as turn:
        take_lock(turn, lock_of(name), refuse)
        if maintenance.own_databases().get(name) == INCOMPLETE:
            say(f"replacing the database {name}, which an interrupted load left incomplete")
            maintenance.drop(name)
        elif maintenance.has_database(name):
            raise UsageError(
                f"the database {name} already exists: name another database, or add --into-existing"
            )
        with maintenance.making(name, "made by pgdyno load"):
            yield


def load_summary(result: Event) -> str:
    """Return one line with rows, size and time of each phase, longest first."""
    phases = sorted(result["phases_s"].items(), key=lambda phase: -phase[1])
    parts = ", ".join(f"{phase} {format_duration(s)}" for phase, s in phases)
    rows, in_all_s = sum(result["rows"].values()), sum(s for _, s in phases)
    copied = format_size(result["bytes_copied"])
    return f"{rows:,} rows loaded in {format_duration(in_all_s)} ({parts}), {copied} copied"


# ----------------------------------------------------------------------
# ``pgdyno check``: check the consistency of the data of a workload, read-only.
# ----------------------------------------------------------------------


def check(dsn: options.Dsn, *, workload: CheckOptions, as_json: options.Json = False) -> int:
    """Check the consistency of the data of a workload.

    tpcc: the twelve consistency conditions of TPC-C, without those that cannot hold under the deviations of
    the data and of --dialect and --deviate. pgbench: the invariants of the named scripts, provided
    that no other script changed the data since they were loaded. linkbench, insert: invariants of their data.
    Reads only; the database need not be made by pgdyno. Exit status 1 if a check fails. Examples:

    \b
      pgdyno check postgresql://localhost/tpcc
      pgdyno check postgresql://localhost/bench --workload pgbench -b simple-update
    """
    parameters = _parameters(workload)
    # No grace period: a read-only command has nothing to shut down in order.
    with Interruption(grace_s=0.0), closing(_connect(dsn)) as conn:
        if isinstance(parameters, PgbenchParameters) and "unknown" in parameters.effects:
            raise UsageError("--file: custom scripts cannot be checked: name built-in scripts with --builtin")
        if not isinstance(parameters, TpccParameters):
            checks = workload_of(parameters).invariants(lambda: _connect(dsn))
            if not checks:
                raise UsageError(f"--workload {parameters.kind}: its data have no invariants")
        else:
            marker = _marker_or_none(conn)
            if marker is None:
                require_dialect(conn, workload.given)
            own = [one.name for one in parameters.deviations]
            names = in_order((*own, *(marker.deviations if marker else ())))
            sets = marker.suffixed_sets if marker else parameters.suffixed_sets
            create_views(conn, sets)
            require_warehouses(conn)
            checks = check_conditions(lambda: _connect(dsn), [DEVIATIONS[name] for name in names], sets)
    if as_json:
        print_json(checks_as_json(checks))
    else:
        out.print(_check_table(checks))
    return 0 if all(c.passed for c in checks) else 1


def checks_as_json(checks: Sequence[Check]) -> dict[str, Any]:
    """Return the JSON of ``pgdyno check``. ``passed`` of a check is null if it was skipped."""
    names = ("name", "statistic", "p_value", "detail", "skipped")
    found = [{**{name: getattr(of, name) for name in names}, "passed": of.result} for of in checks]
    return {"passed": all(of.passed for of in checks), "checks": found}


def _connect(dsn: str) -> Connection:
    return Remote(Dsn(dsn)).connect()


def _verdict(check: Check) -> Text:
    if check.skipped:
        return Text("skipped", "yellow")
    return Text("yes", "green") if check.passed else Text("NO", "bold red")


def _check_table(checks: Sequence[Check]) -> Table:
    table = Table("check", "passed", "details", box=None)
    for c in checks:
        table.add_row(c.name, _verdict(c), c.detail)
    return table


# ----------------------------------------------------------------------
# ``pgdyno pgbench``: replace this process with the engine's pgbench-compatible program.
# ----------------------------------------------------------------------

NAME = "pgdyno pgbench"


class PassedOn(TyperCommand):
    """Command that passes all arguments to another program."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the arguments unchanged."""
        ctx.args = list(args)
        return args


AS_COMMAND = {"pgbench": {"cls": PassedOn, "add_help_option": False}}


def pgbench(context: typer.Context) -> None:
    """Run pgbench benchmarks with the pgdyno engine.

    Accepts the options of pgbench and prints its output format: pgdyno docs reference/pgbench.
    """
    program = find_program(PGBENCH)
    # pgbench's -h takes a host name; without one it can only mean --help.
    arguments = ["--help"] if context.args == ["-h"] else context.args
    sys.stdout.flush()
    os.execv(program, [NAME, *arguments])


# ----------------------------------------------------------------------
# ``pgdyno drive``: one run of a workload against one loaded database, without comparison.
# ----------------------------------------------------------------------


def _marker_or_none(conn: Connection) -> OwnershipMarker | None:
    """Return the marker; None if pgdyno did not load the data."""
    try:
        return read_marker(conn)
    except DatasetError:
        return None


def size_of_data(connection: Connection, of: type[WorkloadParameters], given: Mapping[str, Any]) -> int:
    """Return the scale or the number of warehouses of the loaded data.

    Other programs load tpcc data, too, without an ownership marker. Raises DatasetError.
    """
    if issubclass(of, PgbenchParameters):
        return read_scale(connection)
    if loaded_by(connection)[0] in ("pgdyno", "none"):
        return read_marker(connection).scale
    require_dialect(connection, given)
    create_views(connection, given.get("table_sets", 1) if given.get("dialect") == "sysbench" else 0)
    return require_warehouses(connection)


LOADED_BY = resources.files(__package__).joinpath("loaded_by.sql").read_bytes()


def loaded_by(connection: Connection) -> tuple[str, int]:
    """Return the program that loaded the tpcc data, by their tables, and the number of numbered sets."""
    ((program, sets),) = connection.execute(LOADED_BY).fetchall()
    return program, sets


def require_dialect(connection: Connection, given: Mapping[str, Any]) -> None:
    """Raise UsageError for data of a program with a dialect of its own, if none is given."""
    program, sets = loaded_by(connection)
    dialects = {"hammerdb": "--dialect=hammerdb", "sysbench": f"--dialect=sysbench --table-sets={sets}"}
    if program in dialects and "dialect" not in given:
        raise UsageError(
            f"the tables of {connection.info.dbname} are those of {NAMES[program]}: add {dialects[program]}, "
            "or another --dialect"
        )


NAMES = {"hammerdb": "HammerDB", "sysbench": "sysbench-tpcc"}
"""Programs that load tpcc data, by dialect."""


WINDOW_S, WARMUP_S = 30.0, 5.0
"""Defaults of --window and --warmup."""


def parse_window_s(text: str) -> float:
    """Parse the length of a window. Raises UsageError."""
    window_s = parse_duration_s(text)
    if window_s <= DISCARD_S:
        raise UsageError(f"must be longer than {format_duration(DISCARD_S)} (got {text!r})")
    return window_s


def drive(
    dsn: options.Dsn,
    clients: Annotated[
        int | None,
        typer.Option(metavar="N", help="Number of client connections, 1 to 2000. [default: 4 per core]"),
    ] = None,
    window: Annotated[
        float | None,
        typer.Option(
            metavar="DURATION",
            parser=options.parser("--window", parse_window_s),
            help="Length of the measurement window. [default: 30s]",
        ),
    ] = None,
    warmup: Annotated[
        float | None,
        typer.Option(
            metavar="DURATION",
            parser=options.parser("--warmup", parse_duration_s),
            help="Length of the warm-up before the window, not measured. [default: 5s]",
        ),
    ] = None,
    *,
    workload: DriveOptions,
    load: ClientOptions,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            max=options.SEED_MAX,
            help="Seed of the clients' random choices. [default: random]",
        ),
    ] = None,
    into_existing: options.IntoExisting = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Run a workload once against a loaded database.

    Shows throughput and latencies. The workload changes the data, so the database must be one that
    pgdyno load created, unless --into-existing is given. A single run has no confidence interval: to compare
    servers, use pgdyno compare. Examples:

    \b
      pgdyno drive postgresql://localhost/tpcc --clients 16 --window 60s
      pgdyno drive postgresql://localhost/bench --workload pgbench -f my.sql@3 -b select-only
    """
    window_s, warmup_s = WINDOW_S if window is None else window, WARMUP_S if warmup is None else warmup
    with Interruption() as interruption:
        remote = Remote(Dsn(dsn))
        with remote.connect() as connection:
            parameters = workload.parameters(lambda of: size_of_data(connection, of, workload.given))
            name, version = connection.info.dbname, version_of(connection)
        if not into_existing and name not in remote.own_databases():
            raise DatasetError(
                f"the database {name} was not created by pgdyno: add --into-existing to change its data"
            )
        for caveat in (*untested_version(name, version), *examine_scripts(parameters)):
            say(f"! {caveat.text}", wrap=True)
        n_clients = default_clients(options.machine_size()) if clients is None else clients
        driving = load.driving(parameters, n_clients)
        slices = [PlannedSlice(0, Role.WARM_UP, warmup_s, 0)] if warmup_s > 0 else []
        slices.append(PlannedSlice(0, Role.MEASURE, window_s, 0))
        specification = drive_specification(
            driving, secrets.randbelow(2**48) if seed is None else seed, slices, [(name, remote.dsn.conninfo)]
        )
        with keep_idle(remote.connect()) as idle_connection:
            run, measured = _run(specification, interruption, quiet)
            status, why = _status(run, name, idle_connection)
        show = print_json if json else show_results
        return _conclude(run, measured, status, why, parameters, interruption, show)


def _conclude(
    run: EngineRun,
    measured: Event | None,
    status: TrialStatus,
    why: str,
    parameters: WorkloadParameters,
    interruption: Interruption,
    show: Callable[[Any], None],
) -> int:
    """Show the result and return the exit status. Raises PgdynoError for a run without a valid result."""
    if measured is None or run.result is None or _counted_s(measured) <= 0:
        reason = run.failure.message if run.failure else "the run stopped during warm-up"
        if interruption.requested:
            raise interruption.interrupted(f"nothing was measured: {reason}")
        raise PgdynoError(f"nothing was measured: {reason}")
    if missed := missed_rate(measured, parameters.required_rate):
        say(f"! {missed}", wrap=True)
    found = {**summarise(run, measured, parameters.pace), "complete": status is TrialStatus.OK}
    show(found)
    if interruption.requested:
        raise interruption.interrupted("interrupted; the results are incomplete")
    if status is TrialStatus.FAILED:
        raise PgdynoError(f"the run is not valid: {why}")
    if why := why_all_failed(run, measured):
        raise PgdynoError(why)
    return 0 if status is TrialStatus.OK else 1


def missed_rate(measured: Event, required: RequiredRate | None) -> str:
    """Return how the required rate was missed; empty if it was kept, or if there is none."""
    if required is None:
        return ""
    pace, target = required.pace, required.target
    rate = pace.of({kind: n["ok"] for kind, n in measured["kinds"].items()}, _counted_s(measured))
    if rate >= required.share * target:
        return ""
    of_target = f"{group_digits(rate, 0)} of {group_digits(target, 0)} {pace.unit}"
    return f"the {pace.kind} rate was not kept: {of_target}. The other transactions had less work beside them"


def _status(run: EngineRun, name: str, idle_connection: Connection) -> tuple[TrialStatus, str]:
    """Return the status of the run, and the reason if it is not valid."""
    status, why = status_of(run, 0, name)
    try:
        if status is TrialStatus.OK:
            require_no_crash(idle_connection)
    except ServerError as error:
        return TrialStatus.FAILED, str(error)
    return status, why


def why_all_failed(run: EngineRun, measured: Event) -> str:
    """Return the first error of the server if all transactions failed; else an empty string."""
    counts = measured["kinds"].values()
    failed = sum(kind["failed"] for kind in counts)
    if not failed or any(kind["ok"] or kind["rolled_back"] for kind in counts):
        return ""
    attempts = failed + sum(kind["retried"] for kind in counts)
    first = f": {error_text(run.errors[0])}" if run.errors else ""
    remedy = REMEDIES.get(run.errors[0]["sqlstate"], "") if run.errors else ""
    of = f" in {group_digits(attempts, 0)} attempts" if attempts > failed else ""
    return f"no transaction succeeded, {group_digits(failed, 0)} failed{of}{first}{remedy}"


REMEDIES = {
    "25006": ": connect to a primary, in a session that is not read-only",
    "42P01": ": load the data first with pgdyno load",
    "42501": ": connect as the role that loaded the data",
}
"""Remedies for errors that affect every transaction, by SQLSTATE."""


def error_text(event: Event) -> str:
    """Return an ``error`` event of the engine as one line, with its SQLSTATE."""
    code = f" (SQLSTATE {event['sqlstate']})" if event["sqlstate"] else ""
    return f"{in_one_line(event['message']).removesuffix(code)}{code}"


class Narrator:
    """Progress on standard error: one line per interval, and each kind of error once."""

    def __init__(self) -> None:
        self._errors: set[tuple[str, str | None]] = set()
        self._last = ""  # the last interval without successes: role and whether attempts failed

    def __call__(self, event: Event) -> None:
        if event["event"] == "interval":
            self._print_interval(event)
        elif event["event"] == "error" and (key := (event["kind"], event["sqlstate"])) not in self._errors:
            self._errors.add(key)
            say(f"{event['kind']}: {error_text(event)}")

    def _print_interval(self, event: Event) -> None:
        counts = event["kinds"].values()
        n = sum(kind["ok"] + kind["rolled_back"] for kind in counts)
        failed = sum(kind["failed"] for kind in counts)
        span_s = (event["to_ns"] - event["from_ns"]) / 1e9
        p99 = "no transaction committed" if n else "no transaction succeeded"
        if any(kind["ok"] for kind in counts):
            p99 = f"p99 {group_digits(event['latency_ns']['p99'] / 1e6, 2)} ms"
        retried = sum(kind["retried"] for kind in counts)
        more = "".join(
            f", {group_digits(of, 0)} {word}" for of, word in ((failed, "failed"), (retried, "retried")) if of
        )
        state = "" if n else f"{event['role']} {bool(more)}"
        if n or state != self._last:
            at, rate_per_s = f"{event['to_ns'] / 1e9:5.0f} s", n / span_s
            say(f"{at}  {event['role']:8} {group_digits(rate_per_s, 0):>9} tx/s  {p99}{more}")
        self._last = state


def _run(
    specification: Mapping[str, Any], interruption: Interruption, quiet: bool
) -> tuple[EngineRun, Event | None]:
    measured: list[Event] = []
    narrator = Narrator()

    def on_event(event: Event) -> None:
        if event["event"] == "slice" and event["role"] == "measure":
            measured.append(event)
        elif not quiet or event["event"] == "error":
            narrator(event)

    run = run_drive(specification, interruption, on_event)
    return run, measured[0] if measured else None


def _counted_s(measured: Event) -> float:
    """Return the measured time; negative if the run stopped before the window."""
    return float(measured["closed_ns"] - measured["counted_from_ns"]) / 1e9


def _executed(run: EngineRun) -> int | None:
    """Return the transactions from the start of the measured slice to its drain, also of a stopped run."""
    assert run.result is not None
    if (found := run.transactions(0)) is not None or "measure" not in run.totals:
        return found
    totals = run.result.targets[0].totals.values()
    executed = sum(kind["ok"] + kind["rolled_back"] for kind in totals)
    return int(executed - run.totals["measure"][0]["transactions"])


def summarise(run: EngineRun, measured: Event, pace: Pace) -> dict[str, Any]:
    """Return rates over the counted part of the window, latencies in ms by kind, and the driver's cost."""
    assert run.result is not None
    window_s = _counted_s(measured)
    counts = measured["kinds"]
    executed = sum(kind["ok"] + kind["rolled_back"] for kind in counts.values())
    ok = {kind: n["ok"] for kind, n in counts.items()}
    kinds = run.result.targets[0].kinds
    latencies = {kind: _latencies(found.histograms).quantiles_ms() for kind, found in kinds.items()}
    cpu_ns = measured["driver_cpu_ns"]
    ended = _executed(run)  # over the same time as the driver's CPU time
    return {
        "window_s": window_s,
        "rate": {"unit": pace.unit, "value": pace.of(ok, window_s)},
        "tpm": 60 * executed / window_s,
        "counts": counts,
        "latency_ms": {
            kind: {name: ms and ms.value for name, ms in quantiles.items()}
            for kind, quantiles in latencies.items()
        },
        "lower_bounds": {
            kind: [name for name, ms in quantiles.items() if ms and ms.is_bound]
            for kind, quantiles in latencies.items()
        },
        "failures": {kind: found.failures for kind, found in kinds.items() if found.failures},
        "unanswered": measured["abandoned"],
        "driver_cpu_us_per_transaction": (cpu_ns["user"] + cpu_ns["system"]) / 1e3 / ended if ended else None,
        "driver_memory_bytes": run.result.driver["memory_peak_bytes"],
    }


def _latencies(histograms: Mapping[str, Any]) -> Latencies:
    return Latencies(pairs_from(histograms["latency"]), pairs_from(histograms["skipped"]))


COUNTS = ("ok", "rolled_back", "failed", "skipped", "retried")
"""Counters of the engine, in the order of the table."""


def show_results(found: Mapping[str, Any], console: Console = out) -> None:
    """Print two tables: a single one would be wider than a terminal."""
    cpu_us = found["driver_cpu_us_per_transaction"]
    cost = (
        "no transaction succeeded"
        if cpu_us is None
        else f"load generator: {group_digits(cpu_us, 1)} µs CPU per transaction"
    )
    rate, tpm = (group_digits(value, 0) for value in (found["rate"]["value"], found["tpm"]))
    rates = f"{rate} {found['rate']['unit']}   {tpm} TPM"
    console.print(f"{rates}   over {group_digits(found['window_s'], 1)} s, one run; {cost}", soft_wrap=True)
    counts = {kind: [group_digits(n[name], 0) for name in COUNTS] for kind, n in found["counts"].items()}
    console.print(_table("transactions", [name.replace("_", " ") for name in COUNTS], counts))
    if unanswered := found["unanswered"]:
        console.print(
            f"{counted(unanswered, 'transaction')} canceled and counted as failed: no response in time after "
            "the window",
            soft_wrap=True,
        )
    latency = {
        kind: [
            ABSENT
            if ms is None
            else f"{'> ' if name in found['lower_bounds'][kind] else ''}{group_digits(ms, 2)}"
            for name, ms in quantiles.items()
        ]
        for kind, quantiles in found["latency_ms"].items()
    }
    console.print(_table("latency, ms", list(next(iter(found["latency_ms"].values()))), latency))
    absent = any(ABSENT in cells for cells in latency.values())
    note = f"; {ABSENT}: too few transactions" if absent else ""
    console.print(f"latency of ok transactions, from their intended start{note}")
    if any(found["lower_bounds"].values()):
        console.print(">: lower bound; skipped arrivals count as longer than all others")


def _table(title: str, columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> Table:
    table = Table(title, box=None)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for kind, cells in rows.items():
        table.add_row(kind, *cells)
    return table
