"""Facts about the driver of a trial: the JSON in the column ``driver`` of ``trial``.

A fact that is unknown or does not apply has no key. Unknown keys are ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, TypeAdapter

from pgdyno.errors import UsageError
from pgdyno.study.capacity_search import SearchStep, capacity, parse_limit

Whole = Annotated[int, Field(ge=0, lt=2**63)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class RoundTripNs:
    """Quantiles of the time of an empty query; None if unknown."""

    p50: Whole | None = None
    p99: Whole | None = None


@dataclass(frozen=True)
class WakeLateNs(RoundTripNs):
    """Quantiles and maximum of the delay of the driver's timers; None if unknown."""

    max: Whole | None = None


@dataclass(frozen=True)
class CpuTimeNs:
    """CPU time of the driver's process."""

    user: Whole
    system: Whole


@dataclass(frozen=True)
class WarmUpEnd:
    """End of a warm-up: ``by`` evidence (stationarity) or time.

    ``values`` is the number of intervals, ``looks`` that of tests, and ``looks_steady`` that of passed tests.
    ``times``: its maximum as a multiple of the plan's, which a study extends while the effect changes.
    """

    driven_s: NotNegative
    by: Literal["evidence", "time"]
    values: Whole
    looks: Whole
    looks_steady: Whole
    times: Annotated[int, Field(ge=1, lt=2**31)] = 1


@dataclass(frozen=True)
class DriverNode:
    """A load generator on a node. Rates and shares are those of the measured part of the run, with all its
    arms; None if unknown.

    ``clock_spread_s``: largest error of instants between the nodes. ``executed_per_s``: transactions of its
    clients. ``ceiling_per_s``: SELECT 1 of the same clients. ``driver_cpu_share`` and ``busy_share``: of its
    cores, by the engine and by all processes. ``retransmitted_share``: of the segments that it sent by TCP.
    """

    name: str
    threads: Whole
    clients: Whole
    cpu_ns: CpuTimeNs
    wake_late_ns: WakeLateNs
    clock_spread_s: NotNegative
    executed_per_s: NotNegative
    round_trip_ns: RoundTripNs | None = None
    ceiling_per_s: NotNegative | None = None
    cores: Whole | None = None
    driver_cpu_share: NotNegative | None = None
    busy_share: NotNegative | None = None
    received_bytes_per_s: NotNegative | None = None
    sent_bytes_per_s: NotNegative | None = None
    retransmitted_share: NotNegative | None = None


def _limit(text: str) -> str:
    try:
        parse_limit(text)
    except UsageError as error:
        raise ValueError(str(error)) from error
    return text


@dataclass(frozen=True)
class StoredStep:
    """A step of a capacity search. ``latency_ms`` is None if it is infinite."""

    rate_per_s: Positive
    latency_ms: NotNegative | None


@dataclass(frozen=True)
class CapacitySearch:
    """The capacity search of a trial, for a limit such as ``p99 < 20ms``."""

    limit: Annotated[str, AfterValidator(_limit)]
    closed_loop_per_s: NotNegative
    steps: Sequence[StoredStep]

    @classmethod
    def of(cls, limit: str, closed_loop_per_s: float, tried: Sequence[SearchStep]) -> CapacitySearch:
        """Return the record of these steps."""
        steps = [
            StoredStep(step.rate_per_s, None if math.isinf(step.latency_ms) else step.latency_ms)
            for step in tried
        ]
        return cls(limit, closed_loop_per_s, steps)

    @property
    def tried(self) -> list[SearchStep]:
        """The steps as the search uses them."""
        return [
            SearchStep(step.rate_per_s, math.inf if step.latency_ms is None else step.latency_ms)
            for step in self.steps
        ]

    @property
    def capacity_per_s(self) -> float | None:
        """The capacity in transactions per second; None if no step, or every step, meets the limit."""
        return capacity(self.tried, parse_limit(self.limit))


ENGINE = "(engine)"
"""``stopped_by`` of a trial that a failure of our own engine ended."""


@dataclass(frozen=True)
class DriverFacts:
    """Facts about the driver in one trial.

    The first five are of its process. ``stopped_by`` is what ended a failed trial, if not its own server:
    the name of another arm, or ENGINE.
    ``ordered_checkpoint_s`` is the duration of the forced checkpoint before the window. ``nodes``: load
    generators on other nodes; without them the driver ran on this machine.
    """

    cpu_ns: CpuTimeNs | None = None
    memory_peak_bytes: Whole | None = None
    wake_late_ns: WakeLateNs | None = None
    threads: Whole | None = None
    io: str | None = None
    round_trip_ns: RoundTripNs | None = None
    stopped_by: str | None = None
    capacity: CapacitySearch | None = None
    warm_up: WarmUpEnd | None = None
    ordered_checkpoint_s: NotNegative | None = None
    nodes: Sequence[DriverNode] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the stored object."""
        return {key: value for key, value in asdict(self).items() if value is not None}


def driver_facts(found: Mapping[str, object]) -> DriverFacts:
    """Return the facts in an object of the engine. Raises ValueError (pydantic)."""
    return _codec().validate_python(found)


def driver_facts_from_json(text: str) -> DriverFacts:
    """Return the facts in a stored object. Raises ValueError (pydantic)."""
    return _codec().validate_json(text, strict=True)


@cache
def _codec() -> TypeAdapter[DriverFacts]:
    return TypeAdapter(DriverFacts)
