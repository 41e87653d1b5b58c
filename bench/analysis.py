"""Cost of the report of a long study: 200 trials of one hour at 1 s, read, analyzed and written as JSON.

The results file is synthetic, because no experiment of 200 hours can run for this. One trial with the columns
of the probes is written by the real writer, then copied in SQL with slightly different counts. CPU time of
all threads and peak memory are measured for the whole program.
"""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import numpy as np

from bench.environment import Environment, Sizes
from bench.figure import Figure, compared, limited
from bench.measure import run
from pgdyno.analysis.telemetry.samples import RUNNING
from pgdyno.measure.host_counters import HostCounters
from pgdyno.measure.sampler import CHUNK_S
from pgdyno.measure.server_probes import statement
from pgdyno.results import results_file
from pgdyno.results.codec import pairs_from
from pgdyno.results.records import (
    Arm,
    Block,
    BlockStatus,
    Counts,
    DriverFacts,
    Histogram,
    Interval,
    Measure,
    Moment,
    SampleSeries,
    Slice,
    StoredReading,
    StudyEnd,
    StudyRecord,
    TrialOutcome,
    TrialStatus,
)
from pgdyno.results.writer import Writer
from pgdyno.server.builds import NEWEST_MAJOR
from pgdyno.study.arm_spec import ArmSpec
from pgdyno.study.defaults import Schedule
from pgdyno.study.plan import Study
from pgdyno.study.schedule import Role
from pgdyno.workloads.tpcc.parameters import TpccParameters

CPU_S_MAX = 3.0
MEMORY_MB_MAX = 500.0

SHARES = {"new_order": 10, "payment": 10, "order_status": 1, "delivery": 1, "stock_level": 1}
RATE_PER_S = 3000
STATEMENTS, RELATIONS, WAITS = 30, 30, 12
GROWS = 1e6
"""Approximate increase of a counter per second."""

STILL = 2
"""One in so many counters is constant, as those of temporary files and deadlocks usually are."""

READ = """
import hashlib, pathlib, sqlite3, sys, zlib
hashlib.blake2b(pathlib.Path(sys.argv[1]).read_bytes())
connection = sqlite3.connect(sys.argv[1])
for column in ("points FROM series", "pairs FROM histogram", "found FROM reading"):
    for (packed,) in connection.execute(f"SELECT {column}"):
        zlib.decompress(packed)
for row in connection.execute("SELECT from_s, to_s, executed FROM interval"):
    pass
"""
"""Reads what a report reads, without an analysis: its CPU time changes with the machine only."""

CREATED_UNIX_S = 1_795_000_000.0


def figures(environment: Environment, sizes: Sizes) -> Iterator[Figure]:
    """Measure repeated reports on the same file. After the first one it is in the page cache."""
    path = environment.directory / "hours.sqlite"
    synthesise(path, environment.directory, sizes.analysis_trials, sizes.analysis_window_s)
    of = f"analysis of {sizes.analysis_trials} trials of {sizes.analysis_window_s} s"
    # Like an installed program: the first run compiles the modules and is not counted.
    compiled = {"PYTHONPYCACHEPREFIX": str(environment.directory / "pycache"), "PYTHONDONTWRITEBYTECODE": ""}
    costs = [_cost(path, compiled) for _ in range(1 + sizes.pairs)][1:]
    yield limited(f"{of}: CPU time", "s", [cpu_s for cpu_s, _ in costs], CPU_S_MAX)
    read_s = [run([sys.executable, "-c", READ, str(path)]).cpu_s for _ in costs]
    pairs = [(cpu_s, bare_s) for (cpu_s, _), bare_s in zip(costs, read_s, strict=True)]
    yield compared(f"{of}: CPU time, relative", "s", pairs, "a bare read of the same file")
    yield limited(f"{of}: peak memory", "MB", [memory_mb for _, memory_mb in costs], MEMORY_MB_MAX)


def _cost(path: Path, variables: Mapping[str, str]) -> tuple[float, float]:
    """Return CPU time and peak memory of ``pgdyno report --json``, startup included. Raises RuntimeError."""
    command = [str(Path(sys.executable).with_name("pgdyno")), "report", str(path), "--json"]
    environ = {**os.environ, **variables}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"pgdyno report ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6


