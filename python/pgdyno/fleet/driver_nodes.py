"""Evidence about the nodes of load generators: counters of a node, and its record in the results file."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgdyno.engine import Event
from pgdyno.fleet.driver_clocks import ClockOffset
from pgdyno.probe.cpu_time import machine_cpu

NODE_LOST = "node"
"""Stage of a drive that a lost or lagging node has ended. Its block is void and is repeated."""

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
    received, sent = _traffic_bytes(Path("/proc/net/dev").read_text())
    cores = len(os.sched_getaffinity(0))
    segments = _segments(Path("/proc/net/snmp").read_text())
    return NodeUsage(time.monotonic(), cores, cpu.busy_s, cpu.steal_s, received, sent, *segments)


def _segments(text: str) -> tuple[int, int]:
    """Return the sent and the retransmitted segments of TCP in a text of /proc/net/snmp."""
    names, values = (line.split() for line in text.splitlines() if line.startswith("Tcp:"))
    found = dict(zip(names, values, strict=True))
    return int(found["OutSegs"]), int(found["RetransSegs"])


def _traffic_bytes(text: str) -> tuple[int, int]:
    """Return the received and sent bytes in a text of /proc/net/dev."""
    received = sent = 0
    for line in text.splitlines()[2:]:
        interface, _, counters = line.partition(":")
        if interface.strip() != LOOPBACK:
            values = counters.split()
            received, sent = received + int(values[0]), sent + int(values[8])
    return received, sent


def node_evidence(
    name: str,
    events: Sequence[Event],
    usages: Sequence[NodeUsage],
    clocks: Sequence[ClockOffset],
    ceiling_per_s: float | None,
) -> dict[str, Any]:
    """Return the record of a node (results/driver_facts.py, ``DriverNode``).

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
