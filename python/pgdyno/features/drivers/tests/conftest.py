"""A server, and a workload whose transactions leave a row each: those of several engines are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import psycopg
import pytest

from pgdyno.server.processes import Server
from pgdyno.study.plan import Driving
from pgdyno.workloads.pgbench.parameters import PgbenchParameters


@pytest.fixture(scope="module")
def server(new_server: Callable[[], AbstractContextManager[Server]]) -> Iterator[Server]:
    with new_server() as server:
        with psycopg.connect(server.conninfo(), autocommit=True) as connection:
            connection.execute("CREATE TABLE sent (client int, x int)")
        yield server


@pytest.fixture
def driving() -> Driving:
    """Six clients in four threads."""
    insert = "\\set x random(1, 1000000000)\ninsert into sent values (:client_id, :x);"
    script = {"name": "insert", "text": insert, "effect": "none"}
    workload = PgbenchParameters.model_validate({"scale": 1, "scripts": [script]})
    return Driving(workload=workload, clients=6, threads=4, discard_s=0.05)
