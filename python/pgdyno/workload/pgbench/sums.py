"""What pgbench's tables add up to: read before and after a trial, or of any database of pgbench's."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from importlib import resources

import psycopg

from pgdyno.errors import DatasetError
from pgdyno.workload.interface import Connection
from pgdyno.workload.session import checking

STATEMENT = resources.files(__package__).joinpath("sql", "sums.sql").read_bytes()

ACCOUNTS_PER_BRANCH = 100_000
TELLERS_PER_BRANCH = 10


@dataclass(frozen=True)
class Sums:
    """Rows of each table, and what its balances add up to."""

    branches: int
    tellers: int
    branch_balance: int
    teller_balance: int
    accounts: int
    account_balance: int
    history: int
    history_delta: int

    @classmethod
    def pristine(cls, scale: int) -> Sums:
        """Of tables as they are loaded."""
        return cls(scale, scale * TELLERS_PER_BRANCH, 0, 0, scale * ACCOUNTS_PER_BRANCH, 0, 0, 0)

    def since(self, before: Sums) -> Sums:
        """How each has grown."""
        return Sums(*(b - a for a, b in zip(astuple(before), astuple(self), strict=True)))


def read_sums(conn: Connection) -> Sums:
    """It scans the accounts. Raises DatasetError (no such tables), ServerError."""
    with checking(conn, "pgbench"):
        row = conn.execute(STATEMENT).fetchone()
    assert row is not None
    return Sums(*(int(value) for value in row))


def read_scale(conn: Connection) -> int:
    """The number of branches. Raises DatasetError: there are none."""
    try:
        row = conn.execute("SELECT count(*) FROM pgbench_branches").fetchone()
    except psycopg.errors.UndefinedTable:
        row = None
    if row is None or not row[0]:
        raise DatasetError(
            f"{conn.info.dbname} holds no tables of pgbench with rows: load them with "
            "pgdyno load --workload pgbench, or pgbench -i"
        )
    return int(row[0])
