"""Load of the coordinator of load generators. ``python -m bench driver-nodes`` prints a table by number.

Nodes are simulated: they send at once what an engine sent that drove tpcc, in virtual time, in the messages
of an actor. Only the CPU time of the coordinator is measured. ``--ray`` measures what Ray adds in this
process, in real time, with actors on a cluster of this machine that it starts itself. ``--clients`` drives
real clients instead, with engines on this machine and a fake server.
"""

from __future__ import annotations

import argparse
import copy
import functools
import itertools
import json
import math
import pickle
import queue
import resource
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench import many_clients
from bench.drivers import SAME_CLOCK, LocalLink, run_engine
from bench.environment import SMOKE, benchmark_environment
from bench.ray_messages import ACTORS, ray_actors, share_of_waiting, us_per_message
from bench.stopping import table
from bench.tpcc import load_specification
from pgdyno.features.cluster.ray import ClockOffset
from pgdyno.features.drivers import group as drivers_group
from pgdyno.features.drivers.group import DriverGroup, NodeUsage, own_usage
from pgdyno.features.drivers.nodes import gather_s
from pgdyno.measure.warm_up import INTERVALS_PER_S
from pgdyno.server.engine import Event
from pgdyno.study.defaults import MachineSize, default_slice_s

NODES = (1, 10, 100, 1000)
CLIENTS = 8
INTERVALS = 5
SLICES = 4
LATE_NS = 1000
NS = 1_000_000_000


@functools.cache
def recorded(interval_s: float) -> list[Event]:
    """Return the events of an engine that drives tpcc as a part, in one measured slice of INTERVALS."""
    with benchmark_environment(SMOKE) as here, here.database("tpcc") as database:
        conninfo = here.server.conninfo(database)
        run_engine("load", load_specification(conninfo, 1))
        link = LocalLink("recorded")
        link.start(
            {
                "targets": [{"name": "bench", "conninfo": conninfo}],
                "workload": {
                    "kind": "tpcc",
                    "calls": "procedures",
                    "pipeline": False,
                    "isolation": "read committed",
                    "mix": "deck",
                },
                "clients": CLIENTS,
                "threads": 1,
                "part": {"first_thread": 0, "threads": 1},
                "seed": 1,
                "retries_max": 10,
                "slices": [{"target": 0, "role": "measure", "duration_s": INTERVALS * interval_s}],
                "discard_s": 0.0,
                "interval_s": interval_s,
                "barriers": True,
                "connect_timeout_s": 60.0,
                "drain_timeout_s": 10.0,
            }
        )
        events = []
        try:
            for event in link.events():
                events.append(event)
                if event["event"] == "barrier":
                    link.send({"do": "continue"})
                if event["event"] == "ready":
                    link.send({"do": "open", "at_monotonic_ns": time.monotonic_ns()})
        finally:
            link.close()
    return events


@dataclass(frozen=True)
class Script:
    """Messages of a node. Those of a slice have instants relative to its start."""

    first: bytes
    of_slice: Sequence[bytes]
    last: bytes

    @property
    def n_messages(self) -> int:
        """Messages of a slice."""
        return len(self.of_slice)


