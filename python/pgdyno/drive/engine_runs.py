"""Runs of the engine: ``drive`` with counters read at its barriers, ``load``, and the check of scripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pgdyno.caveats import Caveat, Code
from pgdyno.engine import Engine, Event
from pgdyno.errors import DatasetError, EngineError, UsageError
from pgdyno.interruption import Interruption
from pgdyno.study.pgbench_parameters import PgbenchParameters
from pgdyno.study.workload_parameters import WorkloadParameters

Reading = Sequence[float | None]
"""One number per target, or None where it cannot be read."""


@dataclass
class Run:
    """What a run gave. ``result`` is None when nothing was measured.

    ``readings`` and ``totals`` hold what was read at the barriers ``measure`` and ``end``, when no
    transaction was in flight: the differences belong together exactly. ``before``: what it was for, where it
    ended before what is measured began.
    """

    epoch_unix_s: float = 0.0
    connected: list[Event] = field(default_factory=list)
    errors: list[Event] = field(default_factory=list)
    readings: dict[str, Reading] = field(default_factory=dict)
    totals: dict[str, list[Event]] = field(default_factory=dict)
    result: Event | None = None
    failure: Event | None = None
    before: str = ""

    @property
    def complete(self) -> bool:
        """Whether all its slices were carried out."""
        return self.failure is None and self.result is not None and self.result["stopped"] == "done"

    def difference(self, target: int) -> float | None:
        """What was read of a target between the barriers (server CPU in seconds), if both were passed."""
        before, after = (self.readings.get(name, [])[target : target + 1] for name in ("measure", "end"))
        if not before or not after or before[0] is None or after[0] is None:
            return None
        return after[0] - before[0]

    def transactions(self, target: int) -> int | None:
        """How many transactions of a target ended between the barriers."""
        if not {"measure", "end"} <= self.totals.keys():
            return None
        return int(
            self.totals["end"][target]["transactions"] - self.totals["measure"][target]["transactions"]
        )


def run_drive(
    specification: Mapping[str, Any],
    interruption: Interruption,
    on_event: Callable[[Event], None],
    read: Callable[[], Reading],
    on_start: Callable[[int], None] = lambda _: None,
    ends_warm_up: Callable[[Event], bool] = lambda _: False,
) -> Run:
    """Carries a specification out (docs/reference/engine-protocol.md).

    ``read`` is called at each barrier, ``on_start`` with the driver's process id. ``ends_warm_up`` says
    of each event whether what is left of the warm-up is skipped.

    Raises EngineError when the engine ends without a result or finds the specification wrong; a server
    that fails is no exception but ``Run.failure``.
    """
    run = Run()
    with Engine("drive", specification) as engine, interruption.tell(engine.stop):
        on_start(engine.pid)
        for event in engine.events():
            _note(run, event)
            if event["event"] == "barrier":
                run.readings[event["name"]] = read()
                engine.proceed()
            if ends_warm_up(event):
                engine.measure()
            on_event(event)
    if run.failure is not None and run.failure["stage"] == "specification":
        raise EngineError(f"the engine refuses its specification: {run.failure['message']}")
    return run


def _note(run: Run, event: Event) -> None:
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
            run.result = event
        case "failed":
            run.failure = event
            run.result = event.get("result")
        case _:
            pass


OnLoad = Callable[[str, float], None]
"""Called with the phase (copy, index, analyze, vacuum) and its share done, 0..1."""


def run_load(
    specification: Mapping[str, Any],
    interruption: Interruption,
    on_progress: OnLoad,
    on_forecast: Callable[[int], None],
) -> Event:
    """Carries a load out (docs/reference/engine-protocol.md) and returns its ``result``.

    ``on_forecast`` is called with the bytes that the tables and indexes will take, before a row is sent;
    an exception from it ends the load. Raises DatasetError with the server's words, Interrupted.
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
        raise interruption.interrupted(_words_of_a_stop(last["message"]))
    if last["stage"] == "specification":
        raise EngineError(f"the engine refuses its specification: {last['message']}")
    raise DatasetError(f"the load failed ({last['stage']}): {last['message']}")


def _words_of_a_stop(message: str) -> str:
    """What the engine says after a semicolon it could not take back."""
    left = message.partition("; ")[2]
    return f"the load was stopped at your request; {left or 'nothing half-made is left'}"


def examine(parameters: WorkloadParameters) -> list[Caveat]:
    """Raises UsageError with the line and the caret of pgbench's own message; gives what is to be told of
    sound ones.
    """
    if not isinstance(parameters, PgbenchParameters):
        return []
    with Engine("check", {"workload": parameters.to_drive()}) as engine:
        answer = list(engine.events())[-1]
    if answer["event"] == "failed":
        raise UsageError(answer["message"].removeprefix("workload: "))
    own_only = all(script.text is not None for script in parameters.scripts)
    if own_only and answer["reads_scale"] and parameters.scale > 1 and "scale" not in parameters.define:
        return [Caveat(Code.SCALE_OF_THE_DATA, {"scale": parameters.scale})]
    return []
