"""Conversion of the engine's events to records, with nanoseconds as seconds.

See docs/reference/engine-protocol.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pgdyno.engine import TargetResult
from pgdyno.results.packing import pairs_from
from pgdyno.results.records import Counts, Failure, Histogram, Interval, Measure, Slice
from pgdyno.study.schedule import Role
from pgdyno.units import NS_PER_S

Event = Mapping[str, Any]


def slice_from(event: Event) -> Slice:
    """Return the slice of a ``slice`` event."""
    return Slice(
        position=event["slice"],
        role=Role(event["role"]),
        opened_s=event["opened_ns"] / NS_PER_S,
        counted_from_s=event["counted_from_ns"] / NS_PER_S,
        closed_s=event["closed_ns"] / NS_PER_S,
        drained_s=event["drained_ns"] / NS_PER_S,
        driver_cpu_user_s=event["driver_cpu_ns"]["user"] / NS_PER_S,
        driver_cpu_system_s=event["driver_cpu_ns"]["system"] / NS_PER_S,
        kinds=_kinds(event["kinds"]),
    )


def interval_from(event: Event) -> Interval:
    """Return the interval of an ``interval`` event. Without ok transactions it has no latencies."""
    kinds = _kinds(event["kinds"])
    latency = event["latency_ns"] if any(counts.ok for counts in kinds.values()) else {}
    return Interval(
        position=event["slice"],
        role=Role(event["role"]),
        from_s=event["from_ns"] / NS_PER_S,
        to_s=event["to_ns"] / NS_PER_S,
        kinds=kinds,
        latency_p50_ns=latency.get("p50"),
        latency_p95_ns=latency.get("p95"),
        latency_p99_ns=latency.get("p99"),
        latency_max_ns=latency.get("max"),
    )


def histograms_from(target: TargetResult) -> list[Histogram]:
    """Return the non-empty histograms of one target of the ``result`` event."""
    return [
        Histogram(kind, Measure(measure), pairs_from(pairs))
        for kind, result in target.kinds.items()
        for measure, pairs in result.histograms.items()
        if pairs
    ]


def failures_from(target: TargetResult, errors: Iterable[Event] = ()) -> list[Failure]:
    """Return the failures of one target of the ``result`` event, with the first message of each SQLSTATE.

    An ``error`` event does not name the kind of transaction. A lost connection has no SQLSTATE.
    """
    samples: dict[str, str] = {}
    for error in errors:
        samples.setdefault(error["sqlstate"] or "connection", error["message"])
    return [
        Failure(kind, sqlstate, n, samples.get(sqlstate, ""))
        for kind, result in target.kinds.items()
        for sqlstate, n in result.failures.items()
    ]


def _kinds(kinds: Mapping[str, Mapping[str, int]]) -> dict[str, Counts]:
    return {kind: Counts(**counts) for kind, counts in kinds.items()}
