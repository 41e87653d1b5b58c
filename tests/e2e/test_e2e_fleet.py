"""Fleet studies on a cluster of Ray on this machine, with real servers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.ray_nodes import LocalCluster
from fleet_studies import ALONE, GRID, PASSWORD, STUDY, run, states
from program import PGBENCH, SLICES, Program

from pgdyno.features.hosts.fleet_record import HostState, read_fleet
from pgdyno.server.processes import Server

pytestmark = pytest.mark.long


@pytest.fixture
def cluster(program: Program) -> Iterator[LocalCluster]:
    pytest.importorskip("ray", reason="NO RAY: pip install '.[fleet]'")
    folder = Path("/tmp") / f"pgdyno-ray-{os.getpid()}"
    folder.mkdir()
    found = LocalCluster(program, folder / "s")
    try:
        yield found
    finally:
        found.end()
        subprocess.run(["rm", "-rf", str(folder)], check=False)


def test_all_hosts_are_measured_pooled_and_collected_without_a_secret(cluster: LocalCluster) -> None:
    cluster.start("n1", "n2")
    folder = cluster.program.folder
    (folder / "s.toml").write_text(STUDY.format(factors=ALONE, repeats=2))
    ended = cluster.program.run_process(*run(cluster, "s.toml", "--evidence", "s.sqlite", "--json"))
    assert ended.status == 0, ended.err
    assert set(ended.json()["files"]) == {"n1", "n2"}
    assert states(read_fleet(folder / "s.fleet.json")) == dict.fromkeys(
        ("s-n1.sqlite", "s-n2.sqlite"), HostState.DONE
    )
    for name in cluster.nodes:
        assert not list((cluster.program.cache / name / "fleet").glob("[!.]*")), "collected files are removed"
    searched = [path for path in cluster.folder.rglob("*") if path.is_file()]
    searched += [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".toml"]
    assert any("log" in path.name for path in searched)
    for path in searched:
        assert PASSWORD.encode() not in path.read_bytes(), path


def test_the_cases_of_a_killed_agent_start_again_on_another_host(cluster: LocalCluster) -> None:
    cluster.start("n1", "n2")
    folder = cluster.program.folder
    (folder / "g.toml").write_text(STUDY.format(factors=GRID, repeats=5))
    arguments = run(cluster, "g.toml", "--spread", "cases", "--evidence", "g.sqlite")
    running = cluster.program.start(*arguments)
    running.until((folder / "g-n2.sqlite").exists)
    cluster.process("n2", "ray::HostAgent").kill()
    ended = running.ended()
    assert ended.status == 0, ended.err
    assert "its agent was killed" in ended.err
    record = read_fleet(folder / "g.fleet.json")
    assert states(record) == {
        "g-n1.sqlite": HostState.DONE,
        "g-n2.sqlite": HostState.LOST,
        "g-n1-2.sqlite": HostState.DONE,
    }
    assert [work.cases for work in record.works] == [("clients 1",), ("clients 2",), ("clients 2",)]


def test_after_the_loss_of_a_node_and_ctrl_c_a_resume_goes_on(cluster: LocalCluster) -> None:
    cluster.start("n1", "n2")
    folder = cluster.program.folder
    (folder / "s.toml").write_text(STUDY.format(factors=ALONE, repeats=400))
    running = cluster.program.start(*run(cluster, "s.toml", "--evidence", "s.sqlite"))
    running.until(lambda: all((folder / f"s-{name}.sqlite").exists() for name in cluster.nodes))
    cluster.process("n2", "raylet/raylet").kill()
    running.until(lambda: "n2: lost" in running.err.read_text())
    running.signal(signal.SIGINT)
    ended = running.ended()
    assert ended.status == 130, ended.err
    assert "--fleet --resume s.fleet.json" in ended.err
    found = states(read_fleet(folder / "s.fleet.json"))
    assert found == {"s-n1.sqlite": HostState.INTERRUPTED, "s-n2.sqlite": HostState.LOST}
    refused = cluster.program.run_process(*run(cluster, "--resume", "s.fleet.json"))
    assert refused.status == 2
    assert "--node-name n2" in refused.err

    cluster.stop("n2")
    cluster.start("n2")
    running = cluster.program.start(*run(cluster, "--resume", "s.fleet.json"))
    running.until(lambda: running.err.read_text().count(": block ") >= 2)
    running.signal(signal.SIGINT)
    ended = running.ended()
    assert ended.status == 130, ended.err
    found = states(read_fleet(folder / "s.fleet.json"))
    assert set(found.values()) == {HostState.INTERRUPTED}
    assert cluster.program.run_process("report", "s.fleet.json").status == 0


TABLES = """
import sys
import ray
from ray._private.state import state

ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
of = state._connect_and_get_accessor()
tables = [of.get_job_table(), of.get_actor_table(None, None), of.get_worker_table(), of.get_task_events()]
tables += [of.get_node_table(), of.get_placement_group_table()]
print(str(tables) + str(ray.util.list_named_actors(all_namespaces=True)))
"""
"""A program that prints the tables of the head of a cluster."""


def test_no_password_reaches_ray(cluster: LocalCluster, running_server: Server) -> None:
    """Ray stores the command line of the processes that connect to it, and logs of its actors.

    A password on the command line is refused, so that it comes from the environment.
    """
    cluster.start("n1")
    environ = cluster.environment()
    cluster.program.environ = {**cluster.program.environ, **environ, "PGPASSWORD": PASSWORD}
    dsn = running_server.conninfo("postgres")
    arms = (f"a={dsn}", f"b={dsn}")
    sizes = (*PGBENCH, *SLICES, "--clients", "1", "--blocks", "1")
    ended = cluster.program.run_process(
        "compare", *arms, *sizes, "--drivers", "1", "--cluster", cluster.address
    )
    assert ended.status == 0, ended.err
    asked = [sys.executable, "-c", TABLES, cluster.address]
    tables = subprocess.run(asked, env={**os.environ, **environ}, check=True, capture_output=True, text=True)
    assert "DriverActor" in tables.stdout
    assert "\\x06pgdyno" in tables.stdout, "the command line: a field of 6 bytes"
    assert PASSWORD not in tables.stdout
    paths = [path for path in cluster.folder.rglob("*") if path.is_file()]
    assert any("log" in path.name for path in paths)
    for path in paths:
        assert PASSWORD.encode() not in path.read_bytes(), path
