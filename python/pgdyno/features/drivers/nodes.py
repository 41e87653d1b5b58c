"""The load generators of a study: their nodes, the random choice for each block, actors.

- The load generator of one node: an actor there, and its link here.
- The load generators of a study: their nodes, the random choice for each block, and what follows a loss.
"""

from __future__ import annotations

import contextlib
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from pgdyno.errors import EngineError, FleetError, UsageError, in_one_line
from pgdyno.features.cluster.ray import (
    ANSWER_TIMEOUT_S,
    HEAD_TIMEOUT_S,
    LOCAL,
    ClockOffset,
    NodeFacts,
    RayCluster,
    RayNode,
    last_line,
    measure_offset,
    own_facts,
    shared_host,
    undo_limits_of_ray,
    within,
)
from pgdyno.features.drivers.group import (
    LATE,
    STARTS_AT_ONCE,
    DriverGroup,
    DriverLink,
    NodeUsage,
    default_threads,
    exact_clock,
    own_usage,
    packed,
    split,
)
from pgdyno.server.engine import Engine, Event
from pgdyno.study.plan import DriversPlan, Study
from pgdyno.units import counted

# ----------------------------------------------------------------------
# The load generator of one node: an actor there, and its link here.
#
# The actor starts an engine and forwards its events and commands. Only histograms have another form.
# Specifications may contain passwords: they are arguments of calls, which Ray neither logs nor names.
# ----------------------------------------------------------------------

NAME = "pgdyno-driver"
"""Name of the actors in Ray's lists."""

GATHERED = ("interval", "slice", "error", "connected")
"""Events that no other node waits for. Every other event is sent at once, with those gathered before it."""

GATHER_MIN_S, GATHER_MAX_S = 1.0, 20.0
MESSAGES_PER_S = 5
"""Maximum rate of messages with gathered events, of all nodes together, for up to 100 nodes. A message takes
about 1.5 ms of CPU time in the coordinator (``python -m bench driver-nodes --ray``)."""

LATE_AFTER_S = 1.0
"""Maximum time from an answer on the node to its arrival here."""

LOST_AFTER_S = 20.0
"""Maximum time without an answer of a node, beyond the time to gather events."""

GROUPS = {"events": 1, "commands": 1, "clock": 1}
"""Threads of an actor: commands stay in order, and neither they nor the clock wait for events."""


def gather_s(nodes: int) -> float:
    """Return the time for which each of so many nodes gathers events before it sends them."""
    return min(max(GATHER_MIN_S, nodes / MESSAGES_PER_S), GATHER_MAX_S)


