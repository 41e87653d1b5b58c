"""Sources of the user's data: recognition, digest, and facts about their origin.

- Compressed files: gzip, bzip2, xz, zip, and zstd and lz4 by their programs.
- Sources of the user's data: recognition, digest, names in the cache, and the one reading of a database.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import io
import json
import lzma
import os
import re
import shutil
import subprocess
import time
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import BaseModel

from pgdyno.errors import ConnectError, DatasetError, UsageError, in_one_line
from pgdyno.features.dumps.dump import JOBS, DumpFilter
from pgdyno.features.dumps.origin import (
    ROLES,
    OriginFacts,
    Role,
    count_rows,
    definitions,
    objects_of,
    relations_to_count,
)
from pgdyno.features.own_data.plan import Form, OwnData, OwnDataParameters, is_connection_string
from pgdyno.features.own_data.tools import tool_lines
from pgdyno.server.build_store import Store
from pgdyno.server.builds import Build, output_of, reported_version, version_of
from pgdyno.server.cache_directory import Cache, Leftovers
from pgdyno.server.connections import Dsn, connect
from pgdyno.server.directories import OURSELVES, locked, locked_if_free
from pgdyno.server.processes import Connection
from pgdyno.study.workload_parameters import WorkloadParameters

# ----------------------------------------------------------------------
# Compressed files: gzip, bzip2, xz, zip, and zstd and lz4 by their programs.
# ----------------------------------------------------------------------

UNPACK_TIMEOUT_S = 6 * 3600.0
ARCHIVE, TAR = b"PGDMP", b"ustar"
HEAD_BYTES = 512


def _not_packed(path: Path) -> contextlib.AbstractContextManager[Iterable[bytes]]:
    return path.open("rb")


@contextlib.contextmanager
def _zipped(path: Path) -> Iterator[Iterable[bytes]]:
    with zipfile.ZipFile(path) as packed:
        names = [info.filename for info in packed.infolist() if not info.is_dir()]
        if len(names) != 1:
            raise DatasetError(f"{path} contains {len(names)} files: unpack it with unzip {path}")
        with packed.open(names[0]) as file:
            yield file


def _unpacked_by(program: str, path: Path) -> contextlib.AbstractContextManager[Iterable[bytes]]:
    if (found := shutil.which(program)) is None:
        unpack = f"unpack it with {program} -d {path}"
        raise DatasetError(f"{path} needs {program}, which is not installed: install it, or {unpack}")
    return contextlib.closing(tool_lines([found, "-dc", str(path)], OURSELVES, UNPACK_TIMEOUT_S))


class _Compression(NamedTuple):
    """A compressed format: the first bytes of its files, a command for the user that unpacks them, and the
    function that opens them.
    """

    magic: bytes
    unpack: str
    open: Callable[[Path], contextlib.AbstractContextManager[Iterable[bytes]]]


_COMPRESSIONS = (
    _Compression(b"\x1f\x8b", "gzip -dk", gzip.open),
    _Compression(b"BZh", "bzip2 -dk", bz2.open),
    _Compression(b"\xfd7zXZ\0", "xz -dk", lzma.open),
    _Compression(b"PK\3\4", "unzip", _zipped),
    _Compression(b"\x28\xb5\x2f\xfd", "zstd -d", partial(_unpacked_by, "zstd")),
    _Compression(b"\x04\x22\x4d\x18", "lz4 -d", partial(_unpacked_by, "lz4")),
)


def is_archive(head: bytes) -> bool:
    """Return whether a file with these first bytes is an archive of pg_dump."""
    return head.startswith(ARCHIVE) or head[257:262] == TAR


def _compression_of(path: Path) -> _Compression | None:
    """Return the compression of a file; None if unknown. Raises OSError."""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    return next((one for one in _COMPRESSIONS if head.startswith(one.magic)), None)


def _first_bytes(lines: Generator[bytes, None, None], size_bytes: int) -> bytes:
    """Return the first lines, with at least so many bytes if there are as many."""
    found = bytearray()
    with contextlib.closing(lines):
        while len(found) < size_bytes and (line := next(lines, b"")):
            found += line
    return bytes(found)


def unpacked_lines(path: Path) -> Generator[bytes, None, None]:
    """Yield the lines of a file, which may be compressed. Raises DatasetError."""
    try:
        compression = _compression_of(path)
        with (compression.open if compression else _not_packed)(path) as file:
            yield from file
    except subprocess.CalledProcessError as error:
        raise DatasetError(f"cannot read {path}: {error.stderr.strip()}") from None
    except (OSError, EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile, RuntimeError) as error:
        raise DatasetError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


# ----------------------------------------------------------------------
# Sources of the user's data: recognition, digest, names in the cache, and the one reading of a database.
#
# A name stands for a file or directory that stays where it is, or for a dump of a database in the cache.
# ----------------------------------------------------------------------

LOAD_SCRIPT = "load.sql"
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
READ_TIMEOUT_S = 6 * 3600.0
"""Maximum time to read or load a database."""

LOCK_TIMEOUT_S = 10
"""Maximum wait for a lock on a database that data are read from, so that the reading does not queue behind a
migration, and other sessions behind the reading."""

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Selection:
    """Part of a database that is read. ``tables``: patterns of pg_dump; empty means all."""

    tables: Sequence[str] = ()
    schema_only: bool = False

    def arguments(self) -> list[str]:
        """Return the arguments of pg_dump."""
        chosen = [f"--table={table}" for table in self.tables]
        return [*chosen, "--schema-only"] if self.schema_only else chosen


class NamedData(BaseModel, frozen=True):
    """Data under a name, with the time at which they were added."""

    data: OwnData
    origin: str
    added_unix_s: float
    is_copy: bool  # the cache has the only dump

    @property
    def is_there(self) -> bool:
        """Return whether the source still exists."""
        return Path(self.data.path).exists()


@dataclass(frozen=True)
class NamedDataStore:
    """The user's data by name, in a directory of the cache."""

    directory: Path
    builds: Callable[[], Sequence[Build]]
    warn: Callable[[str], None] = lambda _: None

    def names(self) -> list[str]:
        """Return the names."""
        return sorted(path.parent.name for path in self.directory.glob("*/data.json"))

    def read(self, name: str) -> NamedData:
        """Return the data of that name. Raises UsageError."""
        try:
            return NamedData.model_validate_json((self.directory / name / "data.json").read_text())
        except (OSError, ValueError):
            known = ", ".join(self.names()) or "none"
            raise UsageError(
                f"--data: there are no data {name!r} (known names: {known}): name a file, a directory or a "
                "DSN, or add it with pgdyno data add"
            ) from None

    def add(
        self, name: str, data: OwnData, selection: Selection, check: Callable[[], None] = lambda: None
    ) -> NamedData:
        """Store a source under a name; a database is read now. Raises UsageError, ServerError, DatasetError,
        Interrupted.
        """
        if not NAME.fullmatch(name):
            raise UsageError(f"invalid name {name!r}: use up to 40 of a-z, 0-9, - and _")
        sweep(self.directory)
        with locked(self.directory / f".{name}.lock"):
            if (self.directory / name).exists():
                raise UsageError(f"the data {name} exist: choose another name, or pgdyno data remove {name}")
            is_copy = is_connection_string(data.source)
            if is_copy and data.database:
                raise UsageError(f"--data: the DSN names the database: remove database = {data.database!r}")
            if not is_copy and selection != Selection():
                raise UsageError("--tables and --schema-only require a DSN: a dump is loaded as it is")
            part = self.directory / f".{name}.part"
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(mode=0o700)  # rows of production
            try:
                origin = data.source
                if is_copy:
                    origin, data = self._read_database(data, part, selection, check)
                found = examined(data.model_copy(update={"name": name}), check)
                path = str(self.directory / name / DUMP) if is_copy else found.path
                found = found.model_copy(update={"source": name, "path": path})
                named = NamedData(data=found, origin=origin, added_unix_s=time.time(), is_copy=is_copy)
                (part / "data.json").write_text(named.model_dump_json())
                part.rename(self.directory / name)
            finally:
                shutil.rmtree(part, ignore_errors=True)
        return named

    def remove(self, name: str) -> NamedData:
        """Delete a name, and the dump if the cache has it. Files elsewhere stay. Raises UsageError."""
        sweep(self.directory)
        removed = self.read(name)
        with locked(self.directory / f".{name}.lock"):
            shutil.rmtree(self.directory / name)
        return removed

    def resolved(self, data: OwnData, check: Callable[[], None] = lambda: None) -> OwnData:
        """Return the data with everything that determines them; a DSN is read unless it was read before.

        Raises UsageError, ServerError, DatasetError, Interrupted.
        """
        sweep(self.directory)
        if data.digest:
            return data  # of a results file
        if is_connection_string(data.source):
            name = f"dsn-{identity_of(Dsn(data.source))}"
            is_known = name in self.names()
            found = (self.read(name) if is_known else self.add(name, data, Selection(), check)).data
        elif NAME.fullmatch(data.source) and not Path(data.source).exists():
            found = self.read(data.source).data
            if Path(found.path).exists():  # otherwise its datasets can be loaded already
                found = examined(found.model_copy(update={"source": found.path}), check)
        else:
            return examined(data, check)
        is_read = is_connection_string(data.source)  # its options are given each time; a name keeps its own
        given = {key: value for key in ("database", "locale") if (value := getattr(data, key)) or is_read}
        return _with_valid_options(
            found.model_copy(update={**given, "analyze": data.analyze, "source": found.name})
        )

    def _read_database(
        self, data: OwnData, part: Path, selection: Selection, check: Callable[[], None]
    ) -> tuple[str, OwnData]:
        """Dump the database to ``part``. Return a text about the origin, and the data of the dump."""
        dsn = Dsn(data.source)
        try:
            with reading_session(dsn) as connection:
                version = version_of(connection)
                where = f"host {connection.info.host}, port {connection.info.port}"
                self._read(dsn, connection, version.major, part / DUMP, selection, check)
        except subprocess.TimeoutExpired:
            raise DatasetError(f"reading {dsn} took longer than 6 h: select tables with --tables") from None
        except subprocess.CalledProcessError as error:
            said = in_one_line(error.stderr) or "pg_dump failed"
            raise DatasetError(f"reading {dsn} failed: {dsn.masked(said)}") from None
        except psycopg.Error as error:
            raise DatasetError(f"reading {dsn} failed: {dsn.masked(in_one_line(error))}") from None
        read_on = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        parts = [*selection.tables, *(["without rows"] if selection.schema_only else [])]
        origin = f"{dsn}, {where}, PostgreSQL {version}, read on {read_on}"
        found = data.model_copy(update={"source": str(part / DUMP), "major": version.major})
        return (f"{origin} ({', '.join(parts)})" if parts else origin), found

    def _read(
        self,
        dsn: Dsn,
        connection: Connection,
        major: int,
        target: Path,
        selection: Selection,
        check: Callable[[], None],
    ) -> None:
        """Write a dump without servers and passwords, and facts of the same snapshot."""
        builds = same_major_first(self.builds(), major)
        pg_dump = client_program("pg_dump", builds, at_least=major)
        settings = self._without_tracking(connection)
        connection.isolation_level, connection.read_only = psycopg.IsolationLevel.REPEATABLE_READ, True
        with connection.transaction(), gzip.open(target, "wb", compresslevel=1) as packed:
            file = io.BufferedWriter(packed, CHUNK_BYTES)
            connection.execute(NO_TIMEOUTS)
            file.write(_header(connection))
            place = [
                f"--snapshot={value_of(connection, EXPORT)}",
                *(f"--lock-wait-timeout={LOCK_TIMEOUT_S}s", "--no-subscriptions", "--no-publications"),
                f"--dbname={_conninfo_of(dsn, connection, settings)}",
            ]

            def run(program: Path, arguments: Sequence[str]) -> Generator[bytes, None, None]:
                command, environment = [str(program), *arguments], dict(os.environ)
                # OURSELVES has ~/.pgpass and certificates.
                return tool_lines(command, OURSELVES, READ_TIMEOUT_S, check=check, environment=environment)

            chosen = [*selection.arguments(), *place]
            if selection.tables:
                part = DumpFilter()
                deque(part.changed(run(pg_dump, ["--schema-only", "--section=pre-data", *chosen])), maxlen=0)
                objects = objects_of(connection, part.created)
                pg_restore = client_program("pg_restore", builds, at_least=_read_tool_major(pg_dump))
                needed = definitions(run, pg_dump, pg_restore, objects, place)
                file.writelines(DumpFilter().changed(needed))
            changes = DumpFilter(is_part=bool(selection.tables))
            jobs = [f"--exclude-table-data={schema}.{table}" for schema, table in sorted(JOBS)]
            with contextlib.closing(run(pg_dump, ["--format=plain", *jobs, *chosen])) as lines:
                file.writelines(changes.changed(lines))
            names = changes.created if selection.tables else changes.created | JOBS
            relations, emptied = relations_to_count(connection, names.__contains__)
            facts = OriginFacts(
                [Role(*row) for row in connection.execute(ROLES).fetchall()],
                [] if selection.schema_only else list(count_rows(connection, relations, check)),
                emptied,
                changes.left_out,
            )
            file.write(facts.line())
            file.flush()

    def _without_tracking(self, connection: Connection) -> Mapping[str, str]:
        """Return the settings with which pg_stat_statements does not record the statements of pg_dump, which
        replace those of the application. Warn if the role may not set them.
        """
        try:
            connection.execute("SELECT set_config(%s, %s, false)", *UNTRACKED.items())
        except psycopg.errors.InsufficientPrivilege:
            if value_of(connection, "SELECT current_setting('pg_stat_statements.max', true)"):
                self.warn(
                    "pg_stat_statements records the statements of pg_dump, which can replace those of the "
                    "application: run pgdyno workload from-statements before, or GRANT SET ON PARAMETER "
                    f"pg_stat_statements.track TO {connection.info.user}"
                )
            return {}
        return UNTRACKED


