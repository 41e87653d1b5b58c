"""Every benchmark runs in its smallest form. No time is asserted."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from bench.__main__ import BENCHMARKS

from pgdyno.features.crash_disk.disk import missing_for_power_cuts
from pgdyno.server.builds import Build

pytestmark = [pytest.mark.server, pytest.mark.long]
ROOT = Path(__file__).parents[2]

FIGURES = {
    "scripts": {"client CPU", "client memory", "throughput", "server CPU"},
    "sysbench": {"client CPU", "throughput", "prepare"},
    "tpcc": {"client CPU", "client memory", "throughput"},
    "linkbench": {"copy phase", "whole load", "data and indexes", "client CPU", "throughput"},
    "insert": {"copy phase", "data and indexes", "client CPU", "throughput"},
    "load": {"copy phase", "engine's share of the copy phase's CPU", "whole"},
    "restore": {"into nothing", "over a used copy", "5% of the blocks changed in every file"},
    "simulated-disk": {"write and sync a file", "sync single blocks", "read the file"},
    "telemetry": {"throughput", "CPU of the sampler"},
    "analysis": {"CPU time", "CPU time, relative", "peak memory"},
    "readings": {"CPU"},
    "slices": {"noise", "not counted", "swap of cores"},
    "page": {"throughput", "CPU of its server", "CPU of an opening"},
    "pairs": {"noise"},
    "driver-overhead": {"throughput", "client CPU with Ray", "CPU of the engine", "start later by"},
    "real-clients": {"throughput", "New-Orders per payment"},
    "original-programs": {"throughput", "rows inserted and deleted", "range queries", "point queries"},
    "pgbench-startup": {"start to end", "beside pgbench"},
    "pgbench-init": {"tables made", "CPU of client and server"},
}
BESIDE_PGBENCH = {"scripts", "pgbench-startup", "pgbench-init"}
BESIDE_SYSBENCH = {"sysbench"}
BESIDE_REAL_CLIENTS = {"real-clients", "original-programs"}
ON_DISK = {"simulated-disk"}
ON_RAY = {"driver-overhead"}


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_runs_and_prints_its_figures(build: Build, name: str) -> None:
    if name in BESIDE_PGBENCH and not build.has("pgbench"):
        pytest.skip("NO PGBENCH: this PostgreSQL has none to compare with")
    if name in BESIDE_SYSBENCH and not shutil.which("sysbench"):
        pytest.skip("NO SYSBENCH: there is none to compare with")
    if name in ON_DISK and missing_for_power_cuts():
        pytest.skip("NO SIMULATED DISK: it needs root, /dev/fuse and a loop device")
    if name in ON_RAY:
        pytest.importorskip(
            "ray", reason="Ray is not installed: build the wheel, and install it with its extra fleet"
        )
    done = bench("--smoke", name)
    assert done.returncode == 0, done.stderr
    if name in BESIDE_REAL_CLIENTS and len(done.stdout.splitlines()) < 3:
        assert done.stderr.count(": not here; ") == 2
        pytest.skip("NO REAL CLIENTS: no program to compare with is here")
    rows = [line.split("|") for line in done.stdout.splitlines()[2:]]
    found = {row[1].strip().rpartition(": ")[2] for row in rows}
    assert found == FIGURES[name] or (name in BESIDE_REAL_CLIENTS and found < FIGURES[name])
    assert all(float(row[2].replace(",", "")) > 0 for row in rows)


def test_benchmarks_of_one_call_do_not_interfere(build: Build) -> None:
    """They share a directory. Each has its own servers."""
    done = bench("--smoke", "slices", "pairs")
    assert done.returncode == 0, done.stderr


def test_the_benchmark_of_verdicts_runs_a_study_of_each_kind(build: Build, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    done = bench("verdict", "--smoke", "--server", str(build.bin_dir), "--keep", str(kept))
    assert done.returncode == 0, done.stderr
    for stored in map(json.loads, kept.read_text("utf-8").splitlines()):
        assert len(stored["covariates"]) == len(stored["log_ratios"])
        assert all({"steal", "cpu_share"} <= of.keys() for of in stored["covariates"])
    measured, _, drawn = done.stdout.split("\n\n")
    tables = [
        [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:]]
        for text in (measured, drawn)
    ]
    assert [[row[0] for row in rows] for rows in tables] == [["none", "100%"]] * 2
    for row in tables[0]:
        assert row[3] == "1" and sum(map(int, row[4:8])) == 1


def test_an_unknown_benchmark_is_a_usage_error() -> None:
    done = bench("--smoke", "speed")
    assert done.returncode == 2
    assert "no benchmark is called speed: there are scripts, sysbench, tpcc, load, restore," in done.stderr


def test_the_benchmark_of_fleets_simulates_the_coordinator() -> None:
    done = bench("fleet", "--hosts", "3", "--minutes", "12")
    assert done.returncode == 0, done.stderr
    (row,) = [line.split("|")[1:-1] for line in done.stdout.splitlines()[2:]]
    hosts, messages_per_s, *_ = (cell.strip() for cell in row)
    assert (hosts, messages_per_s) == ("3", "3.0")


def test_the_benchmark_of_load_generators_simulates_their_coordinator(build: Build) -> None:
    done = bench("driver-nodes", "--nodes", "1", "3", "--slice", "2")
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()[2:]]
    assert [row[:5] for row in rows] == [["1", "2", "1", "1.0", "0.5"], ["3", "2", "1", "3.0", "1.5"]]


def test_the_benchmark_of_many_clients_counts_every_transaction() -> None:
    if not shutil.which("cc"):
        pytest.skip("NO C COMPILER: the fake server is compiled")
    done = bench("driver-nodes", "--clients", "60", "--engines", "3", "--rate", "200", "--seconds", "1")
    assert done.returncode == 0, done.stderr
    cells = [line.split("|")[1:3] for line in done.stdout.splitlines()[2:]]
    rows = {name.strip(): value.strip() for name, value in cells}
    sent, executed = (
        int(rows[name].replace(",", ""))
        for name in ("transactions in the merged result", "statements executed by the server")
    )
    assert executed == sent + 3 > 3, "each engine reads the version of the server"
