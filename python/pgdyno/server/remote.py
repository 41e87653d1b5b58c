"""A server that already runs, given as a connection string: facts, databases, trial copies, poolers.

pgdyno needs sessions for its advisory locks and settings. In a pooled session they would be left to
strangers: a lock that nobody releases makes later runs wait forever. So a connection through such a pooler is
refused before anything is set or locked. The probe itself leaves nothing behind.

pgdyno works there in databases of its own only. Each carries a mark, and nothing without that mark is ever
dropped. The pristine copy for each trial is ``CREATE DATABASE … TEMPLATE``; such a server is not
restarted.

Its name is drawn at random, and an advisory lock of that number is held as long as pgdyno lives, in whatever
database: a marked copy whose lock nobody holds was left by a pgdyno that was killed, and is dropped.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import LiteralString

import psutil
import psycopg
from psycopg import sql

from pgdyno.errors import ConnectError, DatasetError, ServerError, in_one_line
from pgdyno.server import ownership_marker
from pgdyno.server.dsn import Dsn
from pgdyno.server.limited_connection import connect
from pgdyno.server.ownership_marker import held_numbers, hold
from pgdyno.server.running import Connection
from pgdyno.server.server_account import free_bytes
from pgdyno.server.version import OLDEST_MAJOR, Version, version_of

_CONNECTIONS_MAX = Path(__file__).with_name("sql").joinpath("connections_max.sql").read_bytes()


def connections_max(connection: Connection) -> int:
    """That its user may have at most, others' left out of account: without what is reserved for superusers,
    and no more than the role's own limit.
    """
    row = connection.execute(_CONNECTIONS_MAX).fetchone()
    assert row is not None
    return int(row[0])


ROUNDS = 8
"""Two connections that share n server processes are told apart from sessions in a round with a probability of
1 - 1/n or more: 8 rounds miss a pool of 2 once in 256 times, and one process is known at once."""

REMEDY = "connect to the server itself, or to a pool with pool_mode = session and room for every connection"


def require_session(connection: Connection, connect: Callable[[], Connection]) -> None:
    """Raises ConnectError where the connection has no session of its own.

    ``connection`` is new and in autocommit mode; ``connect`` gives another one like it. A server tells a
    client the number of the process that serves it; a pooler has to invent one. So a direct connection costs
    one statement. Raises psycopg.Error where not even that can be asked.
    """
    if _server_process(connection) == connection.info.backend_pid:
        return
    try:
        with connect() as other:
            pooled = _is_pooled_by_transaction(connection, other)
    except psycopg.Error as error:
        words = error.diag.message_primary or str(error)
        raise ConnectError(f"a pooler in between refuses a second transaction: {words}: {REMEDY}") from None
    if pooled:
        raise ConnectError(
            "a pooler in between gives each transaction another session (transaction pooling), "
            f"and pgdyno's locks and settings need one session: {REMEDY}"
        )


def _is_pooled_by_transaction(connection: Connection, other: Connection) -> bool:
    """Return whether the process of one connection changes, or is found on both."""
    own = _server_process(connection)
    for _ in range(ROUNDS):
        # While this transaction is open its process is taken, so that the pooler has to find another one.
        with other.transaction():
            if _server_process(other) == own or _server_process(connection) != own:
                return True
    return False


def _server_process(connection: Connection) -> int:
    # Marked as a probe's, so that it is not counted in the workload.
    row = connection.execute("select /* pgdyno probe */ pg_backend_pid()", prepare=False).fetchone()
    if row is None or not isinstance(row[0], int):
        raise ConnectError("the server does not tell the number of the process that serves this connection")
    return row[0]


START_TIME_TOLERANCE_S = 5.0
"""Between the postmaster's start by its own clock and by the kernel's, which counts ticks since boot."""


def local_postmaster(connection: Connection) -> int | None:
    """The server's postmaster, where it is a process that we can see."""
    row = connection.execute(
        "select pg_backend_pid(), extract(epoch from pg_postmaster_start_time())::float8"
    ).fetchone()
    assert row is not None
    try:
        parent = psutil.Process(row[0]).parent()
        # In a container the numbers are of another world: only the right start time makes it ours.
        if parent is not None and abs(parent.create_time() - row[1]) < START_TIME_TOLERANCE_S:
            return parent.pid
    except psutil.Error:
        return None
    return None


def free_for_data(connection: Connection) -> int | None:
    """Bytes that the disk of the server's data directory can still hold; None where we cannot know."""
    row = connection.execute(
        "select setting from pg_settings where name = 'data_directory' and setting <> ''"
    ).fetchone()
    if row is None or local_postmaster(connection) is None:
        return None
    path = Path(row[0])
    try:
        return free_bytes(path) if path.is_dir() else None
    except OSError:
        return None


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
        ownership_marker.check_name(dbname)
        if self.has_database(dbname):
            raise DatasetError(f"cannot create {dbname} on {self.dsn}: it already exists")
        number = ownership_marker.random_lock()
        making = sql.Identifier(ownership_marker.making_name(number))
        with self.connect() as connection:
            limit = sql.Literal(ownership_marker.making_limit(number))
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
        self.create(dbname, ownership_marker.HALF_MADE)
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
        purposes = {row[0]: ownership_marker.purpose_of(*row) for row in found}
        return {name: purpose for name, purpose in purposes.items() if purpose is not None}

    def drop_what_nobody_holds(self) -> None:
        """Drops what killed pgdynos left, of any machine: databases in the making, and trials' copies.

        One that was renamed is kept. The marks are read before the locks: whoever makes one has its lock
        already.
        """
        locks = {name: ownership_marker.lock_in(purpose) for name, purpose in self.own_databases().items()}
        with self.connect() as connection:
            held = held_numbers(connection)
        for name, number in locks.items():
            if number is not None and number not in held and ownership_marker.is_named_for(name, number):
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
        if row is None or ownership_marker.purpose_of(*row) is None:
            raise DatasetError(
                f"the database {dbname} on {self.dsn} was not made by pgdyno: it is left alone"
            )


_MARKS: LiteralString = (
    # Cut: anybody may comment on a database of theirs, and a mark of ours is short.
    "select datname, datconnlimit, left(shobj_description(oid, 'pg_database'), 1000) from pg_database"
)


def _comment(connection: Connection, name: sql.Identifier, purpose: str) -> None:
    text = sql.Literal(ownership_marker.comment_of(purpose))
    connection.execute(sql.SQL("comment on database {} is {}").format(name, text))


def _is_local(connection: Connection) -> bool:
    """A Unix socket, or an address of the loopback interface."""
    address = connection.info.hostaddr
    if not address or address.startswith("/"):
        return True
    return ipaddress.ip_address(address).is_loopback


def _primary(error: psycopg.Error) -> str:
    return error.diag.message_primary or str(error).splitlines()[0]


PURPOSE = "a trial's copy"


@dataclass
class TrialCopy:
    """One copy of the database ``pristine``, made anew as often as wanted. ``end`` it."""

    remote: Remote
    pristine: str
    number: int = field(default_factory=ownership_marker.random_lock)
    _holder: Connection | None = None

    @property
    def name(self) -> str:
        """Of the database."""
        return ownership_marker.trial_name(self.number)

    def restore(self) -> None:
        """A fresh copy, under the lock. Raises ConnectError, DatasetError."""
        self._hold()
        self.remote.drop(self.name)
        self.remote.create(self.name, ownership_marker.held(PURPOSE, self.number), template=self.pristine)

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
