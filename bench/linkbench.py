"""CPU time of the client with linkbench, against a bare loop that sends the same statements, and the load."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from bench.drivers import compile_floors, run_engine
from bench.environment import Environment, Sizes
from bench.figure import Figure, alone, compared
from bench.recording import driven, record

CLIENTS = 8
CPU_RATIO_MAX = 1.3
NODES = {True: 2_000, False: 200_000}
"""Number of nodes, in the smoke test and otherwise."""


def figures(environment: Environment, sizes: Sizes) -> Iterator[Figure]:
    """Load and drive both editions. The distributions are those of the configuration: with those executed, a
    node of this graph has most of the links."""
    from pgdyno.features.linkbench.parameters import MIXES  # noqa: PLC0415  # features are loaded by then

    nodes = NODES[sizes.duration_s < 1]
    bare = compile_floors(environment.directory).get("epoll")
    for edition in MIXES:
        with environment.database(f"linkbench_{edition}") as database:
            conninfo = environment.server.conninfo(database)
            parameters = {"edition": edition, "distributions": "configured"}
            data = {"kind": "linkbench", "nodes": nodes, **parameters}
            begun_s = time.perf_counter()
            cost = run_engine(
                "load",
                {"conninfo": conninfo, "workload": data, "seed": 1, "connections": 2, "into_existing": False},
            )
            loaded_s = time.perf_counter() - begun_s
            result: dict[str, Any] = json.loads(cost.output.splitlines()[-1])
            rows = sum(result["rows"].values())
            at = f"linkbench {edition}, {nodes:,} nodes"
            yield alone(f"{at}: copy phase", "rows/s", [rows / result["phases_s"]["copy"]])
            yield alone(f"{at}: whole load", "rows/s", [rows / loaded_s])
            with closing(environment.server.connect(database)) as conn:
                row = conn.execute(
                    "select sum(pg_total_relation_size(oid)) from pg_class "
                    "where relname ~ '(link|count|node)table$'"
                ).fetchone()
                assert row is not None
            yield alone(f"{at}: data and indexes", "bytes/node", [float(row[0]) / nodes])
            workload = {"kind": "linkbench", **parameters}
            pairs, rates = [], []
            recording = bare and record(environment.directory, conninfo, workload, CLIENTS, sizes.duration_s)
            for _ in range(sizes.pairs):
                run, client_us = driven(conninfo, workload, CLIENTS, sizes.duration_s)
                rates.append(run.per_s)
                if bare and recording:
                    pairs.append((client_us, recording.bare_us(bare, conninfo, sizes.duration_s)))
            if recording:
                name = f"a bare epoll loop, the same {recording.requests_per_operation:.2f} requests"
                yield compared(
                    f"{at}, {CLIENTS} clients: client CPU", "µs/operation", pairs, name, bound=CPU_RATIO_MAX
                )
            yield alone(f"{at}, {CLIENTS} clients: throughput", "operations/s", rates)
