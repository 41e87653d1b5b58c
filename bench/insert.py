"""CPU time of the client with the insert benchmark, against a bare loop that sends the same statements."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from bench.drivers import compile_floors, run_engine
from bench.environment import Environment, Sizes
from bench.figure import Figure, alone, compared
from bench.recording import driven, record

QUEUES = 4
CPU_RATIO_MAX = 1.3
ROWS = {True: 10_000, False: 200_000}
"""Rows of a table, in the smoke test and otherwise."""


def figures(environment: Environment, sizes: Sizes) -> Iterator[Figure]:
    """Load the tables, then measure inserts and queries alone: one client of each table."""
    rows = ROWS[sizes.duration_s < 1]
    bare = compile_floors(environment.directory).get("epoll")
    with environment.database("insert") as database:
        conninfo = environment.server.conninfo(database)
        data = {"kind": "insert", "rows": rows, "tables": QUEUES, "indexes": True}
        load = {"conninfo": conninfo, "workload": data, "seed": 1, "connections": 2, "into_existing": False}
        result: dict[str, Any] = json.loads(run_engine("load", load).output.splitlines()[-1])
        at = f"insert, {QUEUES} tables of {rows:,} rows"
        yield alone(f"{at}: copy phase", "rows/s", [QUEUES * rows / result["phases_s"]["copy"]])
        with closing(environment.server.connect(database)) as conn:
            found = conn.execute("SELECT pg_total_relation_size('pi1')").fetchone()
            assert found is not None
        yield alone(f"{at}: data and indexes", "bytes/row", [found[0] / rows])
        idle = {"kind": "insert", "tables": QUEUES, "batch": 1, "rows_per_s": 1e-6}
        queries = [(kind, {**idle, "query": kind}, 3 * QUEUES) for kind in ("range", "point")]
        inserts = ("insert", {"kind": "insert", "tables": QUEUES, "batch": 50}, QUEUES)
        for kind, workload, clients in [*queries, inserts]:
            pairs, rates = [], []
            recording = bare and record(environment.directory, conninfo, workload, clients, sizes.duration_s)
            for _ in range(sizes.pairs):
                run, client_us = driven(conninfo, workload, clients, sizes.duration_s)
                rates.append(run.per_s)
                if bare and recording:
                    pairs.append((client_us, recording.bare_us(bare, conninfo, sizes.duration_s)))
            of = f"{at}: {kind}, {QUEUES} clients"
            if pairs:
                name = "a bare epoll loop, the same statements"
                yield compared(f"{of}: client CPU", "µs/statement", pairs, name, bound=CPU_RATIO_MAX)
            yield alone(f"{of}: throughput", "statements/s", rates)
