"""One run of the engine's ``drive``: start it, read counters at its barriers, pass its events on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pgdyno.engine import Engine, Event
from pgdyno.errors import EngineError
from pgdyno.interruption import Interruption

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
