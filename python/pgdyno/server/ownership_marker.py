"""Ownership marker and advisory locks of the databases of pgdyno on a running server.

The marker is a comment: ``pgdyno {"purpose": …}``. A new database has no comment yet, and pgdyno may be
killed at that moment. So a database under creation is marked with properties that CREATE DATABASE can set: a
name with a random number, and a connection limit that is a digest of that number. Its creator holds the
advisory lock with that number. So does the user of a trial copy.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
from collections.abc import Callable
from typing import Any, LiteralString

import psycopg

from pgdyno.errors import ConnectError, UsageError
from pgdyno.server.crash_detector import keep_idle
from pgdyno.server.running import Connection

POLL_S = 0.2


def take_lock(
    connection: Connection,
    number: int,
    while_waiting: Callable[[], None] = lambda: None,
    *,
    shared: bool = False,
) -> None:
    """Take the lock until the connection ends. An advisory lock belongs to the database of the connection.

    ``while_waiting`` is called repeatedly while another session holds it; it may raise. Raises ConnectError.
    """
    try:
        keep_idle(connection)
        while not try_lock(connection, number, shared=shared):
            while_waiting()
            time.sleep(POLL_S)  # polling, because Ctrl-C cannot interrupt pg_advisory_lock
    except psycopg.Error as error:
        raise ConnectError(f"cannot take an advisory lock: {error}") from None


def try_lock(connection: Connection, number: int, *, shared: bool = False) -> bool:
    """Take the lock if no other session holds it, and return whether this succeeded. Raises psycopg.Error."""
    statement: LiteralString = (
        "select pg_try_advisory_lock_shared(%s::bigint)"
        if shared
        else "select pg_try_advisory_lock(%s::bigint)"
    )
    return connection.execute(statement, (number,)).fetchone() == (True,)


def held_locks(connection: Connection) -> set[int]:
    """Return the numbers of all advisory locks that other sessions hold in any database."""
    found = connection.execute(
        "select classid::bigint, objid::bigint from pg_locks where locktype = 'advisory' and objsubid = 1"
        " and granted and pid <> pg_backend_pid()"
    ).fetchall()
    return {(high << 32) | low for high, low in found}


NAME_BYTES_MAX = 63  # NAMEDATALEN - 1
PREFIX = "pgdyno "
LOCK = re.compile(r"held by the advisory lock (?P<number>[0-9]{1,19})$")
MAKING = re.compile(r"pgdyno_making_(?P<number>[0-9a-f]{16})")
INCOMPLETE = "half-made: its load has not ended"
"""Purpose of a database that has its name, but not yet its data. Stored in the comment."""


def comment_of(purpose: str) -> str:
    """Return the marker of a finished database."""
    return PREFIX + json.dumps({"purpose": purpose})


def purpose_of(dbname: str, connection_limit: int, comment: str | None) -> str | None:
    """Return the purpose in the marker of a database; None if it does not belong to pgdyno."""
    if comment is None:
        making = MAKING.fullmatch(dbname)
        number = int(making["number"], 16) if making else 0
        return locked_purpose("in the making", number) if connection_limit == creation_limit(number) else None
    try:
        facts: Any = json.loads(comment.removeprefix(PREFIX)) if comment.startswith(PREFIX) else None
    except (ValueError, RecursionError):  # a deeply nested comment of another user
        return None
    purpose = facts.get("purpose") if isinstance(facts, dict) else None
    return purpose if isinstance(purpose, str) else None


def locked_purpose(purpose: str, number: int) -> str:
    """Return the purpose of a database that can be dropped when no session holds the lock."""
    return f"{purpose}, held by the advisory lock {number}"


def lock_in(purpose: str) -> int | None:
    """Return the number of the lock without which the database can be dropped; None for other purposes."""
    found = LOCK.search(purpose)
    return int(found["number"]) if found else None


def random_lock() -> int:
    """Return a random number for a lock."""
    return secrets.randbits(62)


def lock_of(dbname: str) -> int:
    """Return the number of the lock that the creator of the database of that name holds."""
    return _digest(dbname) >> 2


def use_lock_of(dbname: str) -> int:
    """Return the number of the lock that all users of the dataset of that name share while they run."""
    return _digest(f"{dbname} in use") >> 2


def creation_name(number: int) -> str:
    """Return the name of a database under creation."""
    return f"pgdyno_making_{number:016x}"


def trial_name(number: int) -> str:
    """Return the name of a trial copy."""
    return database_name("trial", f"{number:016x}")


def is_named_for(dbname: str, number: int) -> bool:
    """Return whether a database has the name that belongs to its lock. A renamed database is kept."""
    return dbname in (creation_name(number), trial_name(number))


def creation_limit(number: int) -> int:
    """Return the connection limit of a database under creation, from 2³⁰ to 2³¹ - 1, otherwise unused."""
    return 1 << 30 | _digest(f"pgdyno_making {number}") >> 34


def database_name(*parts: str | int) -> str:
    """Return a name that needs no quoting: ``("tpcc", "w10", 3)`` → ``pgdyno_tpcc_w10_3``. Raises UsageError
    if it is too long.
    """
    name = "_".join(["pgdyno", *(re.sub(r"[^a-z0-9]+", "_", str(part).lower()) for part in parts)])
    check_name(name)
    return name


def check_name(dbname: str) -> None:
    """Raise UsageError if PostgreSQL would truncate the name."""
    if len(dbname.encode()) > NAME_BYTES_MAX:
        raise UsageError(f"the database name {dbname} is too long: use at most {NAME_BYTES_MAX} bytes")


def _digest(text: str) -> int:
    """Return a digest of 64 bits."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
