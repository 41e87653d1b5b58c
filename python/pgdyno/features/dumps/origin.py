"""Facts about the origin of a dump.

- Facts that a copy of a database shares with its origin: roles with their privileges, and numbers of rows.
- Objects that selected tables need and pg_dump --table leaves out: types, functions, schemas, extensions.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import psycopg
from psycopg import sql
from pydantic import TypeAdapter

from pgdyno.errors import UsageError
from pgdyno.features.dumps.dump import JOBS, ORIGIN, Relation

# ----------------------------------------------------------------------
# Facts that a copy of a database shares with its origin: roles with their privileges, and numbers of rows.
#
# The facts are read in the transaction whose snapshot pg_dump reads. A comment, the last line of the dump,
# has them.
# ----------------------------------------------------------------------

_SQL = resources.files(__package__).joinpath("sql")
ROLES = _SQL.joinpath("roles_of_database.sql").read_bytes()
RELATIONS = _SQL.joinpath("relations_to_count.sql").read_bytes()

COUNT_TIMEOUT_S = 120
"""Maximum time to count the rows of one table or view at the origin, and in the copy."""

COUNT_ALL_S = 3600
"""Maximum time to begin counts: the transaction keeps VACUUM of the origin from removing rows."""

SESSION = {
    "timezone": "UTC",
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "default_text_search_config": "pg_catalog.simple",
    "search_path": "",
}
"""Settings on which the rows of a view can depend: the same at the origin and in the copy."""

REFUSED = -1
"""Number of rows of a relation that the session cannot read."""

Kind = Literal["table", "view", "loose", "empty"]
"""loose: its rows may differ. It is a materialized view, which can be stale, or depends on one. empty: its
rows are left out on purpose."""


@dataclass(frozen=True)
class Role:
    """A role. ``groups``: roles of which it is a member."""

    name: str
    is_superuser: bool = False
    bypasses_policies: bool = False
    inherits: bool = True
    groups: Sequence[str] = ()

    @property
    def attributes(self) -> str:
        """The attributes for CREATE ROLE. No role of a copy can log in."""
        chosen = {
            "SUPERUSER": self.is_superuser,
            "BYPASSRLS": self.bypasses_policies,
            "NOINHERIT": not self.inherits,
        }
        return " ".join(["NOLOGIN", *(name for name, is_set in chosen.items() if is_set)])


@dataclass(frozen=True)
class Counted:
    """A table or view. ``rows`` is None if they were not counted in time, and REFUSED after an error."""

    schema: str
    name: str
    kind: Kind
    rows: int | None = None

    @property
    def label(self) -> str:
        """Schema and name."""
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True)
class OriginFacts:
    """Facts of an origin.

    ``emptied``: tables whose rows were left out on purpose, and views that depend on them. ``missing_keys``:
    foreign keys that were left out, because their target was not read.
    """

    roles: Sequence[Role] = ()
    counted: Sequence[Counted] = ()
    emptied: Sequence[str] = ()
    missing_keys: Sequence[str] = ()

    def line(self) -> bytes:
        """Return the line of a dump with these facts."""
        return f"{ORIGIN}{json.dumps(asdict(self))}\n".encode()

    @classmethod
    def parse(cls, line: str) -> OriginFacts:
        """Read the line; no facts if it is not one that pgdyno wrote."""
        try:
            return TypeAdapter(cls).validate_json(line.removeprefix(ORIGIN))
        except ValueError:
            return cls()


def relations_to_count(
    connection: psycopg.Connection[Any], dumped: Callable[[Relation], bool]
) -> tuple[list[Counted], list[str]]:
    """Return the tables and views whose rows can be compared, and those that are empty in the copy.

    Empty are foreign tables, which could contact other servers, tables that jobs and standbys leave out, and
    views that depend on them.

    Views that depend on time, the session or catalogs are left out. ``dumped``: whether a relation is read.
    """
    rows = connection.execute(RELATIONS, {"jobs": [".".join(job) for job in JOBS]}).fetchall()
    chosen = [Counted(*row) for row in rows if dumped(row[:2])]
    emptied = [one.label for one in chosen if one.kind == "empty"]
    return [one for one in chosen if one.kind != "empty"], emptied


def count_rows(
    connection: psycopg.Connection[Any],
    relations: Sequence[Counted],
    check: Callable[[], None] = lambda: None,
) -> Iterator[Counted]:
    """Yield the relations with their number of rows.

    The session must be in a transaction, whose settings change. Raises psycopg.Error if the connection ends.
    """
    for name, text in SESSION.items():
        connection.execute("SELECT set_config(%s, %s, true)", (name, text))
    connection.execute(f"SET LOCAL statement_timeout = '{COUNT_TIMEOUT_S}s'")
    until_s = time.monotonic() + COUNT_ALL_S
    for one in relations:
        check()
        if time.monotonic() > until_s:
            yield replace(one, rows=None)
            continue
        # Policies do not hide rows of tables from the check; a view has the privileges of its owner.
        connection.execute(f"SET LOCAL row_security = {'off' if one.kind == 'table' else 'on'}")
        only = sql.SQL("ONLY " if one.kind == "table" else "")
        query = sql.SQL("SELECT count(*) FROM {}{}").format(only, sql.Identifier(one.schema, one.name))
        try:
            with connection.transaction():
                row = connection.execute(query).fetchone()
            rows = None if row is None else int(row[0])
        except psycopg.errors.QueryCanceled:
            rows = None
        except psycopg.Error:
            if connection.closed:
                raise
            rows = REFUSED
        yield replace(one, rows=rows)


def differences(origin: Sequence[Counted], copy: Sequence[Counted]) -> tuple[list[str], list[str], list[str]]:
    """Return the relations whose rows differ although they must not, those that may differ and do, each with
    both numbers, and those that were not compared.
    """
    wrong: list[str] = []
    loose: list[str] = []
    uncounted: list[str] = []
    for ours, theirs in zip(copy, origin, strict=True):
        if theirs.rows in (None, REFUSED) or ours.rows is None:
            uncounted.append(theirs.label)
        elif ours.rows != theirs.rows:
            have = "an error" if ours.rows == REFUSED else f"{ours.rows:,}"
            text = f"{theirs.label} ({have} instead of {theirs.rows:,} rows)"
            (loose if theirs.kind == "loose" else wrong).append(text)
    return wrong, loose, uncounted


# ----------------------------------------------------------------------
# Objects that selected tables need and pg_dump --table leaves out: types, functions, schemas, extensions.
#
# They are chosen from a dump without tables by the OIDs in its list of contents, and are loaded first.
# ----------------------------------------------------------------------

OBJECTS = _SQL.joinpath("objects_of_tables.sql").read_bytes()
_ENTRY = re.compile(r"\d+; (?P<class>\d+) (?P<oid>\d+) (?P<what>ACL )?(?P<name>.*)")

Tool = Callable[[Path, Sequence[str]], Iterator[bytes]]
"""Runs pg_dump or pg_restore with arguments, and yields the lines of its output."""


def objects_of(connection: psycopg.Connection[Any], tables: Collection[Relation]) -> set[tuple[int, int]]:
    """Return catalog and OID of the objects that the tables need. Raises UsageError if they need another
    relation, except by a foreign key.
    """
    schemas, names = [schema for schema, _ in tables], [name for _, name in tables]
    rows = connection.execute(OBJECTS, {"schemas": schemas, "names": names}).fetchall()
    if missing := [f"{kind} {identity}" for *_, kind, identity, is_relation in rows if is_relation]:
        raise UsageError(
            f"--tables leaves out what the tables need: {', '.join(missing)}: add them to the patterns"
        )
    return {(row[0], row[1]) for row in rows}


def definitions(
    run: Tool, pg_dump: Path, pg_restore: Path, objects: Collection[tuple[int, int]], place: Sequence[str]
) -> list[bytes]:
    """Return the statements that create the objects. ``place``: snapshot and connection for pg_dump.

    The dump without tables stays in memory, because it can contain passwords.
    """
    everything = ["--format=custom", "--schema-only", "--exclude-table=*.*", *place]
    with tempfile.NamedTemporaryFile() as chosen, _in_memory(run(pg_dump, everything)) as dump:
        entries = [line.decode(errors="replace") for line in run(pg_restore, ["--list", dump])]
        chosen.write("".join(_chosen(entries, objects)).encode())
        chosen.flush()
        return list(run(pg_restore, ["--file=-", f"--use-list={chosen.name}", dump]))


def _chosen(entries: Sequence[str], objects: Collection[tuple[int, int]]) -> Iterator[str]:
    """Yield the entries of the list that are wanted: the objects, and the privileges on them."""
    found = [entry for entry in map(_ENTRY.fullmatch, (line.strip() for line in entries)) if entry]
    labels = set()
    for entry in found:
        if (int(entry["class"]), int(entry["oid"])) in objects and not entry["what"]:
            kind, schema, label = entry["name"].split(" ", 2)
            labels.add(f"{schema} {kind} {label}")
            yield f"{entry[0]}\n"
    yield from (f"{entry[0]}\n" for entry in found if entry["what"] and entry["name"] in labels)


@contextlib.contextmanager
def _in_memory(lines: Iterator[bytes]) -> Iterator[str]:
    """Yield the path of a file in memory with these lines."""
    with os.fdopen(os.memfd_create("dump"), "wb") as file:
        file.writelines(lines)
        file.flush()
        yield f"/proc/{os.getpid()}/fd/{file.fileno()}"
