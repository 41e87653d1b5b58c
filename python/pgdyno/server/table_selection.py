"""Objects that selected tables need and pg_dump --table leaves out: types, functions, schemas, extensions.

They are chosen from a dump without tables by the OIDs in its list of contents, and are loaded first.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import psycopg

from pgdyno.errors import UsageError
from pgdyno.server.dump_filter import DumpFilter, Relation

OBJECTS = resources.files(__package__).joinpath("sql", "objects_of_tables.sql").read_bytes()
_ENTRY = re.compile(r"\d+; (?P<class>\d+) (?P<oid>\d+) (?P<what>ACL )?(?P<name>.*)")

Tool = Callable[[Path, Sequence[str]], Iterator[bytes]]
"""Runs pg_dump or pg_restore with arguments, and yields the lines of its output."""


def tables_in(lines: Iterator[bytes]) -> set[Relation]:
    """Return the tables and views that a dump creates."""
    found = DumpFilter()
    for _ in found.changed(lines):
        pass
    return found.created


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
