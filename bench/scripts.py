"""pgbench's scripts: client CPU per transaction, throughput and the server's CPU, beside pgbench, sysbench
and bare loops."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from bench.drivers import ACCOUNTS_PER_SCALE, Driven, compile_floors, floor, pgbench, select_only, sysbench
from bench.figure import Figure, compared, limited
from bench.measure import run
from bench.setting import Place, Sizes
from pgdyno.engine import PGBENCH, find_program

MEMORY_MIB_MAX = 64.0
STATEMENT = "select abalance from pgbench_accounts where aid = $1"
CLIENTS_OF_SYSBENCH_MAX = 64  # a thread a client: beyond, it measures the scheduler
CLIENTS_OF_TPCB = 8
LONGER_WITH_MANY = 4
CPU_RATIO_MAX = 0.70
CPU_RATIO_MAX_OF_MANY = 0.75

Drivers = Mapping[str, Callable[[], Driven | None]]
Runs = Mapping[str, Sequence[Driven]]


def figures(place: Place, sizes: Sizes) -> Iterator[Figure]:
    """Drivers alternate: each of them once, in an order that is drawn, and again."""
    program = place.program("pgbench")
    if program is None:
        raise RuntimeError("pgbench is not here: install the distribution's PostgreSQL")
    with place.database("scripts") as database:
        conninfo = place.server.conninfo(database)
        run([program, "-i", "-q", "-s", str(sizes.pgbench_scale), conninfo])
        loops = compile_floors(place.directory)
        for clients in (*sizes.clients, sizes.clients_many):
            yield from _select(program, loops, conninfo, clients, sizes)
        yield from _tpcb(program, conninfo, sizes)


def _select(
    program: str, loops: Mapping[str, Path], conninfo: str, clients: int, sizes: Sizes
) -> Iterator[Figure]:
    many = clients == sizes.clients_many
    # pgbench's time runs while its clients connect, and a thousand of them take seconds.
    scale, duration_s = sizes.pgbench_scale, sizes.duration_s * (LONGER_WITH_MANY if many else 1)
    threads = select_only(conninfo, scale, clients, duration_s).threads
    ids = scale * ACCOUNTS_PER_SCALE
    drivers: dict[str, Callable[[], Driven | None]] = {
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
    wanted = None if clients == 1 else CPU_RATIO_MAX_OF_MANY if many else CPU_RATIO_MAX
    yield _cpu(at, runs, "ours", wanted)
    yield _cpu(f"{at}, pgdyno-pgbench", runs, "pgdyno-pgbench", None if many else wanted)
    for name in loops:
        yield _cpu(f"{at}, a bare loop on {name}", runs, name, None)
    if many:
        memory = [one.memory_bytes / 2**20 for one in runs["ours"]]
        yield limited(f"{at}: client memory", "MiB", memory, MEMORY_MIB_MAX)
    for ours in ("ours", "pgdyno-pgbench"):
        yield from _beside(at if ours == "ours" else f"{at}, {ours}", runs, ours, bounded=not many)


def _tpcb(program: str, conninfo: str, sizes: Sizes) -> Iterator[Figure]:
    def driver(of: str) -> Callable[[], Driven]:
        return lambda: pgbench(of, conninfo, CLIENTS_OF_TPCB, 1, sizes.duration_s, "tpcb-like")

    runs = _alternate(
        {"pgdyno-pgbench": driver(str(find_program(PGBENCH))), "pgbench": driver(program)}, sizes.pairs
    )
    at = f"tpcb-like, {CLIENTS_OF_TPCB} clients, pgdyno-pgbench"
    yield _cpu(at, runs, "pgdyno-pgbench", CPU_RATIO_MAX)
    yield from _beside(at, runs, "pgdyno-pgbench", bounded=True)


def _alternate(drivers: Drivers, rounds: int) -> dict[str, list[Driven]]:
    """By driver: its runs. One that cannot be had here has none. Every round has an order of its own: what a
    run leaves behind (dirty buffers, a server's memory to be given back) is nobody's in particular.
    """
    runs: dict[str, list[Driven]] = {name: [] for name in drivers}
    rng = random.Random(1)
    for _ in range(rounds):
        for name in rng.sample(list(drivers), len(drivers)):
            driven = drivers[name]()
            if driven is not None:
                runs[name].append(driven)
    return {name: driven for name, driven in runs.items() if driven}


def _cpu(at: str, runs: Runs, ours: str, wanted: float | None) -> Figure:
    pairs = [(a.client_us, b.client_us) for a, b in zip(runs[ours], runs["pgbench"], strict=True)]
    return compared(f"{at}: client CPU", "µs/tx", pairs, "pgbench", wanted=wanted)


def _beside(at: str, runs: Runs, ours: str, *, bounded: bool) -> Iterator[Figure]:
    """Throughput and the server's CPU, against the better peer of each round."""
    names = [name for name in ("pgbench", "sysbench") if name in runs]
    against = "better of " + " and ".join(names) if len(names) > 1 else names[0]
    peers = list(zip(*(runs[name] for name in names), strict=True))
    rounds = list(zip(runs[ours], peers, strict=True))
    rate = [(one.per_s, max(peer.per_s for peer in others)) for one, others in rounds]
    server = [(one.server_us, min(peer.server_us for peer in others)) for one, others in rounds]
    wanted = 1.0 if bounded else None
    yield compared(f"{at}: throughput", "tx/s", rate, against, wanted=wanted, sense="at least")
    yield compared(f"{at}: server CPU", "µs/tx", server, against, wanted=1.05 if bounded else None)
