"""Tables of the ledger on a server."""

from __future__ import annotations

from importlib import resources
from typing import Any

import numpy as np
import psycopg

from pgdyno.server.running import Connection
from pgdyno.workload.ledger.ledger_audit import Rows

_SQL = resources.files(__package__).joinpath("sql")


def _statement(name: str) -> bytes:
    return _SQL.joinpath(f"{name}.sql").read_bytes()


def create_ledger(connection: Connection, clients: int, slots: int) -> None:
    """Create the tables, with the slots of all clients. Raises psycopg.Error."""
    connection.execute(_statement("create_tables"))
    connection.execute(_statement("fill_slots"), {"clients": clients, "slots": slots}, prepare=False)


def read_rows(connection: Connection) -> Rows:
    """Return all rows of transactions. Raises psycopg.Error."""
    return _rows(connection, "read_rows", ("client", "sequence", "checksum", "slot"))


def read_slots(connection: Connection) -> Rows:
    """Return all slots. Raises psycopg.Error."""
    return _rows(connection, "read_slots", ("client", "slot", "sequence", "checksum"))


def _rows(connection: Connection, name: str, columns: tuple[str, ...]) -> Rows:
    with psycopg.Cursor(connection) as cursor:
        cursor.execute(_statement(name), binary=True)
        found: list[tuple[Any, ...]] = cursor.fetchall()
    values = np.array(found, np.int64).reshape(-1, len(columns) + 1)
    return Rows(
        **{column: values[:, index] for index, column in enumerate(columns)},
        is_filler_right=values[:, -1].astype(bool),
    )