def unfinished(directory: Path) -> dict[Path, Path]:
    """Return what readings that were killed have left, each with the lock of its name."""
    return {part: part.with_suffix(".lock") for part in sorted(directory.glob(".*.part"))}


def sweep(directory: Path) -> None:
    """Remove what readings that were killed have left: a part of the rows of a database."""
    for part, lock in unfinished(directory).items():
        with locked_if_free(lock) as is_free:
            if is_free:
                shutil.rmtree(part, ignore_errors=True)


DUMP = "database.sql.gz"
EXPORT = "SELECT pg_export_snapshot()"
NO_TIMEOUTS = (  # of the transaction, which waits for pg_dump; the second since PostgreSQL 17
    "SELECT set_config(name, '0', true) FROM pg_settings "
    "WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')"
)
UNTRACKED = {"pg_stat_statements.track": "none"}

DATABASE = (
    "SELECT to_jsonb(d), pg_encoding_to_char(encoding), (SELECT substr(one, strpos(one, '=') + 1) "
    "FROM pg_db_role_setting, unnest(setconfig) AS one "
    "WHERE setdatabase = d.oid AND setrole = 0 AND one LIKE 'search_path=%') "
    "FROM pg_database AS d WHERE datname = current_database()"
)
PROVIDERS = {"i": "icu", "b": "builtin", "c": "libc"}

