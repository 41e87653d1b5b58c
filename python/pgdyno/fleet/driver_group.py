"""One drive by engines on several nodes, with the interface of one ``Engine``.

The engines connect on their own. Before each slice they wait until all have drained the last one; then they
get the instant at which all of them open the next.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from pgdyno.engine import STOP_TIMEOUT_S, Engine, Event
from pgdyno.errors import EngineError, FleetError, in_one_line
from pgdyno.fleet.driver_clocks import GUARD_S, SAME_CLOCK, ClockOffset
from pgdyno.fleet.driver_histograms import packed
from pgdyno.fleet.driver_merge import EventMerge
from pgdyno.fleet.driver_nodes import NODE_LOST, NodeUsage, node_evidence, own_usage

SILENCE_S = 20.0
"""Maximum time without an event of an engine that drives, beyond its interval, the time to drain, and the
time for which its node gathers events."""

OPEN_S_PER_NODE = 0.001
"""Time to send the command that opens a slice to one node, in addition to GUARD_S. Measured: 0.3 ms."""

STARTS_AT_ONCE = 16
"""Maximum number of nodes that start at the same time."""

LATE = "late"
"""Event of a link whose node was cut off for ``late_s``. A network that delays answers to pgdyno may also
delay transactions, which lowers the rate of one arm. Therefore it ends a drive that is measuring."""

TICK_S = 1.0
"""Interval of the checks for silence."""


class DriverLink(Protocol):
    """An engine on a node."""

    @property
    def name(self) -> str:
        """Name of the node."""

    @property
    def silence_s(self) -> float:
        """Maximum time for which the node gathers events before it sends them."""

    def start(self, specification: Mapping[str, Any]) -> None:
        """Start the engine."""

    def events(self) -> Iterator[Event]:
        """Yield its events, and LATE.

        Raises EngineError if the engine fails, FleetError if the node is lost.
        """

    def send(self, message: Event) -> None:
        """Send a command to the engine. Failures appear in ``events``."""

    def clock(self) -> ClockOffset:
        """Measure the clock of the node. Raises FleetError."""

    def usage(self) -> NodeUsage:
        """Read the counters of the node. Raises FleetError."""

    def close(self) -> None:
        """End the engine at once, if it still runs."""


class LocalLink:
    """An engine on this machine."""

    silence_s = 0.0

    def __init__(self, name: str) -> None:
        self.name = name
        self._engine: Engine | None = None

    def start(self, specification: Mapping[str, Any]) -> None:
        """Start the engine."""
        self._engine = Engine("drive", specification)

    def events(self) -> Iterator[Event]:
        """Yield the events of the engine. Raises EngineError."""
        assert self._engine is not None
        yield from map(packed, self._engine.events())

    def send(self, message: Event) -> None:
        """Send a command."""
        assert self._engine is not None
        self._engine.send(message)

    def clock(self) -> ClockOffset:
        """Return the offset of the only clock."""
        return SAME_CLOCK

    def usage(self) -> NodeUsage:
        """Return the counters of this machine."""
        return own_usage()

    def kill_engine(self) -> None:
        """Kill the engine, as a fault would."""
        assert self._engine is not None
        self._engine.abandon()

    def close(self) -> None:
        """Kill the engine and release its pipes."""
        if self._engine is not None:
            self.kill_engine()
            self._engine.__exit__(None, None, None)
            self._engine = None


@dataclass(frozen=True)
class _Ended:
    """End of the events of an engine, with the error that ended them, if any."""

    error: Exception | None


class DriverGroup:
    """A drive by several engines. Use as a context manager, in the place of ``Engine``.

    ``specifications`` has one part per link (driver_split.py). ``ceilings`` are the rates of SELECT 1 of the
    nodes, by name.
    """

    pid = None

    def __init__(
        self,
        links: Sequence[DriverLink],
        specifications: Sequence[Mapping[str, Any]],
        ceilings: Mapping[str, float] | None = None,
    ) -> None:
        self._links, self._specifications = links, specifications
        self._ceilings = ceilings or {}
        self._inbox: queue.Queue[tuple[int, Event | _Ended]] = queue.Queue()
        self._ready: dict[int, int] = {}
        self._clocks: list[list[ClockOffset]] = [[] for _ in links]
        self._usages: list[list[NodeUsage]] = [[] for _ in links]
        self._started: dict[int, Event] = {}
        self._early: list[tuple[int, Event]] = []
        self._of_engine: list[list[Event]] = [[] for _ in links]
        self._merge: EventMerge | None = None
        self._base_ns = time.monotonic_ns()
        self._heard_s = [0.0 for _ in links]
        self._waits = [True for _ in links]
        self._is_warm = self._is_measuring = False
        self._stop_by_s: float | None = None

    def __enter__(self) -> Self:
        try:
            for place in range(len(self._links)):
                self._measure_clock(place)
            # Each start waits for the node.
            with ThreadPoolExecutor(STARTS_AT_ONCE, "pgdyno-start") as at_once:
                starts = at_once.map(lambda link, part: link.start(part), self._links, self._specifications)
                list(starts)  # raises the first error
        except BaseException:
            self._close()
            raise
        for place, link in enumerate(self._links):
            name = f"pgdyno-driver-{place}"
            threading.Thread(target=self._listen, args=(place, link), name=name, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        for link in self._links:
            with contextlib.suppress(EngineError, FleetError):
                link.close()

    def _listen(self, place: int, link: DriverLink) -> None:
        """Forward the events of an engine, in a thread of its own."""
        failure: Exception | None = None
        try:
            for event in link.events():
                self._inbox.put((place, event))
        except (EngineError, FleetError, OSError, ValueError) as error:
            failure = error
        self._inbox.put((place, _Ended(failure)))

    def events(self) -> Iterator[Event]:
        """Yield the merged events. The last one is ``result`` or ``failed``, as of one engine.

        The loss of a node, and a node that lags, end the drive with the stage NODE_LOST.
        """
        ended: set[int] = set()
        while len(ended) < len(self._links):
            try:
                place, item = self._inbox.get(timeout=TICK_S)
            except queue.Empty:
                if problem := self._silence():
                    yield problem
                    return
                continue
            self._heard_s[place] = time.monotonic()
            if isinstance(item, _Ended):
                if item.error is not None:
                    yield self._after(place, item.error)
                    return
                ended.add(place)
                continue
            if item["event"] == "failed":
                yield self._failed(place, item)
                return
            if item["event"] == LATE:
                if self._is_measuring:
                    yield self._lost(place, f"its network delayed an answer by {item['late_s']:.1f} s")
                    return
                continue
            yield from self._handle(place, item)

    def _handle(self, place: int, event: Event) -> Iterator[Event]:
        """Yield the merged events that an event of an engine completes."""
        self._waits[place] = event["event"] in ("started", "connected", "barrier", "ready", "result")
        if self._merge is None:
            if event["event"] != "started":
                self._early.append((place, event))
                return
            self._started[place] = event
            if len(self._started) == len(self._links):
                self._merge = self._new_merge()
                for number, one in sorted(self._started.items()):
                    yield from self._merge.add(number, one)
                for number, one in self._early:
                    yield from self._handle(number, one)
            return
        match event["event"]:
            case "ready":
                self._ready[place] = event["slice"]
                self._open_if_all_are_ready()
                return
            case "connected" | "slice":
                self._of_engine[place].append(event)
            case "result":
                self._of_engine[place].append(event)
                if event["stopped"] != "done":
                    self._send_all({"do": "stop"})
        for merged in self._merge.add(place, event):
            if merged["event"] == "barrier":
                self._is_measuring = merged["name"] == "measure"
                for number, link in enumerate(self._links):
                    self._usages[number].append(link.usage())
                    self._measure_clock(number)
            yield self._with_nodes(merged) if merged["event"] == "result" else merged

    def _measure_clock(self, place: int) -> None:
        """Measure the clock of a node. Raises FleetError if starts of slices would miss their guard time."""
        clocks = self._clocks[place]
        clocks.append(exact_clock(self._links[place], clocks[0] if clocks else None))

    def _new_merge(self) -> EventMerge:
        """Return the merge on the time base of this object, whose epoch is its creation."""
        shifts_ns = [
            self._started[place]["epoch_monotonic_ns"] - self._clocks[place][0].offset_ns - self._base_ns
            for place in range(len(self._links))
        ]
        epoch_unix_ns = time.time_ns() - (time.monotonic_ns() - self._base_ns)
        interval_s = self._specifications[0]["interval_s"]
        return EventMerge(len(self._links), shifts_ns, epoch_unix_ns, interval_s)

    def _open_if_all_are_ready(self) -> None:
        slices = self._specifications[0]["slices"]
        numbers = set(self._ready.values())
        if len(self._ready) < len(self._links) or len(numbers) > 1:
            return
        number = numbers.pop()
        self._ready.clear()
        if self._is_warm and slices[number]["role"] == "warm-up":
            return  # the engines skip it
        at_ns = time.monotonic_ns() + round((GUARD_S + OPEN_S_PER_NODE * len(self._links)) * 1e9)
        assert self._merge is not None
        self._merge.opens(number, at_ns - self._base_ns, slices[number]["duration_s"])
        for place, link in enumerate(self._links):
            self._waits[place] = False
            theirs_ns = at_ns + self._clocks[place][0].offset_ns
            link.send({"do": "open", "at_monotonic_ns": theirs_ns})

    def proceed(self) -> None:
        """Let the engines pass the barrier at which all wait."""
        self._send_all({"do": "continue"})

    def measure(self) -> None:
        """End the warm-up."""
        self._is_warm = True
        self._send_all({"do": "measure"})

    def stop(self) -> None:
        """Request a graceful end. Engines that do not end within STOP_TIMEOUT_S are killed."""
        if self._stop_by_s is None:
            self._stop_by_s = time.monotonic() + STOP_TIMEOUT_S
        # A signal handler calls this, perhaps while its thread is inside a call of Ray.
        threading.Thread(target=self._send_all, args=({"do": "stop"},), daemon=True).start()

    def _send_all(self, message: Event) -> None:
        for link in self._links:
            link.send(message)

    def _silence(self) -> Event | None:
        """Return the end of the drive if an engine is silent for too long."""
        now_s = time.monotonic()
        if self._stop_by_s is not None and now_s > self._stop_by_s:
            return _failure("drive", f"the load generators did not end within {STOP_TIMEOUT_S:g} s", None)
        one = self._specifications[0]
        for place, waits in enumerate(self._waits):
            gather_s = self._links[place].silence_s
            limit_s = one["interval_s"] + one["drain_timeout_s"] + gather_s + SILENCE_S
            if not waits and now_s - self._heard_s[place] > limit_s:
                return self._lost(place, f"no event for {limit_s:g} s")
        return None

    def _after(self, place: int, error: Exception) -> Event:
        """Return the end of the drive after an error, which names the node if it is its link's."""
        if isinstance(error, FleetError):
            return _failure(NODE_LOST, in_one_line(error), None)
        return self._lost(place, in_one_line(error))

    def _lost(self, place: int, reason: str) -> Event:
        return _failure(NODE_LOST, f"load generator {self._links[place].name}: {reason}", None)

    def _failed(self, place: int, event: Event) -> Event:
        """Return the end of the drive after a failure of one engine. The others have no complete result."""
        if event["stage"] == "drive" and event["target"] is None:
            return self._lost(place, event["message"])
        name = self._links[place].name
        return _failure(event["stage"], f"load generator {name}: {event['message']}", event["target"])

    def _with_nodes(self, result: Event) -> Event:
        """Add the evidence of each node to the facts about the driver."""
        nodes = [
            node_evidence(
                link.name,
                self._of_engine[place],
                self._usages[place],
                self._clocks[place],
                self._ceilings.get(link.name),
            )
            for place, link in enumerate(self._links)
        ]
        return {**result, "driver": {**result["driver"], "nodes": nodes}}


def exact_clock(link: DriverLink, first: ClockOffset | None = None) -> ClockOffset:
    """Return the offset of the clock of a node now. ``first``: its first measurement.

    Raises FleetError if starts of slices would miss their guard time.
    """
    found = link.clock()
    if (error_s := (first or found).spread_s(found)) > GUARD_S:
        raise FleetError(
            f"load generator {link.name}: the error of its clock is {1e3 * error_s:.0f} ms "
            f"(limit {1e3 * GUARD_S:.0f} ms); use nodes in one network"
        )
    return found


def _failure(stage: str, message: str, target: str | None) -> Event:
    return {"event": "failed", "stage": stage, "message": message, "target": target}