def script_of(interval_s: float, slices: int, slice_s: float, wait_s: float) -> Script:
    """Return the messages of a drive with several slices, from a recording with one.

    A slice repeats the recorded intervals. A message is sent every ``wait_s``, and at the end of a slice.
    """
    by_kind: dict[str, list[Event]] = {}
    for event in recorded(interval_s):
        by_kind.setdefault(event["event"], []).append(event)
    [closed], [result] = by_kind["slice"], copy.deepcopy(by_kind["result"])
    n = max(1, round(slice_s / interval_s))
    ends_ns = [round((number + 1) * slice_s * NS / n) + LATE_NS for number in range(n)]
    sampled = by_kind["interval"][:-1]  # the last one contains only what was drained
    intervals = [
        {**sampled[number % len(sampled)], "from_ns": begin, "to_ns": end}
        for number, (begin, end) in enumerate(itertools.pairwise([0, *ends_ns]))
    ]
    per_message = max(1, int(wait_s / interval_s))
    messages = [intervals[at : at + per_message] for at in range(0, n, per_message)]
    start = {
        "opened_ns": 0,
        "counted_from_ns": 0,
        "closed_ns": round(slice_s * NS),
        "drained_ns": ends_ns[-1],
    }
    messages[-1].append({**closed, **start})
    for kind in result["targets"][0]["kinds"].values():
        kind["counts"] = {name: slices * count for name, count in kind["counts"].items()}
    before, after = by_kind["barrier"]
    return Script(
        pickle.dumps([{**by_kind["started"][0], "epoch_monotonic_ns": 0}, *by_kind["connected"], before]),
        [pickle.dumps(message) for message in messages],
        pickle.dumps([after, result]),
    )


class SimulatedLink:
    """A node that sends a script. All nodes send a message before one of them sends the next.

    ``own_s``: CPU time of the simulation.
    """

    silence_s = 60.0

    def __init__(self, name: str, script: Script, slices: int, in_step: threading.Barrier) -> None:
        self.name, self.own_s, self.commands = name, 0.0, 0
        self._script, self._slices, self._in_step = script, slices, in_step
        self._opens: queue.SimpleQueue[int] = queue.SimpleQueue()

    def start(self, specification: Mapping[str, Any]) -> None:
        """Do nothing."""

    def events(self) -> Iterator[Event]:
        """Yield the events of the messages."""
        yield from pickle.loads(self._script.first)
        for number in range(self._slices):
            yield {"event": "ready", "slice": number}
            begun_s = time.thread_time()
            at_ns = self._opens.get()
            self.own_s += time.thread_time() - begun_s
            for message in self._script.of_slice:
                begun_s = time.thread_time()
                self._in_step.wait()
                self.own_s += time.thread_time() - begun_s
                events = pickle.loads(message)
                begun_s = time.thread_time()
                for event in events:
                    event["slice"] = number
                    for key in drivers_group.INSTANTS:
                        if key in event:
                            event[key] += at_ns
                self.own_s += time.thread_time() - begun_s
                yield from events
        yield from pickle.loads(self._script.last)

    def send(self, message: Event) -> None:
        """Note the start of a slice."""
        self.commands += 1
        if message["do"] == "open":
            self._opens.put(message["at_monotonic_ns"])

    def clock(self) -> ClockOffset:
        """Return the offset of the only clock."""
        return SAME_CLOCK

    def usage(self) -> NodeUsage:
        """Return the same counters at each call."""
        return USAGE

    def close(self) -> None:
        """Do nothing."""


USAGE = own_usage()


@dataclass(frozen=True)
class Load:
    """Load of the coordinator in a drive.

    ``cpu_s``: per second of the slices, without Ray; ``end_cpu_s``: at the end. ``read_per_s`` and
    ``sent_per_s``: messages of all nodes. ``stored_bytes``: events for the results file per hour, and
    ``result_bytes`` once, as JSON.
    """

    nodes: int
    slice_s: float
    interval_s: float
    read_per_s: float
    sent_per_s: float
    cpu_s: float
    end_cpu_s: float
    stored_bytes: float
    result_bytes: int
    memory_bytes: int


