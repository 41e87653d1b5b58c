"""Test data: readings and series of a trial, with numbers that can be computed by hand.

Arm a writes 1000 − 100·a bytes of WAL a transaction, finds 90 + 5·a % of its blocks in memory; its UPDATE
takes 2 / (1 + a) ms, its SELECT 0.5 ms; its server's processes are on a CPU for 400 / (1 + a) µs of it and
ready without one for 100 µs; of 4 cores its server takes one, the driver half of one.
"""

from __future__ import annotations

import zlib

import numpy as np

from ok_trial import ok_trial
from pgdyno.results.records import Arm, Moment, SampleSeries, Slice, StoredReading, Trial
from pgdyno.study.defaults import Absence
from pgdyno.study.schedule import Role

UPDATE, SELECT = "UPDATE accounts SET balance = balance + $1", "SELECT balance FROM accounts"
NOT_IN_15 = "requires PostgreSQL 16 or later; the server is 15"
PROBE_CPU_S = 0.05
MIB = 1 << 20


def readings(arm: int, transactions: int, end_s: float) -> list[StoredReading]:
    found = [
        StoredReading("io", moment, 0.0, 0.0, None, NOT_IN_15, Absence.VERSION)
        for moment in (Moment.BEGIN, Moment.END)
    ]
    counters = {
        "wal": [{"lsn_bytes": (1000 - 100 * arm) * transactions, "wal_fpi": 3 * transactions}],
        "database": [{"blks_hit": (90 + 5 * arm) * 1000, "blks_read": (10 - 5 * arm) * 1000, "deadlocks": 0}],
        "statements": [
            statement(UPDATE, transactions, 2.0 / (1 + arm)),
            statement(SELECT, 4 * transactions, 0.5),
            statement("BEGIN", transactions, 1e-6 * (1 + 9 * arm)),
        ],
        "host": [
            {
                "clients_on_cpu_s": 400e-6 * transactions / (1 + arm),
                "clients_ready_s": 100e-6 * transactions,
                "clients_switches": 2 * transactions,
            }
        ],
        "relations": [
            {"kind": "table", "schema": "public", "name": "accounts", "bytes": 16 * MIB}
            | {"n_tup_upd": transactions, "n_tup_hot_upd": transactions // 2, "n_dead_tup": 7}
        ],
    }
    for probe, rows in counters.items():
        found.append(StoredReading(probe, Moment.BEGIN, 0.0, 0.001, [_zeroed(row) for row in rows]))
        found.append(StoredReading(probe, Moment.END, end_s, 0.001, rows))
    return found


NO_COUNTERS = "this machine has no hardware counters"


def hardware_readings(per_tx: float, transactions: int, end_s: float, sign: int) -> list[StoredReading]:
    """Instructions in user mode: ``per_tx`` ± 0.05%, counted for half of the time. 0: not counted."""
    if not per_tx:
        moments = (Moment.BEGIN, Moment.END)
        return [StoredReading("hardware", moment, 0.0, 0.0, None, NO_COUNTERS) for moment in moments]
    counted = per_tx * transactions * (1 + 0.0005 * sign) / 2
    row: dict[str, float | str] = {
        "instructions_user": counted,
        "instructions_user_enabled_ns": 2e9,
        "instructions_user_running_ns": 1e9,
    }
    return [
        StoredReading("hardware", Moment.BEGIN, 0.0, 0.001, [_zeroed(row)]),
        StoredReading("hardware", Moment.END, end_s, 0.001, [row]),
    ]


def machine_readings(end_s: float, stolen: float) -> list[StoredReading]:
    """Two cores, half busy. ``stolen`` is a share of the total."""
    every_s = 2 * end_s
    names = ("cpu_busy_s", "cpu_idle_s", "cpu_iowait_s", "cpu_steal_s", "pressure_io_some_s")
    ends = dict(zip(names, (every_s / 2, every_s / 2, 0.0, stolen * every_s, 0.02 * end_s), strict=True))
    begins = dict.fromkeys(names, 0.0)
    return [
        StoredReading("host", Moment.BEGIN, 0.0, 0.001, [begins]),
        StoredReading("host", Moment.END, end_s, 0.001, [ends]),
    ]


def statement(text: str, calls: int, mean_ms: float) -> dict[str, float | str]:
    times = {"total_exec_time": calls * mean_ms, "mean_exec_time": mean_ms, "stddev_exec_time": mean_ms / 4}
    return {
        "queryid": str(zlib.crc32(text.encode()) % 1000),
        "query": text,
        "calls": calls,
        "rows": calls,
        **times,
    }


def _zeroed(row: dict[str, float | str]) -> dict[str, float | str]:
    return {key: value if isinstance(value, str) else 0 for key, value in row.items()}


def series(arm: int, end_s: float) -> list[SampleSeries]:
    """One sample per second, with a checkpoint that starts at second 5."""
    at = np.arange(0.0, end_s + 1)
    late = np.zeros_like(at)
    server = [at, late, at * (1000 - 100 * arm) * MIB / 1000, (at >= 5) * 1.0, 0 * at]
    host = [at, late, 2.0 * at, 2.0 * at, 0 * at, 0 * at, 1.0 * at, 0.5 * at]
    waits = [at, late, 5.0 + 0 * at, 6.0 + 0 * at, 2.0 + 0 * at]
    cpu = ("cpu_busy_s", "cpu_idle_s", "cpu_iowait_s", "cpu_steal_s", "server_cpu_s", "driver_cpu_s")
    columns = ("at_s", "late_s")
    return [
        SampleSeries("server", (*columns, "lsn_bytes", "num_timed", "num_requested"), np.array(server).T),
        SampleSeries("host", (*columns, *cpu), np.array(host).T),
        SampleSeries("waits", (*columns, "samples", "running", "LWLock/WALWrite"), np.array(waits).T),
    ]


def trial(number: int, block: int = 0, arm: int = 0, transactions: int | None = 1000) -> Trial:
    piece = Slice(0, Role.MEASURE, 10.0, 10.1, 14.0, 14.5, 0.1, 0.1, {})
    return ok_trial(
        trial=number,
        block=block,
        arm=arm,
        ended_unix_s=60.0,
        epoch_unix_s=0.0,
        server_cpu_s=1.0,
        transactions=transactions,
        slices=[piece],
    )


def arm(number: int, name: str) -> Arm:
    return Arm(number, name, name, {}, {}, [], {"kind": "pgbench"}, 2, {})


def autoregressive(
    rng: np.random.Generator, n: int, noise: float, memory: float
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return stationary noise of this SD, whose autocorrelation is ``memory``."""
    steps = rng.normal(size=n)
    of = np.empty(n)
    of[0] = steps[0]
    for i in range(1, n):
        of[i] = memory * of[i - 1] + np.sqrt(1 - memory**2) * steps[i]
    return noise * of
