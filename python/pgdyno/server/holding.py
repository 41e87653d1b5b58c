"""Advisory locks on a running server: how pgdynos of whatever machine know what another one is at."""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg

from pgdyno.errors import ConnectError
from pgdyno.server.running import Connection
from pgdyno.server.witness import keep_idle

POLL_S = 0.2


def hold(connection: Connection, number: int, while_waiting: Callable[[], None] = lambda: None) -> None:
    """Takes the lock for as long as the connection lives. Such a lock is of the connection's database only.

    ``while_waiting`` is called again and again while another has it; it may raise. Raises ConnectError.
    """
    try:
        keep_idle(connection)
        while connection.execute("select pg_try_advisory_lock(%s::bigint)", (number,)).fetchone() != (True,):
            while_waiting()
            time.sleep(POLL_S)  # pg_advisory_lock would wait better, but deaf to Ctrl-C and without a word
    except psycopg.Error as error:
        raise ConnectError(f"cannot take an advisory lock: {error}") from None


def held_numbers(connection: Connection) -> set[int]:
    """The numbers of all locks that anybody holds, in whatever database."""
    found = connection.execute(
        "select classid::bigint, objid::bigint from pg_locks where locktype = 'advisory' and objsubid = 1"
        " and granted"
    ).fetchall()
    return {(high << 32) | low for high, low in found}
