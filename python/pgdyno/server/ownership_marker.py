"""Ownership marker and advisory locks of pgdyno's databases on a running server.

The mark is a comment: ``pgdyno {"purpose": …}``. A database has none at the moment of its creation, and we
may be killed in that moment. So a database in the making is marked by what CREATE DATABASE itself can give
it: a name with a number drawn at random, and a connection limit that is a digest of that number. Who makes it
holds the advisory lock of that number, as does who uses a trial's copy.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
from collections.abc import Callable
from typing import Any

import psycopg

from pgdyno.errors import ConnectError, UsageError
from pgdyno.server.crash_detector import keep_idle
from pgdyno.server.running import Connection

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


NAME_BYTES_MAX = 63  # NAMEDATALEN - 1
PREFIX = "pgdyno "
LOCK = re.compile(r"held by the advisory lock (?P<number>[0-9]{1,19})$")
MAKING = re.compile(r"pgdyno_making_(?P<number>[0-9a-f]{16})")
HALF_MADE = "half-made: its load has not ended"
"""The purpose of a database that has a name, but not yet its data."""


def comment_of(purpose: str) -> str:
    """The mark of a finished database."""
    return PREFIX + json.dumps({"purpose": purpose})


def purpose_of(dbname: str, connection_limit: int, comment: str | None) -> str | None:
    """What a database's mark says; None for one that is not pgdyno's."""
    if comment is None:
        making = MAKING.fullmatch(dbname)
        number = int(making["number"], 16) if making else 0
        return held("in the making", number) if connection_limit == making_limit(number) else None
    try:
        facts: Any = json.loads(comment.removeprefix(PREFIX)) if comment.startswith(PREFIX) else None
    except (ValueError, RecursionError):  # nested by somebody else
        return None
    purpose = facts.get("purpose") if isinstance(facts, dict) else None
    return purpose if isinstance(purpose, str) else None


def held(purpose: str, number: int) -> str:
    """The purpose of a database that is good for nothing once nobody holds the lock."""
    return f"{purpose}, held by the advisory lock {number}"


def lock_in(purpose: str) -> int | None:
    """The lock without whose holder the database is good for nothing."""
    found = LOCK.search(purpose)
    return int(found["number"]) if found else None


def random_lock() -> int:
    """A number that no other lock has."""
    return secrets.randbits(62)


def lock_of(dbname: str) -> int:
    """The lock of who makes the database of that name."""
    return _digest(dbname) >> 2


def making_name(number: int) -> str:
    """Of a database in the making."""
    return f"pgdyno_making_{number:016x}"


def trial_name(number: int) -> str:
    """Return the name of a trial's copy."""
    return database_name("trial", f"{number:016x}")


def is_named_for(dbname: str, number: int) -> bool:
    """Return whether a database still has the name that came with its lock: one that was renamed is kept."""
    return dbname in (making_name(number), trial_name(number))


def making_limit(number: int) -> int:
    """The connection limit of a database in the making, from 2³⁰ to 2³¹ - 1: nobody else asks for that."""
    return 1 << 30 | _digest(f"pgdyno_making {number}") >> 34


def database_name(*parts: str | int) -> str:
    """``("tpcc", "w10", 3)`` → ``pgdyno_tpcc_w10_3``: a name that needs no quoting. Raises UsageError: too
    long.
    """
    name = "_".join(["pgdyno", *(re.sub(r"[^a-z0-9]+", "_", str(part).lower()) for part in parts)])
    check_name(name)
    return name


def check_name(dbname: str) -> None:
    """Raises UsageError: PostgreSQL would cut it off."""
    if len(dbname.encode()) > NAME_BYTES_MAX:
        raise UsageError(f"the database name {dbname} is longer than {NAME_BYTES_MAX} bytes")


def _digest(text: str) -> int:
    """64 bits."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
