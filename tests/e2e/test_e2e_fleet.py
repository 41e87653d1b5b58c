"""Fleet studies on a cluster of Ray on this machine, with real servers."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from program import END_S, PAUSE_S, TINY, Program

from pgdyno.results.fleet_file import FleetRecord, HostState, read_fleet
from pgdyno.server.running import Server

pytestmark = pytest.mark.long
RAY = [sys.executable, "-m", "ray.scripts.scripts"]
PASSWORD = "b5e1secret9d"
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
"""The cluster of the tests has a token of its own: neither it nor the user's clusters see the other's."""
STUDY = """
title = "A fleet"
compare = ["settings"]
server = "system"
[workload]
kind = "pgbench"
scale = 1
[factors.settings.on]
synchronous_commit = "on"
[factors.settings.off]
synchronous_commit = "off"
{factors}
[run]
schedule = "slices"
slice = "0.2s"
warmup = "0.2s"
rounds = 2
repeats = {repeats}
stop = "budget"
aa = false
"""
ALONE = "[drive]\nclients = 1"
GRID = "[factors]\nclients = [1, 2]"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class LocalCluster:
    """Nodes on this machine, each with its own cache. They end with the test, by their process groups."""

    program: Program
    folder: Path
    port: int = field(default_factory=free_port)
    nodes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, *names: str) -> None:
        import ray

        for name in names:
            place = (
                ["--head", f"--port={self.port}", f"--temp-dir={self.folder}", "--include-dashboard=false"]
                if not self.nodes
                else [f"--address=127.0.0.1:{self.port}"]
            )
            command = [*RAY, "start", "--block", "--node-name", name, "--num-cpus=2", *place]
            command += [
                "--node-ip-address=127.0.0.1",
                "--object-store-memory=80000000",
                "--include-log-monitor=false",
            ]
            cache = self.program.cache / name
            cache.mkdir(exist_ok=True)
            cache.chmod(0o755)
            packages = {"PYTHONPATH": os.pathsep.join([self.package, str(Path(ray.__file__).parents[1])])}
            environ = {**self.program.environment(), **packages, "PGDYNO_CACHE": str(cache)}
            environ |= {"RAY_USAGE_STATS_ENABLED": "0", "XDG_STATE_HOME": str(cache / "state"), **TOKEN}
            self.nodes[name] = subprocess.Popen(
                command,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._wait_for_node(len(self.nodes))

    @property
    def package(self) -> str:
        return self.program.environment()["PYTHONPATH"]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def process(self, name: str, part: str) -> psutil.Process:
        """Return the process of a node whose command line contains ``part``."""
        root = psutil.Process(self.nodes[name].pid)
        for process in root.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if part in " ".join(process.cmdline()):
                    return process
        raise LookupError(f"{name} has no process {part}")

    def stop(self, name: str) -> None:
        """Kill all processes of a node."""
        node = self.nodes.pop(name)
        members = []
        with contextlib.suppress(psutil.Error):
            members = psutil.Process(node.pid).children(recursive=True)
        node.kill()
        node.wait()
        for member in members:
            with contextlib.suppress(psutil.Error):
                member.kill()

    def end(self) -> None:
        """Kill all nodes."""
        for name in list(self.nodes):
            self.stop(name)

    def _wait_for_node(self, n: int) -> None:
        command = [*RAY, "status", f"--address={self.address}"]
        deadline_s = time.monotonic() + END_S
        environ = {**self.program.environment(), "PYTHONPATH": os.environ.get("PYTHONPATH", ""), **TOKEN}
        while time.monotonic() < deadline_s:
            found = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
            if found.stdout.count("node_") >= n:
                return
            time.sleep(PAUSE_S)
        raise AssertionError("the node never joined")


@pytest.fixture
def cluster(program: Program, tmp_path: Path) -> Iterator[LocalCluster]:
    pytest.importorskip("ray", reason="NO RAY: pip install 'pgdyno[fleet]'")
    folder = Path("/tmp") / f"pgdyno-ray-{os.getpid()}"
    folder.mkdir()
    found = LocalCluster(program, folder / "s")
    try:
        yield found
    finally:
        found.end()
        subprocess.run(["rm", "-rf", str(folder)], check=False)


def packages(cluster: LocalCluster) -> str:
    """Return the search path with pgdyno and Ray."""
    import ray

    return os.pathsep.join([cluster.package, str(Path(ray.__file__).parents[1])])


def run(cluster: LocalCluster, *arguments: str, snapshot_s: float = 0.0) -> list[str]:
    """Return the arguments of a run on all nodes, which share this machine."""
    cluster.program.environ = {
        **cluster.program.environ,
        **TOKEN,
        "PYTHONPATH": packages(cluster),
        "PGPASSWORD": PASSWORD,
        "PGDYNO_FLEET_SNAPSHOT_S": str(snapshot_s),
    }
    return ["run", *arguments, f"--fleet={cluster.address}", "--share-machines"]


def states(record: FleetRecord) -> dict[str, HostState]:
    return {work.file: work.state for work in record.works}


def test_all_hosts_are_measured_pooled_and_collected_without_a_secret(cluster: LocalCluster) -> None:
    cluster.start("n1", "n2")
    folder = cluster.program.folder
    (folder / "s.toml").write_text(STUDY.format(factors=ALONE, repeats=2))
    ended = cluster.program.run(*run(cluster, "s.toml", "--evidence", "s.sqlite", "--json"))
    assert ended.status == 0, ended.err
    assert set(ended.json()["hosts"][0]["files"]) == {"n1", "n2"}
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
    refused = cluster.program.run(*run(cluster, "--resume", "s.fleet.json"))
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
    assert cluster.program.run("report", "s.fleet.json").status == 0


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


def test_no_password_of_a_command_line_reaches_ray(cluster: LocalCluster, running_server: Server) -> None:
    """Ray stores the command line of the processes that connect to it."""
    cluster.start("n1")
    environ = {**TOKEN, "PYTHONPATH": packages(cluster)}
    cluster.program.environ = {**cluster.program.environ, **environ}
    dsn = running_server.conninfo("postgres")
    arms = (f"a={dsn} password={PASSWORD}", f"b={dsn} password={PASSWORD}2")
    ended = cluster.program.run("compare", *arms, *TINY, "--drivers", "1", "--cluster", cluster.address)
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
