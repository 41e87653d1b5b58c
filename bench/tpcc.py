"""tpcc: CPU and memory of the client, both ways of calling."""

from __future__ import annotations

from collections.abc import Iterator

from bench.drivers import engine_drive, run_engine
from bench.figure import Figure, alone, limited
from bench.setting import Place, Sizes

CLIENTS = 8
CPU_US_MAX = {"procedures": 15.0, "statements": 120.0}
MEMORY_MIB_MAX = 30.0


def figures(place: Place, sizes: Sizes) -> Iterator[Figure]:
    """Against the limits of the issue; the peers' drivers need 91 and 397 to 631 µs/tx (PEERS.md)."""
    with place.database("tpcc") as database:
        conninfo = place.server.conninfo(database)
        run_engine("load", load_specification(conninfo, sizes.warehouses))
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
            memory = [run.memory_bytes / 2**20 for run in runs]
            yield limited(f"{at}: client memory", "MiB", memory, MEMORY_MIB_MAX)
            yield alone(f"{at}: throughput", "tx/s", [run.per_s for run in runs])


def load_specification(conninfo: str, warehouses: int, connections: int = 2) -> dict[str, object]:
    """For the engine's load."""
    return {
        "conninfo": conninfo,
        "workload": {"kind": "tpcc", "warehouses": warehouses},
        "seed": 1,
        "connections": connections,
        "into_existing": False,
    }
