"""pgdyno-pgbench beside pgbench: how soon it starts, and how fast it makes the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from bench.figure import Figure, compared, limited
from bench.measure import Cost, run
from bench.setting import Place, Sizes
from pgdyno.engine import PGBENCH, find_program

START_MS_MAX = 30.0
STARTS_PER_PAIR = 10  # a start takes milliseconds: one alone says little
JOBS = 2
FASTEST = (("-q", "-I", "dtgvp"), ("-q", "-I", "dtGvp"))
"""The ways of pgbench to fill its tables: rows from the client, rows made by the server."""


def startup(place: Place, sizes: Sizes) -> Iterator[Figure]:
    """From the start of the process to its end: of ``--version``, and of a run of one transaction."""
    theirs, ours = _pgbench(place), str(find_program(PGBENCH))
    with place.database("pgbench_startup") as database:
        conninfo = place.server.conninfo(database)
        run([theirs, "-i", "-q", conninfo])
        for what, options in (("--version", ["--version"]), ("-S -t 1", ["-n", "-S", "-t", "1", conninfo])):
            pairs = [
                (_ms(run([ours, *options])), _ms(run([theirs, *options])))
                for _ in range(sizes.pairs * STARTS_PER_PAIR)
            ]
            at = f"pgdyno-pgbench {what}"
            yield limited(f"{at}: start to end", "ms", [mine for mine, _ in pairs], START_MS_MAX)
            yield compared(f"{at}: beside pgbench", "ms", pairs, "pgbench")


def initialise(place: Place, sizes: Sizes) -> Iterator[Figure]:
    """Each into a new database; runs alternate: ours, pgbench by each of its ways, and again."""
    theirs, ours = _pgbench(place), str(find_program(PGBENCH))
    scale = str(sizes.init_scale)
    rates, cpu = [], []
    for index in range(sizes.pairs):
        mine = _make(place, f"ours_{index}", [ours, "-i", "-q", "-j", str(JOBS), "-s", scale])
        others = [
            _make(place, f"theirs_{index}_{way}", [theirs, "-i", *options, "-s", scale])
            for way, options in enumerate(FASTEST)
        ]
        best = min(others, key=lambda cost: cost.wall_s)
        rates.append((sizes.init_scale / mine.wall_s, sizes.init_scale / best.wall_s))
        cpu.append((mine.cpu_s + mine.other_cpu_s, best.cpu_s + best.other_cpu_s))
    at, against = f"-i -s {scale} -j {JOBS}", "pgbench in its faster mode"
    yield compared(f"{at}: tables made", "scale/s", rates, against, wanted=1.5, sense="at least")
    yield compared(f"{at}: CPU of client and server", "s", cpu, against)


def _make(place: Place, name: str, command: Sequence[str]) -> Cost:
    """Nothing that was written before is written back meanwhile."""
    with closing(place.server.connect()) as connection:
        connection.execute("CHECKPOINT")
    with place.database(name) as database:
        return run([*command, place.server.conninfo(database)])


def _ms(cost: Cost) -> float:
    return cost.wall_s * 1e3


def _pgbench(place: Place) -> str:
    program = place.program("pgbench")
    if program is None:
        raise RuntimeError("pgbench is not here: install the distribution's PostgreSQL")
    return program
