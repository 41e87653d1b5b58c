"""Loads, drives and queries of one database of a running server."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from pgdyno.interruption import Interruption
from pgdyno.measure.dataset_loading import Place, load_data
from pgdyno.measure.engine_runs import PlannedSlice, drive_specification, run_drive
from pgdyno.results.records import Role
from pgdyno.server.engine import TargetResult
from pgdyno.server.processes import Connection, Server
from pgdyno.study.plan import Driving
from pgdyno.study.workload_parameters import WorkloadParameters


def load(server: Server, name: str, own: WorkloadParameters, *, into_existing: bool = False) -> None:
    """Load the data of a workload into a database, which is new unless it exists."""
    if not into_existing:
        with closing(server.connect()) as conn:
            conn.execute(f"CREATE DATABASE {name}".encode())
    place = Place(server.conninfo(name), lambda: server.connect(name), into_existing)
    load_data(place, own, Interruption(), lambda *_: None, lambda _: None, connections=2)


def drive(
    server: Server,
    name: str,
    own: WorkloadParameters,
    clients: int,
    transactions: int | None = None,
    seconds: float = 600.0,
    changed: Mapping[str, Any] | None = None,
) -> TargetResult:
    """Drive the workload once. ``changed``: other values in the engine's specification of the workload."""
    driving = Driving(workload=own, clients=clients, discard_s=0.0)
    slices = [PlannedSlice(0, Role.MEASURE, seconds, 0, transactions=transactions)]
    specification = drive_specification(driving, 5, slices, [("it", server.conninfo(name))])
    specification["workload"] |= changed or {}
    run = run_drive(specification, Interruption(), lambda _: None)
    assert run.result is not None, run.failure
    return run.result.targets[0]


def rows_of(conn: Connection, statement: str) -> list[tuple[Any, ...]]:
    return conn.execute(statement.encode()).fetchall()


def scalar(conn: Connection, statement: str) -> Any:
    ((value,),) = rows_of(conn, statement)
    return value
