"""Workload pgbench on servers: its data and the checks after a trial."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from importlib import resources

from pgdyno.engine import TargetResult, dataset_format
from pgdyno.errors import DatasetError
from pgdyno.study.pgbench_parameters import PgbenchParameters
from pgdyno.workload.goodness_of_fit import fit_weights, tests_of
from pgdyno.workload.interface import Check, Connect, Connection, OnPhase
from pgdyno.workload.invariant_checks import check_invariants
from pgdyno.workload.pgbench import pgbench_tables
from pgdyno.workload.pgbench.pgbench_tables import (
    Sums,
    check_balances,
    check_history,
    check_rows,
    read_scale,
    read_sums,
)
from pgdyno.workload.server_log import EXPECTED, EXPECTED_OF_ANY_SCRIPT, check_log, counted_in

EXISTING = resources.files(__package__).joinpath("sql", "existing.sql").read_bytes()


@dataclass(frozen=True)
class Pgbench:
    """See Workload."""

    parameters: PgbenchParameters

    @property
    def format(self) -> str:
        """Format of the engine, with a digest of the copy."""
        return f"{dataset_format(self.parameters.kind)}{pgbench_tables.digest()}"

    @property
    def bytes_completed(self) -> int:
        """Size of copy and indexes."""
        return pgbench_tables.bytes_of(self.parameters)

    def require_replaceable(self, conn: Connection) -> None:
        """Check the copy. The engine checks the tables."""
        pgbench_tables.require_ours(conn)

    def complete(self, conn: Connection, on_phase: OnPhase) -> None:
        """Create copy and indexes."""
        pgbench_tables.make(conn, self.parameters, on_phase)

    def require(self, conn: Connection) -> None:
        """Check the catalogs: tables of pgbench -i have no marker, and can be driven, too."""
        read_scale(conn)
        cursor = conn.execute(EXISTING)
        row = cursor.fetchone()
        assert row is not None and cursor.description is not None
        found = dict(zip((column.name for column in cursor.description), row, strict=True))
        for name, wanted in self.parameters.shape().items():
            if found[name] != wanted:
                what = name.replace("_", " ")
                raise DatasetError(
                    f"the pgbench tables in {conn.info.dbname} have {what} {found[name] or 'none'}, not "
                    f"{wanted or 'none'}: change --{name.replace('_', '-')}, or load them again"
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


@dataclass
class PgbenchChecks:
    """See TrialChecks."""

    parameters: PgbenchParameters
    restored: bool
    before: Sums
    _known: bool = field(init=False)

    def __post_init__(self) -> None:
        """The effects of user scripts on the data may be unknown."""
        self._known = "unknown" not in self.parameters.effects

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
            checks.append(check_history(grown.history, self._committed(totals)))
        checks += check_invariants(connect, self.parameters.checks)
        if len(self.parameters.scripts) > 1:
            drawn = Counter({kind: n["ok"] + n["failed"] for kind, n in totals.items()})
            weights = {script.name: float(script.weight) for script in self.parameters.scripts}
            checks += tests_of({"mix": fit_weights(drawn, weights)})
        if server_log is not None:
            expected = EXPECTED if self._known else (*EXPECTED, *EXPECTED_OF_ANY_SCRIPT)
            checks.append(check_log(server_log, counted_in(totals.values()), expected))
        return checks

    def _committed(self, totals: Mapping[str, Mapping[str, int]]) -> int:
        writers = {s.name for s in self.parameters.scripts if s.effect in ("all", "accounts")}
        return sum(counts["ok"] for kind, counts in totals.items() if kind in writers)
