"""A server that runs already, perhaps elsewhere, perhaps without superuser: an arm given as a connection
string.

pgdyno works there in databases of its own only. Each carries a mark, and nothing without that mark is ever
dropped. The pristine copy for each trial is ``CREATE DATABASE … TEMPLATE``; such a server is not
restarted.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import LiteralString

import psycopg
from psycopg import sql

from pgdyno.errors import ConnectError, DatasetError, ServerError, in_one_line
from pgdyno.server import mark
from pgdyno.server.bounded import connect
from pgdyno.server.dsn import Dsn
from pgdyno.server.holding import held_numbers, hold
from pgdyno.server.pooling import require_session
from pgdyno.server.running import Connection
from pgdyno.server.version import OLDEST_MAJOR, Version, version_of

MAINTENANCE = "postgres"
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
        """A new connection in autocommit mode, with a session of its own. Raises ConnectError, its message
        without the password.
        """
        dsn = self.dsn if dbname is None else self.dsn.with_database(dbname)
        connection = self._connect(dsn)
        try:
            self._require_version(connection)
            require_session(connection, lambda: self._connect(dsn))
        except (ConnectError, psycopg.Error) as error:
            connection.close()
            raise ConnectError(f"no connection to {dsn}: {dsn.masked(in_one_line(error))}") from None
        return connection

    @staticmethod
    def _require_version(connection: Connection) -> None:
        """Raises ConnectError. It is known from the login: a server that old is asked nothing."""
        version = version_of(connection)
        if version.major < OLDEST_MAJOR:
            shown = connection.info.parameter_status("server_version") or version
            raise ConnectError(f"the server is too old (PostgreSQL {shown}): pgdyno needs {OLDEST_MAJOR}")

    def _connect(self, dsn: Dsn) -> Connection:
        try:
            return connect(dsn.conninfo)
        except (psycopg.Error, OSError, UnicodeError) as error:
            raise ConnectError(f"no connection to {dsn}: {dsn.masked(in_one_line(error))}") from None

    def check(self, *, must_create: bool = True) -> Description:
        """What the server is. Raises ConnectError: unreachable, too old, a standby, or (``must_create``) we
        may not create databases.
        """
        with self.connect() as connection:
            version = version_of(connection)
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

        ``purpose`` (workload, scale …) goes into the mark. A database in the making is marked, too, under a
        name of its own (see ``mark``): should we be killed, nobody's name is taken, and it is swept. Raises
        DatasetError: there is one of that name already, or PostgreSQL refuses.
        """
        mark.check_name(dbname)
        if self.has_database(dbname):
            raise DatasetError(f"cannot create {dbname} on {self.dsn}: it already exists")
        number = mark.random_lock()
        making = sql.Identifier(mark.making_name(number))
        with self.connect() as connection:
            limit = sql.Literal(mark.making_limit(number))
            statement = sql.SQL("create database {} connection limit {}").format(making, limit)
            if template is not None:
                self._require_mark(connection, template)
                statement += sql.SQL(" template {}").format(sql.Identifier(template))
                if connection.info.server_version >= FILE_COPY_FROM_MAJOR * 10000:
                    # The default from 15 on writes every page to the WAL: slow, and noise for what comes
                    # next.
                    statement += sql.SQL(" strategy file_copy")
            hold(connection, number)
            try:
                connection.execute(statement)
            except psycopg.Error as error:
                raise DatasetError(f"cannot create {dbname} on {self.dsn}: {_primary(error)}") from None
            try:
                with connection.transaction():
                    _comment(connection, making, purpose)
                    connection.execute(sql.SQL("alter database {} connection limit -1").format(making))
                    name = sql.Identifier(dbname)
                    connection.execute(sql.SQL("alter database {} rename to {}").format(making, name))
            except psycopg.Error as error:
                connection.execute(sql.SQL("drop database {}").format(making))
                raise DatasetError(f"cannot create {dbname} on {self.dsn}: {_primary(error)}") from None
        return self.dsn.with_database(dbname)

    @contextlib.contextmanager
    def making(self, dbname: str, purpose: str) -> Iterator[None]:
        """Creates a database to be filled in the block: marked as half-made until that ends, and dropped if
        it fails. Raises DatasetError.
        """
        self.create(dbname, mark.HALF_MADE)
        try:
            yield
            with self.connect() as connection:
                _comment(connection, sql.Identifier(dbname), purpose)
        except BaseException:
            with contextlib.suppress(ServerError, DatasetError):
                self.drop(dbname)
            raise

    def maintenance(self) -> Remote:
        """The same server by its database postgres, where all pgdynos meet: a lock is of one database. By the
        database that the DSN names, where we are not let into that one.
        """
        meeting = Remote(self.dsn.with_database(MAINTENANCE))
        try:
            meeting.connect().close()
        except ConnectError:
            return self
        return meeting

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

    def size_bytes(self, dbname: str) -> int:
        """What a database takes on the disk."""
        with self.connect() as connection:
            row = connection.execute("select pg_database_size(%s)", (dbname,)).fetchone()
        assert row is not None
        return int(row[0])

    def own_databases(self) -> dict[str, str]:
        """The databases that carry pgdyno's mark, each with its purpose."""
        with self.connect() as connection:
            found = connection.execute(f"{_MARKS} order by datname").fetchall()
        purposes = {row[0]: mark.purpose_of(*row) for row in found}
        return {name: purpose for name, purpose in purposes.items() if purpose is not None}

    def drop_what_nobody_holds(self) -> None:
        """Drops what killed pgdynos left, of any machine: databases in the making, and trials' copies.

        One that was renamed is kept. The marks are read before the locks: whoever makes one has its lock
        already.
        """
        locks = {name: mark.lock_in(purpose) for name, purpose in self.own_databases().items()}
        with self.connect() as connection:
            held = held_numbers(connection)
        for name, number in locks.items():
            if number is not None and number not in held and mark.is_named_for(name, number):
                with contextlib.suppress(ServerError, DatasetError):
                    self.drop(name)

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
            except psycopg.errors.ObjectInUse:
                why = "others are connected to it: end their sessions first"
                raise DatasetError(f"cannot drop {dbname} on {self.dsn}: {why}") from None
            except psycopg.Error as error:
                raise DatasetError(f"cannot drop {dbname} on {self.dsn}: {_primary(error)}") from None

    def _require_mark(self, connection: Connection, dbname: str) -> None:
        row = connection.execute(f"{_MARKS} where datname = %s", (dbname,)).fetchone()
        if row is None or mark.purpose_of(*row) is None:
            raise DatasetError(
                f"the database {dbname} on {self.dsn} was not made by pgdyno: it is left alone"
            )


_MARKS: LiteralString = (
    # Cut: anybody may comment on a database of theirs, and a mark of ours is short.
    "select datname, datconnlimit, left(shobj_description(oid, 'pg_database'), 1000) from pg_database"
)


def _comment(connection: Connection, name: sql.Identifier, purpose: str) -> None:
    text = sql.Literal(mark.comment_of(purpose))
    connection.execute(sql.SQL("comment on database {} is {}").format(name, text))


def _is_local(connection: Connection) -> bool:
    """A Unix socket, or an address of the loopback interface."""
    address = connection.info.hostaddr
    if not address or address.startswith("/"):
        return True
    return ipaddress.ip_address(address).is_loopback


def _primary(error: psycopg.Error) -> str:
    return error.diag.message_primary or str(error).splitlines()[0]
