"""Drive of many clients by engines on this machine against a fake server (fake_server.c).

The coordinator and the merge are those of load generators on nodes. Run it with
``python -m bench driver-nodes --clients N``.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.drivers import LocalLink
from bench.stopping import table
from pgdyno.errors import UsageError
from pgdyno.features.drivers.group import DriverGroup, split
from pgdyno.server.engine import Event

SLICES = 2
PORT = 5432
OTHER_FILES = 64
"""Open files of a process of the server that are not clients, at most."""

QUERIES_PER_ENGINE = 1
"""Statements of an engine that are no transactions: it reads the version of the server."""


@contextlib.contextmanager
def fake_server(clients: int) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Compile and start a server for so many clients. Yield its DSN and its process.

    The process prints the number of executed statements when its input is closed. Raises UsageError.
    """
    compiler, source = shutil.which("cc"), Path(__file__).with_name("fake_server.c")
    if compiler is None:
        raise UsageError("the fake server needs a C compiler: install one")
    with tempfile.TemporaryDirectory(prefix="pgdyno-bench-") as directory:
        program = Path(directory) / "fake_server"
        subprocess.run([compiler, "-O2", "-o", str(program), str(source)], check=True)
        per_process = resource.getrlimit(resource.RLIMIT_NOFILE)[1] - OTHER_FILES
        command = [str(program), f"{directory}/.s.PGSQL.{PORT}", str(-(-clients // per_process))]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            server.stdout.readline()
            yield f"host={directory} port={PORT} user=bench dbname=bench", server


@dataclass(frozen=True)
class Drive:
    """Merged events of a drive. ``cpu_s``: of the coordinator, while the engines drove."""

    connected: Event
    slices: list[Event]
    result: Event
    cpu_s: float
    executed: int

    @property
    def counts(self) -> dict[str, int]:
        """Transactions since the connection."""
        totals: dict[str, int] = self.result["targets"][0]["totals"]["select 1"]
        return totals


def drive(clients: int, engines: int, rate: float, slice_s: float) -> Drive:
    """Drive an open loop. Raises RuntimeError if it fails or the counts of the server differ."""
    links = [LocalLink(f"engine{number}") for number in range(engines)]
    with fake_server(clients) as (dsn, server):
        specification: dict[str, Any] = {
            "targets": [{"name": "fake", "conninfo": dsn}],
            "workload": {
                "kind": "pgbench",
                "protocol": "prepared",
                "scale": 1,
                "scripts": [{"name": "select 1", "text": "SELECT 1;"}],
            },
            "clients": clients,
            "threads": engines,
            "io": "auto",
            "seed": 1,
            "rate": {"per_s": rate, "arrivals": "poisson"},
            "retries_max": 0,
            "slices": [
                {"target": 0, "role": role, "duration_s": slice_s}
                for role in ("warm-up", *["measure"] * SLICES)
            ],
            "discard_s": slice_s / 10,
            "interval_s": 1.0,
            "barriers": True,
            "connect_timeout_s": 60.0,
            "drain_timeout_s": 30.0,
        }
        events: list[Event] = []
        begun_s = ended_s = 0.0
        with DriverGroup(links, split(specification, [2] * engines)) as group:
            for event in group.events():
                events.append(event)
                ended_s = time.process_time()
                if event["event"] == "barrier":
                    begun_s = begun_s or ended_s
                    group.proceed()
        executed = int(server.communicate()[0])
    result = events[-1]
    if result["event"] != "result" or result["stopped"] != "done":
        raise RuntimeError(f"the drive ended with {result}")
    slices = [event for event in events if event["event"] == "slice" and event["role"] == "measure"]
    [connected] = [event for event in events if event["event"] == "connected"]
    found = Drive(connected, slices, result, ended_s - begun_s, executed)
    sent = found.counts["ok"] + found.counts["failed"]
    if executed != sent + engines * QUERIES_PER_ENGINE:
        raise RuntimeError(f"the server executed {executed} statements, and the engines report {sent}")
    return found


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--clients", type=int, help="drive so many clients against a fake server")
    parser.add_argument("--engines", type=int, default=50, help="with --clients [default: 50]")
    parser.add_argument(
        "--rate", type=float, default=5000.0, help="transactions/s, with --clients [default: 5000]"
    )
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="length of a slice, with --clients [default: 10]"
    )


def run(chosen: argparse.Namespace) -> int:
    """Print the table."""
    found = drive(chosen.clients, chosen.engines, chosen.rate, chosen.seconds)
    driver = found.result["driver"]
    counted_s = sum(event["closed_ns"] - event["counted_from_ns"] for event in found.slices) / 1e9
    measured = sum(event["kinds"]["select 1"]["ok"] for event in found.slices)
    late = driver["wake_late_ns"]
    rows = [
        ("clients", f"{found.connected['clients']:,}"),
        ("engines", f"{chosen.engines}"),
        ("time to connect, s", f"{found.connected['connect_s']:.1f}"),
        ("requested rate, tx/s", f"{chosen.rate:,.0f}"),
        ("measured rate, tx/s", f"{measured / counted_s:,.0f}"),
        ("skipped transactions", f"{found.counts['skipped']:,}"),
        (
            "timer delay of the latest engine, p99 / max, ms",
            f"{late['p99'] / 1e6:.1f} / {late['max'] / 1e6:.1f}",
        ),
        ("memory of the engines, MiB", f"{driver['memory_peak_bytes'] / 2**20:,.0f}"),
        ("coordinator, of a core", f"{found.cpu_s / (chosen.seconds * SLICES):.2%}"),
        ("statements executed by the server", f"{found.executed:,}"),
        ("transactions in the merged result", f"{found.counts['ok'] + found.counts['failed']:,}"),
    ]
    print(table(("", "value"), rows))
    return 0
