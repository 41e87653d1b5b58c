"""Runs of the engine: ``drive`` with a call at its barriers, ``load``, and the check of scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from pgdyno.caveats import Caveat, Code
from pgdyno.engine import DriveFailure, DriveResult, Engine, Event
from pgdyno.errors import DatasetError, EngineError, UsageError
from pgdyno.interruption import Interruption
from pgdyno.study.column_sample import ColumnSample
from pgdyno.study.pgbench_parameters import PgbenchParameters
from pgdyno.study.sysbench_parameters import SysbenchParameters
from pgdyno.study.workload_parameters import WorkloadParameters


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
        """Return the number of a target's transactions that ended between the barriers."""
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
"""Called with the phase (copy, index, analyze, vacuum) and its completed share, 0..1."""


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
                on_progress(event["phase"], event["bytes"] / max(event["bytes_total"], 1))
    if last["event"] == "result":
        return last
    if interruption.requested:
        raise interruption.interrupted(_interruption_message(last["message"]))
    if last["stage"] == "specification":
        raise EngineError(f"the engine rejected the specification: {last['message']}")
    remedy = ""
    if last["stage"] == "prepare" and specification["workload"].get("threads", 1) > 1:
        remedy = "; a prepare that is not made for several threads needs --prepare-threads 1"
    raise DatasetError(f"the load failed ({last['stage']}): {last['message']}{remedy}")


def _interruption_message(message: str) -> str:
    """Return the message of an interrupted load, with objects that the engine could not remove."""
    left = message.partition("; ")[2]
    return f"the load was interrupted; {left or 'no incomplete data are left'}"


def examine_scripts(parameters: WorkloadParameters) -> list[Caveat]:
    """Check scripts of pgbench or sysbench and return their caveats.

    Raises UsageError with the line, and with the caret of pgbench's own message.
    """
    if not isinstance(parameters, PgbenchParameters | SysbenchParameters):
        return []
    answer = _examined(parameters)
    if isinstance(parameters, SysbenchParameters):
        return []
    for of in _sample_commands(answer):
        if parameters.data is None:
            raise UsageError(
                f"{of}: \\sample requires --data, because its values are those of your own tables; use "
                "\\set with random() for the pgbench tables"
            )
    own_only = all(script.text is not None for script in parameters.scripts)
    if own_only and answer["reads_scale"] and parameters.scale > 1 and "scale" not in parameters.define:
        return [Caveat(Code.SCALE_OF_THE_DATA, {"scale": parameters.scale})]
    return []


@dataclass(frozen=True)
class SampleCommand:
    """A command ``\\sample`` of a script. ``source`` is its text after FROM, and ``column`` its meaning."""

    script: str
    text: str
    source: str
    column: ColumnSample

    def __str__(self) -> str:
        """Return script and command, for messages."""
        return f"{self.script}: {self.text}"


def sample_commands(parameters: WorkloadParameters) -> list[SampleCommand]:
    """Return the commands ``\\sample`` of all scripts. Raises UsageError."""
    return _sample_commands(_examined(parameters)) if isinstance(parameters, PgbenchParameters) else []


def _examined(parameters: WorkloadParameters) -> Event:
    with Engine("check", {"workload": parameters.to_drive()}) as engine:
        answer = list(engine.events())[-1]
    if answer["event"] == "failed":
        raise UsageError(answer["message"].removeprefix("workload: "))
    return answer


def _sample_commands(answer: Event) -> list[SampleCommand]:
    found = []
    for of in answer["samples"]:
        try:
            column = ColumnSample.parse(of["source"])
        except ValueError as error:
            raise UsageError(f"{of['script']}: {of['command']}: {error}") from error
        found.append(SampleCommand(of["script"], of["command"], of["source"], column))
    return found
