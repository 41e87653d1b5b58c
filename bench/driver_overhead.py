"""Overhead of ``--drivers 1``: one node of a Ray cluster on this machine beside the engine alone.

The runs of a pair alternate. The cluster is started before a run that needs it, and ended after it, so that
its idle processes burden this run only. The client's CPU time is that of the engine, of this process and of
all processes of Ray on the machine. Slices have the default length: each costs messages.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psutil

from bench.environment import Environment, Sizes
from bench.figure import Figure, compared, limited
from bench.slices import pgbench_server
from pgdyno.features.cluster.ray import RayCluster
from pgdyno.features.drivers.nodes import DriverNodes
from pgdyno.interruption import Interruption
from pgdyno.measure.engine_runs import StartEngine, drive_specification, run_drive, start_local
from pgdyno.server.engine import Event, find_engine
from pgdyno.server.processes import Server
from pgdyno.study.defaults import SLICE_S
from pgdyno.study.plan import DriversPlan, Driving
from pgdyno.study.schedule import PlannedSlice, Role
from pgdyno.workloads.pgbench.parameters import PgbenchParameters

CLIENTS = 8
SETTLE_S = 5.0
"""Pause after the start of a cluster, whose agents use CPU time for seconds."""

MEASURED = 4
"""Measured time as a multiple of the usual duration of a run."""

THROUGHPUT_MIN, CPU_MAX, START_S_MAX = 0.99, 1.02, 5.0
NODE = {
    "num_cpus": 1,
    "object_store_memory": 80_000_000,
    "include_dashboard": False,
    "include_log_monitor": False,
    "node_name": "n1",
}


@dataclass(frozen=True)
class Driven:
    """Transactions per second, CPU time per transaction in µs, and the time until the first slice."""

    per_s: float
    client_us: float
    engine_us: float
    start_s: float


def figures(environment: Environment, sizes: Sizes) -> Iterator[Figure]:
    """Yield the figures of a closed loop of select-only. None without Ray."""
    try:
        import ray.cluster_utils  # noqa: F401, PLC0415 - the optional dependency
    except ImportError:
        print(
            "driver-overhead: Ray is not installed; run pip install '.[fleet]' in the checkout",
            file=sys.stderr,
        )
        return
    pairs: list[tuple[Driven, Driven]] = []
    with pgbench_server(environment, sizes, "driver-overhead") as server, _environment_of_nodes():
        _drive(server, sizes, start_local, time.monotonic())
        for number in range(sizes.pairs):
            if number % 2:
                alone = _drive(server, sizes, start_local, time.monotonic())
                pairs.append((_on_a_node(server, sizes), alone))
            else:
                node = _on_a_node(server, sizes)
                pairs.append((node, _drive(server, sizes, start_local, time.monotonic())))
    at, against = f"one node, select-only, {CLIENTS} clients", "the engine alone"
    rates = [(node.per_s, alone.per_s) for node, alone in pairs]
    yield compared(f"{at}: throughput", "tx/s", rates, against, bound=THROUGHPUT_MIN, sense="at least")
    cpu = [(node.client_us, alone.client_us) for node, alone in pairs]
    yield compared(f"{at}: client CPU with Ray", "µs/tx", cpu, against, bound=CPU_MAX)
    engine = [(node.engine_us, alone.engine_us) for node, alone in pairs]
    yield compared(f"{at}: CPU of the engine", "µs/tx", engine, against, bound=CPU_MAX)
    later = [node.start_s - alone.start_s for node, alone in pairs]
    yield limited(f"{at}: start later by", "s", later, START_S_MAX)


@contextlib.contextmanager
def _environment_of_nodes() -> Iterator[None]:
    """Give the workers of Ray this process's pgdyno and engine, and a token that is not the user's."""
    changed = {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PGDYNO_ENGINE": str(find_engine()),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
    }
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def _on_a_node(server: Server, sizes: Sizes) -> Driven:
    """Drive from one node of a cluster of its own."""
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    cluster = Cluster(initialize_head=True, head_node_args=NODE)
    try:
        time.sleep(SETTLE_S)
        begun_s = time.monotonic()
        with RayCluster(cluster.address) as ray_cluster:
            drivers = DriverNodes(ray_cluster, DriversPlan(n=1))
            with contextlib.closing(drivers):
                return _drive(server, sizes, lambda asked: drivers.start(1, asked), begun_s)
    finally:
        cluster.shutdown()


def _drive(server: Server, sizes: Sizes, start: StartEngine, begun_s: float) -> Driven:
    """Drive one server in slices. The CPU time is that between the barriers."""
    workload = PgbenchParameters.model_validate(
        {"scale": sizes.pgbench_scale, "scripts": [{"name": "select-only"}]}
    )
    driving = Driving(workload=workload, clients=CLIENTS)
    slices = max(2, round(MEASURED * sizes.duration_s / SLICE_S))
    plan = [PlannedSlice(0, Role.WARM_UP, SLICE_S, -1)]
    plan += [PlannedSlice(0, Role.MEASURE, SLICE_S, number) for number in range(slices)]
    asked = drive_specification(driving, 1, plan, [("server", server.conninfo())])
    measured: list[Event] = []
    first_s: list[float] = []
    cpu_s: list[float] = []

    def note(event: Event) -> None:
        if event["event"] == "slice":
            first_s.append(time.monotonic())
            measured.extend([event] if event["role"] == "measure" else [])

    def at_barrier() -> None:
        cpu_s.append(_client_cpu_s())

    run = run_drive(asked, Interruption(), note, at_barrier, start=start)
    if not run.complete:
        raise RuntimeError(f"the engine did not complete the run: {run.failure}")
    transactions = sum(counts["ok"] for event in measured for counts in event["kinds"].values())
    counted_s = sum(event["closed_ns"] - event["counted_from_ns"] for event in measured) / 1e9
    engine_s = sum(sum(event["driver_cpu_ns"].values()) for event in measured) / 1e9
    return Driven(
        transactions / counted_s,
        1e6 * (cpu_s[-1] - cpu_s[0]) / transactions,
        1e6 * engine_s / transactions,
        first_s[0] - begun_s - SLICE_S,
    )


def _client_cpu_s() -> float:
    """Return the CPU time of this process and its descendants, except the servers'."""
    total_s, todo = 0.0, [psutil.Process()]
    while todo:
        process = todo.pop()
        with contextlib.suppress(psutil.NoSuchProcess):
            used = process.cpu_times()
            total_s += used.user + used.system + used.children_user + used.children_system
            todo += [one for one in process.children() if not one.name().startswith("postgres")]
    return total_s
