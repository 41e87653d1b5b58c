"""Loads a workload's data into an empty database, wherever it is: the engine's part and what comes after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil
import psycopg

from pgdyno.drive.load import OnLoad, run_load
from pgdyno.engine import Event
from pgdyno.errors import DatasetError
from pgdyno.interruption import Interruption
from pgdyno.server.limited_connection import cancel
from pgdyno.study.workload_parameters import WorkloadParameters
from pgdyno.workload.choose import workload_of
from pgdyno.workload.interface import Connect

DATASET_SEED = 1
"""One seed for all, so that studies share datasets; what varies by block is the clients' seed."""


@dataclass(frozen=True)
class Place:
    """A database that is to be loaded. ``into_existing``: what an earlier load left there may be replaced.
    ``replace``: pgbench's tables may be replaced, whoever made them.
    """

    conninfo: str
    connect: Connect
    into_existing: bool = False
    replace: bool = False


def load_data(
    place: Place,
    parameters: WorkloadParameters,
    interruption: Interruption,
    on_progress: OnLoad,
    on_forecast: Callable[[int], None],
    *,
    connections: int | None = None,
    seed: int = DATASET_SEED,
) -> Event:
    """Loads all of it and returns the engine's ``result``.

    ``on_forecast`` is called with the bytes that everything will take, before a row is sent; an exception
    from it ends the load. Raises DatasetError, Interrupted.
    """
    workload = workload_of(parameters)
    if place.into_existing:
        with place.connect() as connection:
            workload.require_replaceable(connection)
    specification = load_specification(place, parameters, connections=connections, seed=seed)
    result = run_load(
        specification,
        interruption,
        on_progress,
        on_forecast=lambda size_bytes: on_forecast(size_bytes + workload.bytes_completed),
    )
    with place.connect() as connection, interruption.tell(lambda: cancel(connection)):
        try:
            workload.complete(connection, lambda phase: on_progress(phase, 0.0))
        except (psycopg.Error, DatasetError) as error:
            if interruption.requested:
                raise interruption.interrupted(
                    "the load was stopped at your request; its data are not whole"
                ) from error
            raise
    return result


def load_specification(
    place: Place,
    parameters: WorkloadParameters,
    *,
    connections: int | None = None,
    seed: int = DATASET_SEED,
) -> dict[str, Any]:
    """For the engine's ``load`` (docs/reference/engine-protocol.md). By default a connection per core."""
    return {
        "conninfo": place.conninfo,
        "workload": parameters.to_load(),
        "seed": seed,
        "connections": connections or max(2, psutil.cpu_count() or 2),
        "into_existing": place.into_existing,
        "replace": place.replace,
    }
