"""``python -m bench real-clients``: pgdyno beside the programs that its dialects reproduce, on the same data.

Runs alternate on one database, which grows. Both rates are read from the database: new orders from
``d_next_o_id``, payments from ``history``. A program that is missing is named and skipped: sysbench with
sysbench-tpcc (the directory of its scripts is in the environment variable PGDYNO_SYSBENCH_TPCC), and go-tpc
(``go install github.com/pingcap/go-tpc/cmd/go-tpc@v1.0.12``; older versions know no PostgreSQL).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from bench.drivers import run_engine
from bench.environment import Environment, Sizes
from bench.figure import Figure, compared
from pgdyno.workloads.tpcc.parameters import TpccParameters

SCRIPTS = "PGDYNO_SYSBENCH_TPCC"
RETRIES_MAX = 1000
"""sysbench repeats without limit."""

CLIENTS = 4
"""Number of clients under contention, beside the smallest number of other benchmarks."""

RUN_LONGER = 2
"""Runs are as many times as long as those of other benchmarks, because rates of one database vary."""


@dataclass(frozen=True)
class RealClient:
    """A program: how it loads and drives, and our workload on its data. ``suffix``: of its tables."""

    name: str
    suffix: str
    parameters: Mapping[str, Any]
    command: Callable[[str, int, Sequence[str]], list[str]]
    """Command for a database, a number of warehouses, and an action with its options."""
    load: Sequence[str]
    drive: Callable[[int, int], Sequence[str]]
    """Options for a number of clients and a duration in seconds."""
    directory: str | None = None

    def run(self, conninfo: str, warehouses: int, action: Sequence[str]) -> None:
        """Run the program. Raises RuntimeError if it fails."""
        command = self.command(conninfo, warehouses, action)
        done = subprocess.run(command, cwd=self.directory, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(
                f"{self.name} ended with {done.returncode}: {(done.stdout + done.stderr)[:900]}"
            )


def _sysbench_tpcc() -> RealClient | None:
    program, scripts = shutil.which("sysbench"), os.environ.get(SCRIPTS, "")
    if program is None or not (Path(scripts) / "tpcc.lua").exists():
        print(f"sysbench-tpcc: not here; it needs sysbench, and its scripts in {SCRIPTS}", file=sys.stderr)
        return None

    def command(conninfo: str, warehouses: int, action: Sequence[str]) -> list[str]:
        parts = conninfo_to_dict(conninfo)
        where = [f"--pgsql-{name}={parts[name]}" for name in ("host", "port", "user")]
        size = [f"--pgsql-db={parts['dbname']}", "--tables=1", f"--scale={warehouses}"]
        return [program, "tpcc.lua", "--db-driver=pgsql", *where, *size, *action]

    def drive(clients: int, seconds: int) -> Sequence[str]:
        return [f"--threads={clients}", f"--time={seconds}", f"--rand-seed={os.getpid()}", "run"]

    load = ["--threads=1", "prepare"]
    return RealClient("sysbench-tpcc", "1", {"dialect": "sysbench"}, command, load, drive, scripts)


def _go_tpc() -> RealClient | None:
    program = shutil.which("go-tpc", path=f"{os.environ['PATH']}:{Path.home() / 'go' / 'bin'}")
    if program is None:
        print("go-tpc: not here; install github.com/pingcap/go-tpc with go install", file=sys.stderr)
        return None

    def command(conninfo: str, warehouses: int, action: Sequence[str]) -> list[str]:
        parts = conninfo_to_dict(conninfo)
        # An empty host in quotes lets the socket's directory be the host.
        where = ["-H", '""', "-P", str(parts["port"]), "-D", str(parts["dbname"])]
        user = ["-U", str(parts["user"]), "-p", "none"]
        socket = f"sslmode=disable&host={parts['host']}"
        size = ["--warehouses", str(warehouses)]
        return [program, "tpcc", "-d", "postgres", *where, *user, "--conn-params", socket, *size, *action]

    def drive(clients: int, seconds: int) -> Sequence[str]:
        return ["run", "-T", str(clients), "--time", f"{seconds}s"]

    parameters = {
        "calls": "statements",
        "mix": "new-order=45,payment=43,order-status=4,delivery=4,stock-level=4",
    }
    return RealClient("go-tpc", "", parameters, command, ["prepare", "-T", "1", "--no-check"], drive)


def figures(environment: Environment, sizes: Sizes) -> Iterator[Figure]:
    """Pairs of runs alternate."""
    for client in filter(None, (_sysbench_tpcc(), _go_tpc())):
        with environment.database("real_clients") as database:
            conninfo = environment.server.conninfo(database)
            client.run(conninfo, sizes.warehouses, client.load)
            with closing(environment.server.connect(database)) as connection:
                connection.execute("VACUUM ANALYZE")
            for clients in (sizes.clients[0], CLIENTS):
                yield from _pairs(client, conninfo, clients, sizes)


@dataclass(frozen=True)
class Committed:
    """Committed transactions, from the database."""

    new_orders: int
    payments: int


def _pairs(client: RealClient, conninfo: str, clients: int, sizes: Sizes) -> Iterator[Figure]:
    seconds = max(1, round(RUN_LONGER * sizes.duration_s))
    workload = TpccParameters.model_validate({"warehouses": sizes.warehouses, **client.parameters}).to_drive()
    specification: dict[str, Any] = {
        "targets": [{"name": "bench", "conninfo": conninfo}],
        "workload": workload,
        "clients": clients,
        "threads": None,
        "pacing": "none",
        "rate": None,
        "retries_max": RETRIES_MAX,
        "slices": [{"target": 0, "role": "measure", "duration_s": seconds}],
        "discard_s": 0.0,
        "interval_s": 1.0,
        "barriers": False,
        "connect_timeout_s": 60.0,
        "drain_timeout_s": 10.0,
    }

    def ours(seed: int) -> None:
        run_engine("drive", {**specification, "seed": seed})

    def theirs() -> None:
        client.run(conninfo, sizes.warehouses, client.drive(clients, seconds))

    pairs = [
        (_during(client, conninfo, partial(ours, seed)), _during(client, conninfo, theirs))
        for seed in range(sizes.pairs)
    ]
    at = f"data of {client.name}, {sizes.warehouses} warehouses, {clients} clients"
    rates = [tuple(60 * of.new_orders / seconds for of in pair) for pair in pairs]
    yield compared(f"{at}: throughput", "NOPM", [(one, other) for one, other in rates], client.name)
    mixes = [tuple(of.new_orders / max(1, of.payments) for of in pair) for pair in pairs]
    name = f"{at}: New-Orders per payment"
    yield compared(name, "committed", [(one, other) for one, other in mixes], client.name)


def _during(client: RealClient, conninfo: str, drive: Callable[[], object]) -> Committed:
    """Drive, and return what was committed."""
    before = _committed(conninfo, client.suffix)
    drive()
    after = _committed(conninfo, client.suffix)
    return Committed(after.new_orders - before.new_orders, after.payments - before.payments)


def _committed(conninfo: str, suffix: str) -> Committed:
    query = f"SELECT (SELECT sum(d_next_o_id) FROM district{suffix}), (SELECT count(*) FROM history{suffix})"
    with psycopg.connect(conninfo, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return Committed(int(row[0]), int(row[1]))
