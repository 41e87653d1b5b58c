"""Ray clusters: connection, nodes, and offsets of their clocks.

- Offsets of the monotonic clocks of nodes, measured by round trips. Pure, except for the clock itself.
- Connection to a Ray cluster, and checks of its nodes.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import platform
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self, TypeVar

from psycopg.conninfo import conninfo_to_dict

from pgdyno import __version__
from pgdyno.errors import EngineError, FleetError, UsageError, in_one_line
from pgdyno.interruption import RAY_THREAD
from pgdyno.server.engine import build_info

# ----------------------------------------------------------------------
# Offsets of the monotonic clocks of nodes, measured by round trips. Pure, except for the clock itself.
# ----------------------------------------------------------------------

ROUND_TRIPS = 9
"""Round trips per measurement. The shortest one counts: delays of the others only add error."""

GUARD_S = 0.1
"""Time between the agreement on the start of a slice and the start. A command must reach every node within
it, and no clock may be off by more."""


@dataclass(frozen=True)
class ClockOffset:
    """``offset_ns``: the clock of a node minus the clock of this process; it is exact to ±``error_ns``."""

    offset_ns: int
    error_ns: int

    def spread_s(self, later: ClockOffset) -> float:
        """Return the largest error of instants between two measurements: drift and both errors."""
        return (abs(later.offset_ns - self.offset_ns) + max(self.error_ns, later.error_ns)) / 1e9


def measure_offset(
    read_ns: Callable[[], int], now_ns: Callable[[], int] = time.monotonic_ns, rounds: int = ROUND_TRIPS
) -> ClockOffset:
    """Return the offset of a clock, as in NTP: its reading against the middle of the shortest round trip."""
    found = []
    for _ in range(rounds):
        sent_ns = now_ns()
        theirs_ns = read_ns()
        received_ns = now_ns()
        offset_ns = theirs_ns - (sent_ns + received_ns) // 2
        found.append(ClockOffset(offset_ns, (received_ns - sent_ns + 1) // 2))
    return min(found, key=lambda one: one.error_ns)


# ----------------------------------------------------------------------
# Connection to a Ray cluster, and checks of its nodes.
#
# Ray is the extra ``fleet`` of the wheel. Only this module imports it, when a command needs a cluster.
# Arguments of tasks and actors may contain passwords. Names of tasks, actors and nodes must not. Nor must the
# command line of this process.
# ----------------------------------------------------------------------

LOCAL = "auto"
"""Address of the cluster that runs on this machine."""

ANSWER_TIMEOUT_S = 60.0
"""Maximum time of a check of a node. Ray starts a Python process for it, which may take seconds."""

CONNECT_TIMEOUT_S = 5.0
"""Maximum time to connect to the head of the cluster."""

HEAD_TIMEOUT_S = 15.0
"""Maximum time of an answer of the head of the cluster."""

HEAD_LOST_AFTER_S = 86_400
"""Time after which Ray ends this process if the head is lost. Its default is 60 s, and a study must end by
itself, with a report."""

PROGRAM = b"pgdyno\0"
"""Command line of this process for Ray."""

CHECK = "pgdyno-check"
"""Name of the task that checks a node."""


Answer = TypeVar("Answer")


@dataclass(frozen=True)
class RayNode:
    """A node of the cluster. ``name`` is unique in the cluster."""

    id: str
    name: str
    address: str


@dataclass(frozen=True)
class NodeFacts:
    """Facts about a node. ``boot_id`` is equal for nodes of one machine; ``engine``: empty if missing."""

    python: str
    pgdyno: str
    engine: str
    boot_id: str
    cores: int


class RayCluster:
    """A connection to a running cluster. Use as a context manager: the connection ends with the block.

    ``ray`` is the module. Raises UsageError if Ray is not installed, and FleetError if the cluster does not
    answer or has another version of Ray or Python.
    """

    def __init__(self, address: str = LOCAL) -> None:
        self.ray = _import_ray()
        hide_command_line()
        try:
            _require_listener(address)
            self.ray.init(
                address=address,
                log_to_driver=False,
                configure_logging=False,
                include_dashboard=None,
                logging_level="ERROR",
            )
        except (OSError, RuntimeError, ValueError) as error:
            raise FleetError(_unreachable(address, error)) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            within(HEAD_TIMEOUT_S, self.ray.shutdown)
        except FleetError:
            # Ray would wait again at the end of the process, before the user sees the report.
            atexit.unregister(self.ray.shutdown)

    def nodes(self) -> list[RayNode]:
        """Return the live nodes, sorted by name. Nodes of equal name get the start of their ID.

        Raises FleetError if the head of the cluster does not answer.
        """
        alive = [node for node in within(HEAD_TIMEOUT_S, self.ray.nodes) if node["Alive"]]
        n_of = Counter(node["NodeName"] for node in alive)
        found = []
        for node in alive:
            name = (
                node["NodeName"]
                if n_of[node["NodeName"]] == 1
                else f"{node['NodeName']}#{node['NodeID'][:6]}"
            )
            found.append(RayNode(node["NodeID"], name, node["NodeManagerAddress"]))
        return sorted(found, key=lambda node: node.name)

    def chosen(self, names: Sequence[str]) -> list[RayNode]:
        """Return the live nodes of these names; all of them without names. Raises UsageError."""
        nodes = {node.name: node for node in self.nodes()}
        for name in names:
            if name not in nodes:
                raise UsageError(f"the cluster has no live node {name!r}; its nodes: {', '.join(nodes)}")
        return [nodes[name] for name in names] if names else list(nodes.values())

    def on(self, node: RayNode) -> dict[str, Any]:
        """Return the options of a task or actor that runs on this node only."""
        from ray.util import scheduling_strategies  # noqa: PLC0415 - only with a cluster

        strategy = scheduling_strategies.NodeAffinitySchedulingStrategy(node.id, soft=False)
        return {"scheduling_strategy": strategy}

    def check(self, nodes: Sequence[RayNode]) -> dict[str, NodeFacts]:
        """Return the facts of nodes, by name.

        Raises FleetError for a node without pgdyno or its engine, or with another version of Python, pgdyno
        or the engine than this process.
        """
        task = self.ray.remote(own_facts)
        options = {"num_cpus": 0, "name": CHECK, "max_retries": 0}
        asked = [(node, task.options(**options, **self.on(node)).remote()) for node in nodes]
        found = {}
        for node, answer in asked:
            try:
                facts: NodeFacts = self.ray.get(answer, timeout=ANSWER_TIMEOUT_S)
            except self.ray.exceptions.RayError as error:
                raise FleetError(
                    f"node {node.name} does not answer: {last_line(error)}; install the wheel of pgdyno "
                    "with its extra fleet there"
                ) from None
            if problem := _problem_of(facts):
                raise FleetError(f"node {node.name}: {problem}")
            found[node.name] = facts
        return found


def within(limit_s: float, call: Callable[[], Answer]) -> Answer:
    """Return the answer of a call to the head, which has no time limit of its own.

    Raises FleetError after ``limit_s``, and the errors of the call.
    """
    answer: Future[Answer] = Future()

    def ask() -> None:
        try:
            answer.set_result(call())
        except Exception as error:  # noqa: BLE001 - raised in the thread that waits
            answer.set_exception(error)

    # A thread of an executor would be joined at the end of the process.
    threading.Thread(target=ask, name=RAY_THREAD, daemon=True).start()
    try:
        return answer.result(timeout=limit_s)
    except FutureTimeoutError:
        raise FleetError(f"the head of the Ray cluster did not answer within {limit_s:g} s") from None


def own_facts() -> NodeFacts:
    """Return the facts of this machine. It runs on every node."""
    engine = ""
    with contextlib.suppress(EngineError):
        info = build_info()
        engine = f"{info['version']} ({info['profile']}, {info['rustc']}, {info['dataset_format']})"
    return NodeFacts(
        python=platform.python_version(),
        pgdyno=__version__,
        engine=engine,
        boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        cores=len(os.sched_getaffinity(0)),
    )


def _problem_of(facts: NodeFacts) -> str:
    """Return what differs from this process; empty if nothing does."""
    if not facts.engine:
        return "the engine pgdyno-engine is missing; install the wheel of pgdyno there"
    ours = own_facts()
    for what in ("python", "pgdyno", "engine"):
        theirs, here = getattr(facts, what), getattr(ours, what)
        if theirs != here:
            return f"{what} {theirs} is installed, but {here} here; install the same version on all nodes"
    return ""


def undo_limits_of_ray() -> int:
    """Undo what Ray sets for its workers, in this thread and the processes that it starts: blocked signals,
    niceness, and preference for the OOM killer. Return the niceness that is left without privileges.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("0", encoding="ascii")
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    return os.getpriority(os.PRIO_PROCESS, 0)


