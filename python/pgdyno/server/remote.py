"""A server that runs already, perhaps elsewhere, perhaps without superuser: an arm given as a connection
string.

pgdyno works there in databases of its own only. Each carries a mark (a comment), and nothing without that
mark is ever dropped. The pristine copy for each trial is ``CREATE DATABASE … TEMPLATE``; such a server is not
restarted.
"""

from __future__ import annotations

import ipaddress
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from pgdyno.errors import ConnectError, DatasetError, UsageError
from pgdyno.server.dsn import Dsn
from pgdyno.server.running import Connection
from pgdyno.server.version import OLDEST_MAJOR, Version

MARK = "pgdyno "
CONNECT_TIMEOUT_S = 15
NAME_BYTES_MAX = 63  # NAMEDATALEN - 1
FILE_COPY_FROM_MAJOR = 15


@dataclass(frozen=True)
class Description:
    """What a running server says of itself. ``effective``: settings as ``SHOW`` spells them, those we may
    read.
    """

    version: Version
    version_text: str
    user: str
    superuser: bool
    is_local: bool
    effective: Mapping[str, str]


@dataclass(frozen=True)
class Remote:
    """A running server. ``check`` first."""

    dsn: Dsn

    def connect(self, dbname: str | None = None) -> Connection:
        """A new connection in autocommit mode. Raises ConnectError, its message without the password."""
        dsn = self.dsn if dbname is None else self.dsn.with_database(dbname)
        try:
            return psycopg.connect(
                dsn.conninfo,
                autocommit=True,
                application_name="pgdyno",
                connect_timeout=CONNECT_TIMEOUT_S,
            )
        except (psycopg.Error, OSError, UnicodeError) as error:
            words = " / ".join(line.strip() for line in str(error).splitlines() if line.strip())
            raise ConnectError(f"no connection to {dsn}: {dsn.masked(words)}") from None

    def check(self, *, must_create: bool = True) -> Description:
        """What the server is. Raises ConnectError: unreachable, too old, a standby, or (``must_create``) we
        may not create databases.
        """
        with self.connect() as connection:
            version = Version(*divmod(connection.info.server_version, 10000))
            if version.major < OLDEST_MAJOR:
                shown = connection.info.parameter_status("server_version") or version
                raise ConnectError(f"{self.dsn} is too old (PostgreSQL {shown}): pgdyno needs {OLDEST_MAJOR}")
            row = connection.execute(
                "select version(), current_user, rolsuper, rolcreatedb or rolsuper, pg_is_in_recovery()"
                " from pg_roles where rolname = current_user"
            ).fetchone()
            if row is None:
                raise ConnectError(f"{self.dsn} does not say what the user may do")
            text, user, superuser, may_create, standby = row
            if standby:
                raise ConnectError(f"{self.dsn} is a standby: it cannot be written to")
            if must_create and not may_create:
                raise ConnectError(
                    f"the user {user} may not create databases on {self.dsn}: ALTER ROLE {user} CREATEDB"
                )
            settings = connection.execute(
                "select name, current_setting(name, true) from pg_settings"
            ).fetchall()
            effective = {name: value or "" for name, value in settings}
            return Description(version, text, user, superuser, _is_local(connection), effective)

    def create(self, dbname: str, purpose: str, *, template: str | None = None) -> Dsn:
        """A database of pgdyno's, marked as such; of ``template`` (a marked one) a copy of its files.

        ``purpose`` (workload, scale …) goes into the mark. Until it has it, the database bears a name that is
        drawn at random: should we be killed in between, nobody's name is taken. Raises DatasetError: there is
        one of that name already, or PostgreSQL refuses.
        """
        _check_name(dbname)
        if self.has_database(dbname):
            raise DatasetError(f"cannot create {dbname} on {self.dsn}: it already exists")
        unmarked = sql.Identifier(database_name("unmarked", secrets.token_hex(8)))
        with self.connect() as connection:
            statement = sql.SQL("create database {}").format(unmarked)
            if template is not None:
                self._require_mark(connection, template)
                statement += sql.SQL(" template {}").format(sql.Identifier(template))
                if connection.info.server_version >= FILE_COPY_FROM_MAJOR * 10000:
                    # The default from 15 on writes every page to the WAL: slow, and noise for what comes
                    # next.
                    statement += sql.SQL(" strategy file_copy")
            try:
                connection.execute(statement)
            except psycopg.Error as error:
                raise DatasetError(f"cannot create {dbname} on {self.dsn}: {_primary(error)}") from None
            mark = sql.Literal(MARK + json.dumps({"purpose": purpose}))
            try:
                connection.execute(sql.SQL("comment on database {} is {}").format(unmarked, mark))
                name = sql.Identifier(dbname)
                connection.execute(sql.SQL("alter database {} rename to {}").format(unmarked, name))
            except psycopg.Error as error:
                connection.execute(sql.SQL("drop database {}").format(unmarked))
                raise DatasetError(f"cannot create {dbname} on {self.dsn}: {_primary(error)}") from None
        return self.dsn.with_database(dbname)

    def identity(self) -> tuple[object, ...]:
        """The same for two connection strings if they name one database of one running server."""
        with self.connect() as connection:
            row = connection.execute(
                "select pg_postmaster_start_time(), oid from pg_database where datname = current_database()"
            ).fetchone()
        assert row is not None
        return tuple(row)

    def has_database(self, dbname: str) -> bool:
        """Whether there is one of that name, whoever made it."""
        with self.connect() as connection:
            found = connection.execute("select 1 from pg_database where datname = %s", (dbname,)).fetchone()
        return found is not None

    def own_databases(self) -> dict[str, str]:
        """The databases that carry pgdyno's mark, each with its purpose."""
        with self.connect() as connection:
            found = connection.execute(
                "select datname, shobj_description(oid, 'pg_database') from pg_database order by datname"
            ).fetchall()
        purposes = {name: _purpose(mark) for name, mark in found}
        return {name: purpose for name, purpose in purposes.items() if purpose is not None}

    def drop(self, dbname: str) -> None:
        """Drop a database of pgdyno's; none of that name is fine. Raises DatasetError: it is not ours, or in
        use.
        """
        with self.connect() as connection:
            exists = connection.execute("select 1 from pg_database where datname = %s", (dbname,)).fetchone()
            if exists is None:
                return
            self._require_mark(connection, dbname)
            try:
                connection.execute(sql.SQL("drop database {}").format(sql.Identifier(dbname)))
            except psycopg.Error as error:
                raise DatasetError(f"cannot drop {dbname} on {self.dsn}: {_primary(error)}") from None

    def _require_mark(self, connection: Connection, dbname: str) -> None:
        row = connection.execute(
            "select shobj_description(oid, 'pg_database') from pg_database where datname = %s", (dbname,)
        ).fetchone()
        if row is None or _purpose(row[0]) is None:
            raise DatasetError(
                f"the database {dbname} on {self.dsn} was not made by pgdyno: it is left alone"
            )