IDENTITY = (
    "SELECT session_user, current_user, current_database(), (SELECT oid FROM pg_database WHERE datname = "
    "current_database())"
)
SYSTEM = "SELECT system_identifier FROM pg_control_system()"


def identity_of(dsn: Dsn) -> str:
    """Return a digest of the database that a connection string, the environment and the service file mean:
    server, port, database, user, and system identifier.
    """
    with reading_session(dsn) as connection:
        found = connection.execute(IDENTITY).fetchone()
        try:
            system = value_of(connection, SYSTEM)
        except psycopg.errors.InsufficientPrivilege:
            system = ""
        info = connection.info
        facts = [info.host, info.port, *(found or ()), system]
    return hashlib.sha256(json.dumps(facts, default=str).encode()).hexdigest()[:8]


@contextlib.contextmanager
def reading_session(
    dsn: Dsn, purpose: str = "data", statement_timeout_s: float = READ_TIMEOUT_S
) -> Iterator[Connection]:
    """Open a session that cannot write. Raises ConnectError."""
    try:
        connection = connect(read_only_conninfo(dsn, purpose, statement_timeout_s))
    except (psycopg.Error, OSError, UnicodeError) as error:
        raise ConnectError(f"no connection to {dsn}: {dsn.masked(in_one_line(error))}") from None
    with contextlib.closing(connection):
        yield connection


