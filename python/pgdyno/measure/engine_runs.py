"""Runs of the engine: the specification of a drive, its execution, its events as records.

- Conversion of the engine's events to records, with nanoseconds as seconds.
- Specification of the engine's ``drive`` command, for a block of a study or a single run.
- Runs of the engine: ``drive`` with a call at its barriers, ``load``, and the check of scripts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from pgdyno.caveats import Caveat
from pgdyno.errors import DatasetError, EngineError, UsageError
from pgdyno.interruption import Interruption
from pgdyno.results.codec import pairs_from
from pgdyno.results.records import Counts, Failure, Histogram, Interval, Measure, Slice
from pgdyno.server.engine import DriveFailure, DriveResult, Engine, Event, TargetResult
from pgdyno.study.plan import Driving
from pgdyno.study.schedule import PlannedSlice, Role
from pgdyno.study.workload_parameters import WorkloadParameters
from pgdyno.units import NS_PER_S

# ----------------------------------------------------------------------
# Conversion of the engine's events to records, with nanoseconds as seconds.
#
# See docs/reference/engine-protocol.md.
# ----------------------------------------------------------------------


def slice_from(event: Mapping[str, Any]) -> Slice:
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


def interval_from(event: Mapping[str, Any]) -> Interval:
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


def failures_from(target: TargetResult, errors: Iterable[Mapping[str, Any]] = ()) -> list[Failure]:
    """Return the failures of one target of the ``result`` event, with the first message of each SQLSTATE.

    An ``error`` event does not name the kind of transaction. A lost connection has no SQLSTATE, nor has a
    transaction that the driver abandoned.
    """
    samples: dict[str, str] = {}
    for error in errors:
        without = "abandoned" if error["message"].startswith("abandoned") else "connection"
        samples.setdefault(error["sqlstate"] or without, error["message"])
    return [
        Failure(kind, sqlstate, n, samples.get(sqlstate, ""))
        for kind, result in target.kinds.items()
        for sqlstate, n in result.failures.items()
    ]


def _kinds(kinds: Mapping[str, Mapping[str, int]]) -> dict[str, Counts]:
    return {kind: Counts(**counts) for kind, counts in kinds.items()}


# ----------------------------------------------------------------------
# Specification of the engine's ``drive`` command, for a block of a study or a single run.
#
# See docs/reference/engine-protocol.md.
# ----------------------------------------------------------------------

CONNECT_TIMEOUT_S = 30.0
"""Maximum time of one client to connect, prepare and measure its round trip. Few clients connect at a time,
so on a busy machine each takes a fraction of a second; 30 s indicate a fault."""

DRAIN_TIMEOUT_S = 30.0
"""Maximum time of an in-flight transaction at the end of a slice. TPC-C's own limits are 5 to 80 s for 90% of
transactions. Transactions that take longer are canceled and counted as failed."""

INTERVAL_S = 1.0


@dataclass(frozen=True)
class Pinning:
    """CPU pinning of a duet: both CPU partitions, and the process ID of each target's postmaster."""

    cpu_partitions: Sequence[Sequence[int]]
    postmaster_pids: Sequence[int]


def drive_specification(
    driving: Driving,
    seed: int,
    slices: Sequence[PlannedSlice],
    targets: Sequence[tuple[str, str]],
    drivings: Sequence[Driving] | None = None,
    *,
    interval_s: float = INTERVAL_S,
    pinning: Pinning | None = None,
) -> dict[str, Any]:
    """Return the specification of a run.

    ``targets`` are (name, conninfo); ``arm`` of a slice is an index into them. ``drivings`` has one entry per
    target if they differ. ``discard_s`` is common to the run. ``interval_s`` is the interval of the engine's
    reports. ``pinning`` is set for a duet. Raises ValueError if the targets differ in ``discard_s``.
    """
    drivings = [driving] * len(targets) if drivings is None else drivings
    if any(one.discard_s != driving.discard_s for one in drivings):
        raise ValueError("discard_s must be the same for all targets of a run")
    common = _target_keys(driving)
    if any(one.threads != driving.threads for one in drivings):
        # A target cannot select the engine's default while the run specifies a number.
        common["threads"] = None
    own = [
        {key: value for key, value in _target_keys(one).items() if value != common[key]} for one in drivings
    ]
    servers = _servers(pinning, len(targets))
    return {
        "targets": [
            {"name": name, "conninfo": conninfo, **keys, **server}
            for (name, conninfo), keys, server in zip(targets, own, servers, strict=True)
        ],
        **common,
        "io": "auto",
        "seed": seed,
        "slices": [_slice(piece) for piece in slices] if pinning is None else _pairs(slices, pinning),
        "discard_s": driving.discard_s,
        "interval_s": interval_s,
        "barriers": True,
        "connect_timeout_s": CONNECT_TIMEOUT_S,
        "drain_timeout_s": DRAIN_TIMEOUT_S,
    }