def synthesise(path: Path, directory: Path, trials: int, window_s: int) -> None:
    """Write a synthetic results file. Each block has one trial per arm."""
    rng = np.random.default_rng(1)
    blocks = trials // 2
    arms = [Arm(i, name, name, {"version": name}, {}, (), {}, 8, {}) for i, name in enumerate(("17", "18"))]
    with Writer.create(path, _study(blocks, window_s), arms) as writer:
        for block in range(blocks):
            writer.begin_block(Block(block, block, [0, 1], CREATED_UNIX_S))
            for arm in (0, 1):
                writer.begin_trial(block, arm, CREATED_UNIX_S)
            writer.finish_block(block, BlockStatus.DONE, CREATED_UNIX_S + window_s)
        _write_trial(writer, directory, window_s, rng)
        writer.finish_study(StudyEnd.BLOCKS, CREATED_UNIX_S + 1)
    _copy_first(path, trials, rng)
    results_file.store_bytes_digest(path)


def _study(blocks: int, window_s: int) -> StudyRecord:
    return StudyRecord(
        title="synthetic: never measured",
        created_unix_s=CREATED_UNIX_S,
        pgdyno_version="bench",
        engine={"profile": "release"},
        command="python -m bench analysis",
        plan=Study(
            title="synthetic",
            arms=tuple(ArmSpec(name=name, server=name) for name in ("17", "18")),
            workload=TpccParameters(warehouses=10),
            clients=8,
            schedule=Schedule.BLOCKS,
            seed=1,
            warmup_s=0.0,
            rounds=window_s,
            budget_s=float(window_s),
            stop="budget",
            blocks_max=blocks,
        ),
        host={"cores": 2},
    )


def _write_trial(writer: Writer, directory: Path, window_s: int, rng: np.random.Generator) -> None:
    """Write trial 1."""
    trial = 1
    for second in range(window_s):
        from_s, kinds = float(second), _kinds(rng.normal(RATE_PER_S, 100))
        latency = (2_000_000, 6_000_000, 10_000_000, 40_000_000)
        writer.add_interval(trial, Interval(0, Role.MEASURE, from_s, from_s + 1.0, kinds, *latency))
    kinds = _kinds(RATE_PER_S * window_s)
    end_s = float(window_s)
    writer.add_slice(trial, Slice(0, Role.MEASURE, 0.0, 0.05, end_s, end_s, 500.0, 300.0, kinds))
    for series in _series(directory, window_s, rng):
        for begin in range(0, window_s, int(CHUNK_S)):
            points = series.points[begin : begin + int(CHUNK_S)]
            writer.add_series(trial, SampleSeries(series.probe, series.columns, points))
    executed = sum(counts.executed for counts in kinds.values())
    writer.finish_trial(
        trial,
        TrialOutcome(
            status=TrialStatus.OK,
            ended_unix_s=CREATED_UNIX_S + end_s,
            epoch_unix_s=CREATED_UNIX_S,
            server_cpu_s=0.6 * end_s,
            transactions=executed,
            counters={"new_orders": kinds["new_order"].ok},
            driver=DriverFacts(threads=1),
            settings={f"setting_{i}": "on" for i in range(300)},
            histograms=_histograms(rng),
            readings=list(_readings(executed, end_s)),
            probe_cpu_s=5.0,
        ),
    )


def _kinds(executed: float) -> dict[str, Counts]:
    deck = sum(SHARES.values())
    return {kind: Counts(ok=int(executed * share / deck)) for kind, share in SHARES.items()}


