"""Running servers given as connection strings, poolers, and the databases on them that are ours.

- Detection of connection poolers (pgbouncer) with transaction pooling.
- Ownership marker and advisory locks of the databases of pgdyno on a running server.
- A running server given as a connection string: its description, databases, trial copies.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import json
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, LiteralString

import psutil
import psycopg
from psycopg import sql

from pgdyno.errors import ConnectError, DatasetError, ServerError, UsageError, in_one_line
from pgdyno.server.builds import OLDEST_MAJOR, Version, version_of
from pgdyno.server.connections import Dsn, connect
from pgdyno.server.directories import free_bytes
from pgdyno.server.processes import Connection, keep_idle

# ----------------------------------------------------------------------
# Detection of connection poolers (pgbouncer) with transaction pooling.
#
# pgdyno needs sessions for its advisory locks and settings. With transaction pooling they would stay in
# server sessions of other clients: an advisory lock that is never released blocks later runs forever. So
# pgdyno rejects a connection through such a pooler before it sets or locks anything. The test leaves nothing
# behind.
# ----------------------------------------------------------------------

ROUNDS = 8
"""Rounds of the test for transaction pooling. Each round detects a pool of n server processes with a
probability of at least 1 - 1/n. So 8 rounds miss a pool of 2 once in 256 times, and never a pool of 1."""

REMEDY = "connect directly, or to a pool with pool_mode = session and enough connections"


def require_session(connection: Connection, connect: Callable[[], Connection]) -> None:
    """Raise ConnectError if the connection has no session of its own.

    ``connection`` is new and in autocommit mode; ``connect`` opens another one like it. A server reports its
    backend process ID at login; a pooler invents one. So the test of a direct connection costs one statement.
    Raises psycopg.Error if that statement fails.
    """
    if _server_process(connection) == connection.info.backend_pid:
        return
    try:
        with connect() as other:
            pooled = _is_pooled_by_transaction(connection, other)
    except psycopg.Error as error:
        words = error.diag.message_primary or str(error)
        raise ConnectError(f"a connection pooler refuses a second transaction: {words}: {REMEDY}") from None
    if pooled:
        raise ConnectError(
            "a connection pooler uses transaction pooling, but the locks and settings of pgdyno need a "
            f"session: {REMEDY}"
        )


def _is_pooled_by_transaction(connection: Connection, other: Connection) -> bool:
    """Return whether the backend of one connection changes, or serves both."""
    own = _server_process(connection)
    for _ in range(ROUNDS):
        # An open transaction occupies its backend, so the pooler must use another one.
        with other.transaction():
            if _server_process(other) == own or _server_process(connection) != own:
                return True
    return False


def _server_process(connection: Connection) -> int:
    # The comment excludes the statement from the statistics of the workload.
    row = connection.execute("select /* pgdyno probe */ pg_backend_pid()", prepare=False).fetchone()
    if row is None or not isinstance(row[0], int):
        raise ConnectError("the server does not report the backend process ID of this connection")
    return row[0]


# ----------------------------------------------------------------------
# Ownership marker and advisory locks of the databases of pgdyno on a running server.
#
# The marker is a comment: ``pgdyno {"purpose": …}``. A new database has no comment yet, and pgdyno may be
# killed at that moment. So a database under creation is marked with properties that CREATE DATABASE can set:
# a name with a random number, and a connection limit that is a digest of that number. Its creator holds the
# advisory lock with that number. So does the user of a trial copy.
# ----------------------------------------------------------------------

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
    suffix: LiteralString = "_shared" if shared else ""
    statement = f"select pg_try_advisory_lock{suffix}(%s::bigint)"
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


# ----------------------------------------------------------------------
# A running server given as a connection string: its description, databases, trial copies.
#
# pgdyno works only in its own databases there. Each has an ownership marker, and pgdyno never drops a
# database without one. ``CREATE DATABASE … TEMPLATE`` creates the copy for each trial. pgdyno does not
# restart such a server.
#
# The name of a copy is random, and pgdyno holds an advisory lock with the same number while it lives,
# whatever the database. If no session holds the lock of a marked copy, its pgdyno was killed, and the copy is
# dropped. While a study uses a dataset, it shares the lock ``use_lock_of`` its name, without which nobody
# drops it.
# ----------------------------------------------------------------------

_CONNECTIONS_MAX = Path(__file__).with_name("sql").joinpath("connections_max.sql").read_bytes()


def connections_max(connection: Connection) -> int:
    """Return the maximum number of connections of this role, regardless of other clients.

    Connections reserved for superusers do not count. The limit of the role applies, too.
    """
    return int(_row(connection, _CONNECTIONS_MAX)[0])


def _row(connection: Connection, statement: LiteralString | bytes, *parameters: object) -> tuple[Any, ...]:
    """Return the row of a statement that has one."""
    (row,) = connection.execute(statement, parameters).fetchall()
    return row


START_TIME_TOLERANCE_S = 5.0
"""Tolerance between the start time that the postmaster reports and that of the kernel, which counts ticks
since boot."""


def local_postmaster(connection: Connection) -> int | None:
    """Return the process ID of the postmaster if it is a visible process of this machine."""
    pid, started_s = _row(
        connection, "select pg_backend_pid(), extract(epoch from pg_postmaster_start_time())::float8"
    )
    try:
        parent = psutil.Process(pid).parent()
        # A container has its own process IDs: only the start time identifies the postmaster.
        if parent is not None and abs(parent.create_time() - started_s) < START_TIME_TOLERANCE_S:
            return parent.pid
    except psutil.Error:
        return None
    return None


def free_for_data(connection: Connection) -> int | None:
    """Return the free bytes on the disk of the server's data directory; None if unknown."""
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
    """Facts about a running server. ``effective`` has the readable settings as ``SHOW`` prints them."""

    version: Version
    version_text: str
    is_local: bool
    effective: Mapping[str, str]


