"""``pgdyno drive``: one run of the clients against one server that is loaded. A step, not a comparison."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from pgdyno.analysis.latency import quantiles_ms
from pgdyno.cli import options
from pgdyno.cli.console import err, out, print_json, say
from pgdyno.drive.run import Run, run_drive
from pgdyno.drive.specification import drive_specification
from pgdyno.engine import Event
from pgdyno.errors import DatasetError, PgdynoError
from pgdyno.interruption import Interruption
from pgdyno.server.dsn import Dsn
from pgdyno.server.remote import Remote
from pgdyno.study.plan import Driving, Slice
from pgdyno.study.sizing import default_clients
from pgdyno.units import parse_duration_s
from pgdyno.workload.tpcc.dataset import read_mark


def drive(
    dsn: options.Dsn,
    clients: Annotated[int | None, typer.Option(metavar="N", help="1 to 2000. [default: 4 per core]")] = None,
    window: Annotated[str, typer.Option(metavar="DURATION", help="How long is measured.")] = "30s",
    warmup: Annotated[
        str, typer.Option(metavar="DURATION", help="Driven before that and not counted.")
    ] = "5s",
    calls: options.Calls = "procedures",
    pipeline: options.Pipeline = False,
    isolation: options.Isolation = "read committed",
    pacing: options.Pacing = "none",
    rate: options.RatePerS = None,
    arrivals: options.Arrivals = "poisson",
    retries: options.Retries = 10,
    threads: options.Threads = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Of what the clients draw. [default: drawn]")
    ] = None,
    into_existing: options.IntoExisting = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Drive the clients once against a loaded database.

    Shows rates and latencies. It changes the data: only databases that pgdyno made (pgdyno load) are
    driven, unless you say --into-existing. One run does not say what the next one would: to compare, use
    pgdyno compare. Example:

    \b
      pgdyno drive postgresql://localhost/tpcc --clients 16 --window 60s
    """
    remote = Remote(Dsn(dsn))
    with remote.connect() as connection:
        scale = read_mark(connection).scale
        name = connection.info.dbname
    if not into_existing and name not in remote.own_databases():
        raise DatasetError(f"{name} was not made by pgdyno: add --into-existing to change its data")
    n_clients = default_clients(options.this_machine()) if clients is None else clients
    driving = Driving.model_validate(
        options.driving(
            warehouses=scale,
            clients=n_clients,
            calls=calls,
            pipeline=pipeline,
            isolation=isolation,
            pacing=pacing,
            rate=rate,
            arrivals=arrivals,
            retries=retries,
            threads=threads,
        )
    )
    slices = [Slice(0, "warm-up", parse_duration_s(warmup), 0)] if parse_duration_s(warmup) > 0 else []
    slices.append(Slice(0, "measure", parse_duration_s(window), 0))
    specification = drive_specification(
        driving, secrets.randbelow(2**48) if seed is None else seed, slices, [(name, remote.dsn.conninfo)]
    )
    run, measured = _run(specification, quiet)
    if measured is None or run.result is None:
        words = run.failure["message"] if run.failure else "stopped before anything was measured"
        raise PgdynoError(f"nothing was measured: {words}")
    found = summarise(run, measured)
    if json:
        print_json(found)
    else:
        show(found)
    return 0 if run.complete else 1


def _run(specification: Mapping[str, Any], quiet: bool) -> tuple[Run, Event | None]:
    measured: list[Event] = []

    def on_event(event: Event) -> None:
        if event["event"] == "interval" and not quiet:
            n = sum(kind["ok"] + kind["rolled_back"] for kind in event["kinds"].values())
            span_s = (event["to_ns"] - event["from_ns"]) / 1e9
            p99_ms = event["latency_ns"]["p99"] / 1e6
            at, rate_per_s = f"{event['to_ns'] / 1e9:5.0f} s", n / span_s
            say(f"{at}  {event['role']:8} {rate_per_s:9,.0f} tx/s  p99 {p99_ms:.2f} ms")
        elif event["event"] == "slice" and event["role"] == "measure":
            measured.append(event)
        elif event["event"] == "error":
            err.print(f"{event['kind']}: {event['sqlstate']}: {event['message']}", markup=False)

    with Interruption() as interruption:
        run = run_drive(specification, interruption, on_event, read=lambda: [None])
    return run, measured[0] if measured else None


def summarise(run: Run, measured: Event) -> dict[str, Any]:
    """Rates over the counted part of the window, latencies in ms by kind, the driver's own cost."""
    assert run.result is not None
    window_s = (measured["closed_ns"] - measured["counted_from_ns"]) / 1e9
    counts = measured["kinds"]
    executed = sum(kind["ok"] + kind["rolled_back"] for kind in counts.values())
    kinds = run.result["targets"][0]["kinds"]
    cpu_ns = measured["driver_cpu_ns"]
    return {
        "window_s": window_s,
        "nopm": 60 * counts["new_order"]["ok"] / window_s,
        "tpm": 60 * executed / window_s,
        "counts": counts,
        "latency_ms": {
            kind: quantiles_ms(np.array(found["histograms"]["latency"], dtype=np.uint64).reshape(-1, 2))
            for kind, found in kinds.items()
        },
        "failures": {kind: found["failures"] for kind, found in kinds.items() if found["failures"]},
        "driver_cpu_us_per_transaction": (cpu_ns["user"] + cpu_ns["system"]) / 1e3 / max(executed, 1),
        "driver_memory_bytes": run.result["driver"]["memory_peak_bytes"],
        "complete": run.complete,
    }


def show(found: Mapping[str, Any]) -> None:
    """For people."""
    out.print(
        f"{found['nopm']:,.0f} NOPM   {found['tpm']:,.0f} TPM   over {found['window_s']:.1f} s, one run; "
        f"driver {found['driver_cpu_us_per_transaction']:.1f} µs of CPU per transaction"
    )
    table = Table("kind", box=None)
    columns = ("ok", "rolled back", "failed", "skipped", "retried", *next(iter(found["latency_ms"].values())))
    for column in columns:
        table.add_column(column, justify="right")
    for kind, counts in found["counts"].items():
        quantiles = ["" if ms is None else f"{ms:.2f}" for ms in found["latency_ms"][kind].values()]
        table.add_row(kind, *(f"{n:,}" for n in counts.values()), *quantiles)
    out.print(table)
    out.print("latency in ms, of the ok ones, from the intended start")
