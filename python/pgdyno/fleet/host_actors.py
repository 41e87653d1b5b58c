"""Agents as actors of Ray. Each claims its node, so that no two studies measure on one machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pgdyno.errors import FleetError
from pgdyno.fleet.host_agent import HostAgent
from pgdyno.fleet.host_evidence import chunks_of
from pgdyno.fleet.host_links import Answer
from pgdyno.fleet.host_messages import HostMessage, HostTask
from pgdyno.fleet.ray_cluster import RayCluster, RayNode, last_line

BATCH_S = 0.05
"""Pause before answers are collected: at most 20 collections per second, for any number of hosts."""


def claim_of(node: RayNode) -> str:
    """Return the resource that a study claims: Ray gives every node one unit of it."""
    return f"node:{node.address}"


class ActorLinks:
    """Links to the agents of nodes, by name of the host."""

    def __init__(self, cluster: RayCluster, nodes: Mapping[str, RayNode]) -> None:
        self._cluster, self._ray, self._nodes = cluster, cluster.ray, nodes
        self._actors: dict[str, Any] = {}
        self._pending: dict[Any, str] = {}
        self._class = self._ray.remote(HostAgent)

    def begin(self, host: str, task: HostTask, evidence: Path | None) -> None:
        """Place an agent on the node of the host, send it the results file, and start the task."""
        node = self._nodes[host]
        actor = self._class.options(
            num_cpus=0,
            resources={claim_of(node): 1.0},
            max_concurrency=2,  # a stop during a poll
            max_restarts=0,
            **self._cluster.on(node),
        ).remote()
        self._actors[host] = actor
        chunks = list(chunks_of(evidence)) if evidence is not None else []
        self._pending[actor.begin.remote(task, chunks)] = host

    def poll(self, host: str, acknowledged: int, wait_s: float, again: bool) -> None:
        """Request a message."""
        self._pending[self._actors[host].poll.remote(acknowledged, wait_s, again)] = host

    def stop(self, host: str) -> None:
        """Stop the study of a host gracefully."""
        self._actors[host].stop.remote()

    def end(self, host: str, *, remove_files: bool) -> None:
        """End the agent; its node is free then."""
        actor = self._actors.pop(host)
        self._pending = {ref: name for ref, name in self._pending.items() if name != host}
        if remove_files:
            self._ray.wait([actor.remove_files.remote()], timeout=REMOVAL_S)
        # Without a head, the call would not return.
        threading.Thread(target=self._ray.kill, args=(actor,), daemon=True).start()

    def answers(self, timeout_s: float) -> Sequence[Answer]:
        """Return the answers since the last call; wait for the first one up to ``timeout_s``."""
        if not self._pending:
            time.sleep(timeout_s)
            return []
        ready, _ = self._ray.wait(list(self._pending), num_returns=1, timeout=timeout_s)
        if ready:
            time.sleep(BATCH_S)  # so that one call to Ray returns the answers of several hosts
            refs = list(self._pending)
            ready, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0)
        return [self._answer(self._pending.pop(ref), ref) for ref in ready]

    def _answer(self, host: str, ref: Any) -> Answer:
        errors = self._ray.exceptions
        try:
            value = self._ray.get(ref)
        except errors.ActorDiedError:
            return Answer(host, error=self._cause(host), is_lost=True)
        except errors.RayError as error:
            return Answer(host, error=last_line(error))
        return Answer(host, value) if isinstance(value, HostMessage) else Answer(host, error=value)

    def _cause(self, host: str) -> str:
        """Return why the actor of a host has ended."""
        try:
            is_alive = any(node.id == self._nodes[host].id for node in self._cluster.nodes())
        except FleetError as error:
            return str(error)
        return "its agent was killed" if is_alive else "its node has left the cluster"


REMOVAL_S = 10.0
"""Maximum wait for the removal of files of a host whose results file was collected."""
