"""A database's copy for trials, on a server that others may use at the same time, from whatever machine.

Its name is drawn at random, and an advisory lock of that number is held as long as pgdyno lives, in whatever
database: a marked copy whose lock nobody holds was left by a pgdyno that was killed, and is dropped.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from dataclasses import dataclass, field

import psycopg

from pgdyno.errors import ConnectError, DatasetError, ServerError
from pgdyno.server.remote import Remote, database_name
from pgdyno.server.running import Connection

_PURPOSE = re.compile(r"a trial's copy, held by the advisory lock (?P<number>\d+)")


@dataclass
class TrialCopy:
    """One copy of the database ``pristine``, made anew as often as wanted. ``end`` it."""

    remote: Remote
    pristine: str
    number: int = field(default_factory=lambda: secrets.randbits(62))
    _holder: Connection | None = None

    @property
    def name(self) -> str:
        """Of the database."""
        return database_name("trial", f"{self.number:016x}")

    def restore(self) -> None:
        """A fresh copy, under the lock. Raises ConnectError, DatasetError."""
        self._hold()
        self.remote.drop(self.name)
        self.remote.create(self.name, purpose_of(self.number), template=self.pristine)

    def end(self) -> None:
        """Drops it and lets go of the lock. Never raises."""
        with contextlib.suppress(ServerError, DatasetError, psycopg.Error):
            self.remote.drop(self.name)
        if self._holder is not None:
            self._holder.close()
            self._holder = None

    def _hold(self) -> None:
        """Takes the lock, again where the server ended the connection that had it."""
        with contextlib.suppress(psycopg.Error):
            if self._holder is not None and self._holder.execute("select 1"):
                return
        self._holder = self.remote.connect()
        try:
            if self._holder.info.server_version >= 14_00_00:
                self._holder.execute("set idle_session_timeout = 0")
            self._holder.execute("select pg_advisory_lock(%s::bigint)", (self.number,))
        except psycopg.Error as error:
            raise ConnectError(f"{self.remote.dsn} gives no lock: {error}") from None


def purpose_of(number: int) -> str:
    """Stands in a copy's mark: which lock holds it."""
    return f"a trial's copy, held by the advisory lock {number}"


def drop_copies_that_nobody_holds(remote: Remote) -> None:
    """What killed pgdynos left, of any machine. The databases are read before the locks: whoever makes one
    has its lock already.
    """
    found = {name: _PURPOSE.fullmatch(purpose) for name, purpose in remote.own_databases().items()}
    with remote.connect() as connection:
        held = {
            (high << 32) | low
            for high, low in connection.execute(
                "select classid::bigint, objid::bigint from pg_locks"
                " where locktype = 'advisory' and objsubid = 1"
            ).fetchall()
        }
    for name, mark in found.items():
        if mark and int(mark["number"]) not in held:
            with contextlib.suppress(ServerError, DatasetError):
                remote.drop(name)