def _series(directory: Path, window_s: int, rng: np.random.Generator) -> Iterator[SampleSeries]:
    waits = ["samples", RUNNING, *(f"LWLock/Wait{i}" for i in range(WAITS))]
    query = statement("sample", NEWEST_MAJOR).partition("\nFROM ")[0]
    counters = sorted(re.findall(r"^    \S.*\bAS (\w+),?$", query, re.MULTILINE))
    names = {"server": counters, "host": list(HostCounters([directory]).read()), "waits": waits}
    at_s = np.arange(window_s, dtype=np.float64)
    for probe, columns in names.items():
        grown = np.rint(rng.gamma(4.0, GROWS / 4, (window_s, len(columns))))
        grown[:, ::STILL] = 0.0
        values = np.rint(grown / GROWS) if probe == "waits" else np.cumsum(grown, axis=0)
        late_s = rng.exponential(0.001, window_s)
        yield SampleSeries(
            probe, ["at_s", "late_s", *columns], np.column_stack([at_s + late_s, late_s, values])
        )


def _histograms(rng: np.random.Generator) -> list[Histogram]:
    found = []
    for kind, share in SHARES.items():
        values = rng.lognormal(np.log(2e6), 0.6, 10_000 * share).astype(np.int64) // 4096 * 4096
        ns, n = np.unique(values, return_counts=True)
        pairs = pairs_from(zip(ns.tolist(), n.tolist(), strict=True))
        found += [Histogram(kind, measure, pairs) for measure in Measure]
    return found


def _readings(executed: int, end_s: float) -> Iterator[StoredReading]:
    counters = ("calls", "rows", "total_exec_time", "shared_blks_hit", "shared_blks_read", "wal_bytes")
    tables = ("n_tup_ins", "n_tup_upd", "n_tup_hot_upd", "n_dead_tup", "seq_scan", "idx_scan", "bytes")
    found: dict[str, list[dict[str, float | int | str | None]]] = {
        "statements": [
            {
                "queryid": str(i),
                "query": f"SELECT {i}",
                "mean_exec_time": 0.1,
                "stddev_exec_time": 0.1,
                **dict.fromkeys(counters, executed // (i + 1)),
            }
            for i in range(STATEMENTS)
        ],
        "relations": [
            {"kind": "table", "schema": "public", "name": f"table_{i}", **dict.fromkeys(tables, executed + i)}
            for i in range(RELATIONS)
        ],
        "wal": [{"lsn_bytes": 1000 * executed, "wal_fpi": executed, "wal_records": 9 * executed}],
        "database": [{"blks_hit": 90 * executed, "blks_read": executed, "xact_commit": executed}],
    }
    for probe, rows in found.items():
        zeroed = [
            {name: value if isinstance(value, str) else 0 for name, value in row.items()} for row in rows
        ]
        yield StoredReading(probe, Moment.BEGIN, 0.0, 0.001, zeroed)
        yield StoredReading(probe, Moment.END, end_s, 0.001, rows)


COPIED = {
    "interval_count": "from_s, kind, CAST(ok * :factor AS INTEGER), rolled_back, failed, skipped, retried",
    "slice_count": "position, kind, CAST(ok * :factor AS INTEGER), rolled_back, failed, skipped, retried",
    "interval": "position, role, from_s, to_s, CAST(executed * :factor AS INTEGER), latency_p50_ns, "
    "latency_p95_ns, latency_p99_ns, latency_max_ns",
    "slice": "position, role, opened_s, counted_from_s, closed_s, drained_s, driver_cpu_user_s, "
    "driver_cpu_system_s",
    "histogram": "kind, measure, n, pairs",
    "reading": "probe, moment, at_s, took_s, reason, absence, found",
    "series": "probe, from_s, columns, points",
}
OF_TRIAL = (
    "status",
    "ended_unix_s",
    "epoch_unix_s",
    "server_cpu_s",
    "transactions",
    "counters",
    "driver",
    "settings",
    "probe_cpu_s",
)


def _copy_first(path: Path, trials: int, rng: np.random.Generator) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for trial in range(2, trials + 1):
            names = {"trial": trial, "factor": float(np.exp(rng.normal(0, 0.02)))}
            for table, columns in COPIED.items():
                connection.execute(
                    f"INSERT INTO {table} SELECT :trial, {columns} FROM {table} WHERE trial = 1", names
                )
            values = ", ".join(f"{name} = (SELECT {name} FROM trial WHERE trial = 1)" for name in OF_TRIAL)
            connection.execute(f"UPDATE trial SET {values} WHERE trial = :trial", names)
        results_file.store_all(connection)
