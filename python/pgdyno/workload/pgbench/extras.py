"""What pgbench's tables have beyond pgbench -i: a copy of the accounts, and indexes. Made after the load."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib import resources

import psycopg
from psycopg import sql

from pgdyno.errors import DatasetError
from pgdyno.study.pgbench_parameters import COPY, PgbenchParameters, index_parts
from pgdyno.workload.interface import Connection, OnPhase
from pgdyno.workload.pgbench.sums import ACCOUNTS_PER_BRANCH, TELLERS_PER_BRANCH
from pgdyno.workload.session import first_line

MARK = "made by pgdyno"
"""The comment on our copy: a table of that name without it is somebody's."""

ACCOUNT_BYTES = 136
ENTRY_BYTES = 12
VALUE_BYTES = 8  # at most, of what can be indexed but the filler
FILLER_BYTES = 88
FULL = 0.9  # of an index's pages

ROWS_PER_BRANCH = {
    "pgbench_accounts": ACCOUNTS_PER_BRANCH,
    COPY: ACCOUNTS_PER_BRANCH,
    "pgbench_tellers": TELLERS_PER_BRANCH,
    "pgbench_branches": 1,
    "pgbench_history": 0,
}


def copy_statements() -> list[str]:
    """One a file of ``sql/copy``, in their order."""
    files = sorted(resources.files(__package__).joinpath("sql", "copy").iterdir(), key=lambda file: file.name)
    return [file.read_text(encoding="utf-8") for file in files]


def digest() -> str:
    """Of all that is made here, whatever the parameters."""
    return hashlib.sha256("\0".join(copy_statements()).encode()).hexdigest()[:6]


def bytes_of(parameters: PgbenchParameters) -> int:
    """On disk, about, before any transaction."""
    accounts = parameters.scale * ACCOUNTS_PER_BRANCH
    copied = accounts * (ACCOUNT_BYTES + round((ENTRY_BYTES + VALUE_BYTES) / FULL))
    indexed = 0.0
    for index in parameters.indexes:
        table, columns = index_parts(index)
        row = ENTRY_BYTES + sum(FILLER_BYTES if column == "filler" else VALUE_BYTES for column in columns)
        indexed += parameters.scale * ROWS_PER_BRANCH[table] * row / FULL
    return round(indexed) + (copied if parameters.accounts_copy else 0)


def require_ours(conn: Connection) -> bool:
    """Return whether there is a copy, which an earlier load made. Raises DatasetError: it is somebody's."""
    row = conn.execute(
        "SELECT obj_description(to_regclass(%s), 'pg_class'), to_regclass(%s) IS NOT NULL", (COPY, COPY)
    ).fetchone()
    if row is None or not row[1]:
        return False
    if row[0] != MARK:
        raise DatasetError(
            f"there is a table {COPY} in {conn.info.dbname} that is not pgdyno's: it is left alone"
        )
    return True


def make(conn: Connection, parameters: PgbenchParameters, on_phase: OnPhase) -> None:
    """Drop an earlier load's copy, then make the new one and the indexes. Raises DatasetError."""
    if require_ours(conn):
        conn.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(COPY)))
    for phase, statement in _statements(parameters):
        on_phase(phase)
        try:
            conn.execute(statement.encode())
        except psycopg.Error as error:
            raise DatasetError(f"the load failed ({phase}): {first_line(error)}") from error


def _statements(parameters: PgbenchParameters) -> Iterator[tuple[str, str]]:
    if parameters.accounts_copy:
        yield from (("copy of the accounts", statement) for statement in copy_statements())
    for index in sorted(parameters.indexes):
        yield f"index {index}", f"CREATE INDEX ON {index}"
