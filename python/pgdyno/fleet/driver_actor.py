"""The load generator of one node: an actor there, and its link here.

The actor starts an engine and forwards its events and commands. Only histograms have another form.
Specifications may contain passwords: they are arguments of calls, which Ray neither logs nor names.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pgdyno.engine import Engine, Event
from pgdyno.errors import EngineError, FleetError, in_one_line
from pgdyno.fleet.driver_clocks import ClockOffset, measure_offset
from pgdyno.fleet.driver_group import LATE
from pgdyno.fleet.driver_histograms import packed
from pgdyno.fleet.driver_nodes import NodeUsage, own_usage
from pgdyno.fleet.ray_cluster import (
    ANSWER_TIMEOUT_S,
    HEAD_TIMEOUT_S,
    RayCluster,
    RayNode,
    last_line,
    undo_limits_of_ray,
    within,
)

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
