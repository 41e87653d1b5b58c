"""Workload sysbench on servers: its data and the checks after a trial."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from pgdyno.errors import DatasetError
from pgdyno.features.sysbench.parameters import SysbenchParameters
from pgdyno.results.records import Check
from pgdyno.server.engine import TargetResult, dataset_format
from pgdyno.server.processes import Connection
from pgdyno.workloads.server_log import EXPECTED, EXPECTED_OF_ANY_SCRIPT, Expected, check_log, counted_in
from pgdyno.workloads.workload import Connect, OnPhase, Workload, checking

EXPECTED_OF_RESTARTS = (
    Expected("ERROR", re.compile(r"duplicate key value violates unique constraint"), "conflicts"),
    # After such an error sysbench rolls back, also outside a transaction.
    Expected("WARNING", re.compile(r"there is no transaction in progress"), "always"),
)
EXPECTED_OF_STOCK_SCRIPTS = (Expected("ERROR", re.compile(r""), "failed"),)

MISSING = (
    "SELECT name FROM unnest(%s::text[]) WITH ORDINALITY AS wanted (name, place) "
    "WHERE to_regclass(name) IS NULL ORDER BY place LIMIT 1"
)


@dataclass(frozen=True)
class Sysbench(Workload):
    """See Workload."""

    parameters: SysbenchParameters

    @property
    def format(self) -> str:
        """Format of the engine's tables. Data of a script depend on the script alone: it is in the shape."""
        return "prepare 1" if self.parameters.has_own_data else dataset_format(self.parameters.kind)

    def require_replaceable(self, conn: Connection) -> None:
        """Raise DatasetError for data of a script. The engine checks the other tables."""
        if self.parameters.has_own_data:
            raise DatasetError(
                f"{conn.info.dbname}: the prepare of {self.parameters.script.name} cannot replace its "
                "tables: name a new database"
            )

    def complete(self, conn: Connection, on_phase: OnPhase) -> None:
        """Vacuum and analyze data of a script, so that autovacuum does not do it during the trials."""
        if self.parameters.has_own_data:
            on_phase("vacuum")
            conn.execute("VACUUM (ANALYZE)")

    def require(self, conn: Connection) -> None:
        """Check that the tables exist. The data of a script are unknown."""
        if self.parameters.has_own_data:
            return
        row = conn.execute(MISSING, (list(tables_of(self.parameters)),)).fetchone()
        if row is not None:
            raise DatasetError(
                f"the database {conn.info.dbname} has no table {row[0]}: load the data with "
                f"pgdyno load --workload sysbench --tables {self.parameters.n_tables} "
                f"--table-size {self.parameters.n_rows}"
            )

    def invariants(self, connect: Connect) -> list[Check]:
        """Return nothing: the data of scripts have no invariants."""
        del connect
        return []

    def checks(self, clients: int, *, restored: bool) -> SysbenchChecks:
        """Return the checks. The number of rows of restored data is known."""
        del clients
        return SysbenchChecks(self.parameters, restored, self.parameters.n_tables * self.parameters.n_rows)


@dataclass
class SysbenchChecks:
    """See TrialChecks."""

    parameters: SysbenchParameters
    restored: bool
    rows_before: int

    @property
    def _known(self) -> bool:
        """False if the script has an unknown effect on the rows."""
        return self.parameters.row_change != "unknown"

    def begin(self, conn: Connection) -> None:
        """Count the rows unless their number is known."""
        if self._known and not self.restored:
            self.rows_before = count_rows(conn, tables_of(self.parameters))

    def end(self, connect: Connect, result: TargetResult, server_log: str | None) -> list[Check]:
        """Check the number of rows, and the log."""
        checks = []
        if self._known:
            with closing(connect()) as conn:
                rows = count_rows(conn, tables_of(self.parameters))
            committed = sum(counts["ok"] for counts in result.totals.values())
            checks.append(check_row_count(self.parameters, rows - self.rows_before, committed))
        if server_log is not None:
            counted = counted_in(result.totals.values())
            own = self.parameters.script.text is not None
            more = EXPECTED_OF_ANY_SCRIPT if own else EXPECTED_OF_STOCK_SCRIPTS
            checks.append(check_log(server_log, counted, (*EXPECTED, *EXPECTED_OF_RESTARTS, *more)))
        return checks


def tables_of(parameters: SysbenchParameters) -> list[str]:
    """Return the names of the tables of sysbench's own scripts."""
    return [f"sbtest{number}" for number in range(1, parameters.n_tables + 1)]


def count_rows(conn: Connection, tables: Sequence[str]) -> int:
    """Return the number of rows of all tables. Raises DatasetError (no such tables), ServerError.

    The connection is in autocommit mode: a transaction would hold the locks of thousands of tables.
    """
    total = 0
    with checking(conn, "sysbench"):
        for table in tables:
            ((rows,),) = conn.execute(f"SELECT count(*) FROM {table}".encode()).fetchall()
            total += int(rows)
    return total


def check_row_count(parameters: SysbenchParameters, grown: int, committed: int) -> Check:
    """Check the growth of the number of rows against the events that the driver counted as successful."""
    change = parameters.row_change
    at_least = {"insert": committed, "delete": -committed}.get(change, 0)
    at_most = committed if change == "insert" else 0
    due = f"{at_least}" if at_least == at_most else f"{at_least} to {at_most}"
    return Check(
        "row count",
        at_least <= grown <= at_most,
        float(max(at_least - grown, grown - at_most, 0)),
        None,
        f"the tables have {grown} more rows, expected {due} after {committed} events",
    )


WORKLOAD = (SysbenchParameters, Sysbench)
