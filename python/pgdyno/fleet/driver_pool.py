"""The load generators of a study: their nodes, the random choice for each block, and what follows a loss."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from psycopg import conninfo

from pgdyno.errors import EngineError, FleetError, UsageError
from pgdyno.estimate import counted
from pgdyno.fleet.driver_actor import RayLink
from pgdyno.fleet.driver_group import STARTS_AT_ONCE, DriverGroup, DriverLink, exact_clock
from pgdyno.fleet.driver_split import default_threads, split
from pgdyno.fleet.ray_cluster import LOCAL, NodeFacts, RayCluster, own_facts
from pgdyno.study.drivers_plan import DriversPlan
from pgdyno.study.plan import Study

CEILING_S = 0.5
"""Duration of the measurement of SELECT 1 on a node, after a warm-up of a quarter of it."""

CEILING_ROUNDS = 3
"""Minimum number of rounds of these measurements, if there are so many nodes. Nodes that measure at once
share the server. In a block all nodes share it, so a node needs a third of this rate, or less."""

LOCAL_HOSTS = ("localhost", "127.", "::1", "/", "@")
"""Starts of hosts that mean another server on each machine."""


Member = TypeVar("Member")


class DriverPool:
    """Nodes with load generators. Use ``open_pool``.

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
            if elsewhere and (dsn is None or _is_local(dsn)):
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
def open_pool(study: Study) -> Iterator[DriverPool | None]:
    """Connect to the load generators of a study; None if it has none.

    Raises UsageError, FleetError.
    """
    plan = study.drivers
    if plan is None:
        yield None
        return
    with RayCluster(plan.address or LOCAL) as cluster:
        pool = DriverPool(cluster, plan)
        pool.require_reachable([(arm.name, arm.server if arm.is_dsn else None) for arm in study.arms])
        try:
            yield pool
        finally:
            pool.close()


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
        last = list(link.events())[-1]
    finally:
        with contextlib.suppress(EngineError, FleetError):
            link.close()
    if last["event"] == "failed":
        raise EngineError(f"load generator {link.name}: {last['stage']}: {last['message']}")
    return float(last["targets"][0]["kinds"]["select 1"]["counts"]["ok"]) / CEILING_S


def _is_local(dsn: str) -> bool:
    """Return whether a DSN means another server on each machine."""
    host = str(conninfo.conninfo_to_dict(dsn).get("host") or "")
    return not host or host.startswith(LOCAL_HOSTS)
