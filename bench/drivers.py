"""The same select, driven by us, by pgbench and by sysbench, on the same table with as many threads."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict

from bench.measure import Cost, run
from pgdyno.engine import find_engine

ACCOUNTS_PER_SCALE = 100_000


@dataclass(frozen=True)
class Driven:
    """A run of a driver: what it cost and how much it did. ``memory_bytes`` (the peak) and ``threads``:
    of our own driver only."""

    cost: Cost
    transactions: int
    duration_s: float
    memory_bytes: int = 0
    threads: int = 0

    @property
    def client_us(self) -> float:
        """CPU of the client per transaction, in µs."""
        return self.cost.cpu_s / self.transactions * 1e6

    @property
    def server_us(self) -> float:
        """CPU of everything else per transaction, in µs."""
        return self.cost.other_cpu_s / self.transactions * 1e6

    @property
    def per_s(self) -> float:
        """Transactions per second."""
        return self.transactions / self.duration_s


def run_engine(command: str, specification: Mapping[str, Any]) -> Cost:
    """The engine from its start to its end. Raises RuntimeError when it fails."""
    return run([str(find_engine()), command], json.dumps(specification) + "\n")


def engine_drive(
    conninfo: str, workload: dict[str, Any], clients: int, threads: int | None, duration_s: float
) -> Driven:
    """One slice of the engine, nothing discarded. ``threads`` None: as many as it chooses."""
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
    return Driven(cost, transactions, duration_s, driver["memory_peak_bytes"], driver["threads"])


def select_only(conninfo: str, scale: int, clients: int, duration_s: float) -> Driven:
    """Our driver, with as many threads as it chooses."""
    workload = {"kind": "select-only", "accounts": scale * ACCOUNTS_PER_SCALE}
    return engine_drive(conninfo, workload, clients, None, duration_s)


def pgbench(
    program: str, conninfo: str, clients: int, threads: int, duration_s: float, script: str = "select-only"
) -> Driven:
    """A built-in script, prepared, by pgbench or by what takes its options."""
    seconds = max(1, round(duration_s))
    counts = ("-c", str(clients), "-j", str(threads), "-T", str(seconds))
    cost = run([program, "-n", "-b", script, "-M", "prepared", *counts, conninfo])
    return Driven(cost, _first_number(r"transactions actually processed: (\d+)", cost.output), seconds)


def sysbench(conninfo: str, scale: int, clients: int, duration_s: float) -> Driven | None:
    """The same statement from sysbench, a thread a client, ids uniform; None where sysbench is not here."""
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
    return Driven(cost, _first_number(r"transactions:\s+(\d+)", cost.output), seconds)


LOOPS: Mapping[str, Sequence[str]] = {"epoll": (), "io_uring": ("-DIO_URING", "-luring")}
"""The bare loops of floor.c, and what the compiler has to be told for each."""


def compile_floors(directory: Path) -> dict[str, Path]:
    """The bare loops that can be had here, compiled into ``directory``: without a C compiler none is, and
    without liburing's headers that on io_uring is not.
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
) -> Driven:
    """A bare loop that sends ``statement`` with an id of 1..ids: what no driver can cost less than."""
    parts, seconds = conninfo_to_dict(conninfo), max(1, round(duration_s))
    socket = f"{parts['host']}/.s.PGSQL.{parts['port']}"
    numbers = (str(number) for number in (ids, clients, threads, seconds))
    cost = run([str(program), socket, str(parts["user"]), str(parts["dbname"]), statement, *numbers])
    return Driven(cost, int(cost.output), seconds)


def _first_number(pattern: str, output: str) -> int:
    found = re.search(pattern, output)
    if found is None:
        raise RuntimeError(f"no number of transactions in: {output[-600:]}")
    return int(found[1])
