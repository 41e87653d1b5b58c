"""pgdyno-sysbench beside sysbench: client CPU per transaction and throughput of scripts, and the load of
their data."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from bench.drivers import run_engine
from bench.environment import Environment, Sizes
from bench.figure import Figure, compared
from bench.measure import Cost, run
from pgdyno.server.engine import SYSBENCH, find_program

ORDER_ENTRY = str(Path(__file__).with_name("order_entry.lua"))
SCRIPTS = ("oltp_point_select", "oltp_read_only", "oltp_read_write", ORDER_ENTRY)
TABLES = 4
ROWS_PER_SCALE = 2000
WAREHOUSES = 4
PREPARE_THREADS = 2
CPU_RATIO_MAX = {8: 0.9, 64: 0.7, 256: 0.7}
"""By number of clients."""
LOAD_RATIO_MIN = 2.0


@dataclass(frozen=True)
class Programs:
    """Ours and sysbench, on a database."""

    ours: str
    theirs: str
    conninfo: str
    rows: int

    def run(self, program: str, script: str, command: str, *options: str) -> Cost:
        """Run a command of a script to its end."""
        parts = conninfo_to_dict(self.conninfo)
        size = (
            [f"--tables={TABLES}", f"--table-size={self.rows}"]
            if script != ORDER_ENTRY
            else [f"--scale={WAREHOUSES}", "--tables=1"]
        )
        where = [f"--pgsql-{name}={parts[name]}" for name in ("host", "port", "user")]
        where += [f"--pgsql-db={parts['dbname']}", "--db-driver=pgsql", "--rand-seed=1"]
        return run([program, script, *where, *size, *options, command])


@dataclass(frozen=True)
class Driven:
    """A run without its start: CPU per transaction in µs, and transactions per second."""

    client_us: float
    per_s: float


def figures(environment: Environment, sizes: Sizes) -> Iterator[Figure]:
    """Pairs of runs alternate. Without sysbench there is nothing to compare with, and no figure."""
    theirs = shutil.which("sysbench")
    if theirs is None:
        print("sysbench: not here; install the distribution's package sysbench", file=sys.stderr)
        return
    rows = sizes.pgbench_scale * ROWS_PER_SCALE
    yield from _loads(environment, theirs, rows, sizes.pairs)
    with environment.database("sysbench") as database:
        programs = Programs(str(find_program(SYSBENCH)), theirs, environment.server.conninfo(database), rows)
        programs.run(programs.ours, "oltp_read_write", "prepare", f"--threads={PREPARE_THREADS}")
        programs.run(programs.ours, ORDER_ENTRY, "prepare")
        for script in SCRIPTS:
            for clients in (clients for clients in sizes.clients if clients > 1):
                yield from _script(programs, script, clients, sizes)


def _script(programs: Programs, script: str, clients: int, sizes: Sizes) -> Iterator[Figure]:
    pairs = [
        (
            _drive(programs, programs.ours, script, clients, sizes.duration_s),
            _drive(programs, programs.theirs, script, clients, sizes.duration_s),
        )
        for _ in range(sizes.pairs)
    ]
    at = f"{Path(script).stem}, {clients} clients"
    cpu = [(ours.client_us, theirs.client_us) for ours, theirs in pairs]
    yield compared(f"{at}: client CPU", "µs/tx", cpu, "sysbench", bound=CPU_RATIO_MAX.get(clients))
    rate = [(ours.per_s, theirs.per_s) for ours, theirs in pairs]
    yield compared(f"{at}: throughput", "tx/s", rate, "sysbench", bound=1.0, sense="at least")


def _drive(programs: Programs, program: str, script: str, clients: int, duration_s: float) -> Driven:
    """A run, less what a run of a single event costs: scripts that are read, connections, statements that are
    prepared."""
    threads = f"--threads={clients}"
    start = programs.run(program, script, "run", threads, "--time=0", "--events=1")
    whole = programs.run(program, script, "run", threads, f"--time={max(1, round(duration_s))}")
    found = re.search(r"transactions:\s+(\d+)\s+\(([\d.]+) per sec", whole.output)
    if found is None:
        raise RuntimeError(f"no transactions in the output of {program}: {whole.output[-600:]}")
    return Driven((whole.cpu_s - start.cpu_s) / int(found[1]) * 1e6, float(found[2]))


def _loads(environment: Environment, theirs: str, rows: int, rounds: int) -> Iterator[Figure]:
    """The tables of the stock scripts: by the engine, by ``prepare`` of ours, by that of sysbench."""
    seconds: dict[str, list[float]] = {"engine": [], "ours": [], "theirs": []}
    for index in range(rounds):
        for name, taken in seconds.items():
            with closing(environment.server.connect()) as connection:
                connection.execute("CHECKPOINT")
            with environment.database(f"sysbench_{name}_{index}") as database:
                conninfo = environment.server.conninfo(database)
                taken.append(_load(name, conninfo, theirs, rows))
    at = f"{TABLES} tables of {rows} rows"
    yield _load_figure(f"{at}, engine: prepare", seconds["engine"], seconds["theirs"], rows, LOAD_RATIO_MIN)
    yield _load_figure(f"{at}, pgdyno-sysbench: prepare", seconds["ours"], seconds["theirs"], rows, None)


def _load(by: str, conninfo: str, theirs: str, rows: int) -> float:
    """The seconds that a load took."""
    if by == "engine":
        workload = {"kind": "sysbench", "tables": TABLES, "table_size": rows, "auto_inc": True}
        specification = {"conninfo": conninfo, "workload": workload, "seed": 1}
        return run_engine(
            "load", {**specification, "connections": PREPARE_THREADS, "into_existing": True}
        ).wall_s
    ours = str(find_program(SYSBENCH))
    programs = Programs(ours, theirs, conninfo, rows)
    program = ours if by == "ours" else theirs
    return programs.run(program, "oltp_read_write", "prepare", f"--threads={PREPARE_THREADS}").wall_s


def _load_figure(
    name: str, ours: Sequence[float], theirs: Sequence[float], rows: int, wanted: float | None
) -> Figure:
    speed = [tuple(TABLES * rows / seconds for seconds in pair) for pair in zip(ours, theirs, strict=True)]
    pairs = [(one, other) for one, other in speed]
    return compared(name, "rows/s", pairs, "sysbench", bound=wanted, sense="at least")