def hide_command_line() -> None:
    """Overwrite the command line of this process with the name of the program, also in ``ps``.

    Ray stores it in its table of jobs on the head, and it may have a DSN with a password.
    """
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end of proc(5); 0 if they are hidden
    if not start < end:
        return
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, PROGRAM, min(len(PROGRAM), end - start))
    ctypes.memset(end - 1, 1, 1)  # not 0: for the kernel, a title, which ends at its first 0


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", str(HEAD_LOST_AFTER_S))
    try:
        import ray  # noqa: PLC0415 - takes half a second, and few installations have it
        import ray.exceptions  # noqa: PLC0415
    except ImportError:
        raise UsageError(
            "Ray is not installed: build the wheel with `make wheel`, and install it with its extra fleet "
            "(pgdyno docs features/drivers)"
        ) from None
    _keep_standard_output_clean(ray)
    return ray


def _keep_standard_output_clean(ray: Any) -> None:
    """Drop messages of Ray about lost nodes: it prints them among our data, and has no option against it."""
    worker: Any = getattr(getattr(ray, "_private", None), "worker", None)
    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_, **__: None


def _require_listener(address: str) -> None:
    """Raise OSError if nothing listens at ``HOST:PORT``: Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), CONNECT_TIMEOUT_S).close()


def _unreachable(address: str, error: Exception) -> str:
    place = "on this machine" if address == LOCAL else f"at {address}"
    reason = (error.strerror if isinstance(error, OSError) else None) or last_line(error)
    return (
        f"no usable Ray cluster {place}: {reason.rstrip('.')}; start one with: "
        "ray start --head --include-dashboard=false --include-log-monitor=false --disable-usage-stats"
    )


def shared_host(dsn: str) -> str:
    """Return the host of a connection string; empty if it means another server on each machine."""
    given = conninfo_to_dict(dsn)
    hosts = str(given.get("hostaddr") or given.get("host") or "")
    return "" if any(map(_is_local, hosts.split(","))) else hosts


def _is_local(host: str) -> bool:
    with contextlib.suppress(ValueError):  # a name
        return ip_address(host).is_loopback
    return host in {"", "localhost"} or host.startswith(("/", "@"))


def last_line(error: Exception) -> str:
    """Return the last line of an error of Ray, which follows the traceback of a worker."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return in_one_line(lines[-1]) if lines else type(error).__name__
