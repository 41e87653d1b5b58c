"""Drivers that run the same SELECT on the same table with the same number of threads: the engine, pgbench,
sysbench.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict

from bench.measure import Cost, run
from pgdyno.features.cluster.ray import ClockOffset
from pgdyno.features.drivers.group import NodeUsage, own_usage, packed
from pgdyno.server.engine import Engine, Event, find_engine, with_resolved_conninfo

ACCOUNTS_PER_SCALE = 100_000

SAME_CLOCK = ClockOffset(0, 0)
"""Offset of a process on this machine."""


@dataclass(frozen=True)
class DriverRun:
    """Result of one driver run. ``memory_bytes`` (peak) and ``threads`` are 0 for other drivers than the
    engine.
    """

    cost: Cost
    transactions: int
    duration_s: float
    memory_bytes: int = 0
    threads: int = 0

    @property
    def client_us(self) -> float:
        """CPU time of the client per transaction, in µs."""
        return self.cost.cpu_s / self.transactions * 1e6

    @property
    def server_us(self) -> float:
        """CPU time of the rest of the machine per transaction, in µs."""
        return self.cost.other_cpu_s / self.transactions * 1e6

    @property
    def per_s(self) -> float:
        """Transactions per second."""
        return self.transactions / self.duration_s


def run_engine(command: str, specification: Mapping[str, Any]) -> Cost:
    """Run the engine to completion. Raises RuntimeError if it fails."""
    return run([str(find_engine()), command], json.dumps(with_resolved_conninfo(specification)) + "\n")


def engine_drive(
    conninfo: str, workload: dict[str, Any], clients: int, threads: int | None, duration_s: float
) -> DriverRun:
    """Run one slice in the engine, with its start counted. With ``threads`` None, the engine chooses."""
    specification: dict[str, Any] = {
        "targets": [{"name": "bench", "conninfo": conninfo}],
        "workload": workload,
        "clients": clients,
        "threads": threads,
        "seed": 1,
        "pacing": "none",
        "rate": None,
        "retries_max": 10,
        "slices": [{"target": 0, "role": "measure", "duration_s": duration_s}],
        "discard_s": 0.0,
        "interval_s": 1.0,
        "barriers": False,
        "connect_timeout_s": 60.0,
        "drain_timeout_s": 10.0,
    }
    cost = run_engine("drive", specification)
    result = json.loads(cost.output.splitlines()[-1])
    totals = result["targets"][0]["totals"].values()
    failed = sum(counts["failed"] for counts in totals)
    if failed:
        raise RuntimeError(f"{failed} transactions of our own driver failed: {cost.output[:600]}")
    transactions = sum(counts["ok"] + counts["rolled_back"] for counts in totals)
    driver = result["driver"]
    return DriverRun(cost, transactions, duration_s, driver["memory_peak_bytes"], driver["threads"])


def select_only(conninfo: str, scale: int, clients: int, duration_s: float) -> DriverRun:
    """Run select-only in the engine, with the number of threads that it chooses."""
    workload = {"kind": "select-only", "accounts": scale * ACCOUNTS_PER_SCALE}
    return engine_drive(conninfo, workload, clients, None, duration_s)


def pgbench(
    program: str, conninfo: str, clients: int, threads: int, duration_s: float, script: str = "select-only"
) -> DriverRun:
    """Run a built-in script with prepared statements in pgbench or in a program with the same options."""
    seconds = max(1, round(duration_s))
    counts = ("-c", str(clients), "-j", str(threads), "-T", str(seconds))
    cost = run([program, "-n", "-b", script, "-M", "prepared", *counts, conninfo])
    return DriverRun(cost, _first_number(r"transactions actually processed: (\d+)", cost.output), seconds)


def sysbench(conninfo: str, scale: int, clients: int, duration_s: float) -> DriverRun | None:
    """Run the same statement in sysbench: one thread per client, uniform ids. None if sysbench is not
    installed.
    """
    program = shutil.which("sysbench")
    if program is None:
        return None
    parts, seconds = conninfo_to_dict(conninfo), max(1, round(duration_s))
    command = [
        program,
        str(Path(__file__).with_name("point_select.lua")),
        "--db-driver=pgsql",
        *(f"--pgsql-{name}={parts[name]}" for name in ("host", "port", "user")),
        f"--pgsql-db={parts['dbname']}",
        f"--accounts={scale * ACCOUNTS_PER_SCALE}",
        f"--threads={clients}",
        f"--time={seconds}",
        "run",
    ]
    cost = run(command)
    return DriverRun(cost, _first_number(r"transactions:\s+(\d+)", cost.output), seconds)


LOOPS: Mapping[str, Sequence[str]] = {"epoll": (), "io_uring": ("-DIO_URING", "-luring")}
"""Compiler options of the bare loops in floor.c, by I/O interface."""


def compile_floors(directory: Path) -> dict[str, Path]:
    """Compile the available bare loops into ``directory``.

    None is available without a C compiler, and io_uring needs the headers of liburing.
    """
    compiler, source = shutil.which("cc"), Path(__file__).with_name("floor.c")
    programs = {name: directory / f"floor-{name}" for name in LOOPS}
    command = {
        name: ["-O2", "-pthread", "-o", str(programs[name]), str(source), *LOOPS[name]] for name in LOOPS
    }
    return {
        name: programs[name]
        for name in LOOPS
        if compiler
        and subprocess.run([compiler, *command[name]], capture_output=True, check=False).returncode == 0
    }


def floor(
    program: Path, conninfo: str, statement: str, ids: int, clients: int, threads: int, duration_s: float
) -> DriverRun:
    """Run a bare loop that sends ``statement`` with an id of 1..ids: the lower bound for the cost of any
    driver.
    """
    parts, seconds = conninfo_to_dict(conninfo), max(1, round(duration_s))
    socket = f"{parts['host']}/.s.PGSQL.{parts['port']}"
    numbers = (str(number) for number in (ids, clients, threads, seconds))
    cost = run([str(program), socket, str(parts["user"]), str(parts["dbname"]), statement, *numbers])
    return DriverRun(cost, int(cost.output), seconds)


def _first_number(pattern: str, output: str) -> int:
    found = re.search(pattern, output)
    if found is None:
        raise RuntimeError(f"no number of transactions in: {output[-600:]}")
    return int(found[1])


class LocalLink:
    """An engine on this machine, in the place of the link to one on another node."""

    silence_s = 0.0

    def __init__(self, name: str) -> None:
        self.name = name
        self._engine: Engine | None = None

    def start(self, specification: Mapping[str, Any]) -> None:
        """Start the engine."""
        self._engine = Engine("drive", specification)

    def events(self) -> Iterator[Event]:
        """Yield the events of the engine. Raises EngineError."""
        assert self._engine is not None
        yield from map(packed, self._engine.events())

    def send(self, message: Event) -> None:
        """Send a command."""
        assert self._engine is not None
        self._engine.send(message)

    def clock(self) -> ClockOffset:
        """Return the offset of the only clock."""
        return SAME_CLOCK

    def usage(self) -> NodeUsage:
        """Return the counters of this machine."""
        return own_usage()

    def kill_engine(self) -> None:
        """Kill the engine, as a fault would."""
        assert self._engine is not None
        self._engine.abandon()

    def close(self) -> None:
        """Kill the engine and release its pipes."""
        if self._engine is not None:
            self.kill_engine()
            self._engine.__exit__(None, None, None)
            self._engine = None
