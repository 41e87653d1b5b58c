"""A database's copy for trials, on a server that others may use at the same time, from whatever machine.

Its name is drawn at random, and an advisory lock of that number is held as long as pgdyno lives, in whatever
database: a marked copy whose lock nobody holds was left by a pgdyno that was killed, and is dropped.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

import psycopg

from pgdyno.errors import DatasetError, ServerError
from pgdyno.server import mark
from pgdyno.server.holding import hold
from pgdyno.server.remote import Remote
from pgdyno.server.running import Connection

PURPOSE = "a trial's copy"


@dataclass
class TrialCopy:
    """One copy of the database ``pristine``, made anew as often as wanted. ``end`` it."""

    remote: Remote
    pristine: str
    number: int = field(default_factory=mark.random_lock)
    _holder: Connection | None = None

    @property
    def name(self) -> str:
        """Of the database."""
        return mark.trial_name(self.number)

    def restore(self) -> None:
        """A fresh copy, under the lock. Raises ConnectError, DatasetError."""
        self._hold()
        self.remote.drop(self.name)
        self.remote.create(self.name, mark.held(PURPOSE, self.number), template=self.pristine)

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
        hold(self._holder, self.number)
