"""Workload insert on servers: its data and the checks after a trial."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib import resources
from typing import Any, NamedTuple

from psycopg import sql

from pgdyno.errors import DatasetError
from pgdyno.features.insert.parameters import PHASES, InsertParameters
from pgdyno.results.records import Check
from pgdyno.server.engine import TargetResult, dataset_format
from pgdyno.server.processes import Connection
from pgdyno.workloads.server_log import EXPECTED, check_log, counted_in
from pgdyno.workloads.workload import (
    Connect,
    GoodnessOfFit,
    Workload,
    checking,
    fit_distribution,
    load_command,
    require_comment,
    tests_of,
)

COMMENT = "SELECT pg_catalog.obj_description('pi1'::regclass, 'pg_class')"

SECONDARY = {
    "marketsegment": "productid, customerid, price",
    "registersegment": "cashregisterid, customerid, price",
    "pdc": "price, dateandtime, customerid",
}
"""Columns of the secondary indexes, by the end of their name."""


def statement(name: str) -> bytes:
    """Return a statement in a file of this feature."""
    return resources.files(__package__).joinpath("sql", f"{name}.sql").read_bytes()


@dataclass(frozen=True)
class InsertBenchmark(Workload):
    """See Workload. A comment on pi1 says which steps were done."""

    parameters: InsertParameters

    @property
    def format(self) -> str:
        """Format of the engine."""
        return dataset_format(self.parameters.kind)

    def require(self, conn: Connection) -> None:
        """Check the comment that a complete load leaves."""
        own = self.parameters
        started = "name a version or a directory as ARM: only these have phases after l.i1"
        require_comment(conn, "pi1", own, started if own.why_no_load else load_command(own), parameter_of)

    def invariants(self, connect: Connect) -> list[Check]:
        """Check indexes and plans of all tables. Scans each index in both directions."""
        with closing(connect()) as conn, checking(conn, "insert"):
            tables = tables_of(conn)
            if not tables:
                raise DatasetError(f"the database {conn.info.dbname} contains no tables of insert")
            return [valid_indexes(conn, tables), *scans(conn, tables), *plans(conn, tables)]

    def checks(self, clients: int, *, restored: bool) -> InsertChecks:
        """Return the checks. Rows and keys of restored data are known; others are read before the trial."""
        del clients
        return InsertChecks(known_extents(self.parameters) if restored else {})


def parameter_of(key: str, value: str) -> str:
    """Return the parameter of data with a word in their comment: the phases that begin after a step."""
    phases = " or ".join(name for name, of in PHASES.items() if of.begins_after == value)
    return f"phase {phases}" if key == "done" else f"{key} {value}"


def tables_of(conn: Connection) -> list[str]:
    """Return the names of the tables."""
    return [str(name) for (name,) in conn.execute(statement("tables"))]


def _rows(conn: Connection, text: str, table: str, index: str = "") -> list[tuple[Any, ...]]:
    """Return the rows of a statement about a table; ``{columns}`` are those of an index."""
    columns = sql.SQL(index)
    query = sql.SQL(text).format(table=sql.Identifier(table), columns=columns)
    return conn.execute(query).fetchall()


def valid_indexes(conn: Connection, tables: Sequence[str]) -> Check:
    """Check that each table has its indexes, and that they are valid. Those of l.x may be incomplete."""
    row = conn.execute(COMMENT).fetchone()
    needed = {"transactionid"}
    if row is None or not re.search(r" done=(none|l\.i0) ", str(row[0])):
        needed |= {*SECONDARY.values()}
    wrong = []
    for table in tables:
        found = conn.execute(statement("indexes"), (table,)).fetchall()
        columns = {str(of) for *_, of in found}
        is_complete = needed <= columns <= {"transactionid", *SECONDARY.values()}
        if not is_complete or not all(valid for _, valid, *_ in found):
            wrong.append(table)
    detail = f"of {len(tables)} tables, {len(wrong)} have others" + (f": {wrong[0]}" if wrong else "")
    return Check("valid indexes", not wrong, float(len(wrong)), detail=detail)


HEAP = "SELECT count(ctid) FROM {table}"
"""Counts rows without an index: none has a ctid."""


def scans(conn: Connection, tables: Sequence[str]) -> Iterator[Check]:
    """Compare the number of rows of each table with those that its indexes return in both directions."""
    for table in tables:
        conn.execute("SET enable_seqscan = on")
        ((heap,),) = _rows(conn, HEAP, table)
        conn.execute("SET enable_seqscan = off")
        different = []
        for index in [str(row[3]) for row in conn.execute(statement("indexes"), (table,)).fetchall()]:
            for direction in ("ASC", "DESC"):
                order = ", ".join(f"{column} {direction}" for column in index.split(", "))
                text = "SELECT count(*) FROM (SELECT FROM {table} ORDER BY {columns} OFFSET 0) AS rows"
                ((count,),) = _rows(conn, text, table, order)
                if count != heap:
                    different.append(f"({order}) returns {count}")
        detail = "; ".join(different[:1]) or f"{heap} rows in the table and in each index"
        yield Check(f"index scans of {table}", not different, float(len(different)), detail=detail)


RANGE = "EXPLAIN (FORMAT JSON) SELECT {columns} FROM {table} ORDER BY {columns} LIMIT 10"
POINT = (
    "EXPLAIN (FORMAT JSON) SELECT transactionid, productid, data FROM {table} "
    "WHERE transactionid IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)"
)


def plans(conn: Connection, tables: Sequence[str]) -> Iterator[Check]:
    """Check that range queries scan their index only, and point queries use the primary key.

    The planner rightly scans tables without rows.
    """
    conn.execute("SET enable_seqscan = on")
    for table in tables:
        if not _rows(conn, "SELECT 1 FROM {table} LIMIT 1", table):
            continue
        found = conn.execute(statement("indexes"), (table,)).fetchall()
        by_columns = {str(columns): str(name) for name, *_, columns in found}
        wanted = [
            (RANGE, of, by_columns[of], "Index Only Scan") for of in SECONDARY.values() if of in by_columns
        ]
        wanted.append((POINT, "", by_columns.get("transactionid", ""), "Scan"))
        wrong = []
        for text, columns, index, node in wanted:
            ((plan,),) = _rows(conn, text, table, columns)
            nodes = list(_nodes(plan[0]["Plan"]))
            uses = [one for one in nodes if one.get("Index Name") == index and node in one["Node Type"]]
            if not uses:
                wrong.append(f"{index}: {nodes[-1]['Node Type']}")
        detail = "; ".join(wrong[:1]) or "index-only scans, and the primary key"
        yield Check(f"plans of {table}", not wrong, float(len(wrong)), detail=detail)


def _nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


class Extent(NamedTuple):
    """Number of rows of a table, its lowest and highest key."""

    rows: int
    lowest: int
    highest: int


EXTENT = "SELECT count(*), coalesce(min(transactionid), 0), coalesce(max(transactionid), 0) FROM {table}"


@dataclass
class InsertChecks:
    """See TrialChecks. ``before``: empty if it is to be read."""

    before: dict[str, Extent]

    def begin(self, conn: Connection) -> None:
        """Read number of rows and keys of each table, unless they are known: reading warms the caches."""
        if not self.before:
            with checking(conn, "insert"):
                self.before = extents(conn)

    def end(self, connect: Connect, result: TargetResult, server_log: str | None) -> list[Check]:
        """Check rows, keys, queries, distributions and log."""
        with closing(connect()) as conn, checking(conn, "insert"):
            after = extents(conn)
            checks = [valid_indexes(conn, list(after))]
        checks += changes(self.before, after, result.counters)
        checks += [
            _none(
                result.counters, "deletes_short", "deletes of a whole batch", "removed other numbers of rows"
            ),
            _none(result.counters, "ranges_short", "rows of range queries", "returned fewer than 10 rows"),
            _none(result.counters, "points_empty", "rows of point queries", "returned no row"),
        ]
        checks += tests_of(fits(result.tally))
        if server_log is not None:
            checks.append(check_log(server_log, counted_in(result.totals.values()), EXPECTED))
        return checks


def known_extents(parameters: InsertParameters) -> dict[str, Extent]:
    """Return number of rows and keys of each table in the snapshot.

    As many of the oldest rows were deleted as were inserted. The keys are bounds: sessions leave some unused.
    """
    rows, deleted = parameters.rows_before, parameters.inserted_before
    extent = Extent(rows, deleted + 1, deleted + rows)
    return {f"pi{number}": extent for number in range(1, parameters.queues + 1)}


def extents(conn: Connection) -> dict[str, Extent]:
    """Return number of rows and keys of each table."""
    return {table: Extent(*_rows(conn, EXTENT, table)[0]) for table in tables_of(conn)}


def changes(
    before: Mapping[str, Extent], after: Mapping[str, Extent], counters: Mapping[str, int]
) -> list[Check]:
    """Check rows and keys against the inserts and deletes that the driver committed.

    The lowest key advances by the deleted rows, and by at most the keys that never had a row: sessions leave
    the rest of their part of the sequence.
    """
    inserted, deleted = counters["rows_inserted"], counters["rows_deleted"]
    grown = sum(of.rows for of in after.values()) - sum(of.rows for of in before.values())
    filled = {table: of for table, of in before.items() if of.rows}
    advanced = sum(after[table].lowest - of.lowest for table, of in filled.items())
    keys = sum(after[table].highest - of.lowest + 1 for table, of in filled.items())
    gaps = max(0, keys - sum(of.rows for of in filled.values()) - inserted)
    return [
        Check(
            "rows conserved",
            grown == inserted - deleted,
            float(grown - inserted + deleted),
            detail=f"driver committed {inserted:+d} and {-deleted:+d}, the database has {grown:+d}",
        ),
        Check(
            "oldest rows deleted",
            deleted <= advanced <= deleted + gaps,
            float(advanced - deleted),
            detail=f"driver deleted {deleted}, the lowest keys advanced by {advanced} (gaps: {gaps})",
        ),
    ]


def _none(counters: Mapping[str, int], counter: str, name: str, did: str) -> Check:
    return Check(name, not counters[counter], float(counters[counter]), detail=f"{counters[counter]} {did}")


def fits(tally: Mapping[str, Any]) -> dict[str, GoodnessOfFit]:
    """Return the tests of the drawn queries: which index, where it starts, which keys."""
    starts = tally["starts"]
    return {
        "indexes of range queries": _fit_uniform([sum(bins) for bins in starts.values()]),
        **{f"starts of {name}": _fit_uniform(bins) for name, bins in starts.items()},
        "keys of point queries": _fit_uniform(tally["keys"]),
    }


def _fit_uniform(bins: Sequence[int]) -> GoodnessOfFit:
    return fit_distribution(bins, [1 / len(bins)] * len(bins))


WORKLOAD = (InsertParameters, InsertBenchmark)
