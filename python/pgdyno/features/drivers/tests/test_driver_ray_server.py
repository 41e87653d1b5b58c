"""Load generators on a Ray cluster of three nodes on this machine. Skipped if Ray is not installed."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgdyno.errors import FleetError, UsageError
from pgdyno.features.cluster.ray import RayCluster
from pgdyno.features.drivers.group import NODE_LOST
from pgdyno.features.drivers.nodes import DriverNodes
from pgdyno.interruption import Interruption
from pgdyno.measure.engine_runs import EngineRun, drive_specification, run_drive
from pgdyno.results.records import DriverFacts, facts_from
from pgdyno.server.engine import Event, find_engine
from pgdyno.server.processes import Server
from pgdyno.study.plan import DriversPlan, Driving
from pgdyno.study.schedule import PlannedSlice, Role

cluster_utils: Any = pytest.importorskip(
    "ray.cluster_utils", reason="Ray is not installed: build the wheel, and install it with its extra fleet"
)

pytestmark = [pytest.mark.server, pytest.mark.long, pytest.mark.filterwarnings("ignore")]

SECRET = "passw0rd-of-this-test"
NODE = {
    "num_cpus": 1,
    "object_store_memory": 80_000_000,
    "include_dashboard": False,
    "include_log_monitor": False,
}


@dataclass
class Nodes:
    """A cluster with the nodes n1 (head), n2 and n3."""

    address: str
    session: Path
    kill: Callable[[str], None]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with pytest.MonkeyPatch.context() as patch:
        # The workers of Ray need this process's pgdyno, its libraries and its engine.
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        patch.setenv("PGDYNO_ENGINE", str(find_engine()))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={**NODE, "node_name": "n1"})
        try:
            others = {name: cluster.add_node(**NODE, node_name=name) for name in ("n2", "n3")}

            def kill(name: str) -> None:
                cluster.remove_node(others[name], allow_graceful=False)

            yield Nodes(cluster.address, Path(cluster.head_node.get_session_dir_path()), kill)
        finally:
            cluster.shutdown()


@pytest.fixture
def ray_cluster(nodes: Nodes) -> Iterator[RayCluster]:
    with RayCluster(nodes.address) as cluster:
        yield cluster


Play = Callable[..., tuple[EngineRun, list[tuple[Any, ...]]]]


@pytest.fixture
def play(server: Server, driving: Driving) -> Play:
    def play(
        drivers: DriverNodes | None,
        slices: list[PlannedSlice],
        on_event: Callable[[Event], None] = lambda _: None,
    ) -> tuple[EngineRun, list[tuple[Any, ...]]]:
        with psycopg.connect(server.conninfo(), autocommit=True) as connection:
            connection.execute("TRUNCATE sent")
            targets = [("a", f"{server.conninfo()} password={SECRET}")]
            asked = drive_specification(driving, 1, slices, targets, interval_s=0.2)
            more: dict[str, Any] = {} if drivers is None else {"start": lambda one: drivers.start(7, one)}
            run = run_drive(asked, Interruption(), on_event, **more)
            return run, connection.execute("SELECT client, x FROM sent ORDER BY 1, 2").fetchall()

    return play


LIMITED = [PlannedSlice(0, role, 60.0, 0, transactions=10) for role in (Role.WARM_UP, Role.MEASURE)]


def test_nodes_send_the_transactions_of_one_engine_and_no_password_reaches_ray(
    nodes: Nodes, ray_cluster: RayCluster, play: Play
) -> None:
    drivers = DriverNodes(ray_cluster, DriversPlan(n=2))
    with contextlib.closing(drivers):
        _, expected = play(None, LIMITED)
        run, rows = play(drivers, LIMITED)
        assert run.complete
        assert (len(rows), rows) == (120, expected)
        assert run.result is not None
        found = facts_from(DriverFacts, run.result.driver).nodes
        assert found is not None
        assert [node.name for node in found] == drivers.names_of(7), "random, but the same for a seed"
        assert all(node.ceiling_per_s and node.busy_share is not None for node in found)
        assert all(node.clock_spread_s < 1 for node in found)
        assert len({tuple(drivers.names_of(seed)) for seed in range(50)}) == 6
        with pytest.raises(FleetError, match="generates load for another study"):
            play(DriverNodes(ray_cluster, DriversPlan(n=3)), LIMITED)
    holding = [path for path in nodes.session.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(holding) > 10
    assert not [path for path in holding if SECRET.encode() in path.read_bytes()]
    names = str(ray_cluster.ray.util.list_named_actors(all_namespaces=True))
    assert SECRET not in names and "dbname" not in names


def test_requests_that_the_cluster_cannot_fulfill_are_refused(ray_cluster: RayCluster) -> None:
    with pytest.raises(UsageError, match="needs as many nodes, and the cluster has 3 live nodes"):
        DriverNodes(ray_cluster, DriversPlan(n=4))
    with pytest.raises(UsageError, match="no live node 'n9'; its nodes: n1, n2, n3"):
        DriverNodes(ray_cluster, DriversPlan(n=1, nodes=("n9",)))


def test_a_lost_node_ends_the_drive_and_the_others_remain(
    nodes: Nodes, ray_cluster: RayCluster, play: Play
) -> None:
    drivers = DriverNodes(ray_cluster, DriversPlan(n=3))
    killed = []

    def kill_one(event: Event) -> None:
        if event["event"] == "interval" and not killed:
            killed.append("n2")
            nodes.kill("n2")

    with contextlib.closing(drivers):
        run, _ = play(drivers, [PlannedSlice(0, Role.MEASURE, 600.0, 0)], kill_one)
        assert run.failure is not None and run.failure.stage == NODE_LOST
        assert "n2" in run.failure.message
        assert drivers.note_loss() == ["n2"]
        assert drivers.n_left == 2
        drivers.n = drivers.n_left
        again, rows = play(drivers, LIMITED)
        assert again.complete and len(rows) == 120
