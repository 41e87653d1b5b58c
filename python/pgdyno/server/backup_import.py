"""Import of a base backup or a stopped data directory: a copy that cannot act on its origin.

The copy has none of the origin's settings files, no recovery or standby signal, no replication slots, no
subscriptions and no foreign servers. Its first start is in single-user mode, which runs no background
workers. The next one disables logical replication workers until the subscriptions are removed. So the copy
never contacts another server.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

from pgdyno.errors import DatasetError, UsageError
from pgdyno.server.build import Build
from pgdyno.server.cluster import Cluster, InitOptions
from pgdyno.server.dump_filter import DISABLE_DBLINK
from pgdyno.server.file_copy import copy_bytes
from pgdyno.server.running import SUPERUSER, Connection, Server, last_messages
from pgdyno.server.server_account import Account
from pgdyno.server.server_process import RECOVERY_TIMEOUT_S, run_tool
from pgdyno.server.snapshot import ClusterState, state_of
from pgdyno.study.own_data import OwnData

CONFIG_FILES = ("postgresql.conf", "pg_hba.conf", "pg_ident.conf")
"""Settings files that the copy has from initdb."""

LEFT_OUT = frozenset(
    {
        *CONFIG_FILES,
        *("postgresql.auto.conf", "postmaster.opts", "current_logfiles", "log", "pg_log"),
        *("recovery.conf", "recovery.done", "recovery.signal", "standby.signal", "trigger_file"),
        *("backup_manifest", "pgdyno.conf"),
    }
)
"""Files and directories of the top level that are not copied: settings, signals and logs of the origin."""

EMPTIED = frozenset(
    {"pg_replslot", "pg_stat_tmp", "pg_dynshmem", "pg_notify", "pg_subtrans", "pg_serial", "pg_snapshots"}
)
"""Directories without their content: replication slots, and what a server creates again at its start."""

_SQL = resources.files(__package__).joinpath("sql")
FOREIGN_TABLES_TO_LOCAL = _SQL.joinpath("foreign_tables_to_local.sql").read_bytes()

FOREIGN_TABLES = (
    "SELECT format('%s.%s', nspname, relname) FROM pg_class JOIN pg_namespace AS n ON n.oid = relnamespace"
    " WHERE relkind = 'f' ORDER BY 1"
)
CALLERS_OF_DBLINK = _SQL.joinpath("callers_of_dblink.sql").read_text()
HAS_DBLINK = "SELECT extname FROM pg_extension WHERE extname = 'dblink'"

SECRETS = ("pg_user_mapping", "pg_foreign_server", "pg_subscription")
"""Catalogs with passwords, which are rewritten so that deleted rows leave the disk."""

NO_REPLICATION = {"max_logical_replication_workers": "0"}

ROLE = (
    f"DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{SUPERUSER}') THEN "
    f"CREATE ROLE {SUPERUSER}; END IF; "
    f"ALTER ROLE {SUPERUSER} SUPERUSER LOGIN CONNECTION LIMIT -1 VALID UNTIL 'infinity'; END $$"
)
KEPT_SETTING = "search_path"
"""The only setting of databases and roles that is kept: names in scripts depend on it."""


def require_importable(source: Path) -> None:
    """Raise UsageError, with a remedy, for a directory that cannot be copied to a working server."""
    if (source / "postmaster.pid").exists():
        raise UsageError(
            f"--data: a server may be running on {source} (postmaster.pid exists): take a base backup with "
            "pg_basebackup, or stop the server and remove a stale postmaster.pid"
        )
    spaces = source / "pg_tblspc"
    if (source / "tablespace_map").exists() or (spaces.is_dir() and any(spaces.iterdir())):
        raise UsageError(f"--data: {source} has tablespaces, which are not supported: use a dump (pg_dump)")
    if (source / "backup_label").exists():
        return
    try:
        state = state_of(source)
    except DatasetError as error:
        raise UsageError(f"--data: {error}") from None
    if state is not ClusterState.SHUT_DOWN:
        raise UsageError(
            f"--data: {source} was not shut down cleanly (state: {state.name.lower()}) and is no base backup "
            "(no backup_label): stop its server with pg_ctl stop -m fast, or use pg_basebackup"
        )


def import_backup(
    data: OwnData, build: Build, data_dir: Path, account: Account, check: Callable[[], None]
) -> None:
    """Copy the backup to ``data_dir`` and recover it, with the superuser of pgdyno. The source is only read.

    ``check`` is called between files and may raise. Raises UsageError, DatasetError, StartError, OSError.
    """
    source = Path(data.path)
    require_importable(source)
    scratch = data_dir.with_name("settings")
    Cluster(build, scratch, account).initdb(InitOptions(sync=False))
    data_dir.mkdir(mode=0o700)
    account.own(data_dir)
    for path in _entries(source):
        check()
        _copy(path, source / path, data_dir / path, account)
    for name in CONFIG_FILES:
        _copy(Path(name), scratch / name, data_dir / name, account)
    shutil.rmtree(scratch)
    _recover(data, build, data_dir, account, check)


def _entries(source: Path) -> Iterator[Path]:
    """Yield the relative paths to copy, a directory before its content. Raises UsageError for a link."""
    pending = [Path()]
    while pending:
        folder = pending.pop()
        for found in sorted(os.scandir(source / folder), key=lambda entry: entry.name):
            path = folder / found.name
            if found.is_symlink() and path != Path("pg_wal"):
                raise UsageError(f"--data: {source / path} is a symbolic link, which is not supported")
            if str(path) in LEFT_OUT or found.name == "pg_internal.init":
                continue
            yield path
            if found.is_dir() and str(path) not in EMPTIED:
                pending.append(path)


def _copy(path: Path, source: Path, target: Path, account: Account) -> None:
    if source.is_dir():
        target.mkdir(mode=0o700)
    elif source.is_file():
        copy_bytes(source, target, source.stat().st_size)
        target.chmod(0o600)
    else:
        raise UsageError(f"--data: {path} is neither a file nor a directory")
    account.own(target)


def _recover(
    data: OwnData, build: Build, data_dir: Path, account: Account, check: Callable[[], None]
) -> None:
    """Start the copy in single-user mode, which replays the WAL of a backup, and create the superuser."""
    command = [str(build.program("postgres")), "--single", "-D", str(data_dir), "template1"]
    statements = [f"{ROLE}\n".encode(), b"CREATE DATABASE postgres\n"]
    done = run_tool(command, account, RECOVERY_TIMEOUT_S, feed=statements, check=check)
    # A hint of the server would name files of our copy.
    lines = [line for line in done.stderr.splitlines() if "HINT:" not in line and str(data_dir) not in line]
    errors = [line for line in lines if "already exists" not in line]
    said = "\n".join(lines)
    if done.returncode != 0 or any(f"{word}: " in line for line in errors for word in ("ERROR", "PANIC")):
        raise DatasetError(
            f"the backup {data.label} does not start on {build.label}: {last_messages(said)}: "
            "take a backup with its WAL (pg_basebackup --wal-method=stream), and use a server built for the "
            "same machine and block size"
        )


def disarm(server: Server, connection: Connection) -> list[str]:
    """Remove what reaches other servers, and settings of databases and roles. Return sentences about the
    changes.

    The server must run with NO_REPLICATION.
    """
    done = []
    if names := _column(connection, "SELECT subname FROM pg_subscription ORDER BY 1"):
        for database in _databases(connection):
            with server.connect(database) as other:
                other.execute("DELETE FROM pg_subscription_rel")
        # DROP SUBSCRIPTION may contact the publisher.
        connection.execute("DELETE FROM pg_subscription")
        done.append(f"subscriptions were removed: {', '.join(names)}")
    done += _without_remote_objects(server, _databases(connection))
    settings = _column(
        connection,
        "SELECT DISTINCT split_part(one, '=', 1) FROM pg_db_role_setting, unnest(setconfig) AS one"
        " ORDER BY 1",
    )
    if settings := [name for name in settings if name != KEPT_SETTING]:
        connection.execute(
            "UPDATE pg_db_role_setting SET setconfig = ARRAY(SELECT one FROM unnest(setconfig) AS one "
            f"WHERE split_part(one, '=', 1) = '{KEPT_SETTING}')"
        )
        connection.execute("DELETE FROM pg_db_role_setting WHERE setconfig = '{}'")
        done.append(f"settings of databases and roles were removed: {', '.join(settings)}")
    return done


def _without_remote_objects(server: Server, databases: list[str]) -> list[str]:
    """Make foreign tables local and empty, and remove foreign servers, jobs, and the effect of dblink."""
    emptied, callers = [], []
    for database in databases:
        with server.connect(database) as connection:
            emptied += _column(connection, FOREIGN_TABLES)
            connection.execute(FOREIGN_TABLES_TO_LOCAL)
            if _column(connection, HAS_DBLINK):
                connection.execute(DISABLE_DBLINK)
                callers += _column(connection, CALLERS_OF_DBLINK)
            for name in SECRETS:
                connection.execute(f"VACUUM FULL {name}".encode())
    sentences = {
        "foreign tables are empty local tables": emptied,
        "dblink returns no row to its callers": callers,
    }
    return [f"{text}: {', '.join(names)}" for text, names in sentences.items() if names]


def database_of(data: OwnData, connection: Connection) -> str:
    """Return the database to measure: the one named, or the only one. Raises UsageError."""
    names = _databases(connection)
    others = [name for name in names if name != "postgres"] or names
    if data.database:
        if data.database not in names:
            raise UsageError(f"{data.label} has no database {data.database!r}: it has {', '.join(names)}")
        return data.database
    if len(others) > 1:
        raise UsageError(
            f"{data.label} has several databases ({', '.join(others)}): choose one with "
            "pgdyno data add NAME SOURCE --database DATABASE"
        )
    return others[0]


def mismatched_collation(connection: Connection) -> str:
    """Return a sentence if the collation library of the origin had another version; else empty.

    Databases record it from PostgreSQL 15 on.
    """
    if connection.info.server_version < 150000:
        return ""
    row = connection.execute(
        "SELECT datcollversion, pg_database_collation_actual_version(oid) FROM pg_database "
        "WHERE datname = current_database()"
    ).fetchone()
    if row is None or row[0] == row[1]:
        return ""
    return f"the collation version was {row[0]} and is {row[1]} here, so text indexes may be wrong"


def _databases(connection: Connection) -> list[str]:
    return _column(
        connection,
        "SELECT datname FROM pg_database WHERE datallowconn AND NOT datistemplate ORDER BY 1",
    )


def _column(connection: Connection, statement: str) -> list[str]:
    return [str(row[0]) for row in connection.execute(statement.encode()).fetchall()]


def require_extensions(connection: Connection, wanted: list[str], label: str, server: str) -> None:
    """Raise DatasetError for extensions that the server lacks."""
    wanted = [name for name in wanted if name != "plpgsql"]
    if not wanted:
        return  # some builds have control files of newer versions, which they cannot list
    have = set(_column(connection, "SELECT name FROM pg_available_extensions"))
    if missing := sorted(set(wanted) - have):
        raise DatasetError(
            f"{label} needs the extensions {', '.join(missing)}, which {server} lacks: install them, use a "
            "server that has them, or make a dump without them"
        )


def installed_extensions(connection: Connection) -> list[str]:
    """Return the extensions of the current database."""
    return _column(connection, "SELECT extname FROM pg_extension")
