"""Scripts of pgbench: client CPU time per transaction, throughput and server CPU time.

Compared with pgbench, sysbench and bare loops.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from bench.drivers import ACCOUNTS_PER_SCALE, DriverRun, compile_floors, floor, pgbench, select_only, sysbench
from bench.environment import Environment, Sizes
from bench.figure import Figure, compared, limited
from bench.measure import run
from pgdyno.server.engine import PGBENCH, find_program

MEMORY_MIB_MAX = 64.0
STATEMENT = "select abalance from pgbench_accounts where aid = $1"
CLIENTS_OF_SYSBENCH_MAX = 64  # one thread per client: with more, it measures the scheduler
CLIENTS_OF_TPCB = 8
LONGER_WITH_MANY = 4
CPU_RATIO_MAX = 0.70
CPU_RATIO_MAX_OF_MANY = 0.75

Drivers = Mapping[str, Callable[[], DriverRun | None]]
Runs = Mapping[str, Sequence[DriverRun]]


def figures(environment: Environment, sizes: Sizes) -> Iterator[Figure]:
    """Run the drivers in rounds, in random order within each round."""
    program = environment.program("pgbench")
    if program is None:
        raise RuntimeError("pgbench is not here: install the distribution's PostgreSQL")
    with environment.database("scripts") as database:
        conninfo = environment.server.conninfo(database)
        run([program, "-i", "-q", "-s", str(sizes.pgbench_scale), conninfo])
        loops = compile_floors(environment.directory)
        for clients in (*sizes.clients, sizes.clients_many):
            yield from _select(program, loops, conninfo, clients, sizes)
        yield from _tpcb(program, conninfo, sizes)


def _select(
    program: str, loops: Mapping[str, Path], conninfo: str, clients: int, sizes: Sizes
) -> Iterator[Figure]:
    many = clients == sizes.clients_many
    # pgbench counts the time in which its clients connect: seconds with a thousand clients.
    scale, duration_s = sizes.pgbench_scale, sizes.duration_s * (LONGER_WITH_MANY if many else 1)
    threads = select_only(conninfo, scale, clients, duration_s).threads
    ids = scale * ACCOUNTS_PER_SCALE
    drivers: dict[str, Callable[[], DriverRun | None]] = {
        "ours": lambda: select_only(conninfo, scale, clients, duration_s),
        "pgdyno-pgbench": lambda: pgbench(str(find_program(PGBENCH)), conninfo, clients, threads, duration_s),
        "pgbench": lambda: pgbench(program, conninfo, clients, threads, duration_s),
    }
    if clients <= CLIENTS_OF_SYSBENCH_MAX and not many:
        drivers["sysbench"] = lambda: sysbench(conninfo, scale, clients, duration_s)
    for name, loop in loops.items():
        drivers[name] = partial(floor, loop, conninfo, STATEMENT, ids, clients, threads, duration_s)
    runs = _alternate(drivers, sizes.pairs)
    at = f"select-only, {clients} clients"
    bound = None if clients == 1 else CPU_RATIO_MAX_OF_MANY if many else CPU_RATIO_MAX
    yield _cpu(at, runs, "ours", bound)
    yield _cpu(f"{at}, pgdyno-pgbench", runs, "pgdyno-pgbench", None if many else bound)
    for name in loops:
        yield _cpu(f"{at}, a bare loop on {name}", runs, name, None)
    if many:
        memory = [one.memory_bytes / 2**20 for one in runs["ours"]]
        yield limited(f"{at}: client memory", "MiB", memory, MEMORY_MIB_MAX)
    for ours in ("ours", "pgdyno-pgbench"):
        yield from _beside(at if ours == "ours" else f"{at}, {ours}", runs, ours, bounded=not many)


def _tpcb(program: str, conninfo: str, sizes: Sizes) -> Iterator[Figure]:
    def driver(of: str) -> Callable[[], DriverRun]:
        return lambda: pgbench(of, conninfo, CLIENTS_OF_TPCB, 1, sizes.duration_s, "tpcb-like")

    runs = _alternate(
        {"pgdyno-pgbench": driver(str(find_program(PGBENCH))), "pgbench": driver(program)}, sizes.pairs
    )
    at = f"tpcb-like, {CLIENTS_OF_TPCB} clients, pgdyno-pgbench"
    yield _cpu(at, runs, "pgdyno-pgbench", CPU_RATIO_MAX)
    yield from _beside(at, runs, "pgdyno-pgbench", bounded=True)


def _alternate(drivers: Drivers, rounds: int) -> dict[str, list[DriverRun]]:
    """Return the runs by driver, without drivers that are not installed.

    Each round has a random order, because a run affects the next one (dirty buffers, memory that a server
    returns).
    """
    runs: dict[str, list[DriverRun]] = {name: [] for name in drivers}
    rng = random.Random(1)
    for _ in range(rounds):
        for name in rng.sample(list(drivers), len(drivers)):
            driver_run = drivers[name]()
            if driver_run is not None:
                runs[name].append(driver_run)
    return {name: driver_run for name, driver_run in runs.items() if driver_run}


def _cpu(at: str, runs: Runs, ours: str, bound: float | None) -> Figure:
    pairs = [(a.client_us, b.client_us) for a, b in zip(runs[ours], runs["pgbench"], strict=True)]
    return compared(f"{at}: client CPU", "µs/tx", pairs, "pgbench", bound=bound)


def _beside(at: str, runs: Runs, ours: str, *, bounded: bool) -> Iterator[Figure]:
    """Throughput and server CPU time, compared with the better peer of each round."""
    names = [name for name in ("pgbench", "sysbench") if name in runs]
    against = "better of " + " and ".join(names) if len(names) > 1 else names[0]
    peers = list(zip(*(runs[name] for name in names), strict=True))
    rounds = list(zip(runs[ours], peers, strict=True))
    rate = [(one.per_s, max(peer.per_s for peer in others)) for one, others in rounds]
    server = [(one.server_us, min(peer.server_us for peer in others)) for one, others in rounds]
    bound = 1.0 if bounded else None
    yield compared(f"{at}: throughput", "tx/s", rate, against, bound=bound, sense="at least")
    yield compared(f"{at}: server CPU", "µs/tx", server, against, bound=1.05 if bounded else None)
