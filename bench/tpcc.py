"""tpcc: CPU and memory of the client, both ways of calling."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.drivers import Driven, compile_floors, engine_drive, floor, run_engine
from bench.figure import Figure, alone, compared, limited
from bench.setting import Place, Sizes

CLIENTS = 8
CPU_US_MAX = {"procedures": 15.0, "statements": 120.0}
MEMORY_MIB_MAX = 30.0


def figures(place: Place, sizes: Sizes) -> Iterator[Figure]:
    """Against our own limits; HammerDB's driver needs 91 µs/tx, those that send SQL 397 to 631."""
    with place.database("tpcc") as database:
        conninfo = place.server.conninfo(database)
        run_engine("load", load_specification(conninfo, sizes.warehouses))
        bare = compile_floors(place.directory).get("epoll")
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
            if calls == "procedures" and bare is not None:
                pairs = [(run.client_us, _paced(bare, conninfo, run, sizes.duration_s)) for run in runs]
                yield compared(f"{at}: client CPU", "µs/tx", pairs, "a bare epoll loop at that pace")
            memory = [run.memory_bytes / 2**20 for run in runs]
            yield limited(f"{at}: client memory", "MiB", memory, MEMORY_MIB_MAX)
            yield alone(f"{at}: throughput", "tx/s", [run.per_s for run in runs])


def _paced(bare: Path, conninfo: str, pace: Driven, duration_s: float) -> float:
    """Client CPU of a bare loop, one round trip a transaction, whose server takes as long as tpcc's took.

    A driver that sleeps between any two answers pays for a wake-up each time; a busy one does not.
    """
    statement = f"select pg_sleep({CLIENTS / pace.per_s}) where $1 > 0"
    return floor(bare, conninfo, statement, 1, CLIENTS, 1, duration_s).client_us


def load_specification(conninfo: str, warehouses: int, connections: int = 2) -> dict[str, object]:
    """For the engine's load."""
    return {
        "conninfo": conninfo,
        "workload": {"kind": "tpcc", "warehouses": warehouses},
        "seed": 1,
        "connections": connections,
        "into_existing": False,
    }
