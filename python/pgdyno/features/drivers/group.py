"""One drive by several engines: its division, its nodes, and the merge of events and histograms.

- Division of one drive among engines on several nodes. Pure.
- Histograms of several engines. Pure.
- Facts about the nodes of load generators: counters of a node, and its record in the results file.
- Merge of the events of several engines that execute one drive: the events of one engine. Pure.
- One drive by engines on several nodes, with the interface of one ``Engine``.
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import psutil
from numpy.typing import ArrayLike, NDArray

from pgdyno.errors import EngineError, FleetError, UsageError, in_one_line
from pgdyno.features.cluster.ray import GUARD_S, ClockOffset
from pgdyno.measure.host_counters import machine_cpu
from pgdyno.server.engine import NODE_LOST, STOP_TIMEOUT_S, Event
from pgdyno.study.defaults import MAX_THREADS

# ----------------------------------------------------------------------
# Division of one drive among engines on several nodes. Pure.
#
# The unit is the thread of the driver: its clients, their random numbers and its arrivals depend on its
# number only, not on the engine that runs it (docs/reference/engine-protocol.md, ``part``).
# ----------------------------------------------------------------------


def default_threads(cores: int) -> int:
    """Return the default number of threads of an engine: one per two cores, as on one machine."""
    return max(1, -(-cores // 2))


def threads_by_node(threads: int | None, clients: int, cores: Sequence[int]) -> list[int]:
    """Return the number of threads of each node, in proportion to its cores.

    ``threads`` is the total; None: the sum of the defaults, but at most one per client. Raises UsageError if
    a node would have no thread, or more than an engine can have.
    """
    wanted = [default_threads(n) for n in cores]
    total = min(clients, sum(wanted)) if threads is None else threads
    if total < len(cores) or total > clients:
        raise UsageError(
            f"{len(cores)} load generators need at least {len(cores)} threads and as many clients "
            f"(got {total} threads and {clients} clients): use fewer drivers, or more clients"
        )
    shares = _apportion(total, wanted)
    if max(shares) > MAX_THREADS:
        raise UsageError(f"a load generator has at most {MAX_THREADS} threads (got {max(shares)}): add nodes")
    return shares


def _apportion(total: int, weights: Sequence[int]) -> list[int]:
    """Return shares of a total: at least 1 each, the others by largest remainder."""
    exact = [(total - len(weights)) * weight / sum(weights) for weight in weights]
    shares = [1 + int(share) for share in exact]
    by_rest = sorted(range(len(weights)), key=lambda i: int(exact[i]) - exact[i])
    for i in by_rest[: total - sum(shares)]:
        shares[i] += 1
    return shares


def split(specification: Mapping[str, Any], cores: Sequence[int]) -> list[dict[str, Any]]:
    """Return the specification of each engine, for nodes with so many cores. Raises UsageError.

    A single engine has no part: nothing is agreed before its slices, which costs time and messages.
    """
    targets = specification["targets"]
    clients = [target.get("clients") or specification["clients"] for target in targets]
    threads = {target.get("threads") or specification["threads"] for target in targets}
    if len(threads) > 1:
        raise UsageError("drivers on several nodes need the same number of threads for all arms")
    shares = threads_by_node(threads.pop(), min(clients), cores)
    common = {**specification, "threads": sum(shares), "targets": [_without_threads(one) for one in targets]}
    if len(shares) == 1:
        return [common]
    firsts = [sum(shares[:i]) for i in range(len(shares))]
    return [
        {**common, "part": {"first_thread": first, "threads": n}}
        for first, n in zip(firsts, shares, strict=True)
    ]


def _without_threads(target: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in target.items() if key != "threads"}


# ----------------------------------------------------------------------
# Histograms of several engines. Pure.
#
# Engines write a histogram as pairs (value in ns, count). A node sends them as arrays, because thousands of
# small lists would take most of the coordinator's CPU time. All have the layout of
# crates/driver/src/record/histogram.rs, so equal bins have equal values.
# ----------------------------------------------------------------------

Histogram = NDArray[np.int64]
"""Pairs of a value in ns and its count, by value: n rows of 2 columns."""


def histogram(pairs: ArrayLike) -> Histogram:
    """Return a histogram of pairs."""
    return np.asarray(pairs, np.int64).reshape(-1, 2)


def packed(event: Event) -> Event:
    """Return an event of an engine with its histograms as arrays."""
    match event["event"]:
        case "interval" if "latency_bins" in event:
            return {**event, "latency_bins": histogram(event["latency_bins"])}
        case "result":
            return {**event, "targets": [{**of, "kinds": _packed(of["kinds"])} for of in event["targets"]]}
        case _:
            return event


def _packed(kinds: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {
        kind: {**of, "histograms": {name: histogram(bins) for name, bins in of["histograms"].items()}}
        for kind, of in kinds.items()
    }


def added_bins(every: Iterable[Histogram]) -> Histogram:
    """Return the sum of histograms."""
    pairs = np.concatenate(list(every))
    values, counts = pairs[np.argsort(pairs[:, 0], kind="stable")].T
    starts = np.flatnonzero(np.diff(values, prepend=-1))
    return np.column_stack((values[starts], np.add.reduceat(counts, starts) if len(counts) else counts))


def quantile_ns(bins: Histogram, quantile: float) -> int:
    """Return the quantile as the engine computes it: the bin that contains the value of that rank; 0 if the
    histogram is empty.
    """
    if not len(bins):
        return 0
    reached = np.cumsum(bins[:, 1])
    rank = max(1, math.ceil(quantile * int(reached[-1])))
    return int(bins[np.searchsorted(reached, rank), 0])


# ----------------------------------------------------------------------
# Facts about the nodes of load generators: counters of a node, and its record in the results file.
# ----------------------------------------------------------------------

LOOPBACK = "lo"


@dataclass(frozen=True)
class NodeUsage:
    """Counters of a machine since its start, at ``at_s`` of its monotonic clock, with segments of TCP."""

    at_s: float
    cores: int
    busy_s: float
    steal_s: float
    received_bytes: int
    sent_bytes: int
    segments: int = 0
    retransmitted: int = 0


def own_usage() -> NodeUsage:
    """Return the counters of this machine. Traffic of the loopback interface is not included."""
    cpu = machine_cpu()
    traffic = psutil.net_io_counters(pernic=True, nowrap=False)
    received = sum(of.bytes_recv for name, of in traffic.items() if name != LOOPBACK)
    sent = sum(of.bytes_sent for name, of in traffic.items() if name != LOOPBACK)
    cores = len(os.sched_getaffinity(0))
    segments = _segments(Path("/proc/net/snmp").read_text())
    return NodeUsage(time.monotonic(), cores, cpu.busy_s, cpu.steal_s, received, sent, *segments)


def _segments(text: str) -> tuple[int, int]:
    """Return the sent and the retransmitted segments of TCP in a text of /proc/net/snmp."""
    names, values = (line.split() for line in text.splitlines() if line.startswith("Tcp:"))
    found = dict(zip(names, values, strict=True))
    return int(found["OutSegs"]), int(found["RetransSegs"])


def node_facts(
    name: str,
    events: Sequence[Event],
    usages: Sequence[NodeUsage],
    clocks: Sequence[ClockOffset],
    ceiling_per_s: float | None,
) -> dict[str, Any]:
    """Return the record of a node (results/records.py, ``DriverNode``).

    ``events`` are those of its engine: connected, slice, result. ``usages`` were read at the barriers before
    and after the measured part.
    """
    result = next(event for event in events if event["event"] == "result")
    connected = [event for event in events if event["event"] == "connected"]
    measured = [event for event in events if event["event"] == "slice" and event["role"] == "measure"]
    driven_s = sum(event["drained_ns"] - event["opened_ns"] for event in measured) / 1e9
    counted_s = sum(event["closed_ns"] - event["counted_from_ns"] for event in measured) / 1e9
    executed = sum(_executed(event["kinds"]) for event in measured)
    cpu_ns = sum(sum(event["driver_cpu_ns"].values()) for event in measured)
    driver = result["driver"]
    found: dict[str, Any] = {
        "name": name,
        "threads": driver["threads"],
        "clients": max((event["clients"] for event in connected), default=0),
        "cpu_ns": driver["cpu_ns"],
        "wake_late_ns": driver["wake_late_ns"],
        "round_trip_ns": max(
            (e["round_trip_ns"] for e in connected), key=lambda one: one["p50"], default=None
        ),
        "clock_spread_s": max((clocks[0].spread_s(later) for later in clocks), default=0.0),
        "executed_per_s": executed / counted_s if counted_s else 0.0,
        "ceiling_per_s": ceiling_per_s,
    }
    if len(usages) == 2:
        before, after = usages
        elapsed_s = max(after.at_s - before.at_s, 1e-9)
        found |= {
            "cores": after.cores,
            "driver_cpu_share": cpu_ns / 1e9 / max(driven_s * after.cores, 1e-9),
            "busy_share": (after.busy_s - before.busy_s) / (elapsed_s * after.cores),
            "received_bytes_per_s": (after.received_bytes - before.received_bytes) / elapsed_s,
            "sent_bytes_per_s": (after.sent_bytes - before.sent_bytes) / elapsed_s,
            "retransmitted_share": (after.retransmitted - before.retransmitted)
            / max(after.segments - before.segments, 1),
        }
    return {key: value for key, value in found.items() if value is not None}


def _executed(kinds: Mapping[str, Mapping[str, int]]) -> int:
    return sum(of["ok"] + of["rolled_back"] + of["failed"] for of in kinds.values())


# ----------------------------------------------------------------------
# Merge of the events of several engines that execute one drive: the events of one engine. Pure.
#
# Counts and histograms add up; percentiles come from added histograms, which are arrays in the events of the
# engines and pairs in merged ones. Instants are on one time base.
# ----------------------------------------------------------------------

INSTANTS = ("at_ns", "from_ns", "to_ns", "opened_ns", "counted_from_ns", "closed_ns", "drained_ns")
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


class PartsDifferError(EngineError):
    """The parts of a run contradict each other, which is an error of pgdyno."""


class _OpenIntervals:
    """Intervals of one slice and target that are not merged yet.

    ``parts``: by engine, each with the multiple at which it ends; None for the last one of a slice.
    ``reached``: number of engines by multiple.
    """

    def __init__(self, n: int) -> None:
        self.parts: list[list[tuple[int | None, Event]]] = [[] for _ in range(n)]
        self.reached: Counter[int] = Counter()

    def add(self, engine: int, end: int | None, event: Event) -> bool:
        """Add an interval. Return whether all engines have reached its end."""
        part = self.parts[engine]
        is_first = not part or part[-1][0] != end
        part.append((end, event))
        if end is None or not is_first:
            return False
        self.reached[end] += 1
        return self.reached[end] == len(self.parts)

    def take(self, until: int | None) -> list[list[Event]]:
        """Remove and return the intervals that end at this multiple or earlier; all for None."""
        taken = []
        for engine, part in enumerate(self.parts):
            n = len(part) if until is None else sum(end is not None and end <= until for end, _ in part)
            taken.append([event for _, event in part[:n]])
            self.parts[engine] = part[n:]
        return taken


class EventMerge:
    """Merges the events of ``n`` engines.

    ``shift_ns``: what is added to the instants of an engine, so that all are on the time base of the run.
    ``epoch_unix_ns``: the start of this time base.
    """

    def __init__(self, n: int, shifts_ns: Sequence[int], epoch_unix_ns: int, interval_s: float) -> None:
        self._n, self._shifts_ns, self._epoch_unix_ns = n, shifts_ns, epoch_unix_ns
        self._interval_ns = interval_s * 1e9
        self._waiting: dict[str, dict[int, Event]] = {}
        self._intervals: dict[tuple[int, int], _OpenIntervals] = {}
        self._windows_ns: dict[int, tuple[int, int]] = {}
        self._counted: list[Counter[tuple[int, str, str]]] = [Counter() for _ in range(n)]

    def add(self, engine: int, event: Event) -> list[Event]:
        """Return the merged events that are complete with this event of an engine."""
        event = self._on_time_base(engine, event)
        match event["event"]:
            case "interval" if "latency_bins" in event:  # an engine alone has none
                return self._add_interval(engine, event)
            case "error" | "interval":
                return [event]
            case "slice":
                self._count(engine, event)
            case "result":
                self._require_counts(engine, event)
        key = f"{event['event']} {event.get('target', '')} {event.get('slice', '')} {event.get('name', '')}"
        parts = self._waiting.setdefault(key, {})
        parts[engine] = event
        if len(parts) < self._n:
            return []
        del self._waiting[key]
        return self._merged([parts[i] for i in range(self._n)])

    def opens(self, slice_number: int, at_ns: int, duration_s: float) -> None:
        """Note the agreed start of a slice on the time base of the run, and its duration."""
        self._windows_ns[slice_number] = (at_ns, at_ns + round(duration_s * 1e9))

    def _on_time_base(self, engine: int, event: Event) -> Event:
        shift_ns = self._shifts_ns[engine]
        return {**event, **{key: event[key] + shift_ns for key in INSTANTS if key in event}}

    def _merged(self, parts: Sequence[Event]) -> list[Event]:
        first = parts[0]
        if (rules := RULES.get(first["event"])) is None:
            return [first]
        merged = {**first, **_by_rules(parts, rules)}
        match first["event"]:
            case "started":  # by several processes: a process ID and a clock of one would mislead
                kept = {key: merged[key] for key in ("event", *rules)}
                return [{**kept, "epoch_unix_ns": self._epoch_unix_ns}]
            case "slice":
                return [*self._rest_of_intervals(first["slice"], first["target"]), merged]
            case _:
                return [merged]

    def _add_interval(self, engine: int, event: Event) -> list[Event]:
        """Return the interval that all engines have reached. Its bounds are multiples of the interval since
        the start of the slice; an engine that missed one reports it with the next.
        """
        key = (event["slice"], event["target"])
        intervals = self._intervals.setdefault(key, _OpenIntervals(self._n))
        end = self._end(event)
        return [interval(intervals.take(end))] if intervals.add(engine, end, event) else []

    def _end(self, event: Event) -> int | None:
        """Return the multiple at which an interval ends.

        The last one of a slice, which ends when the slice is drained, has none.
        """
        opened_ns, closes_ns = self._windows_ns[event["slice"]]
        is_last = event["to_ns"] >= closes_ns
        return None if is_last else round((event["to_ns"] - opened_ns) / self._interval_ns)

    def _rest_of_intervals(self, slice_number: int, target: int) -> list[Event]:
        intervals = self._intervals.pop((slice_number, target), None)
        parts = [] if intervals is None else intervals.take(None)
        return [interval(parts)] if any(parts) else []

    def _count(self, engine: int, event: Event) -> None:
        if event["role"] == "measure":
            for kind, counts in event["kinds"].items():
                for name, n in counts.items():
                    self._counted[engine][event["target"], kind, name] += n

    def _require_counts(self, engine: int, event: Event) -> None:
        """Raise PartsDifferError unless the slices of an engine add up to its result."""
        found: Counter[tuple[int, str, str]] = Counter()
        for target, of in enumerate(event["targets"]):
            for kind, measured in of["kinds"].items():
                for name, n in measured["counts"].items():
                    found[target, kind, name] += n
        if event["stopped"] == "done" and +found != +self._counted[engine]:
            raise PartsDifferError(f"the slices of load generator {engine + 1} do not add up to its result")


def added(parts: Sequence[Any]) -> Any:
    """Return the sum of numbers, of histograms, of lists by place, or of mappings by key, at any depth."""
    first = parts[0]
    if isinstance(first, np.ndarray):
        return added_bins(parts).tolist()
    if isinstance(first, Mapping):
        keys = dict.fromkeys(key for part in parts for key in part)
        rules = {key: _constants if key == CONSTANTS else added for key in keys}
        return {key: rule([part[key] for part in parts if key in part]) for key, rule in rules.items()}
    if isinstance(first, list):
        return [added(of) for of in zip(*parts, strict=True)]
    return sum(parts)


CONSTANTS = "nurand_c"
"""The part of the tally of tpcc that is equal in all engines: constants of the run. Null without a draw."""

Rule = Callable[[Sequence[Any]], Any]
"""How the values of several engines become one."""


def _equal(key: str) -> Rule:
    def rule(values: Sequence[Any]) -> Any:
        for value in values:
            if value != values[0]:
                raise PartsDifferError(f"the load generators differ in {key}: {values[0]!r} and {value!r}")
        return values[0]

    return rule


def _constants(values: Sequence[Any]) -> Any:
    known = [value for value in values if value is not None]
    return _equal(CONSTANTS)(known) if known else None


def _first_of(*ordered: str) -> Rule:
    return lambda values: next(value for value in ordered if value in values)


def _union(lists: Sequence[Sequence[int]]) -> list[int]:
    return sorted(set().union(*lists))


def _by_rules(parts: Sequence[Mapping[str, Any]], rules: Mapping[str, Rule]) -> Event:
    return {key: rule([part[key] for part in parts]) for key, rule in rules.items()}


OF_DRIVER: Mapping[str, Rule] = {
    "cpu_ns": added,
    "memory_peak_bytes": sum,
    # of the worst node
    "wake_late_ns": lambda nodes: _by_rules(nodes, dict.fromkeys(("p50", "p99", "max"), max)),
    "threads": sum,
    "io": _equal("io"),
}

RULES: Mapping[str, Mapping[str, Rule]] = {
    "started": {"threads": sum, "io": _equal("io")},
    "connected": {
        "server_version": _equal("server_version"),
        "clients": sum,
        "connect_s": max,
        "round_trip_ns": lambda nodes: max(nodes, key=lambda one: one["p50"]),
    },
    "barrier": {"at_ns": max, "totals": added},
    # A slice closes and is drained when it is for all engines. A command reaches the engines at different
    # times: one may have ended by time already.
    "slice": {
        "opened_ns": _equal("opened_ns"),
        **dict.fromkeys(("closed_ns", "drained_ns", "swap_ns"), max),
        "ended_by": _first_of("stop", "measure", "time", "transactions"),
        **dict.fromkeys(("kinds", "driver_cpu_ns", "abandoned"), added),
    },
    "result": {
        "stopped": _first_of("failed", "server-lost", "stop", "done"),
        "lost": lambda values: next((value for value in values if value is not None), None),
        "unfinished": _union,
        "left_out": _union,
        "targets": added,
        "driver": lambda nodes: _by_rules(nodes, OF_DRIVER),
    },
}
"""Rules by event. What has no rule is that of the first engine."""


def interval(parts: Sequence[Sequence[Event]]) -> Event:
    """Return one interval from consecutive intervals of each engine.

    Engines report within milliseconds of each other. A bound is the mean of theirs, so that intervals stay
    contiguous.
    """
    every = [event for part in parts for event in part]
    bins = added_bins(event["latency_bins"] for event in every)
    quantiles = {name: quantile_ns(bins, quantile) for name, quantile in QUANTILES.items()}
    reported = [part for part in parts if part]
    return {
        **{key: every[0][key] for key in ("event", "slice", "target", "role")},
        "from_ns": sum(part[0]["from_ns"] for part in reported) // len(reported),
        "to_ns": sum(part[-1]["to_ns"] for part in reported) // len(reported),
        "kinds": added([event["kinds"] for event in every]),
        "latency_ns": {**quantiles, "max": int(bins[-1, 0]) if len(bins) else 0},
    }


# ----------------------------------------------------------------------
# One drive by engines on several nodes, with the interface of one ``Engine``.
#
# The engines connect on their own. Before each slice they wait until all have drained the last one; then they
# get the instant at which all of them open the next.
# ----------------------------------------------------------------------

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


class DriverGroup:
    """A drive by several engines. Use as a context manager, in the place of ``Engine``.

    ``specifications`` has one part per link, as of ``split``. ``ceilings`` are the rates of SELECT 1 of the
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
        self._inbox: queue.Queue[tuple[int, Event | Exception | None]] = queue.Queue()
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

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        for link in self._links:
            with contextlib.suppress(EngineError, FleetError):
                link.close()

    def _listen(self, place: int, link: DriverLink) -> None:
        """Forward the events of an engine, then the error that ended them or None, in a thread of its own."""
        failure: Exception | None = None
        try:
            for event in link.events():
                self._inbox.put((place, event))
        except (EngineError, FleetError, OSError, ValueError) as error:
            failure = error
        self._inbox.put((place, failure))

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
            if item is None:
                ended.add(place)
                continue
            if isinstance(item, Exception):
                yield self._after(place, item)
                return
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
        """Add each node to the facts about the driver."""
        nodes = [
            node_facts(
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
