"""A connection string that keeps its password to itself."""

from __future__ import annotations

import getpass
import os
from dataclasses import dataclass, field

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgdyno.errors import UsageError
from pgdyno.study.arm_spec import SECRET_WORDS, without_secrets


@dataclass(frozen=True)
class Dsn:
    """``conninfo`` is for libpq and the engine only; ``str`` and ``repr`` show it without its secrets."""

    conninfo: str = field(repr=False)

    def __post_init__(self) -> None:
        try:
            conninfo_to_dict(self.conninfo)
        except psycopg.Error as error:
            # libpq's message quotes the string, and with it the password.
            raise UsageError(f"the connection string is malformed ({type(error).__name__})") from None

    def with_database(self, dbname: str) -> Dsn:
        """The same server, another database."""
        return Dsn(make_conninfo(self.conninfo, dbname=dbname))

    @property
    def database(self) -> str:
        """The database that it names; as libpq has it, by default that of the user's name."""
        parts = conninfo_to_dict(self.conninfo)
        given = parts.get("dbname") or os.environ.get("PGDATABASE")
        return str(given or parts.get("user") or os.environ.get("PGUSER") or getpass.getuser())

    @property
    def shown(self) -> str:
        """For people, and to know the server again: without its passwords."""
        return without_secrets(self.conninfo)

    def masked(self, text: str) -> str:
        """A message without the secrets, should it quote them."""
        for name in SECRET_WORDS:
            secret = conninfo_to_dict(self.conninfo).get(name)
            if secret:
                text = text.replace(str(secret), "***")
        return text

    def __str__(self) -> str:
        return self.shown

    def __repr__(self) -> str:
        return f"Dsn({self.shown!r})"