def value_of(connection: Connection, statement: str) -> Any:
    """Return the first column of the first row; None without a row."""
    row = connection.execute(statement.encode()).fetchone()
    return None if row is None else row[0]


def _header(connection: Connection) -> bytes:
    """Return comments with encoding, locale and search_path of the database, as pg_dump --create writes
    them.
    """
    (row,) = connection.execute(DATABASE.encode()).fetchall()
    facts: Mapping[str, Any] = row[0]
    provider = PROVIDERS.get(str(facts.get("datlocprovider", "c")), "libc")
    options = {"ENCODING": row[1], "LC_COLLATE": facts["datcollate"], "LC_CTYPE": facts["datctype"]}
    if provider != "libc":
        locale = facts.get("datlocale") or facts.get("daticulocale")
        options |= {"LOCALE_PROVIDER": provider, f"{provider.upper()}_LOCALE": locale}
    written = " ".join(f"{name} = '{value}'" for name, value in options.items())
    header = f"-- CREATE DATABASE origin WITH TEMPLATE = template0 {written};\n"
    if row[2]:
        header += f"-- ALTER DATABASE origin SET search_path TO {row[2]};\n"
    return header.encode()


def _conninfo_of(dsn: Dsn, connection: Connection, settings: Mapping[str, str]) -> str:
    """Return the connection string of the server that the session is on: of several hosts, pg_dump could
    choose another.
    """
    info = connection.info
    address = {} if not info.hostaddr or info.hostaddr.startswith("/") else {"hostaddr": info.hostaddr}
    return make_conninfo(
        read_only_conninfo(dsn, settings=settings), host=info.host, port=info.port, **address
    )