def database_name(*parts: str | int) -> str:
    """``("tpcc", "w10", 3)`` → ``pgdyno_tpcc_w10_3``: a name that needs no quoting. Raises UsageError: too
    long.
    """
    name = "_".join(["pgdyno", *(re.sub(r"[^a-z0-9]+", "_", str(part).lower()) for part in parts)])
    _check_name(name)
    return name


def _check_name(dbname: str) -> None:
    if len(dbname.encode()) > NAME_BYTES_MAX:
        raise UsageError(f"the database name {dbname} is longer than {NAME_BYTES_MAX} bytes")


def _purpose(comment: str | None) -> str | None:
    """What our mark says; None for no comment, and for anybody else's."""
    if comment is None or not comment.startswith(MARK):
        return None
    try:
        facts: Any = json.loads(comment.removeprefix(MARK))
    except ValueError:
        return None
    purpose = facts.get("purpose") if isinstance(facts, dict) else None
    return purpose if isinstance(purpose, str) else None


def _is_local(connection: Connection) -> bool:
    """A Unix socket, or an address of the loopback interface."""
    address = connection.info.hostaddr
    if not address or address.startswith("/"):
        return True
    return ipaddress.ip_address(address).is_loopback


def _primary(error: psycopg.Error) -> str:
    return error.diag.message_primary or str(error).splitlines()[0]
