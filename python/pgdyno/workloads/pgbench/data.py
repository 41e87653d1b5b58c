"""Data of the workload ``pgbench`` on servers, and the checks after a trial.

- Tables of pgbench: additional copies and indexes, their sums, and checks of their balances.
- Workload pgbench on servers: its data and the checks after a trial.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import astuple, dataclass
from importlib import resources

import psycopg
from psycopg import sql

from pgdyno.errors import DatasetError
from pgdyno.results.records import Check
from pgdyno.server.engine import TargetResult, dataset_format
from pgdyno.server.processes import Connection
from pgdyno.workloads.pgbench.parameters import COPY, Effect, PgbenchParameters
from pgdyno.workloads.server_log import EXPECTED, EXPECTED_OF_ANY_SCRIPT, check_log, counted_in
from pgdyno.workloads.workload import (
    NO_TIMEOUTS,
    TRIAL_CHECKS,
    Connect,
    OnPhase,
    checking,
    first_line,
    fit_weights,
    tests_of,
)

# ----------------------------------------------------------------------
# Tables of pgbench: additional copies and indexes, their sums, and checks of their balances.
#
# A script with the effect "all" adds an amount to an account, a teller and a branch, and inserts it into the
# history. The effect "accounts" excludes tellers and branches. The effect "none" changes nothing.
# ----------------------------------------------------------------------

STATEMENT = resources.files(__package__).joinpath("sql", "sums.sql").read_bytes()

ACCOUNTS_PER_BRANCH = 100_000
TELLERS_PER_BRANCH = 10


@dataclass(frozen=True)
class Sums:
    """Rows of each table, and sums of the balances."""

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
        """Return the sums directly after a load."""
        return cls(scale, scale * TELLERS_PER_BRANCH, 0, 0, scale * ACCOUNTS_PER_BRANCH, 0, 0, 0)

    def since(self, before: Sums) -> Sums:
        """Return the difference from ``before``."""
        return Sums(*(b - a for a, b in zip(astuple(before), astuple(self), strict=True)))


def read_sums(conn: Connection) -> Sums:
    """Return the sums. Scans the accounts. Raises DatasetError (no such tables), ServerError."""
    with checking(conn, "pgbench"):
        (row,) = conn.execute(STATEMENT).fetchall()
    return Sums(*(int(value) for value in row))


def read_scale(conn: Connection) -> int:
    """Return the number of branches. Raises DatasetError if there are none."""
    try:
        row = conn.execute("SELECT count(*) FROM pgbench_branches").fetchone()
    except psycopg.errors.UndefinedTable:
        row = None
    if row is None or not row[0]:
        raise DatasetError(
            f"the database {conn.info.dbname} contains no pgbench tables with rows: load them with "
            "pgdyno load --workload pgbench, or pgbench -i"
        )
    return int(row[0])


MARK = "made by pgdyno"
"""Comment on the copy created by pgdyno. A table of that name without it belongs to the user."""


def copy_statements() -> list[str]:
    """Return one statement per file of ``sql/copy``, in their order."""
    files = sorted(resources.files(__package__).joinpath("sql", "copy").iterdir(), key=lambda file: file.name)
    return [file.read_text(encoding="utf-8") for file in files]


def digest() -> str:
    """Return a digest of the statements, independent of the parameters."""
    return hashlib.sha256("\0".join(copy_statements()).encode()).hexdigest()[:6]


def require_ours(conn: Connection) -> bool:
    """Return whether a copy of an earlier load exists. Raises DatasetError if pgdyno did not create it."""
    row = conn.execute(
        "SELECT obj_description(to_regclass(%s), 'pg_class'), to_regclass(%s) IS NOT NULL", (COPY, COPY)
    ).fetchone()
    if row is None or not row[1]:
        return False
    if row[0] != MARK:
        raise DatasetError(
            f"the table {COPY} in {conn.info.dbname} was not created by pgdyno: drop or rename it"
        )
    return True


def make(conn: Connection, parameters: PgbenchParameters, on_phase: OnPhase) -> None:
    """Drop the copy of an earlier load, then create a new one and the indexes. Raises DatasetError."""
    conn.execute(NO_TIMEOUTS)
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


def check_rows(sums: Sums) -> Check:
    """Check for ten tellers and 100,000 accounts per branch."""
    due = (sums.branches * TELLERS_PER_BRANCH, sums.branches * ACCOUNTS_PER_BRANCH)
    detail = f"{sums.branches} branches, {sums.tellers} tellers, {sums.accounts} accounts"
    passed = sums.branches > 0 and (sums.tellers, sums.accounts) == due
    return Check(
        "rows", passed, float(abs(sums.tellers - due[0]) + abs(sums.accounts - due[1])), None, detail
    )


def check_balances(grown: Sums, effects: Collection[Effect]) -> list[Check]:
    """Check the growth since the balances were last equal. Returns no check if an effect is unknown."""
    if "unknown" in effects:
        return []
    tellers, accounts = ("tellers", grown.teller_balance), ("accounts", grown.account_balance)
    checks = [
        _equal("tellers agree with branches", *tellers, "branches", grown.branch_balance),
        _equal("accounts agree with history", *accounts, "history", grown.history_delta),
    ]
    if "accounts" not in effects:
        checks.append(_equal("accounts agree with tellers", *accounts, *tellers))
    if "all" not in effects:
        checks.append(_equal("tellers unchanged", *tellers, "before", 0))
    if not {"all", "accounts"} & set(effects):
        checks.append(_equal("accounts unchanged", *accounts, "before", 0))
    return checks


def check_history(grown: int, committed: int) -> Check:
    """Check that new rows of the history = commits of transactions that insert one, counted by the driver."""
    detail = f"driver committed {committed}, the history has {grown} more"
    return Check("history conserved", grown == committed, float(grown - committed), None, detail)


def _equal(name: str, what: str, value: int, other: str, due: int) -> Check:
    detail = f"{what} have grown by {value}, {other} by {due}"
    return Check(name, value == due, float(value - due), None, detail)


# ----------------------------------------------------------------------
# Workload pgbench on servers: its data and the checks after a trial.
# ----------------------------------------------------------------------

EXISTING = resources.files(__package__).joinpath("sql", "existing.sql").read_bytes()


@dataclass(frozen=True)
class Pgbench:
    """See Workload."""

    parameters: PgbenchParameters

    @property
    def format(self) -> str:
        """Format of the engine, with a digest of the copy."""
        return f"{dataset_format(self.parameters.kind)}{digest()}"

    @property
    def bytes_completed(self) -> int:
        """Size of copy and indexes."""
        return round(self.parameters.scale * self.parameters.added_unit_bytes)

    def require_replaceable(self, conn: Connection) -> None:
        """Check the copy. The engine checks the tables."""
        require_ours(conn)

    def complete(self, conn: Connection, on_phase: OnPhase) -> None:
        """Create copy and indexes."""
        make(conn, self.parameters, on_phase)

    def require(self, conn: Connection) -> None:
        """Check the catalogs: tables of pgbench -i have no marker, and can be driven, too."""
        read_scale(conn)
        cursor = conn.execute(EXISTING)
        (row,) = cursor.fetchall()
        found = dict(zip((column.name for column in cursor.description or ()), row, strict=True))
        for name, wanted in self.parameters.shape().items():
            if found[name] != wanted:
                is_flag = isinstance(getattr(self.parameters, name), bool)
                there, own = (_shown(value, is_flag=is_flag) for value in (found[name], wanted))
                raise DatasetError(
                    f"the pgbench tables in {conn.info.dbname} have {name} {there}, not {own}: use {name} "
                    f"{there}, or load them again"
                )

    def invariants(self, connect: Connect) -> list[Check]:
        """Compare rows and balances; nothing for a custom script, whose effects are unknown."""
        if "unknown" in self.parameters.effects:
            return []
        with closing(connect()) as conn:
            sums = read_sums(conn)
            grown = sums.since(Sums.pristine(read_scale(conn)))
        return [check_rows(sums), *check_balances(grown, self.parameters.effects)]

    def checks(self, clients: int, *, restored: bool) -> PgbenchChecks:
        """Return the checks. The sums of restored data are known; others are read before the trial."""
        del clients
        return PgbenchChecks(self.parameters, restored, Sums.pristine(self.parameters.scale))


def _shown(value: int | str, *, is_flag: bool) -> str:
    return str(bool(value)).lower() if is_flag else "none" if value == "" else str(value)


@dataclass
class PgbenchChecks:
    """See TrialChecks."""

    parameters: PgbenchParameters
    restored: bool
    before: Sums

    @property
    def _known(self) -> bool:
        """False if user scripts have unknown effects on the data."""
        return "unknown" not in self.parameters.effects

    def begin(self, conn: Connection) -> None:
        """Read the sums of the tables unless they are known."""
        if self._known and not self.restored:
            self.before = read_sums(conn)

    def end(self, connect: Connect, result: TargetResult, server_log: str | None) -> list[Check]:
        """Check balances, history, mix and log."""
        totals = result.totals
        checks: list[Check] = []
        if self._known:
            with closing(connect()) as conn:
                sums = read_sums(conn)
            grown = sums.since(self.before)
            checks += [check_rows(sums), *check_balances(grown, self.parameters.effects)]
            writers = {s.name for s in self.parameters.scripts if s.effect in ("all", "accounts")}
            committed = sum(counts["ok"] for kind, counts in totals.items() if kind in writers)
            checks.append(check_history(grown.history, committed))
        checks += [check for more in TRIAL_CHECKS for check in more(self.parameters, connect)]
        if len(self.parameters.scripts) > 1:
            drawn = Counter({kind: n["ok"] + n["failed"] for kind, n in totals.items()})
            weights = {script.name: float(script.weight) for script in self.parameters.scripts}
            checks += tests_of({"mix": fit_weights(drawn, weights)})
        if server_log is not None:
            expected = EXPECTED if self._known else (*EXPECTED, *EXPECTED_OF_ANY_SCRIPT)
            checks.append(check_log(server_log, counted_in(totals.values()), expected))
        return checks


WORKLOAD = (PgbenchParameters, Pgbench)
