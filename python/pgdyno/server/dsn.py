"""Connection string that is printed without its password."""

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
    """A connection string. ``conninfo`` is for libpq and the engine only; ``str`` and ``repr`` omit
    secrets."""

    conninfo: str = field(repr=False)

    def __post_init__(self) -> None:
        try:
            conninfo_to_dict(self.conninfo)
        except psycopg.Error as error:
            # The message of libpq quotes the string, including the password.
            raise UsageError(f"the connection string is malformed ({type(error).__name__})") from None

    def with_database(self, dbname: str) -> Dsn:
        """Return the connection string for another database of the same server."""
        return Dsn(make_conninfo(self.conninfo, dbname=dbname))

    @property
    def names_database(self) -> bool:
        """True if the database is given, not libpq's default."""
        given = conninfo_to_dict(self.conninfo).keys()
        return bool({"dbname", "service"} & given) or bool({"PGDATABASE", "PGSERVICE"} & os.environ.keys())

    @property
    def database(self) -> str:
        """Name of the database; the default is the name of the user, as in libpq."""
        parts = conninfo_to_dict(self.conninfo)
        given = parts.get("dbname") or os.environ.get("PGDATABASE")
        return str(given or parts.get("user") or os.environ.get("PGUSER") or getpass.getuser())

    @property
    def shown(self) -> str:
        """Text for output and for comparison of servers, without passwords."""
        return without_secrets(self.conninfo)

    def masked(self, text: str) -> str:
        """Return a message with the secrets replaced by ***."""
        for name in SECRET_WORDS:
            secret = conninfo_to_dict(self.conninfo).get(name)
            if secret:
                text = text.replace(str(secret), "***")
        return text

    def __str__(self) -> str:
        return self.shown

    def __repr__(self) -> str:
        return f"Dsn({self.shown!r})"
