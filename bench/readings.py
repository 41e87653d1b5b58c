"""CPU time of a wait-event sample, by each way to take it.

On 2 cores beside other tests, 8 and 64 backends of PostgreSQL 15, medians of 60 in ms: ``sample_waits.sql``
0.59 and 0.55, pg_stat_activity 0.55 and 0.57, the functions by backend number 0.50 and 0.52, an empty query
0.40 and 0.36, /proc/PID/stat 0.44 and 1.74. The view does not know parallel workers and background
processes, the functions by number do not know whether a backend is active, and /proc has no wait events.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.environment import Environment, Sizes
from bench.figure import Figure, limited
from pgdyno.measure.host_counters import process_cpu_s
from pgdyno.measure.sampler import sample_waits
from pgdyno.server.processes import Connection

BACKENDS = (8, 64)
READINGS = 200
IDLE_S = 0.02
"""Pause before a reading."""

CPU_MS_MAX = 5.0
"""Maximum CPU time per second of all samples: 0.5% of a core."""

BY_VIEW = """
SELECT coalesce(wait_event_type || '/' || wait_event, 'running') AS wait, count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND state = 'active' GROUP BY 1"""
BY_NUMBER = """
SELECT
    coalesce(pg_stat_get_backend_wait_event_type(id) || '/' || pg_stat_get_backend_wait_event(id), 'running'),
    count(*)
FROM pg_stat_get_backend_idset() AS id GROUP BY 1"""


def figures(environment: Environment, sizes: Sizes) -> Iterator[Figure]:
    """Compare ways of reading over one connection. Each reading follows a pause, as in the sampler."""
    for n in BACKENDS if set(BACKENDS) <= set(sizes.clients) else sizes.clients:
        with environment.database("readings") as database, ExitStack() as stack:
            server = environment.server
            clients = [stack.enter_context(server.connect(database)) for _ in range(n)]
            pids = [client.info.backend_pid for client in clients]
            own = stack.enter_context(server.connect(database))
            own.autocommit = True
            ways: Mapping[str, Callable[[Connection], object]] = {
                "sample_waits.sql": sample_waits,
                "pg_stat_activity": lambda connection: connection.execute(BY_VIEW).fetchall(),
                "backend number": lambda connection: connection.execute(BY_NUMBER).fetchall(),
                "an empty query": lambda connection: connection.execute("SELECT 1").fetchall(),
                "/proc/PID/stat": partial(_stats, pids),
            }
            for way, read in ways.items():
                for _ in range(10):
                    read(own)  # prepared from the fifth execution on
                times_ms = [1000 * _cpu_s(own, read) for _ in range(min(READINGS, 20 * sizes.pairs))]
                name = f"sample by {way}, {n} backends: CPU"
                yield limited(name, "ms", times_ms, CPU_MS_MAX)


def _stats(pids: Sequence[int], _: Connection) -> Sequence[str]:
    return [Path(f"/proc/{pid}/stat").read_text() for pid in pids]


def _cpu_s(connection: Connection, read: Callable[[Connection], object]) -> float:
    """Return the CPU time of our thread and of the backend, including both wake-ups."""
    time.sleep(IDLE_S)  # so that both processes have to wake up, as when sampling
    before_s = time.thread_time() + process_cpu_s(connection.info.backend_pid)
    read(connection)
    return time.thread_time() + process_cpu_s(connection.info.backend_pid) - before_s