def _target_keys(driving: Driving) -> dict[str, Any]:
    """Return the keys that may differ between the targets of a run."""
    return {
        "workload": driving.workload.to_drive(),
        "clients": driving.clients,
        "threads": driving.threads,
        "pacing": driving.pacing,
        "rate": None if driving.rate is None else driving.rate.model_dump(),
        "retries_max": driving.retries_max,
    }


def _slice(piece: PlannedSlice) -> dict[str, Any]:
    bound = {} if piece.transactions is None else {"transactions": piece.transactions}
    return {"target": piece.arm, "role": piece.role, "duration_s": piece.duration_s, **bound}


def _servers(pinning: Pinning | None, targets: int) -> list[dict[str, int]]:
    if pinning is None:
        return [{} for _ in range(targets)]
    return [{"postmaster_pid": pid} for pid in pinning.postmaster_pids]


def _pairs(slices: Sequence[PlannedSlice], pinning: Pinning) -> list[dict[str, Any]]:
    """Return the slices of a duet: the two slices of each round become one of both targets."""
    found = []
    for (role, _), pair in itertools.groupby(slices, key=lambda piece: (piece.role, piece.round)):
        sides = [(piece.arm, piece.cpu_partition, piece.duration_s) for piece in pair]
        cores = [list(pinning.cpu_partitions[side]) for _, side, _ in sides if side is not None]
        driven = {"targets": [arm for arm, _, _ in sides], "cores": cores}
        found.append({**driven, "role": role, "duration_s": sides[0][2]})
    return found


# ----------------------------------------------------------------------
# Runs of the engine: ``drive`` with a call at its barriers, ``load``, and the check of scripts.
# ----------------------------------------------------------------------


@dataclass
class EngineRun:
    """Events of a run. ``result`` is None if nothing was measured.

    ``totals`` are those of the barriers ``measure`` and ``end``, when no transaction was in flight.
    ``before`` names the preliminary step in which the run ended, if it ended before the measured part.
    """

    epoch_unix_s: float = 0.0
    connected: list[Event] = field(default_factory=list)
    errors: list[Event] = field(default_factory=list)
    totals: dict[str, list[Event]] = field(default_factory=dict)
    result: DriveResult | None = None
    failure: DriveFailure | None = None
    before: str = ""

    @property
    def complete(self) -> bool:
        """True if the run completed all slices."""
        return self.failure is None and self.result is not None and self.result.stopped == "done"

    def transactions(self, target: int) -> int | None:
        """Return the number of a target's transactions that ended as designed between the barriers."""
        if not {"measure", "end"} <= self.totals.keys():
            return None
        return int(
            self.totals["end"][target]["transactions"] - self.totals["measure"][target]["transactions"]
        )


class DriveEngine(Protocol):
    """An engine that drives servers, or several that act as one."""

    @property
    def pid(self) -> int | None:
        """The process ID; None if it is not one process of this machine."""

    def events(self) -> Iterator[Event]:
        """Yield each event."""

    def proceed(self) -> None:
        """Pass the barrier."""

    def measure(self) -> None:
        """End the warm-up."""

    def stop(self) -> None:
        """Request a graceful end."""


StartEngine = Callable[[Mapping[str, Any]], AbstractContextManager[DriveEngine]]
"""Starts a drive with a specification."""


def start_local(specification: Mapping[str, Any]) -> AbstractContextManager[DriveEngine]:
    """Start the engine on this machine."""
    return Engine("drive", specification)


