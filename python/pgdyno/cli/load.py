"""``pgdyno load``: load the data of a workload into a database on any server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from pgdyno.cli import options
from pgdyno.cli.console import err, print_json, say
from pgdyno.cli.options import expanded
from pgdyno.cli.workload_options import (
    PgbenchData,
    SysbenchOptions,
    TpccData,
    TpccDialect,
    Which,
    chosen_parameters,
)
from pgdyno.engine import Event
from pgdyno.errors import UsageError
from pgdyno.interruption import Interruption
from pgdyno.lab.dataset_loading import DATASET_SEED, Place, load_data
from pgdyno.lab.dsn_arm import require_room
from pgdyno.server.dsn import Dsn
from pgdyno.server.ownership_marker import INCOMPLETE, lock_of, take_lock
from pgdyno.server.remote import Remote
from pgdyno.study.workload_parameters import WorkloadParameters
from pgdyno.units import format_duration, format_size


@expanded
def load(
    dsn: options.Dsn,
    *,
    which: Which,
    tpcc_data: TpccData,
    tpcc_dialect: TpccDialect,
    pgbench_data: PgbenchData,
    sysbench: SysbenchOptions,
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
    replace: options.Replace = False,
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
    if seed is not None and which.workload == "pgbench":
        raise UsageError(f"--seed {seed} requires --workload tpcc: pgbench tables contain no random data")
    if replace and not (into_existing and which.workload == "pgbench"):
        raise UsageError(
            "--replace requires --into-existing and --workload pgbench; "
            "other tables are replaced only if pgdyno loaded them"
        )
    sets = tpcc_dialect.table_sets or 1  # at most one per warehouse
    parameters = chosen_parameters(
        which, tpcc_data, tpcc_dialect, pgbench_data, sysbench, default_size=lambda _: sets
    )
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
            Place(target.conninfo, remote.connect, into_existing, replace),
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