PRISTINE = ", pristine"
"""End of the purpose of a dataset that studies copy."""


@dataclass(frozen=True)
class OwnDatabase:
    """A database that pgdyno created. ``in_use``: by a running pgdyno, on any machine."""

    name: str
    purpose: str
    size_bytes: int
    in_use: bool

    @property
    def is_of_study(self) -> bool:
        """True if a study loads it again when needed."""
        locked = lock_in(self.purpose) is not None
        return locked or self.purpose == INCOMPLETE or self.purpose.endswith(PRISTINE)


@dataclass(frozen=True)
class Remote:
    """A running server given as a connection string. Call ``check`` first."""

    dsn: Dsn

    def connect(self, dbname: str | None = None) -> Connection:
        """Open a connection in autocommit mode with a session of its own. Raises ConnectError without the
        password.
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
        """Raise ConnectError if the server is too old. The login reports the version without a statement."""
        version = version_of(connection)
        if version.major < OLDEST_MAJOR:
            shown = connection.info.parameter_status("server_version") or version
            raise ConnectError(f"the server runs PostgreSQL {shown}: pgdyno requires {OLDEST_MAJOR} or newer")

    def _connect(self, dsn: Dsn) -> Connection:
        try:
            return connect(dsn.conninfo)
        except (psycopg.Error, OSError, UnicodeError) as error:
            if not dsn.names_database and f'"{dsn.database}" does not exist' in str(error):
                # libpq's default is a database of the user's name.
                with contextlib.suppress(psycopg.Error, OSError, UnicodeError):
                    return connect(dsn.with_database(MAINTENANCE).conninfo)
            raise ConnectError(f"no connection to {dsn}: {dsn.masked(in_one_line(error))}") from None

    def check(self, *, must_create: bool = True) -> Description:
        """Return a description of the server.

        Raises ConnectError if it is unreachable, too old or a standby. With ``must_create``, also if the role
        has no permission to create databases.
        """
        with self.connect() as connection:
            version = version_of(connection)
            row = connection.execute(
                "select version(), current_user, rolcreatedb or rolsuper, pg_is_in_recovery()"
                " from pg_roles where rolname = current_user"
            ).fetchone()
            if row is None:
                raise ConnectError(f"{self.dsn} does not report the privileges of the user")
            text, user, may_create, standby = row
            if standby:
                raise ConnectError(f"{self.dsn} is a standby, which is read-only: connect to a primary")
            if must_create and not may_create:
                raise ConnectError(
                    f"the role {user} has no permission to create databases on {self.dsn}: "
                    f"ALTER ROLE {user} CREATEDB"
                )
            settings = connection.execute(
                "select name, current_setting(name, true) from pg_settings"
            ).fetchall()
            effective = {name: value or "" for name, value in settings}
            return Description(version, text, _is_local(connection), effective)

    def create(self, dbname: str, purpose: str, *, template: str | None = None) -> Dsn:
        """Create a database with an ownership marker; with ``template`` (a marked database), as a copy of it.

        ``purpose`` (workload, scale …) is part of the marker. During creation the database has a temporary
        name and marker (see above). So a killed pgdyno blocks no name, and the next one drops
        the remainder. Raises DatasetError if the name exists or PostgreSQL reports an error.
        """
        check_name(dbname)
        if self.has_database(dbname):
            raise DatasetError(f"cannot create {dbname} on {self.dsn}: it already exists")
        number = random_lock()
        making = sql.Identifier(creation_name(number))
        with self.connect() as connection:
            limit = sql.Literal(creation_limit(number))
            statement = sql.SQL("create database {} connection limit {}").format(making, limit)
            if template is not None:
                self._require_mark(connection, template)
                statement += sql.SQL(" template {}").format(sql.Identifier(template))
                if connection.info.server_version >= FILE_COPY_FROM_MAJOR * 10000:
                    # The default from 15 on writes every page to the WAL: slow, and it disturbs the trial.
                    statement += sql.SQL(" strategy file_copy")
            take_lock(connection, number)
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
        """Create a database that the ``with`` block fills. It is marked as incomplete until the block ends,
        and dropped if the block fails. Raises DatasetError.
        """
        self.create(dbname, INCOMPLETE)
        try:
            yield
            with self.connect() as connection:
                _comment(connection, sql.Identifier(dbname), purpose)
        except BaseException:
            with contextlib.suppress(ServerError, DatasetError):
                self.drop(dbname)
            raise

    def maintenance(self) -> Remote:
        """Return the same server with the database postgres, which all pgdynos use for their locks.

        An advisory lock belongs to one database. Without access to postgres, returns the database of the DSN.
        """
        meeting = Remote(self.dsn.with_database(MAINTENANCE))
        try:
            meeting.connect().close()
        except ConnectError:
            return self
        return meeting

    def identity(self) -> tuple[object, ...]:
        """Return a value that is equal for two connection strings to the same database of the same server."""
        with self.connect() as connection:
            return _row(
                connection,
                "select pg_postmaster_start_time(), oid from pg_database where datname = current_database()",
            )

    def has_database(self, dbname: str) -> bool:
        """Return whether a database of that name exists, whoever created it."""
        with self.connect() as connection:
            return _exists(connection, dbname)

    def size_bytes(self, dbname: str) -> int:
        """Return the size of a database on disk."""
        with self.connect() as connection:
            return int(_row(connection, "select pg_database_size(%s)", dbname)[0])

    def own_databases(self) -> dict[str, str]:
        """Return the databases with an ownership marker, each with its purpose."""
        with self.connect() as connection:
            found = connection.execute(f"{_MARKS} order by datname").fetchall()
        purposes = {row[0]: purpose_of(*row) for row in found}
        return {name: purpose for name, purpose in purposes.items() if purpose is not None}

    def describe_databases(self) -> list[OwnDatabase]:
        """Return the databases with an ownership marker, by name."""
        own = self.own_databases()
        with self.connect() as connection:
            held = held_locks(connection)
        return [
            OwnDatabase(
                name, purpose, self.size_bytes(name), in_use=not held.isdisjoint(_locks(name, purpose))
            )
            for name, purpose in own.items()
        ]

    def prune(self) -> list[OwnDatabase]:
        """Drop the databases of studies that are not in use, and return them. Raises DatasetError.

        A database of ``pgdyno load`` has a name that the user chose, and is kept.
        """
        found = [of for of in self.describe_databases() if of.is_of_study and not of.in_use]
        with self.maintenance().connect() as turn:
            return [of for of in found if self._drop_unused(of, turn)]

    def _drop_unused(self, of: OwnDatabase, turn: Connection) -> bool:
        """Drop a database under all of its locks, so that no study begins to use it meanwhile.

        Returns False if another session holds one of them, here or in another database.
        """
        locks = _locks(of.name, of.purpose)
        try:
            is_free = all(try_lock(turn, number) for number in locks) and held_locks(turn).isdisjoint(locks)
        except psycopg.Error as error:
            raise ConnectError(f"cannot take an advisory lock on {self.dsn}: {_primary(error)}") from None
        if is_free:
            self.drop(of.name)
        return is_free

    def drop_what_nobody_holds(self) -> None:
        """Drop the databases of killed pgdynos on any machine: unfinished databases and trial copies.

        A renamed database is kept. The markers are read before the locks, because a creator takes its lock
        before it creates the database.
        """
        locks = {name: lock_in(purpose) for name, purpose in self.own_databases().items()}
        with self.connect() as connection:
            held = held_locks(connection)
        for name, number in locks.items():
            if number is not None and number not in held and is_named_for(name, number):
                with contextlib.suppress(ServerError, DatasetError):
                    self.drop(name)

    def drop(self, dbname: str, *, end_sessions: bool = False) -> None:
        """Drop a database of pgdyno if it exists. Raises DatasetError if pgdyno did not create it, or if it
        is in use. ``end_sessions``: first end the sessions of this role in it.
        """
        with self.connect() as connection:
            if not _exists(connection, dbname):
                return
            self._require_mark(connection, dbname)
            try:
                if end_sessions:
                    connection.execute(_END_SESSIONS, (dbname,))
                connection.execute(sql.SQL("drop database {}").format(sql.Identifier(dbname)))
            except psycopg.errors.ObjectInUse:
                why = "it has other sessions: end them first"
                raise DatasetError(f"cannot drop {dbname} on {self.dsn}: {why}") from None
            except psycopg.Error as error:
                raise DatasetError(f"cannot drop {dbname} on {self.dsn}: {_primary(error)}") from None

    def _require_mark(self, connection: Connection, dbname: str) -> None:
        row = connection.execute(f"{_MARKS} where datname = %s", (dbname,)).fetchone()
        if row is None or purpose_of(*row) is None:
            raise DatasetError(
                f"the database {dbname} on {self.dsn} was not created by pgdyno and is not dropped"
            )


def _locks(name: str, purpose: str) -> set[int]:
    """Return the numbers of the locks of a database: of its creator, of its users, and of a trial copy."""
    number = lock_in(purpose)
    return {lock_of(name), use_lock_of(name)} | ({number} if number is not None else set())


_MARKS: LiteralString = (
    # Truncated: any owner can comment on a database, and a marker is short.
    "select datname, datconnlimit, left(shobj_description(oid, 'pg_database'), 1000) from pg_database"
)


_END_SESSIONS: LiteralString = (
    "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s and usename = current_user"
)


def _exists(connection: Connection, dbname: str) -> bool:
    return bool(_row(connection, "select exists (select from pg_database where datname = %s)", dbname)[0])


def _comment(connection: Connection, name: sql.Identifier, purpose: str) -> None:
    text = sql.Literal(comment_of(purpose))
    connection.execute(sql.SQL("comment on database {} is {}").format(name, text))


def _is_local(connection: Connection) -> bool:
    """Return whether the connection uses a Unix socket or the loopback interface."""
    address = connection.info.hostaddr
    if not address or address.startswith("/"):
        return True
    return ipaddress.ip_address(address).is_loopback


def _primary(error: psycopg.Error) -> str:
    return error.diag.message_primary or str(error).splitlines()[0]


PURPOSE = "a trial's copy"


@dataclass
class TrialCopy:
    """Copy of the database ``pristine`` for trials. ``hold`` keeps both from being dropped, ``restore``
    replaces the copy, and ``end`` drops it.
    """

    remote: Remote
    pristine: str
    number: int = field(default_factory=random_lock)
    _holder: Connection | None = None

    @property
    def name(self) -> str:
        """Name of the database."""
        return trial_name(self.number)

    def restore(self) -> None:
        """Take the locks and create a new copy. Raises ConnectError, DatasetError."""
        self.hold()
        self._drop()
        self.remote.create(self.name, locked_purpose(PURPOSE, self.number), template=self.pristine)

    def end(self) -> None:
        """Drop the copy and release the locks. Never raises."""
        with contextlib.suppress(ServerError, DatasetError, psycopg.Error):
            self._drop()
        if self._holder is not None:
            self._holder.close()
            self._holder = None

    def _drop(self) -> None:
        # The server keeps the sessions of a load generator whose network is lost.
        self.remote.drop(self.name, end_sessions=True)

    def hold(self) -> None:
        """Take the locks, again if the server ended the connection that held them. Raises ConnectError."""
        with contextlib.suppress(psycopg.Error):
            if self._holder is not None and self._holder.execute("select 1"):
                return
        self._holder = self.remote.maintenance().connect()
        take_lock(self._holder, self.number)
        take_lock(self._holder, use_lock_of(self.pristine), shared=True)
