"""Loading of the user's data: dumps, base backups, data directories.

- Import of a base backup or a stopped data directory: a copy that cannot act on its origin.
- Loading of the user's data: a dump, scripts or a backup become the data directory of a dataset.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from pgdyno.errors import DatasetError, UsageError, in_one_line
from pgdyno.features.dumps.dump import DISABLE_DBLINK, JOBS, DumpFacts, DumpFilter, scan
from pgdyno.features.dumps.origin import OriginFacts, Role, count_rows, differences
from pgdyno.features.own_data.plan import OwnData
from pgdyno.features.own_data.source import (
    LOAD_SCRIPT,
    READ_TIMEOUT_S,
    client_program,
    examined,
    installed_clients,
    own_data_of,
    unpacked_lines,
    value_of,
)
from pgdyno.features.own_data.tools import feed_lines, tool_lines
from pgdyno.measure.dataset_loading import DATASET_SEED, DataKind, Maker, load_settings
from pgdyno.server.builds import Build, create_extensions
from pgdyno.server.connections import cancel
from pgdyno.server.directories import OURSELVES, Account
from pgdyno.server.processes import (
    RECOVERY_TIMEOUT_S,
    SUPERUSER,
    Cluster,
    Connection,
    InitOptions,
    Server,
    last_messages,
    run_tool,
)
from pgdyno.server.snapshots import ClusterState, DatasetKey, Make, copy_bytes, state_of
from pgdyno.study.workload_parameters import WorkloadParameters
from pgdyno.workloads.workload import first_line

# ----------------------------------------------------------------------
# Import of a base backup or a stopped data directory: a copy that cannot act on its origin.
#
# The copy has none of the origin's settings files, no recovery or standby signal, no replication slots, no
# subscriptions and no foreign servers. Its first start is in single-user mode, which runs no background
# workers. The next one disables logical replication workers until the subscriptions are removed. So the copy
# never contacts another server.
# ----------------------------------------------------------------------

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
TABLES_OF_JOBS = (
    "SELECT schemaname || '.' || tablename FROM pg_tables"
    f" WHERE (schemaname, tablename) IN ({', '.join(map(str, sorted(JOBS)))}) ORDER BY 1"
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
    copies = [(source / path, data_dir / path) for path in _entries(source)]
    for original, copy in [*copies, *((scratch / name, data_dir / name) for name in CONFIG_FILES)]:
        check()
        _copy(original, copy, account)
    shutil.rmtree(scratch)
    # Single-user mode replays the WAL of a backup. It creates the superuser.
    command = [str(build.program("postgres")), "--single", "-D", str(data_dir), "template1"]
    statements = [f"{ROLE}\n".encode(), b"CREATE DATABASE postgres\n"]
    feed = partial(feed_lines, statements, check)
    done = run_tool(command, account, RECOVERY_TIMEOUT_S, feed=feed, check=check)
    # A hint of the server would name files of our copy.
    lines = [line for line in done.stderr.splitlines() if "HINT:" not in line and str(data_dir) not in line]
    errors = [line for line in lines if "already exists" not in line]
    if done.returncode != 0 or any(f"{word}: " in line for line in errors for word in ("ERROR", "PANIC")):
        said = last_messages("\n".join(lines))
        raise DatasetError(
            f"the backup {data.label} does not start on {build.label}: {said}: "
            "take a backup with its WAL (pg_basebackup --wal-method=stream), and use a server built for the "
            "same machine and block size"
        )


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


def _copy(source: Path, target: Path, account: Account) -> None:
    if source.is_dir():
        target.mkdir(mode=0o700)
    elif source.is_file():
        copy_bytes(source, target, source.stat().st_size)
        target.chmod(0o600)
    else:
        raise UsageError(f"--data: {source} is neither a file nor a directory")
    account.own(target)


def disarm(server: Server, connection: Connection) -> list[str]:
    """Remove what reaches other servers, and settings of databases and roles. Return sentences about the
    changes.

    The server must run with NO_REPLICATION.
    """
    done = []
    if names := _column(connection, "SELECT subname FROM pg_subscription ORDER BY 1"):
        for database in _column(connection, DATABASES):
            with server.connect(database) as other:
                other.execute("DELETE FROM pg_subscription_rel")
        # DROP SUBSCRIPTION may contact the publisher.
        connection.execute("DELETE FROM pg_subscription")
        done.append(f"subscriptions were removed: {', '.join(names)}")
    done += _without_remote_objects(server, _column(connection, DATABASES))
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
    emptied, jobs, callers = [], [], []
    for database in databases:
        with server.connect(database) as connection:
            emptied += _column(connection, FOREIGN_TABLES)
            tables = _column(connection, TABLES_OF_JOBS)
            jobs += [name for name in tables if value_of(connection, f"SELECT 1 FROM {name} LIMIT 1")]
            connection.execute(FOREIGN_TABLES_TO_LOCAL)
            if _column(connection, HAS_DBLINK):
                connection.execute(DISABLE_DBLINK)
                callers += _column(connection, CALLERS_OF_DBLINK)
            for name in SECRETS:
                connection.execute(f"VACUUM FULL {name}".encode())
    changes = {
        "foreign tables are empty local tables": emptied,
        "tables of jobs are empty": jobs,
        "dblink returns no row to its callers": callers,
    }
    return [f"{text}: {', '.join(of)}" for text, of in changes.items() if of]


def database_of(data: OwnData, connection: Connection) -> str:
    """Return the database to measure: the one named, or the only one. Raises UsageError."""
    names = _column(connection, DATABASES)
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


DATABASES = "SELECT datname FROM pg_database WHERE datallowconn AND NOT datistemplate ORDER BY 1"


def _column(connection: Connection, statement: str) -> list[str]:
    return [str(row[0]) for row in connection.execute(statement.encode()).fetchall()]


def require_extensions(
    connection: Connection, label: str, server: str, wanted: Iterable[str] | None = None
) -> None:
    """Raise DatasetError for extensions that the server lacks: of those wanted, or of those installed in the
    current database.
    """
    if wanted is None:
        wanted = _column(connection, "SELECT extname FROM pg_extension")
    wanted = {name for name in wanted if name != "plpgsql"}
    if not wanted:
        return  # some builds have control files of newer versions, which they cannot list
    have = _column(connection, "SELECT name FROM pg_available_extensions")
    if missing := sorted(wanted.difference(have)):
        raise DatasetError(
            f"{label} needs the extensions {', '.join(missing)}, which {server} lacks: install them, use a "
            "server that has them, or make a dump without them"
        )


# ----------------------------------------------------------------------
# Loading of the user's data: a dump, scripts or a backup become the data directory of a dataset.
# ----------------------------------------------------------------------

FORMAT = "own 3"
"""Version of this loading, part of the key of a dataset."""

DATABASE = "pgdyno_data"
"""Database of a dump, unless the dump creates its own."""

OnPhase = Callable[[str, float], None]

NEWER_SETTINGS = {"default_table_access_method": 12, "transaction_timeout": 17}
"""Settings that pg_dump writes, with the first version that has them."""

GROWTH = {"archive": 8, "plain": 2, "scripts": 4, "backup": 1}
"""Largest usual size of the data as a multiple of the source, to refuse a disk that is too small. Dumps are
compressed, and have indexes as statements only."""

TABLES = (
    "SELECT count(*) FROM pg_class JOIN pg_namespace AS n ON n.oid = relnamespace WHERE relkind IN ('r', 'p')"
    " AND nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')"
)
WITHOUT_STATISTICS = (
    f"{TABLES} AND relkind = 'r' AND pg_relation_size(pg_class.oid) > 0"
    " AND NOT EXISTS (SELECT FROM pg_statistic WHERE starelid = pg_class.oid)"
)
_MESSAGE = re.compile(r"psql:(?P<file>.*?):(?P<line>\d+): (?P<text>(?:ERROR|FATAL|error).*)")


def is_loaded_here(parameters: WorkloadParameters) -> bool:
    """Return whether the data are those of the user, as they were."""
    return own_data_of(parameters) is not None and not parameters.aging()


def key(build: Build, parameters: WorkloadParameters, init: InitOptions, _: Sequence[Build]) -> DatasetKey:
    """Return the key of the dataset. A backup belongs to a major version, other data to a build."""
    own = own_data_of(parameters)
    assert own is not None
    build_id = build.build_id
    if own.form == "backup":
        build_id = "-".join(filter(None, (f"postgresql-{build.version.major}", build.extensions_digest)))
        init = InitOptions()
    return DatasetKey(build_id, init, "data", own.shape(), DATASET_SEED, FORMAT, parameters.label)


def make(maker: Maker, build: Build, parameters: WorkloadParameters, _: Sequence[Build]) -> Make:
    """Return the function that creates the data directory."""
    own = own_data_of(parameters)
    assert own is not None
    return OwnDataMaker(own, build, parameters, maker).make


@dataclass(frozen=True)
class OwnDataMaker:
    """Creates the data directory of own data on one build."""

    data: OwnData
    build: Build
    parameters: WorkloadParameters
    maker: Maker

    def make(self, data_dir: Path) -> Mapping[str, Any]:
        """Create the data directory. Return its database and what was changed.

        Raises UsageError, DatasetError, ServerError, DiskFullError, Interrupted.
        """
        self._require_unchanged()
        self.maker.require_room(self.parameters, self.data.size_bytes * GROWTH[self.data.form])
        is_backup, account = self.data.form == "backup", self.maker.cache.account
        cluster = Cluster(self.build, data_dir, account)
        self._phase("copy" if is_backup else "initdb")
        try:
            if is_backup:
                import_backup(self.data, self.build, data_dir, account, self.maker.interruption.check)
            else:
                cluster.initdb(self.maker.init)
        except OSError as error:
            raise DatasetError(f"cannot copy {self.data.label}: {error}") from error
        settings = {**load_settings(self.build), **(NO_REPLICATION if is_backup else {})}
        origin = OriginFacts()
        with cluster.start(settings) as server, server.connect() as connection:
            if is_backup:
                changes = disarm(server, connection)
                database = database_of(self.data, connection)
            else:
                changes, origin = self._load(server, connection, data_dir.with_name("import"))
                changes += disarm(server, connection)
                database = self._database_with_tables(server, connection)
            self.maker.interruption.check()
            return {"database": database, **self._finished(server, database, changes, origin)}

    def _phase(self, name: str) -> None:
        self.maker.progress_of(self.parameters, self.build)(name, 0.0)

    def _program(self, name: str) -> str:
        """Return the path of a client program."""
        return str(client_program(name, [*installed_clients(self.maker.cache.store()), self.build]))

    def _require_unchanged(self) -> None:
        if not Path(self.data.path).exists():
            raise UsageError(
                f"--data: {self.data.path} is gone, and {self.build.label} has not loaded it yet: restore it"
            )
        source = self.data.model_copy(update={"source": self.data.path})
        if examined(source, self.maker.interruption.check).digest != self.data.digest:
            raise UsageError(f"--data: {self.data.path} has changed since this study began: start a new one")

    def _finished(
        self, server: Server, database: str, changes: list[str], origin: OriginFacts
    ) -> dict[str, Any]:
        """Analyze the database, compare it with its origin, and return the facts about it."""
        with server.connect(database) as connection, self.maker.interruption.tell(lambda: cancel(connection)):
            if self.data.form == "backup":
                require_extensions(connection, self.data.label, self.build.label)
            create_extensions(connection, self.build)
            changes += filter(None, [mismatched_collation(connection)])
            if self.data.analyze:
                self._phase("analyze")
                # A backup keeps its dead rows. VACUUM leaves autovacuum nothing to do in the trials.
                connection.execute("ANALYZE" if self.data.form == "backup" else "VACUUM (ANALYZE)")
            if not value_of(connection, TABLES):
                raise DatasetError(f"{self.data.label} contains no table: check the source")
            if origin.counted:
                self._phase("comparing")
                changes += self._compared(connection, origin)
            self._phase("checkpoint")
            return {"changes": changes, "without_statistics": value_of(connection, WITHOUT_STATISTICS)}

    def _compared(self, connection: Connection, origin: OriginFacts) -> Iterator[str]:
        """Yield sentences about rows that may differ. Raises DatasetError for others."""
        counted = origin.counted
        if self.data.locale:  # views may depend on it
            counted = [replace(one, kind="loose") if one.kind == "view" else one for one in counted]
        with connection.transaction(force_rollback=True):
            ours = list(count_rows(connection, counted, self.maker.interruption.check))
        wrong, loose, uncounted = differences(counted, ours)
        if wrong:
            raise DatasetError(
                f"the copy of {self.data.label} on {self.build.label} differs from its origin: "
                f"{listed(wrong)}: read the database again (pgdyno data remove, pgdyno data add); a view "
                "whose rows depend on the session or on time must call no such function IMMUTABLE. "
                "Nothing was measured"
            )
        if loose:
            yield f"rows of materialized views, or of views that depend on them: {listed(loose)}"
        if uncounted:
            yield f"rows were not compared: {listed(uncounted)}"

    def _load(self, server: Server, connection: Connection, work_dir: Path) -> tuple[list[str], OriginFacts]:
        """Load a dump or scripts into a new database. Return sentences about what was changed, and the facts
        about the origin if pgdyno has read it.
        """
        self._phase("reading")
        facts = scan(self._lines("--schema-only", "--create"))
        require_extensions(connection, self.data.label, self.build.label, facts.extensions)
        origin = OriginFacts.parse(facts.origin)
        changes = list(_roles_created(connection, facts, origin))
        self._create_database(connection, facts)
        if self.data.form == "plain" and not (self.data.locale or facts.locale):
            changes.append("the dump does not name its locale, and the copy has C")
        if facts.search_path:
            connection.execute(f"ALTER DATABASE {DATABASE} SET search_path TO {facts.search_path}".encode())
        self._phase("loading")
        unknown = {name for name, major in NEWER_SETTINGS.items() if self.build.version.major < major}
        changed = DumpFilter(frozenset(unknown))
        if self.data.form == "scripts":
            self._run_scripts(server, work_dir)
        else:
            lines = self._lines("--no-publications", "--no-subscriptions")
            self._run_psql(server, ["--file=-"], changed.changed(lines))
        if emptied := [*origin.emptied, *changed.emptied]:
            changes.append(
                f"empty tables (foreign tables and others) and views that depend on them: {listed(emptied)}"
            )
        if origin.missing_keys:
            changes.append(
                f"foreign keys to tables that were not read are left out: {listed(origin.missing_keys)}"
            )
        if facts.major and facts.major > self.build.version.major:
            changes.append(f"a dump of PostgreSQL {facts.major} was loaded into {self.build.version}")
        return changes, origin

    def _lines(self, *options: str) -> Iterator[bytes]:
        """Yield the lines of a dump, of scripts none. ``options`` of pg_restore, which only converts an
        archive: it runs no code of it.
        """
        if self.data.form == "plain":
            yield from unpacked_lines(Path(self.data.path))
        if self.data.form != "archive":
            return
        command = [self._program("pg_restore"), "--file=-", *options, self.data.path]
        try:
            yield from tool_lines(command, OURSELVES, READ_TIMEOUT_S, check=self.maker.interruption.check)
        except subprocess.CalledProcessError as error:
            newer = "unsupported version" in error.stderr or "not support" in error.stderr
            remedy = (
                "a newer pg_dump, or one with another compression, made it: install its client programs, or "
                "make a plain dump"
            )
            raise DatasetError(
                f"{command[0]} cannot read {self.data.path}: {in_one_line(error.stderr)[:300]}: "
                f"{remedy if newer else 'make the dump again'}"
            ) from None

    def _create_database(self, connection: Connection, facts: DumpFacts) -> None:
        locale = self.data.locale or facts.locale.get("LOCALE", "C")
        given = {name: value for name, value in facts.locale.items() if name != "LOCALE" and value != "libc"}
        options = {
            "ENCODING": given.pop("ENCODING", "") or facts.encoding or "UTF8",
            **{"LC_COLLATE": locale, "LC_CTYPE": locale},
            **({} if self.data.locale else given),
        }
        parts = [sql.SQL("{} {}").format(sql.SQL(name), sql.Literal(v)) for name, v in options.items()]
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE template0 {}").format(
            sql.Identifier(DATABASE), sql.SQL(" ").join(parts)
        )
        try:
            connection.execute(statement)
        except psycopg.Error as error:
            wanted = ", ".join(f"{name} {value}" for name, value in options.items())
            raise DatasetError(
                f"{self.build.label} cannot create the database of {self.data.label} ({wanted}): "
                f"{first_line(error)}: install the locale, or choose another one with "
                "pgdyno data add NAME SOURCE --locale C"
            ) from error

    def _run_scripts(self, server: Server, work_dir: Path) -> None:
        """Run a copy of the scripts that the user of the servers can read."""
        try:
            shutil.copytree(self.data.path, work_dir)
            for path in (work_dir, *work_dir.rglob("*")):
                self.maker.cache.account.own(path)
            self._run_psql(server, ["--command", f"\\cd '{work_dir}'", f"--file={LOAD_SCRIPT}"])
        finally:
            shutil.rmtree(work_dir, ignore_errors=True)

    def _run_psql(self, server: Server, arguments: Sequence[str], lines: Iterable[bytes] = ()) -> None:
        """Run psql as the user of the servers: SQL files can run shell commands. Raises DatasetError."""
        options = ("--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", f"--dbname={server.conninfo(DATABASE)}")
        command = [self._program("psql"), *options, *arguments]
        account, check = self.maker.cache.account, self.maker.interruption.check
        try:
            feed = partial(feed_lines, lines, check)
            done = run_tool(command, account, READ_TIMEOUT_S, feed=feed, check=check)
        except subprocess.TimeoutExpired:
            raise DatasetError(
                f"loading {self.data.label} took longer than 6 h: use a smaller part"
            ) from None
        if done.returncode != 0:
            raise DatasetError(
                f"{self._first_error(done.stderr)} (PostgreSQL {self.build.version}): correct the source, or "
                "leave out what fails. Nothing was measured"
            )

    def _first_error(self, said: str) -> str:
        """Return ``file:line: message`` of the first error, without its context. It may quote a value."""
        found = next(filter(None, map(_MESSAGE.match, said.splitlines())), None)
        if found is None:
            return f"{self.data.path}: {in_one_line(said)[:300]}"
        if self.data.form == "scripts":
            return f"{Path(self.data.path) / found['file']}:{found['line']}: {found['text']}"
        of = "" if self.data.form == "plain" else " (line of the output of pg_restore)"
        return f"{self.data.path}:{found['line']}{of}: {found['text']}"

    def _database_with_tables(self, server: Server, connection: Connection) -> str:
        """Return the new database, or the one that a dump made with --create has created."""
        with server.connect(DATABASE) as own:
            if value_of(own, TABLES):
                return DATABASE
        rows = connection.execute(
            "SELECT datname FROM pg_database WHERE NOT datistemplate AND datname NOT IN ('postgres', %s)",
            (DATABASE,),
        ).fetchall()
        return str(rows[0][0]) if len(rows) == 1 else DATABASE


def _roles_created(connection: Connection, facts: DumpFacts, origin: OriginFacts) -> Iterator[str]:
    """Create the roles of a dump that do not exist, with their privileges if these are known. Yield sentences
    about them.
    """
    existing = {str(row[0]) for row in connection.execute("SELECT rolname FROM pg_roles").fetchall()}
    known = {role.name: role for role in origin.roles}
    named = set(facts.missing_roles)
    while groups := {group for name in named & known.keys() for group in known[name].groups} - named:
        named |= groups
    names = sorted(named - existing - facts.created_roles)
    roles = [
        known.get(name, Role(name, is_superuser=name in facts.superusers))
        for name in names
        if not name.startswith("pg_")
    ]
    for role in roles:
        attributes = sql.SQL(role.attributes)
        connection.execute(sql.SQL("CREATE ROLE {} {}").format(sql.Identifier(role.name), attributes))
    there = existing | {role.name for role in roles}
    for role in roles:
        for group in there.intersection(role.groups):
            pair = sql.Identifier(group), sql.Identifier(role.name)
            connection.execute(sql.SQL("GRANT {} TO {}").format(*pair))
    superusers = [role.name for role in roles if role.is_superuser]
    if roles:
        how = "login" if known else "privileges"
        yield f"roles were created without {how}: {', '.join(role.name for role in roles)}"
    if superusers:
        yield f"superusers among them: {', '.join(superusers)}"
    if facts.has_policies and not known:
        yield "row-level security can hide other rows than at the origin, because a dump has no superusers"


LISTED_MAX = 10
"""Maximum number of names in a sentence."""


def listed(names: Sequence[str]) -> str:
    """Return the first names, and the number of the others."""
    more = len(names) - LISTED_MAX
    return ", ".join([*names[:LISTED_MAX], *([f"and {more:,} more"] if more > 0 else [])])


DATA = DataKind(is_loaded_here, key, make)