def simulated(nodes: int, slice_s: float, interval_s: float, slices: int) -> Load:
    """Return the load of a drive."""
    script = script_of(interval_s, slices, slice_s, gather_s(nodes))
    in_step = threading.Barrier(nodes)
    links = [SimulatedLink(f"node{number}", script, slices, in_step) for number in range(nodes)]
    specification = {
        "slices": [{"role": "measure", "duration_s": slice_s}] * slices,
        "interval_s": interval_s,
        "drain_timeout_s": 10.0,
    }
    stored_bytes = result_bytes = 0
    ends_s: list[float] = []

    def used_s() -> float:
        return time.process_time() - sum(link.own_s for link in links)

    with DriverGroup(links, [specification] * nodes) as group:
        for event in group.events():
            begun_s = time.thread_time()
            if event["event"] == "result":
                result_bytes = len(json.dumps(event))
            else:
                stored_bytes += len(json.dumps(event))
            links[0].own_s += time.thread_time() - begun_s
            if event["event"] in ("barrier", "result"):
                ends_s.append(used_s())
            if event["event"] == "barrier":
                group.proceed()
            if event["event"] == "failed":
                raise RuntimeError(event["message"])
    begun_s, drained_s, over_s = ends_s
    return Load(
        nodes,
        slice_s,
        interval_s,
        nodes * script.n_messages / slice_s,
        nodes / slice_s,
        (drained_s - begun_s) / (slices * slice_s),
        over_s - drained_s,
        3600 * stored_bytes / (slices * slice_s),
        result_bytes,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )


class _Node:
    """An actor that answers like that of a load generator."""

    def read(self, message: bytes, wait_s: float) -> list[Event]:
        """Return a message after ``wait_s``."""
        time.sleep(wait_s)
        events: list[Event] = pickle.loads(message)
        return events

    def send(self, message: Event) -> None:
        """Accept a command."""


def ray_share(load: Load) -> float:
    """Return the CPU time of Ray in this process, per second of a drive with these messages."""
    script = script_of(load.interval_s, 1, load.slice_s, gather_s(load.nodes))
    command = {"do": "open", "at_monotonic_ns": time.monotonic_ns()}
    with ray_actors(_Node, load.nodes // ACTORS + 1) as (ray, actors):
        message = ray.put(script.of_slice[0])
        sent_us = us_per_message(ray, actors, lambda actor, _: actor.send.remote(command))
        period_s = load.nodes / load.read_per_s
        waiting = share_of_waiting(
            ray, actors, load.nodes, period_s, lambda actor: actor.read.remote(message, period_s)
        )
    return waiting + load.sent_per_s * sent_us / 1e6


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench driver-nodes", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=NODES)
    parser.add_argument("--slice", type=float, help="length of a slice in s [default: that of --drivers]")
    parser.add_argument("--ray", action="store_true", help="measure the messages of Ray, too")
    many_clients.add_options(parser)
    chosen = parser.parse_args(arguments)
    if chosen.clients:
        return many_clients.run(chosen)
    rows = []
    for nodes in chosen.nodes:
        machine = MachineSize(cores=2 * nodes, memory_bytes=0)
        slice_s: float = chosen.slice or default_slice_s(machine, CLIENTS * nodes, nodes)
        interval_s = float(math.ceil(nodes / INTERVALS_PER_S))
        load = simulated(nodes, slice_s, interval_s, SLICES)
        ray_s = ray_share(load) if chosen.ray else 0.0
        rows.append(
            [
                f"{load.nodes:,}",
                f"{load.slice_s:g}",
                f"{load.interval_s:g}",
                f"{load.read_per_s:.1f}",
                f"{load.sent_per_s:.1f}",
                f"{load.cpu_s:.2%}",
                f"{ray_s:.2%}" if chosen.ray else "",
                f"{load.cpu_s + ray_s:.2%}" if chosen.ray else "",
                f"{load.end_cpu_s:.2f}",
                f"{load.stored_bytes / 2**20:.1f} + {load.result_bytes / 2**20:.1f}",
                f"{load.memory_bytes / 2**20:.0f}",
            ]
        )
    head = (
        "nodes",
        "slice, s",
        "interval, s",
        "messages/s",
        "commands/s",
        "merge, of a core",
        "Ray, of a core",
        "both",
    )
    print(table((*head, "end of the drive, s", "events, MiB/h + result, MiB", "memory, MiB"), rows))
    return 0