def read_only_conninfo(
    dsn: Dsn,
    purpose: str = "data",
    statement_timeout_s: float = READ_TIMEOUT_S,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return the connection string with which a database is read: sessions cannot write, and wait neither for
    locks nor for statements without limit. ``purpose`` is part of the application name; ``settings`` are
    set, too.
    """
    limits = {
        "default_transaction_read_only": "on",
        "lock_timeout": f"{LOCK_TIMEOUT_S}s",
        "statement_timeout": f"{statement_timeout_s:.0f}s",
        **settings,
    }
    given = str(conninfo_to_dict(dsn.conninfo).get("options") or os.environ.get("PGOPTIONS") or "")
    options = " ".join([given, *(f"-c {name}={value}" for name, value in limits.items())]).strip()
    return make_conninfo(dsn.conninfo, options=options, application_name=f"pgdyno {purpose}")


def _read_tool_major(program: Path) -> int:
    """Return the major version of psql, pg_dump or pg_restore; 0 if it does not run."""
    version = reported_version(output_of([str(program), "--version"]) or "")
    return version.major if version else 0


def client_program(name: str, builds: Sequence[Build], *, at_least: int = 0) -> Path:
    """Return the path of pg_dump, pg_restore or psql of the first build that has it, or on the PATH.

    ``at_least``: the oldest major version that works. Raises UsageError.
    """
    on_path = shutil.which(name)
    candidates = [build.program(name) for build in builds if build.has(name)]
    candidates += [Path(on_path)] if on_path else []
    for program in candidates:
        if not at_least or _read_tool_major(program) >= at_least:
            return program
    version = f" {at_least} or newer" if at_least else ""
    have = f" (found: {', '.join(map(str, dict.fromkeys(candidates)))})" if candidates else ""
    raise UsageError(
        f"{name}{version} is required and not installed{have}: install the client programs of PostgreSQL"
    )


def same_major_first(builds: Sequence[Build], major: int) -> list[Build]:
    """Return the builds, those of this major version first. Its pg_dump knows best what the catalogs contain:
    a newer one can be older than the last minor version of the server.
    """
    return sorted(builds, key=lambda build: build.version.major != major)


def own_data_of(parameters: WorkloadParameters) -> OwnData | None:
    """Return the user's own data of a workload; None if its data are generated."""
    return parameters.data if isinstance(parameters, OwnDataParameters) else None


def installed_clients(store: Store) -> Sequence[Build]:
    """Return all builds of this machine that may have client programs, newest first: newer programs read the
    dumps of older ones.
    """
    return sorted(store.here(), key=lambda build: build.version, reverse=True)


def examined(data: OwnData, check: Callable[[], None] = lambda: None) -> OwnData:
    """Return the data with form, digest and size of the source. Raises UsageError."""
    path = Path(data.source).expanduser().absolute()
    form = form_of(path)
    try:
        files = list(_files(path, form))
        size_bytes = sum(file.stat().st_size for file in files)
        digest = _digest(path, form, files, check)
        major = _major_of_backup(path) if form == "backup" else data.major
    except OSError as error:
        raise UsageError(f"--data: cannot read {error.filename}: {error.strerror}") from None
    found = {"form": form, "path": str(path), "digest": digest, "size_bytes": size_bytes, "major": major}
    return _with_valid_options(
        data.model_copy(update={**found, "name": data.name or path.name.partition(".")[0]})
    )


def _with_valid_options(data: OwnData) -> OwnData:
    """Return the data. Raises UsageError for an option that their form does not have."""
    if data.database and data.form != "backup":
        raise UsageError(f"--data: {data.label} has one database: remove database = {data.database!r}")
    if data.locale and data.form == "backup":
        raise UsageError(f"--data: the backup {data.label} has its locale: remove locale = {data.locale!r}")
    return data


def form_of(path: Path) -> Form:
    """Return the form of a source. Raises UsageError for an unknown form."""
    if path.is_dir():
        if (path / "global" / "pg_control").exists() or (path / "PG_VERSION").exists():
            return "backup"
        if (path / "toc.dat").exists():
            return "archive"
        if (path / LOAD_SCRIPT).is_file():
            return "scripts"
        if list(path.glob("base.tar*")):
            raise UsageError(f"--data: {path} is a base backup in tar format: unpack base.tar and pg_wal.tar")
        raise UsageError(
            f"--data: {path} is no directory dump (toc.dat), data directory (PG_VERSION) or directory with "
            f"{LOAD_SCRIPT}"
        )
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise UsageError(f"--data: cannot read {path}: {error.strerror}") from None
    if is_archive(head):
        return "archive"
    if compression := _compression_of(path):
        try:
            head = _first_bytes(unpacked_lines(path), HEAD_BYTES)
        except DatasetError as error:
            raise UsageError(f"--data: {error}") from None
        if is_archive(head):
            unpack = f"unpack it with {compression.unpack} {path}"
            raise UsageError(f"--data: {path} is a compressed archive of pg_dump: {unpack}")
    if b"\0" in head:
        raise UsageError(f"--data: {path} is neither a dump of pg_dump nor SQL")
    return "plain"


def _files(path: Path, form: Form) -> Iterator[Path]:
    """Yield the files of a source in order, also those behind symbolic links and those that scripts name."""
    found = [path] if path.is_file() else _tree(path)
    known = {file.resolve() for file in found}
    for file in found:
        yield file
        for named in _files_named_in(file, is_unpacked=file == path) if form in ("plain", "scripts") else ():
            if (real := named.resolve()) not in known:
                known.add(real)
                found.append(named)


def _tree(path: Path) -> list[Path]:
    """Return the files below a directory. A link to a directory that contains it is not followed."""
    found = []
    for folder, directories, names in os.walk(path, followlinks=True):
        above = {one.resolve() for one in (Path(folder), *Path(folder).parents)}
        directories[:] = [name for name in directories if Path(folder, name).resolve() not in above]
        found += [Path(folder, name) for name in names if Path(folder, name).is_file()]
    return sorted(found)


def _files_named_in(path: Path, *, is_unpacked: bool) -> Iterator[Path]:
    """Yield the files that a script reads. Large files are no scripts.

    ``is_unpacked``: pgdyno unpacks the script for psql. Raises DatasetError if it cannot.
    """
    if path.stat().st_size > SCRIPT_BYTES_MAX:
        return
    lines = unpacked_lines(path)
    text = _first_bytes(lines, SCRIPT_BYTES_MAX + 1) if is_unpacked else path.read_bytes()
    if len(text) > SCRIPT_BYTES_MAX:
        return
    here = path.parent
    for found in _COMMAND.finditer(text):
        name = _unquoted(found[2])
        if found[1].lower() == b"cd":
            here /= name
        else:
            yield from (file for file in dict.fromkeys((path.parent / name, here / name)) if file.is_file())
    for found in _NAMED_IN_SQL.finditer(text):
        if (file := Path(_unquoted(found[1]))).is_file():
            yield file


def _unquoted(name: bytes) -> str:
    """Return the name of a file that a script contains, perhaps in quotes."""
    return os.fsdecode(name[1:-1].replace(b"''", b"'") if name.startswith(b"'") else name)


SCRIPT_BYTES_MAX = 64 << 20
"""Largest file, unpacked, that is searched for names of other files."""

_COMMAND = re.compile(
    rb"^[ \t]*\\(cd|i|ir|include|include_relative|lo_import|copy\b.*?\bfrom)[ \t]+('(?:[^']|'')*'|\S+)",
    re.IGNORECASE | re.MULTILINE,
)
"""A file that psql reads, or the directory to which it changes."""

_NAMED_IN_SQL = re.compile(
    rb"\b(?:copy\b[^;]{0,2000}?\bfrom\s+|(?:lo_import|pg_read_(?:binary_)?file)\s*\(\s*)('/(?:[^']|'')*'|/\S+)",
    re.IGNORECASE,
)
"""A file that the server reads."""


def _digest(path: Path, form: Form, files: Sequence[Path], check: Callable[[], None]) -> str:
    """Return a digest of the names and contents of the files.

    Of a backup: of the control file, which every checkpoint changes, and of the sizes of the files.
    """
    digest = hashlib.sha256(form.encode())
    for file in files:
        name = file.relative_to(path) if file.is_relative_to(path) else file
        digest.update(f"\0{'' if file == path else name}\0{file.stat().st_size}\0".encode())
        if form == "backup" and file.name not in ("pg_control", "backup_label"):
            continue
        with file.open("rb") as content:
            while chunk := content.read(CHUNK_BYTES):
                digest.update(chunk)
                check()
    return digest.hexdigest()[:16]


def _major_of_backup(path: Path) -> int:
    text = (path / "PG_VERSION").read_text().strip()
    if not text.isdecimal():
        raise UsageError(f"--data: {path} is of PostgreSQL {text[:20]}: use 10 or newer")
    return int(text)


def named_data(cache: Cache, warn: Callable[[str], None] = lambda _: None) -> NamedDataStore:
    """Return the user's data in the cache."""
    return NamedDataStore(cache.data, lambda: installed_clients(cache.store()), warn)


LEFTOVERS = Leftovers("data", unfinished, sweep)
