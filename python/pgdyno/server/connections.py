"""How many connections a running server gives us."""

from __future__ import annotations

from pathlib import Path

from pgdyno.server.running import Connection

_CONNECTIONS_MAX = Path(__file__).with_name("sql").joinpath("connections_max.sql").read_bytes()


def connections_max(connection: Connection) -> int:
    """That its user may have at most, others' left out of account: without what is reserved for superusers,
    and no more than the role's own limit.
    """
    row = connection.execute(_CONNECTIONS_MAX).fetchone()
    assert row is not None
    return int(row[0])
