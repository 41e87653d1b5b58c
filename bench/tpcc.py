"""CPU time and memory of the client with tpcc, by procedures and by statements."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psycopg

from bench.drivers import compile_floors, engine_drive, floor, run_engine
from bench.environment import Environment, Sizes
from bench.figure import Figure, alone, compared, limited

CLIENTS = 8
CPU_US_MAX = {"procedures": 15.0, "statements": 120.0}
MEMORY_MIB_MAX = 30.0
ROUND_TRIPS = {"procedures": 1.0, "statements": 21.3}
"""Per transaction: `sendto` calls of the engine on epoll, counted by `strace -c -f`."""

ROWS_TIMED = 2_000_000
SELECT_US = 20.0
"""Approximate CPU time of the server for a trivial prepared statement (docs/adr/0002)."""


def figures(environment: Environment, sizes: Sizes) -> Iterator[Figure]:
    """Compare with fixed limits. HammerDB's driver needs 91 µs/tx, drivers that send SQL 397 to 631."""
    with environment.database("tpcc") as database:
        conninfo = environment.server.conninfo(database)
        run_engine("load", load_specification(conninfo, sizes.warehouses))
        bare = compile_floors(environment.directory).get("epoll")
        for calls, limit_us in CPU_US_MAX.items():
            workload = {
                "kind": "tpcc",
                "calls": calls,
                "pipeline": False,
                "isolation": "read committed",
                "mix": "deck",
            }
            runs = [
                engine_drive(conninfo, workload, CLIENTS, None, sizes.duration_s) for _ in range(sizes.pairs)
            ]
            at = f"tpcc, {sizes.warehouses} warehouses, {CLIENTS} clients, {calls}"
            yield limited(f"{at}: client CPU", "µs/tx", [run.client_us for run in runs], limit_us)
            if bare is not None:
                trips = ROUND_TRIPS[calls]
                floors = [
                    trips * as_busy(bare, conninfo, run.server_us / trips, sizes.duration_s) for run in runs
                ]
                pairs = list(zip((run.client_us for run in runs), floors, strict=True))
                name = f"a bare epoll loop, {trips:g} round trips to a server as busy"
                yield compared(f"{at}: client CPU", "µs/tx", pairs, name)
            memory = [run.memory_bytes / 2**20 for run in runs]
            yield limited(f"{at}: client memory", "MiB", memory, MEMORY_MIB_MAX)
            yield alone(f"{at}: throughput", "tx/s", [run.per_s for run in runs])


def as_busy(bare: Path, conninfo: str, server_us: float, duration_s: float) -> float:
    """Return the client CPU time per round trip, in µs, of a bare loop whose statement costs ``server_us``.

    With fewer responses per second, a driver is woken for each one, and on cores that the server uses its
    caches are cold. A statement that sleeps would show neither.
    """
    statement = "select count(*) from generate_series(1, {} + $1 - $1)"
    with psycopg.connect(conninfo, autocommit=True) as connection:
        begun_s = time.perf_counter()
        connection.execute(statement.format(ROWS_TIMED).replace("$1", "0"))
        row_us = (time.perf_counter() - begun_s) * 1e6 / ROWS_TIMED
    rows = max(1, round((server_us - SELECT_US) / row_us))
    return floor(bare, conninfo, statement.format(rows), 1, CLIENTS, 1, duration_s).client_us


def load_specification(conninfo: str, warehouses: int, connections: int = 2) -> dict[str, object]:
    """Return the specification of a load for the engine."""
    return {
        "conninfo": conninfo,
        "workload": {"kind": "tpcc", "warehouses": warehouses},
        "seed": 1,
        "connections": connections,
        "into_existing": False,
    }
