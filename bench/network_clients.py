"""Clients on Ray nodes in network namespaces, against one server. ``python -m bench network-clients`` prints
a table by number of clients.

Each node has its own address and a pair of virtual Ethernet devices on a bridge, where the server listens.
All share the cores of this machine, so the rates are not those of separate machines. The server has fsync
off, because this concerns connections. Needs root.

With the schedule blocks, the clients of one arm are connected at a time. With slices, those of both arms are.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

import pgdyno
from bench.environment import installed_build
from bench.network_nodes import FastLink, NetworkCluster, unavailable
from bench.stopping import table
from pgdyno.features.drivers.group import added_bins, quantile_ns
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Measure, Trial, TrialStatus
from pgdyno.server.engine import find_engine

CLIENTS = (100, 1000, 10_000)
SPARE_CONNECTIONS = 100
SAMPLE_S = 0.5
FREE_BYTES_MIN = 3 << 29
"""The comparison is killed before less memory is available: the kernel would kill any process."""

PGDYNO = "import sys; sys.argv[0] = 'pgdyno'; from pgdyno.cli.main import main; sys.exit(main())"
HEAD = (
    "clients",
    "nodes",
    "until the first slice, s",
    "transactions/s",
    "p50, ms",
    "p99, ms",
    "engine CPU, µs per transaction",
    "share of a core, largest node",
    "memory of engines, MiB",
    "memory of the machine, MiB per client",
    "timers late, p99, ms",
    "valid trials",
)


@dataclass(frozen=True)
class _Caller:
    """Processes of the benchmark, which use the pgdyno of this process."""

    cache: Path

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        package = str(Path(pgdyno.__file__).parents[1])
        own = {"PGDYNO_CACHE": str(self.cache), "PGDYNO_ENGINE": str(find_engine()), "PYTHONPATH": package}
        return {**kept, **own}


@dataclass
class MemoryPeak:
    """Largest increase of the memory in use while a process runs, which is killed at FREE_BYTES_MIN."""

    process: subprocess.Popen[bytes]
    increase_bytes: int = 0
    is_full: bool = False
    _begun_bytes: int = field(default_factory=lambda: psutil.virtual_memory().available)
    _ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> MemoryPeak:
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            available_bytes = psutil.virtual_memory().available
            self.increase_bytes = max(self.increase_bytes, self._begun_bytes - available_bytes)
            if available_bytes < FREE_BYTES_MIN and not self.is_full:
                self.is_full = True
                for child in psutil.Process(self.process.pid).children():
                    child.kill()


def row(
    clients: int, nodes: int, trials: Sequence[Trial], evidence: Evidence, memory_bytes: int
) -> list[str]:
    """Return the row of one comparison, over its valid trials. Without one, only the reason is there."""
    valid = [trial for trial in trials if trial.status is TrialStatus.OK]
    share = f"{len(valid)} of {len(trials)}"
    if not valid:
        reasons = sorted({trial.reason for trial in trials})
        return [f"{clients:,}", str(nodes), *[""] * (len(HEAD) - 3), f"{share}: {'; '.join(reasons)}"]
    pieces = [piece for trial in valid for piece in trial.measured]
    executed = sum(counts.ok + counts.rolled_back for piece in pieces for counts in piece.kinds.values())
    counted_s = sum(piece.counted_s for piece in pieces)
    cpu_s = sum(piece.driver_cpu_user_s + piece.driver_cpu_system_s for piece in pieces)
    driven_s = sum(piece.drained_s - piece.opened_s for piece in pieces)
    latencies = [one for trial in valid for one in evidence.histograms(trial.trial, Measure.LATENCY)]
    bins = added_bins(one.pairs.astype(np.int64) for one in latencies)
    found = [node for trial in valid for node in trial.driver.nodes or ()]
    shares = [node.driver_cpu_share * node.cores for node in found if node.driver_cpu_share and node.cores]
    late_ns = [(trial.driver.wake_late_ns and trial.driver.wake_late_ns.p99) or 0 for trial in valid]
    return [
        f"{clients:,}",
        str(nodes),
        f"{max(min(piece.opened_s for piece in trial.slices) for trial in valid):.1f}",
        f"{executed / counted_s:,.0f}",
        f"{quantile_ns(bins, 0.5) / 1e6:,.1f}",
        f"{quantile_ns(bins, 0.99) / 1e6:,.1f}",
        f"{1e6 * cpu_s / driven_s / (executed / counted_s):.1f}",
        f"{max(shares, default=0.0):.0%}",
        f"{max(trial.driver_memory_bytes or 0 for trial in valid) / 2**20:,.0f}",
        f"{memory_bytes / 2**20 / clients:.2f}",
        f"{max(late_ns, default=0) / 1e6:.1f}",
        share,
    ]


def compare(cluster: NetworkCluster, arguments: Sequence[str]) -> int:
    """Run pgdyno beside the first node. Return the increase of memory, in bytes."""
    command = [*cluster.prefix("n1"), sys.executable, "-c", PGDYNO, *arguments]
    command.append(f"--cluster={cluster.address}")
    environ = {**cluster.program.environment(), **cluster.environment()}
    running = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL)
    with MemoryPeak(running) as memory:
        status = running.wait()
    if status:
        print(f"status {status}{', out of memory' if memory.is_full else ''}", file=sys.stderr)
    return memory.increase_bytes


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench network-clients", description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS, help="of each arm")
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--script", default="select-only", help="of pgbench")
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--rate", type=float, default=200.0, help="transactions per second; 0: no limit")
    parser.add_argument("--schedule", choices=("blocks", "slices"), default="blocks")
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--window", default="20s")
    parser.add_argument("--slice", default="5s")
    chosen = parser.parse_args(arguments)
    if reason := unavailable():
        parser.error(reason)
    load = ["--workload", "pgbench", "--builtin", chosen.script, "--scale", str(chosen.scale)]
    load += ["--schedule", chosen.schedule, "--window", chosen.window, "--slice", chosen.slice]
    load += ["--warmup", "5s"]
    load += ["--minutes", "60", "--stop", "budget", "--blocks", str(chosen.blocks)]
    if chosen.rate:
        load += ["--rate", str(chosen.rate)]
    connected = max(chosen.clients) * (2 if chosen.schedule == "slices" else 1)
    settings = {
        "max_connections": str(connected + SPARE_CONNECTIONS),
        "shared_buffers": f"{16 * chosen.scale + 16}MB",
        "max_locks_per_transaction": "10",  # less shared memory, and so smaller page tables of each backend
        "fsync": "off",
    }
    rows = []
    with tempfile.TemporaryDirectory(prefix="pgdyno-clients-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "cache").mkdir(mode=0o755)
        cluster = NetworkCluster(_Caller(folder / "cache"), folder / "ray", FastLink)
        try:
            with cluster.server(installed_build(), folder / "data", **settings) as dsn:
                cluster.start(*(f"n{number}" for number in range(1, chosen.nodes + 1)))
                for clients in chosen.clients:
                    path = folder / f"{clients}.sqlite"
                    own = ["--clients", str(clients), "--drivers", str(chosen.nodes), "--evidence", str(path)]
                    memory = compare(cluster, ["compare", dsn, dsn, *load, *own])
                    with Evidence(path) as evidence:
                        trials = evidence.trials(all_attempts=True)
                        rows.append(row(clients, chosen.nodes, trials, evidence, memory))
                    print(table(HEAD, rows[-1:]), file=sys.stderr)
        finally:
            cluster.end()
    print(table(HEAD, rows))
    return 0
