"""The server's processes that serve the driver's clients. ``cpu.scheduled`` says how long they ran.

clients = find_clients(connection)      # once the driver has connected
before = scheduled(clients)
…
after = scheduled(clients)
"""

from __future__ import annotations

from psycopg import sql

from pgdyno.probe.session import prepare
from pgdyno.probe.statement import fetch, statement
from pgdyno.server.running import Connection


def find_clients(connection: Connection) -> tuple[int, ...]:
    """Process ids of the client backends of the current database, without probes. The connection is the
    probes' from then on. Raises psycopg.Error.
    """
    prepare(connection)
    rows = fetch(connection, sql.SQL(statement("clients", connection.info.server_version // 10000)))
    return tuple(int(row["pid"]) for row in rows if row["pid"] is not None)