def run_drive(
    specification: Mapping[str, Any],
    interruption: Interruption,
    on_event: Callable[[Event], None],
    at_barrier: Callable[[], None] = lambda: None,
    on_start: Callable[[int], None] = lambda _: None,
    ends_warm_up: Callable[[Event], bool] = lambda _: False,
    start: StartEngine = start_local,
) -> EngineRun:
    """Run a specification (docs/reference/engine-protocol.md).

    ``at_barrier`` is called at each barrier, when no transaction is in flight, ``on_start`` with the driver's
    process ID, if any. The remaining warm-up is skipped after the first event for which ``ends_warm_up``
    returns true.

    Raises EngineError if the engine ends without a result or rejects the specification. A server failure
    raises nothing and sets ``EngineRun.failure``.
    """
    run = EngineRun()
    with start(specification) as engine, interruption.tell(engine.stop):
        if engine.pid is not None:
            on_start(engine.pid)
        for event in engine.events():
            _note(run, event)
            if event["event"] == "barrier":
                at_barrier()
                engine.proceed()
            if ends_warm_up(event):
                engine.measure()
            on_event(event)
    if run.failure is not None and run.failure.stage == "specification":
        raise EngineError(f"the engine rejected the specification: {run.failure.message}")
    return run


def _note(run: EngineRun, event: Event) -> None:
    match event["event"]:
        case "started":
            run.epoch_unix_s = event["epoch_unix_ns"] / 1e9
        case "connected":
            run.connected.append(event)
        case "error":
            run.errors.append(event)
        case "barrier":
            run.totals[event["name"]] = event["totals"]
        case "result":
            run.result = DriveResult.of(event)
        case "failed":
            run.failure = DriveFailure(event["stage"], event["message"], event.get("target"))
            measured = event.get("result")
            run.result = measured and DriveResult.of(measured)
        case _:
            pass


OnLoad = Callable[[str, float], None]
"""Called with the phase (copy, index, analyze, vacuum) and its completed share, 0..1; 0 if unknown."""


def run_load(
    specification: Mapping[str, Any],
    interruption: Interruption,
    on_progress: OnLoad,
    on_forecast: Callable[[int], None],
) -> Event:
    """Run a load (docs/reference/engine-protocol.md) and return its ``result`` event.

    ``on_forecast`` is called with the forecast size of tables and indexes in bytes before the first row; an
    exception from it ends the load. Raises DatasetError with the server's message, or Interrupted.
    """
    last: Event = {}
    with Engine("load", specification) as engine, interruption.tell(engine.stop):
        for event in engine.events():
            last = event
            if event["event"] == "started":
                on_forecast(sum(table["bytes_estimated"] for table in event["tables"].values()))
            elif event["event"] == "progress":
                rows = event["rows"] if event["phase"] == "copy" else 0  # later phases have all rows
                on_progress(event["phase"], rows / max(event["rows_total"], 1))
    if last["event"] == "result":
        return last
    if interruption.requested:
        raise interruption.interrupted(_interruption_message(last["message"]))
    if last["stage"] == "specification":
        raise EngineError(f"the engine rejected the specification: {last['message']}")
    remedy = ""
    if last["stage"] == "prepare" and specification["workload"].get("threads", 1) > 1:
        remedy = "; a prepare that is not made for several threads needs prepare_threads = 1"
    raise DatasetError(f"the load failed ({last['stage']}): {last['message']}{remedy}")


def _interruption_message(message: str) -> str:
    """Return the message of an interrupted load, with objects that the engine could not remove."""
    left = message.partition("; ")[2]
    return f"the load was interrupted; {left or 'no incomplete data are left'}"


def examine_scripts(parameters: WorkloadParameters) -> list[Caveat]:
    """Check the scripts of a workload and return their caveats.

    Raises UsageError with the line, and with the caret of pgbench's own message.
    """
    return parameters.script_caveats(checked_scripts(parameters)) if parameters.HAS_SCRIPTS else []


def checked_scripts(parameters: WorkloadParameters) -> Event:
    """Return the engine's answer to ``check``. Raises UsageError."""
    with Engine("check", {"workload": parameters.to_drive()}) as engine:
        answer = list(engine.events())[-1]
    if answer["event"] == "failed":
        raise UsageError(answer["message"].removeprefix("workload: "))
    return answer