class DriverActor:
    """Runs on a node: the engine, and the counters of the machine."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._events: queue.Queue[Event | str | None] = queue.Queue()

    def start(self, specification: Mapping[str, Any]) -> None:
        """Start an engine. The last one must have been closed."""
        self._events = queue.Queue()
        undo_limits_of_ray()
        self._engine = Engine("drive", specification)
        threading.Thread(target=self._collect, args=(self._engine, self._events), daemon=True).start()

    @staticmethod
    def _collect(engine: Engine, events: queue.Queue[Event | str | None]) -> None:
        """Queue the events of an engine, then the reason if it failed, then None."""
        try:
            for event in engine.events():
                events.put(packed(event))
        except (EngineError, OSError, ValueError) as error:
            events.put(in_one_line(error))
        events.put(None)

    def read(self, wait_s: float) -> tuple[list[Event | str | None], int]:
        """Return the events of the next ``wait_s``, or earlier if one of them is not in GATHERED.

        The second value is the time by CLOCK_MONOTONIC.
        """
        found: list[Event | str | None] = []
        ends_s = time.monotonic() + wait_s
        with contextlib.suppress(queue.Empty):
            while True:
                event = self._events.get(timeout=max(0.0, ends_s - time.monotonic()))
                found.append(event)
                if not isinstance(event, dict) or event["event"] not in GATHERED:
                    break
        return found, time.monotonic_ns()

    def send(self, message: Event) -> None:
        """Send a command to the engine."""
        if self._engine is not None:
            self._engine.send(message)

    def clock_ns(self) -> int:
        """Return CLOCK_MONOTONIC of this machine, which is also the clock of the engine."""
        return time.monotonic_ns()

    def usage(self) -> NodeUsage:
        """Return the counters of this machine."""
        return own_usage()

    def close(self) -> None:
        """Kill the engine."""
        if self._engine is not None:
            self._engine.abandon()
            self._engine.__exit__(None, None, None)
            self._engine = None


class RayLink:
    """The link to the actor on a node, one of ``nodes``. Raises FleetError if the actor cannot be started."""

    def __init__(self, cluster: RayCluster, node: RayNode, nodes: int) -> None:
        self.name = node.name
        self.is_lost = False
        self.silence_s = gather_s(nodes)
        self._offset_ns = 0
        self._ray = cluster.ray
        options = {"num_cpus": 0, "name": f"{NAME}-{node.id[:12]}", "namespace": NAME, "max_restarts": 0}
        actor = self._ray.remote(concurrency_groups=GROUPS)(DriverActor)
        # A name that is in use belongs to another study, which drives from this node.
        try:
            self._actor = actor.options(**options, **cluster.on(node)).remote()
        except ValueError:
            raise FleetError(f"node {node.name} generates load for another study: wait for its end") from None
        except (self._ray.exceptions.RayError, OSError, RuntimeError) as error:
            raise FleetError(f"load generator {node.name} cannot start: {_first_sentence(error)}") from None
        self._get(lambda: self._call("clock", "clock_ns"), ANSWER_TIMEOUT_S)

    def start(self, specification: Mapping[str, Any]) -> None:
        """Start an engine on the node."""
        self._get(lambda: self._call("commands", "start", dict(specification)))

    def events(self) -> Iterator[Event]:
        """Yield the events of the engine. Raises EngineError, FleetError."""
        limit_s = self.silence_s + LOST_AFTER_S
        while True:
            found, sent_ns = self._get(lambda: self._call("events", "read", self.silence_s), limit_s)
            late_s = (time.monotonic_ns() + self._offset_ns - sent_ns) / 1e9
            if late_s > LATE_AFTER_S:
                yield {"event": LATE, "late_s": late_s}
            for event in found:
                if event is None:
                    return
                if isinstance(event, str):
                    raise EngineError(event)
                yield event

    def send(self, message: Event) -> None:
        """Send a command. ``events`` reports a lost node."""
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._call("commands", "send", message)

    def clock(self) -> ClockOffset:
        """Return the offset of the clock of the node."""
        found = measure_offset(lambda: self._get(lambda: self._call("clock", "clock_ns")))
        self._offset_ns = found.offset_ns
        return found

    def usage(self) -> NodeUsage:
        """Return the counters of the node."""
        usage: NodeUsage = self._get(lambda: self._call("clock", "usage"))
        return usage

    def close(self) -> None:
        """End the engine at once."""
        if not self.is_lost:
            self._get(lambda: self._call("commands", "close"))

    def end(self) -> None:
        """End the actor, and with it the engine."""
        with contextlib.suppress(self._ray.exceptions.RayError, FleetError):
            within(HEAD_TIMEOUT_S, lambda: self._ray.kill(self._actor))

    def _call(self, group: str, method: str, *arguments: Any) -> Any:
        return getattr(self._actor, method).options(concurrency_group=group).remote(*arguments)

    def _get(self, call: Callable[[], Any], timeout_s: float = LOST_AFTER_S) -> Any:
        """Return the answer of a call. Raises FleetError if the node is lost, EngineError if the engine is
        not usable.
        """
        try:
            return self._ray.get(call(), timeout=timeout_s)
        except self._ray.exceptions.RayTaskError as error:
            raise EngineError(f"load generator {self.name}: {last_line(error)}") from None
        except self._ray.exceptions.GetTimeoutError:
            self.is_lost = True
            raise FleetError(f"load generator {self.name}: no answer within {timeout_s:g} s") from None
        except self._ray.exceptions.RayError as error:
            self.is_lost = True
            raise FleetError(f"load generator {self.name} is lost: {loss(error)}") from None


LOSSES = {"ActorUnavailableError": "its actor does not answer", "ActorDiedError": "its actor has ended"}
"""Messages for errors of Ray whose own text has IDs, traces and advice."""


def loss(error: Exception) -> str:
    """Return why a node is lost, from an error of Ray."""
    return LOSSES.get(type(error).__name__) or _first_sentence(error)


def _first_sentence(error: Exception) -> str:
    """Return the beginning of a message of Ray, which goes on with IDs and advice."""
    return in_one_line(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__)


# ----------------------------------------------------------------------
# The load generators of a study: their nodes, the random choice for each block, and what follows a loss.
# ----------------------------------------------------------------------

CEILING_S = 0.5
"""Duration of the measurement of SELECT 1 on a node, after a warm-up of a quarter of it."""

CEILING_ROUNDS = 3
"""Minimum number of rounds of these measurements, if there are so many nodes. Nodes that measure at once
share the server. In a block all nodes share it, so a node needs a third of this rate, or less."""


Member = TypeVar("Member")


class DriverNodes:
    """Nodes with load generators. Use ``open_nodes``.

    ``n``: generators per block. ``lost``: names of the nodes that were lost so far.
    """

    def __init__(self, cluster: RayCluster, plan: DriversPlan) -> None:
        self.plan, self._cluster = plan, cluster
        self.n = plan.n
        self.lost: list[str] = []
        self._nodes = {node.name: node for node in cluster.chosen(plan.nodes)}
        if plan.n > len(self._nodes):
            there = f"{counted(len(self._nodes), 'live node')} ({', '.join(self._nodes)})"
            raise UsageError(
                f"--drivers {plan.n} needs as many nodes, and the cluster has {there}: start more with "
                "ray start --address=ADDRESS, or use fewer drivers"
            )
        self._facts: Mapping[str, NodeFacts] = cluster.check(list(self._nodes.values()))
        self._links: dict[str, RayLink] = {}
        self._ceilings: dict[str, float] = {}

    def close(self) -> None:
        """End the actors."""
        for link in self._links.values():
            link.end()

    def require_reachable(self, arms: Sequence[tuple[str, str | None]]) -> None:
        """Raise UsageError for an arm that a node on another machine cannot reach.

        ``arms`` are (name, DSN); None for a server that pgdyno starts, which has a socket only.
        """
        here = own_facts().boot_id
        elsewhere = [name for name, facts in self._facts.items() if facts.boot_id != here]
        for name, dsn in arms:
            if elsewhere and (dsn is None or not shared_host(dsn)):
                raise UsageError(
                    f"the load generator on {elsewhere[0]} cannot reach {name}, a server on this machine: "
                    "use the DSN of a running server, with a host name that is valid on all nodes"
                )

    def names_of(self, seed: int) -> list[str]:
        """Return the nodes of a block, in random order: all arms of the block have the same."""
        return random.Random(f"drivers:{seed}").sample(sorted(self._nodes), self.n)

    def start(self, seed: int, specification: Mapping[str, Any]) -> DriverGroup:
        """Return a drive by the nodes of a block. Raises FleetError, EngineError."""
        names = self.names_of(seed)
        # An actor takes a second to start.
        with ThreadPoolExecutor(STARTS_AT_ONCE, "pgdyno-nodes") as at_once:
            links = list(at_once.map(self._link, names))
        whole = {**specification, "threads": specification["threads"] or self._threads(specification)}
        parts = split(whole, [self._facts[name].cores for name in names])
        self._measure_ceilings(
            [(link, part) for link, part in zip(links, parts, strict=True) if link.name not in self._ceilings]
        )
        return DriverGroup(links, parts, self._ceilings)

    def _measure_ceilings(self, new: Sequence[tuple[DriverLink, Mapping[str, Any]]]) -> None:
        """Measure the rates of SELECT 1 of nodes, after their clocks: connecting through a slow network may
        take longer than its time limit. Raises FleetError, EngineError.
        """
        for link, _ in new:
            exact_clock(link)
        for members in rounds_of(new):
            with ThreadPoolExecutor(len(members), "pgdyno-nodes") as at_once:
                found = list(at_once.map(lambda one: ceiling_per_s(*one), members))
            self._ceilings |= {link.name: rate for (link, _), rate in zip(members, found, strict=True)}

    def _threads(self, specification: Mapping[str, Any]) -> int | None:
        """Return the number of threads that every choice of nodes can run, so that all blocks have it."""
        if any(target.get("threads") for target in specification["targets"]):
            return None
        clients: list[int] = [
            one.get("clients") or specification["clients"] for one in specification["targets"]
        ]
        per_node = sorted(default_threads(self._facts[name].cores) for name in self._nodes)
        return min(*clients, sum(per_node[: self.n]))

    def _link(self, name: str) -> RayLink:
        if name not in self._links:
            self._links[name] = RayLink(self._cluster, self._nodes[name], self.n)
        return self._links[name]

    def note_loss(self) -> list[str]:
        """Return the nodes that are lost since the last call. Actors that are lost alone start again.

        Ray notices a lost node late. Therefore nodes with a lost actor are tried.
        """
        for name in [name for name, link in self._links.items() if link.is_lost]:
            self._links.pop(name).end()
            with contextlib.suppress(FleetError, EngineError):
                self._link(name)
        alive = {node.id for node in self._cluster.nodes()}
        tried = {name for name, link in self._links.items() if not link.is_lost}
        gone = [
            name
            for name, node in self._nodes.items()
            if node.id not in alive or (name in self._ceilings and name not in tried)
        ]
        for name in gone:
            del self._nodes[name]
        self.lost += gone
        return gone

    @property
    def n_left(self) -> int:
        """The number of nodes that are left."""
        return len(self._nodes)


@contextlib.contextmanager
def open_nodes(study: Study) -> Iterator[DriverNodes | None]:
    """Connect to the load generators of a study; None if it has none.

    Raises UsageError, FleetError.
    """
    plan = study.drivers
    if plan is None:
        yield None
        return
    with RayCluster(plan.address or LOCAL) as cluster:
        drivers = DriverNodes(cluster, plan)
        drivers.require_reachable([(arm.name, arm.server if arm.is_dsn else None) for arm in study.arms])
        try:
            yield drivers
        finally:
            drivers.close()


def rounds_of(members: Sequence[Member]) -> list[Sequence[Member]]:
    """Return the members in at least CEILING_ROUNDS rounds, or in rounds of one."""
    size = max(1, len(members) // CEILING_ROUNDS)
    return [members[first : first + size] for first in range(0, len(members), size)]


def ceiling_per_s(link: DriverLink, part: Mapping[str, Any]) -> float:
    """Return the rate of SELECT 1 of a node, with its clients of the first target.

    It is the most that this node can do with this server, if few other nodes measure. Raises EngineError.
    """
    threads = part["part"]["threads"] if "part" in part else part["threads"]
    target = part["targets"][0]
    clients = (target.get("clients") or part["clients"]) * threads // part["threads"]
    script = {"name": "select 1", "text": "SELECT 1;"}
    specification = {
        "targets": [{"name": target["name"], "conninfo": target["conninfo"]}],
        "workload": {"kind": "pgbench", "protocol": "prepared", "scale": 1, "scripts": [script]},
        "clients": max(clients, threads),
        "threads": threads,
        "io": part["io"],
        "seed": part["seed"],
        "retries_max": 0,
        "slices": [
            {"target": 0, "role": "warm-up", "duration_s": CEILING_S / 4},
            {"target": 0, "role": "measure", "duration_s": CEILING_S},
        ],
        "discard_s": 0.0,
        "interval_s": 2 * CEILING_S,
        "barriers": False,
        "connect_timeout_s": part["connect_timeout_s"],
        "drain_timeout_s": part["drain_timeout_s"],
    }
    link.start(specification)
    try:
        last = [event for event in link.events() if event["event"] != LATE][-1]
    finally:
        with contextlib.suppress(EngineError, FleetError):
            link.close()
    if last["event"] == "failed":
        raise EngineError(f"load generator {link.name}: {last['stage']}: {last['message']}")
    return float(last["targets"][0]["kinds"]["select 1"]["counts"]["ok"]) / CEILING_S
