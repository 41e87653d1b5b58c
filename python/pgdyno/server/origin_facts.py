"""Facts that a copy of a database shares with its origin: roles with their privileges, and numbers of rows.

The facts are read in the transaction whose snapshot pg_dump reads. A comment, the last line of the
dump, has them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any, Literal

import psycopg
from psycopg import sql

from pgdyno.server.dump_filter import JOBS, Relation
from pgdyno.server.dump_scan import ORIGIN

_SQL = resources.files(__package__).joinpath("sql")
ROLES = _SQL.joinpath("roles_of_database.sql").read_bytes()
RELATIONS = _SQL.joinpath("relations_to_count.sql").read_bytes()

COUNT_TIMEOUT_S = 120
"""Maximum time to count the rows of one table or view at the origin, and in the copy."""

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

Kind = Literal["table", "view", "loose"]
"""loose: its rows may differ. It is a materialized view, which can be stale, or depends on one."""


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
    rows: int | None

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
        """Read the line. Raises ValueError, TypeError or KeyError if it is malformed."""
        facts = json.loads(line.removeprefix(ORIGIN))
        return cls(
            [Role(**one) for one in facts["roles"]],
            [Counted(**one) for one in facts["counted"]],
            facts["emptied"],
            facts["missing_keys"],
        )


@dataclass(frozen=True)
class _Relation:
    schema: str
    name: str
    relkind: str
    varies: bool  # with time, session or catalogs
    is_of_extension: bool
    is_unreadable: bool  # an unlogged table on a standby, which pg_dump leaves out
    below: Sequence[int]

    @property
    def names(self) -> Relation:
        return self.schema, self.name

    @property
    def is_empty_in_copy(self) -> bool:
        return self.relkind == "f" or self.is_unreadable or self.names in JOBS


def read_roles(connection: psycopg.Connection[Any]) -> list[Role]:
    """Return the roles that the database names, and those of which they are members."""
    return [Role(*row) for row in connection.execute(ROLES).fetchall()]


def relations_to_count(
    connection: psycopg.Connection[Any], dumped: Callable[[Relation], bool]
) -> tuple[list[tuple[Relation, Kind]], list[str]]:
    """Return the tables and views whose rows can be compared, and those that are empty in the copy.

    Empty are foreign tables, which could contact other servers, tables that jobs and standbys leave out, and
    views that depend on them.

    Views that depend on time, the session or catalogs are left out. ``dumped``: whether a relation is read.
    """
    found = {row[0]: _Relation(*row[1:]) for row in connection.execute(RELATIONS).fetchall()}
    chosen: list[tuple[Relation, Kind]] = []
    emptied = []
    for number, one in found.items():
        if not dumped(one.names):
            continue
        if one.is_empty_in_copy:
            emptied.append(".".join(one.names))
        elif one.is_of_extension or one.relkind == "p":
            continue
        elif one.relkind == "r":
            chosen.append((one.names, "table"))
        else:
            below = [found[of] for of in _closure(number, found)]
            if one.relkind == "v" and any(of.is_empty_in_copy for of in below):
                emptied.append(".".join(one.names))
            elif not any(of.varies for of in [one, *below]):
                is_loose = any(of.relkind == "m" or of.is_of_extension for of in [one, *below])
                chosen.append((one.names, "loose" if is_loose else "view"))
    return chosen, emptied


def _closure(number: int, found: Mapping[int, _Relation]) -> set[int]:
    """Return the relations below a view, without those of the system."""
    reached: set[int] = set()
    pending = [number]
    while pending:
        new = {of for of in found[pending.pop()].below if of in found} - reached - {number}
        reached |= new
        pending.extend(new)
    return reached


def count_rows(
    connection: psycopg.Connection[Any],
    relations: Sequence[tuple[Relation, Kind]],
    check: Callable[[], None] = lambda: None,
) -> Iterator[Counted]:
    """Yield the relations with their number of rows.

    The session must be in a transaction, whose settings change. Raises psycopg.Error if the connection ends.
    """
    for name, text in SESSION.items():
        connection.execute("SELECT set_config(%s, %s, true)", (name, text))
    connection.execute(f"SET LOCAL statement_timeout = '{COUNT_TIMEOUT_S}s'")
    for (schema, name), kind in relations:
        check()
        # Policies do not hide rows of tables from the check; a view has the privileges of its owner.
        connection.execute(f"SET LOCAL row_security = {'off' if kind == 'table' else 'on'}")
        only = sql.SQL("ONLY " if kind == "table" else "")
        query = sql.SQL("SELECT count(*) FROM {}{}").format(only, sql.Identifier(schema, name))
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
        yield Counted(schema, name, kind, rows)


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
