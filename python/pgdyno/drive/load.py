"""One run of the engine's ``load``: create and fill the tables, with a forecast before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pgdyno.engine import Engine, Event
from pgdyno.errors import DatasetError, EngineError
from pgdyno.interruption import Interruption

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
