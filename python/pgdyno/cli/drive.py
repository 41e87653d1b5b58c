"""``pgdyno drive``: one run of a workload against one loaded database, without comparison."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from pgdyno.analysis.telemetry.percentiles import Latencies
from pgdyno.cli import options
from pgdyno.cli.client_options import ClientOptions
from pgdyno.cli.console import out, print_json, say
from pgdyno.cli.options import expanded
from pgdyno.cli.workload_options import (
    PgbenchScripts,
    SysbenchOptions,
    TpccCalls,
    TpccDialect,
    Which,
    chosen_parameters,
)
from pgdyno.drive.drive_specification import DRAIN_TIMEOUT_S, drive_specification
from pgdyno.drive.engine_runs import EngineRun, examine_scripts, run_drive
from pgdyno.engine import Event
from pgdyno.errors import DatasetError, PgdynoError, ServerError, UsageError, in_one_line
from pgdyno.estimate import ABSENT, counted, group_digits
from pgdyno.interruption import Interruption
from pgdyno.lab.trial import untested_version
from pgdyno.lab.trial_outcome import status_of
from pgdyno.results.packing import pairs_from
from pgdyno.results.records import TrialStatus
from pgdyno.server.crash_detector import keep_idle, require_no_crash
from pgdyno.server.dsn import Dsn
from pgdyno.server.remote import Remote
from pgdyno.server.running import Connection
from pgdyno.server.version import version_of
from pgdyno.study.defaults import DISCARD_S
from pgdyno.study.schedule import PlannedSlice, Role
from pgdyno.study.sizing import default_clients
from pgdyno.study.workload_parameters import Pace
from pgdyno.units import format_duration, parse_duration_s
from pgdyno.workload.pgbench.pgbench_tables import read_scale
from pgdyno.workload.tpcc.tpcc_dataset import (
    create_views,
    marker_or_none,
    read_marker,
    require_warehouses,
)


def size_of_data(connection: Connection, kind: str, dialect: TpccDialect) -> int:
    """Return the scale or the number of warehouses of the loaded data.

    Data of the dialect sysbench may be those of sysbench-tpcc itself, which has no ownership marker. Raises
    DatasetError.
    """
    if kind == "pgbench":
        return read_scale(connection)
    if dialect.dialect == "sysbench" and marker_or_none(connection) is None:
        create_views(connection, dialect.table_sets or 1)
        return require_warehouses(connection)
    return read_marker(connection).scale


@expanded
def drive(
    dsn: options.Dsn,
    clients: Annotated[
        int | None,
        typer.Option(metavar="N", help="Number of client connections, 1 to 2000. [default: 4 per core]"),
    ] = None,
    window: Annotated[
        str, typer.Option(metavar="DURATION", help="Length of the measurement window.")
    ] = "30s",
    warmup: Annotated[
        str, typer.Option(metavar="DURATION", help="Length of the warm-up before the window, not measured.")
    ] = "5s",
    *,
    which: Which,
    tpcc_calls: TpccCalls,
    tpcc_dialect: TpccDialect,
    pgbench_scripts: PgbenchScripts,
    sysbench: SysbenchOptions,
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
    window_s, warmup_s = parse_duration_s(window), parse_duration_s(warmup)
    if window_s <= DISCARD_S:
        raise UsageError(f"--window must be longer than {format_duration(DISCARD_S)} (got {window!r})")
    with Interruption() as interruption:
        remote = Remote(Dsn(dsn))
        with remote.connect() as connection:
            workload = chosen_parameters(
                which,
                tpcc_calls,
                tpcc_dialect,
                pgbench_scripts,
                sysbench,
                default_size=lambda kind: size_of_data(connection, kind, tpcc_dialect),
            )
            name, version = connection.info.dbname, version_of(connection)
        if not into_existing and name not in remote.own_databases():
            raise DatasetError(
                f"the database {name} was not created by pgdyno: add --into-existing to change its data"
            )
        for caveat in (*untested_version(name, version), *examine_scripts(workload)):
            say(f"! {caveat.text}", wrap=True)
        n_clients = default_clients(options.machine_size()) if clients is None else clients
        driving = load.driving(workload, n_clients)
        slices = [PlannedSlice(0, Role.WARM_UP, warmup_s, 0)] if warmup_s > 0 else []
        slices.append(PlannedSlice(0, Role.MEASURE, window_s, 0))
        specification = drive_specification(
            driving, secrets.randbelow(2**48) if seed is None else seed, slices, [(name, remote.dsn.conninfo)]
        )
        with keep_idle(remote.connect()) as idle_connection:
            run, measured = _run(specification, interruption, quiet)
            status, why = _status(run, name, idle_connection)
        return _conclude(Driven(run, measured, status, why), workload.pace, interruption, json=json)


@dataclass(frozen=True)
class Driven:
    """A finished run: its measured slice, its status, and the reason ``why`` it is not valid."""

    run: EngineRun
    measured: Event | None
    status: TrialStatus
    why: str


def _conclude(driven: Driven, pace: Pace, interruption: Interruption, *, json: bool) -> int:
    """Print the result and return the exit status. Raises PgdynoError for a run without a valid result."""
    run, measured, status = driven.run, driven.measured, driven.status
    if measured is None or run.result is None or _counted_s(measured) <= 0:
        reason = run.failure.message if run.failure else "the run stopped during warm-up"
        if interruption.requested:
            raise interruption.interrupted(f"nothing was measured: {reason}")
        raise PgdynoError(f"nothing was measured: {reason}")
    found = {**summarise(run, measured, pace), "complete": status is TrialStatus.OK}
    if json:
        print_json(found)
    else:
        show_results(found)
    if interruption.requested:
        raise interruption.interrupted("interrupted; the results are incomplete")
    if status is TrialStatus.FAILED:
        raise PgdynoError(f"the run is not valid: {driven.why}")
    if why := why_all_failed(run, measured):
        raise PgdynoError(why)
    return 0 if status is TrialStatus.OK else 1


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
        p99_ms = event["latency_ns"]["p99"] / 1e6 if n else 0.0
        p99 = f"p99 {group_digits(p99_ms, 2)} ms" if n else "no transaction succeeded"
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
        "rate": {
            "unit": pace.unit,
            "value": pace.of(ok, window_s),
        },
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


COUNTS = {
    "ok": "ok",
    "rolled_back": "rolled back",
    "failed": "failed",
    "skipped": "skipped",
    "retried": "retried",
}
"""Counters of the engine with their headings."""


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
    console.print(_table("transactions", list(COUNTS.values()), counts))
    if unanswered := found["unanswered"]:
        console.print(
            f"{counted(unanswered, 'transaction')} canceled and counted as failed: no response within "
            f"{DRAIN_TIMEOUT_S:g} s after the window",
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
