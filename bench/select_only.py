"""Select-only: client CPU per transaction, throughput and the server's CPU, beside pgbench and sysbench."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from bench.drivers import ACCOUNTS_PER_SCALE, Driven, compile_floor, floor, pgbench, select_only, sysbench
from bench.figure import Figure, compared, limited
from bench.measure import run
from bench.setting import Place, Sizes

MEMORY_MIB_MAX = 64.0
STATEMENT = "select abalance from pgbench_accounts where aid = $1"
CLIENTS_OF_SYSBENCH_MAX = 64  # a thread a client: beyond, it measures the scheduler


def figures(place: Place, sizes: Sizes) -> Iterator[Figure]:
    """Runs alternate: ours, pgbench, sysbench, a bare loop, and again."""
    program = place.program("pgbench")
    if program is None:
        raise RuntimeError("pgbench is not here: install the distribution's PostgreSQL")
    with place.database("select_only") as database:
        conninfo = place.server.conninfo(database)
        run([program, "-i", "-q", "-s", str(sizes.pgbench_scale), conninfo])
        bare = compile_floor(place.directory)
        for clients in (*sizes.clients, sizes.clients_many):
            yield from _at(program, bare, conninfo, clients, sizes)


def _at(program: str, bare: Path | None, conninfo: str, clients: int, sizes: Sizes) -> Iterator[Figure]:
    threads = min(clients, os.cpu_count() or 1)
    many = clients == sizes.clients_many
    rounds: list[tuple[Driven, Driven, Driven | None]] = []
    floors: list[tuple[float, float]] = []
    for _ in range(sizes.pairs):
        ours = select_only(conninfo, sizes.pgbench_scale, clients, threads, sizes.duration_s)
        theirs = pgbench(program, conninfo, clients, threads, sizes.duration_s)
        third = None
        if clients <= CLIENTS_OF_SYSBENCH_MAX and not many:
            third = sysbench(conninfo, sizes.pgbench_scale, clients, sizes.duration_s)
        rounds.append((ours, theirs, third))
        if bare is not None:
            ids = sizes.pgbench_scale * ACCOUNTS_PER_SCALE
            least = floor(bare, conninfo, STATEMENT, ids, clients, threads, sizes.duration_s)
            floors.append((least.client_us, theirs.client_us))
    at = f"select-only, {clients} clients"
    cpu = [(ours.client_us, theirs.client_us) for ours, theirs, _ in rounds]
    yield compared(f"{at}: client CPU", "µs/tx", cpu, "pgbench", wanted=0.75 if many else 0.70)
    if floors:
        yield compared(f"{at}: client CPU of a bare epoll loop", "µs/tx", floors, "pgbench")
    if many:
        memory = [ours.memory_bytes / 2**20 for ours, _, _ in rounds]
        yield limited(f"{at}: client memory", "MiB", memory, MEMORY_MIB_MAX)
    against = "better of pgbench and sysbench" if rounds[0][2] else "pgbench"
    wanted = clients <= CLIENTS_OF_SYSBENCH_MAX and not many
    rate = [(ours.per_s, max(peer.per_s for peer in peers if peer)) for ours, *peers in rounds]
    yield compared(
        f"{at}: throughput", "tx/s", rate, against, wanted=1.0 if wanted else None, sense="at least"
    )
    server = [(ours.server_us, min(peer.server_us for peer in peers if peer)) for ours, *peers in rounds]
    yield compared(f"{at}: server CPU", "µs/tx", server, against, wanted=1.05 if wanted else None)
