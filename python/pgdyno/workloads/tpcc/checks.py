"""Checks of ``tpcc``: ownership and cardinalities, consistency, and conformance of the transactions.

- A tpcc dataset: its ownership marker and its cardinalities.
- Consistency of a tpcc database: the twelve conditions (clause 3.3.2), and committed orders.
- Conformance of the driver's transactions to TPC-C: mix, NURand, shares.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg
import scipy  # its parts load when first used: stats alone takes a second
from psycopg import sql

from pgdyno.errors import DatasetError, ServerError
from pgdyno.results.records import Check
from pgdyno.server.engine import dataset_format
from pgdyno.server.processes import Connection
from pgdyno.units import counted
from pgdyno.workloads.tpcc.dialects import TpccDeviation
from pgdyno.workloads.workload import (
    Connect,
    GoodnessOfFit,
    checking,
    first_line,
    fit_distribution,
    fit_share,
    fit_weights,
    tests_of,
)

# ----------------------------------------------------------------------
# A tpcc dataset: its ownership marker and its cardinalities.
# ----------------------------------------------------------------------

READ_MARK = resources.files(__package__).joinpath("sql", "mark.sql").read_bytes()
READ_COLUMNS = """
    SELECT attname::text
      FROM pg_attribute
     WHERE attrelid = to_regclass('public.' || quote_ident(%s)) AND attnum > 0 AND NOT attisdropped
     ORDER BY attnum
"""
"""Columns of a table of the schema public, in order."""
_WHOLE_NUMBER = re.compile(r"\d{1,20}", re.ASCII)


@dataclass(frozen=True)
class OwnershipMarker:
    """The row of ``pgdyno_dataset``, written last: it marks a complete dataset."""

    workload: str
    scale: int
    seed: int
    format: str
    c_load: int
    deviations: tuple[str, ...] = ()  # from TPC-C, those of the data
    table_sets: int = 1

    @property
    def suffixed_sets(self) -> int:
        """Number of sets of tables with a number as suffix; 0 for tables without suffix."""
        return self.table_sets if "sysbench-sql" in self.deviations else 0


def read_marker(conn: Connection) -> OwnershipMarker:
    """Return the marker of the dataset in this database.

    Raises DatasetError if pgdyno did not create it, or if it is incomplete, malformed, not tpcc, or of
    another format.
    """
    try:
        rows = conn.execute(READ_MARK).fetchall()
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
        raise DatasetError(
            f"the database {conn.info.dbname} contains no pgdyno dataset: load one with pgdyno load"
        ) from None
    if not rows:
        raise DatasetError(
            f"the dataset in {conn.info.dbname} is incomplete, because its load did not finish: load it again"
        )
    mark = _mark_of(rows)
    if mark is None:
        raise DatasetError(
            f"the row of pgdyno_dataset in {conn.info.dbname} is malformed ({_shown(rows[0])}): "
            "load the dataset again"
        )
    if mark.workload != "tpcc":
        raise DatasetError(
            f"the dataset in {conn.info.dbname} belongs to the workload {mark.workload}, not tpcc"
        )
    if mark.format != dataset_format(mark.workload):
        raise DatasetError(
            f"the dataset in {conn.info.dbname} was loaded by another version of pgdyno: load it again"
        )
    return mark


TABLES = (
    *("warehouse", "district", "customer", "history", "orders", "order_line", "new_order", "stock"),
    "item",
)


def create_views(conn: Connection, suffixed_sets: int) -> None:
    """Create temporary views under the usual names over the sets of tables of sysbench-tpcc, if any.

    Warehouses belong to the sets in turn, and have the numbers of the whole dataset in the views. Raises
    DatasetError for another number of sets, ServerError.
    """
    if not suffixed_sets:
        return
    name = conn.info.dbname
    remedy = "use table_sets (--table-sets) with their number, or load the data with pgdyno load"
    try:
        for table in TABLES:
            conn.execute(_view(conn, table, suffixed_sets))
        row = conn.execute(
            "SELECT to_regclass(format('public.warehouse%%s', %s::integer))::text", [suffixed_sets + 1]
        ).fetchone()
    except psycopg.errors.UndefinedTable:
        raise DatasetError(
            f"the database {name} does not have {counted(suffixed_sets, 'set')} of tables: {remedy}"
        ) from None
    except psycopg.Error as error:
        message = first_line(error)
        raise ServerError(
            f"checking {name} needs temporary views over its tables, and cannot create them: {message}"
        ) from error
    if row is not None and row[0] is not None:
        raise DatasetError(
            f"the database {name} has more than {counted(suffixed_sets, 'set')} of tables: {remedy}"
        )


def _view(conn: Connection, table: str, sets: int) -> sql.Composed:
    of_sets = "new_orders" if table == "new_order" else table
    columns = [name for (name,) in conn.execute(READ_COLUMNS, [f"{of_sets}1"])]
    if not columns:
        raise psycopg.errors.UndefinedTable(f"{of_sets}1")
    selects = []
    for number in range(1, sets + 1):
        values = [
            sql.SQL("(({0}::integer - 1) * {1} + {2})").format(sql.Identifier(name), sets, number)
            if name.endswith("w_id")
            else sql.Identifier(name)
            for name in columns
        ]
        selects.append(
            sql.SQL("SELECT {} FROM {}").format(
                sql.SQL(", ").join(values), sql.Identifier("public", f"{of_sets}{number}")
            )
        )
    return sql.SQL("CREATE OR REPLACE TEMPORARY VIEW {} ({}) AS {}").format(
        sql.Identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, columns)),
        sql.SQL(" UNION ALL ").join(selects),
    )


def _mark_of(rows: Sequence[Sequence[str | None]]) -> OwnershipMarker | None:
    """Return the marker in the rows; None unless there is exactly one valid row."""
    if len(rows) != 1 or None in rows[0]:
        return None
    workload, scale, seed, form, c_load = map(str, rows[0])
    form, _, further = form.partition("+")
    deviations, _, sets = further.partition(",table-sets=")
    if not all(map(_WHOLE_NUMBER.fullmatch, (scale, seed, c_load, sets or "1"))) or int(scale) < 1:
        return None
    names = tuple(name for name in deviations.split(",") if name)
    return OwnershipMarker(workload, int(scale), int(seed), form, int(c_load), names, int(sets or 1))


def _shown(row: Sequence[str | None]) -> str:
    names = ("workload", "scale", "seed", "format", "c_load")
    return ", ".join(f"{name} {value!r}" for name, value in zip(names, row, strict=True))


def require_warehouses(conn: Connection) -> int:
    """Return the number of warehouses, whoever loaded them. Raises DatasetError without any, because then all
    conditions are true."""
    try:
        row = conn.execute("SELECT count(*) FROM warehouse").fetchone()
    except psycopg.errors.UndefinedTable:
        raise DatasetError(
            f"the database {conn.info.dbname} contains no tpcc data: it has no table warehouse"
        ) from None
    if row is None or row[0] == 0:
        raise DatasetError(
            f"the database {conn.info.dbname} contains no tpcc data: its table warehouse is empty"
        )
    return int(row[0])


# ----------------------------------------------------------------------
# Consistency of a tpcc database: the twelve conditions (clause 3.3.2), and committed orders.
#
# A statement returns no rows if its condition is true, else the first three violations, with the total number
# in the first column. Each statement uses one database snapshot, so they can run on a live database.
# ----------------------------------------------------------------------


def sum_d_next_o_id(conn: Connection) -> int:
    """Return the sum of D_NEXT_O_ID over all districts. Only committed New-Orders change it, by exactly 1."""
    ((total,),) = conn.execute("SELECT coalesce(sum(d_next_o_id), 0) FROM district").fetchall()
    return int(total)


def check_new_orders(before: int, after: int, committed: int) -> Check:
    """Check that the committed new orders counted by the driver = growth of the sum of D_NEXT_O_ID."""
    difference = after - before - committed
    detail = f"driver committed {committed}, the database has {after - before} more"
    return Check("new orders conserved", difference == 0, statistic=float(difference), detail=detail)


@dataclass(frozen=True)
class ConsistencyCondition:
    """A consistency condition: its number (1 to 12), its text, and the statement that finds violations."""

    number: int
    text: str
    statement: str

    @property
    def name(self) -> str:
        """Name in checks and reports."""
        return f"condition {self.number}"


def conditions() -> list[ConsistencyCondition]:
    """Return all twelve, in the order of the specification."""
    found = []
    for file in resources.files(__package__).joinpath("conditions").iterdir():
        if file.name.endswith(".sql"):
            statement = file.read_text(encoding="utf-8")
            title = statement.partition("\n")[0].partition("): ")[2].rstrip(".")
            found.append(ConsistencyCondition(int(file.name[:2]), title, statement))
    return sorted(found, key=lambda condition: condition.number)


def check_conditions(
    connect: Connect, deviations: Iterable[TpccDeviation] = (), suffixed_sets: int = 0
) -> list[Check]:
    """Run the conditions and return them in order; those that cannot hold under a deviation are skipped.

    ``connect`` opens a new connection in autocommit mode. ``suffixed_sets``: number of sets of tables with a
    number as suffix. Raises ConnectError, DatasetError (no such tables), ServerError.
    """
    with closing(connect()) as conn:
        create_views(conn, suffixed_sets)
        return _check_conditions(conn, deviations)


def _check_conditions(conn: Connection, deviations: Iterable[TpccDeviation]) -> list[Check]:
    with checking(conn, "tpcc"):
        satisfied = satisfied_by_one_scan(conn)
        broken = {number: one for one in deviations for number in one.broken}
        checks = []
        for condition in conditions():
            if deviation := broken.get(condition.number):
                checks.append(skipped(condition.name, deviation))
            elif condition.number in satisfied:
                checks.append(_passed(condition))
            else:
                checks.append(check_condition(conn, condition))
        return checks


def skipped(name: str, deviation: TpccDeviation) -> Check:
    """Return a check that was not run, because it cannot hold under a deviation."""
    detail = f"skipped: it cannot hold under the deviation {deviation.name} (clause {deviation.clause})"
    return Check(name, None, detail=detail)


def satisfied_by_one_scan(conn: Connection) -> set[int]:
    """Return the conditions on ORDER-LINE that one common scan shows to be satisfied.

    Only the statement of a condition finds its violations, so the others have to be run. A scan per condition
    takes about twice the CPU time.
    """
    statement = resources.files(__package__).joinpath("sql", "order_line_violations.sql").read_bytes()
    cursor = conn.execute(statement)
    (row,) = cursor.fetchall()
    numbers = [int(column.name) for column in cursor.description or ()]
    return {number for number, differs in zip(numbers, row, strict=True) if differs is False}


def check_condition(conn: Connection, condition: ConsistencyCondition) -> Check:
    """Run one condition."""
    cursor = conn.execute(sql.SQL(condition.statement))
    rows = cursor.fetchall()
    if not rows:
        return _passed(condition)
    columns = [column.name for column in cursor.description or ()][1:]
    violations = rows[0][0]
    examples = "; ".join(_example(columns, row[1:]) for row in rows)
    detail = f"{condition.text}: {violations} violations, the first: {examples}"
    return Check(condition.name, False, statistic=float(violations), detail=detail)


def _passed(condition: ConsistencyCondition) -> Check:
    return Check(condition.name, True, statistic=0.0, detail=condition.text)


def _example(columns: Sequence[str], values: Sequence[Any]) -> str:
    return ", ".join(
        f"{column} {'null' if value is None else value}"
        for column, value in zip(columns, values, strict=True)
    )


# ----------------------------------------------------------------------
# Conformance of the driver's transactions to TPC-C: mix, NURand, shares.
#
# A client that has drawn n cards has used n div 23 complete decks, exact by construction, and r = n mod 23
# cards of another, with a hypergeometric number of each kind. So the deviation of a kind's count from its
# share is a sum over clients of independent X - r·m/23, X ~ Hypergeometric(23, m, r). The r are unknown (the
# tally has only totals), but Chernoff's bound with the worst r for each client,
#
#     P(|count - share · n| >= t) <= 2 · min over s of exp(-s·t) · M(s)^clients,
#     M(s) = max over r of E exp(s·(X - r·m/23)),
#
# is valid for any r. It does not grow with n: decks are nearly deterministic, and a draw by weights soon
# fails the test.
#
#     NURand(A, x, y) = (((random(0, A) | random(x, y)) + C) mod (y - x + 1)) + x
#
# Let a(v) and b(v) be the numbers of ways in which the two uniform integers are v. The OR of a pair is a
# subset of the bits of v if and only if both integers are. So with F the sum over subsets (the zeta transform
# of the lattice of bit sets) F[OR](v) = F[a](v) · F[b](v), and the Möbius transform inverts F. That takes
# bits · 2^bits integer additions, 17 · 131 072 for the items, instead of A · (y - x + 1) = 8e8 pairs.
#
# docs/reference/engine-protocol.md ("The tally of tpcc") describes the tally. It counts the transactions when
# they are drawn, so retries and failures do not bias it.
# ----------------------------------------------------------------------

DECK: Mapping[str, int] = {"new_order": 10, "payment": 10, "order_status": 1, "delivery": 1, "stock_level": 1}
DECK_CARDS = sum(DECK.values())

_SLOPES = np.geomspace(1e-4, 40.0, 400)


def fit_deck(drawn: Mapping[str, int], clients: int) -> GoodnessOfFit:
    """Return the test of the number ``drawn`` of each kind by ``clients`` decks. The p-value is an upper
    bound (Bonferroni)."""
    n = sum(drawn.get(kind, 0) for kind in DECK)
    strays = {kind: abs(drawn.get(kind, 0) - n * cards / DECK_CARDS) for kind, cards in DECK.items()}
    bounds = {kind: deviation_probability_max(strays[kind], DECK[kind], clients) for kind in DECK}
    worst = min(bounds, key=lambda kind: (bounds[kind], -strays[kind]))
    p_value = min(1.0, len(DECK) * bounds[worst])
    count = drawn.get(worst, 0)
    detail = f"{worst} drawn {count} times of {n}, {strays[worst]:.1f} off its share, {clients} decks"
    return GoodnessOfFit(strays[worst], p_value, detail)


def deviation_probability_max(stray: float, cards: int, clients: int) -> float:
    """Return Chernoff's bound of the module docstring for a kind with ``cards`` cards in the deck; at most
    1."""
    return min(1.0, 2.0 * float(np.exp(np.min(clients * _log_moments_max(cards) - _SLOPES * stray))))


@cache
def _log_moments_max(cards: int) -> npt.NDArray[np.float64]:
    """Return ln M(s) of the module docstring for every slope s."""
    return np.asarray(np.max([_log_moments(cards, dealt) for dealt in range(DECK_CARDS)], axis=0))


def _log_moments(cards: int, dealt: int) -> npt.NDArray[np.float64]:
    """Return ln E exp(s·|side|·(X - mean)) for every slope s, the larger of the two sides."""
    count = np.arange(0, min(cards, dealt) + 1)
    weight = scipy.stats.hypergeom.pmf(count, DECK_CARDS, cards, dealt)
    from_mean = count - dealt * cards / DECK_CARDS
    sides = [np.log(np.exp(sign * np.outer(_SLOPES, from_mean)) @ weight) for sign in (1, -1)]
    larger: npt.NDArray[np.float64] = np.maximum(*sides)
    return larger


Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NURand:
    """Parameters of one field: A and the range x..y of the specification."""

    a: int
    low: int
    high: int

    def probability(self, c: int) -> npt.NDArray[np.float64]:
        """Return the probabilities of low, low + 1, …, high, for the constant C = ``c``."""
        values = self.high - self.low + 1
        either = or_of_uniforms(self.a, self.low, self.high)
        folded = np.bincount((np.arange(either.size) + c) % values, weights=either, minlength=values)
        return np.asarray(folded / ((self.a + 1) * values))

    def probability_with_drawn_c(self) -> npt.NDArray[np.float64]:
        """Return the probabilities if C is drawn from 0..A for each number: the mean over all constants."""
        fixed = self.probability(0)
        sums = np.cumsum(np.concatenate([[0.0], fixed[-self.a :], fixed]))
        return np.asarray((sums[self.a + 1 :] - sums[: fixed.size]) / (self.a + 1))

    def uniform(self) -> npt.NDArray[np.float64]:
        """Return the probabilities of a uniform distribution over the range."""
        values = self.high - self.low + 1
        return np.full(values, 1 / values)


C_LAST = NURand(255, 0, 999)
C_ID = NURand(1023, 1, 3000)
ITEM = NURand(8191, 1, 100_000)


def or_of_uniforms(a: int, low: int, high: int) -> Counts:
    """Return for each value the number of pairs i of 0..a, j of low..high with i | j equal to it.

    The total is (a + 1)(high - low + 1). Shape: (2^bits,).
    """
    bits = max(a, high).bit_length()
    first = np.zeros(1 << bits, dtype=np.int64)
    first[: a + 1] = 1
    second = np.zeros(1 << bits, dtype=np.int64)
    second[low : high + 1] = 1
    return _over_subsets(_over_subsets(first, bits, 1) * _over_subsets(second, bits, 1), bits, -1)


def _over_subsets(counts: Counts, bits: int, sign: int) -> Counts:
    """Return the zeta transform (``sign`` 1) or its inverse (-1): one pass for each bit, from values without
    it to values with it."""
    result = counts.copy()
    for bit in range(bits):
        halves = result.reshape(-1, 2, 1 << bit)
        halves[:, 1, :] += sign * halves[:, 0, :]
    return result


ROLLBACK_SHARE = 0.01
REMOTE_LINE_SHARE = 0.01
REMOTE_PAYMENT_SHARE = 0.15
BY_NAME_SHARE = 0.60
LINES_MIN, LINES_MAX = 5, 15
C_ID_BIN, ITEM_BIN = 3, 100
C_LAST_DIFFERENCE_MIN, C_LAST_DIFFERENCE_MAX = 65, 119
C_LAST_DIFFERENCES_BARRED = (96, 112)

LAST_NAME_CONSTANT = "constant of last names"
"""Name of the check of clause 2.1.6.1."""

Mix = str | Mapping[str, float]
Tally = Mapping[str, Any]


def check_conformance(
    tally: Tally,
    *,
    warehouses: int,
    clients: int,
    mix: Mix = "deck",
    deviations: Collection[TpccDeviation] = (),
) -> list[Check]:
    """Return all tests of a target's ``tally``; ``mix`` is ``"deck"`` or the weights of the kinds.

    Under deviations the shares and distributions are tested that these prescribe.
    """
    names = {one.name for one in deviations}
    return [check_accounts(tally), *tests_of(dict(_fits(tally, warehouses, clients, mix, names)))]


def _fits(
    tally: Tally, warehouses: int, clients: int, mix: Mix, deviations: Collection[str]
) -> Iterator[tuple[str, GoodnessOfFit]]:
    drawn = tally["drawn"]
    others = warehouses > 1 and "no-remote-warehouse" not in deviations  # a single one has no remote ones
    rollback_share = 0.0 if "no-rollback" in deviations else ROLLBACK_SHARE
    away = (warehouses - 1) / warehouses if "supply-from-all" in deviations else 1.0
    remote_lines, remote_payments = REMOTE_LINE_SHARE * others * away, REMOTE_PAYMENT_SHARE * others
    yield "mix", fit_deck(drawn, clients) if isinstance(mix, str) else fit_weights(drawn, mix)
    yield "rollback share", fit_share(tally["rollbacks_drawn"], drawn["new_order"], rollback_share)
    yield "remote order lines", fit_share(tally["order_lines_remote"], tally["order_lines"], remote_lines)
    yield "remote payments", fit_share(tally["payments_remote"], drawn["payment"], remote_payments)
    for kind in ("payment", "order_status"):
        yield f"{kind} by last name", fit_share(tally["by_name"][kind], drawn[kind], BY_NAME_SHARE)
    lines = LINES_MAX - LINES_MIN + 1
    yield "lines per order", fit_distribution(tally["lines_per_order"], np.full(lines, 1 / lines))
    c = tally["nurand_c"]
    if c is None:  # nothing was drawn
        return

    def expected(field: NURand, constant: int, *, is_uniform: bool) -> npt.NDArray[np.float64]:
        if is_uniform:
            return field.uniform()
        return field.probability_with_drawn_c() if "c-redrawn" in deviations else field.probability(constant)

    last_names = expected(C_LAST, c["c_last"], is_uniform=False)
    customers = expected(C_ID, c["c_id"], is_uniform="uniform-customers" in deviations)
    items = expected(ITEM, c["item"], is_uniform="uniform-items" in deviations)
    yield "NURand of last names", fit_distribution(tally["c_last"], last_names)
    yield "NURand of customers", fit_distribution(tally["c_id"], _binned(customers, C_ID_BIN))
    yield "NURand of items", fit_distribution(tally["item"], _binned(items, ITEM_BIN))


def _binned(probability: npt.NDArray[np.float64], width: int) -> npt.NDArray[np.float64]:
    return np.asarray(probability.reshape(-1, width).sum(axis=1))


def check_accounts(tally: Tally) -> Check:
    """Check that the counters of the tally are consistent. Otherwise the other tests have no meaning."""
    drawn, by_name = tally["drawn"], tally["by_name"]
    named = sum(by_name.values())
    lines = range(LINES_MIN, LINES_MAX + 1)
    sums = {
        "orders by number of lines": (sum(tally["lines_per_order"]), drawn["new_order"]),
        "order lines": (
            sum(n * count for n, count in zip(lines, tally["lines_per_order"], strict=True)),
            tally["order_lines"],
        ),
        "last names": (sum(tally["c_last"]), named),
        "customers": (
            sum(tally["c_id"]),
            drawn["new_order"] + drawn["payment"] + drawn["order_status"] - named,
        ),
    }
    wrong = [f"{what}: {found} instead of {due}" for what, (found, due) in sums.items() if found != due]
    # The unused item of a rollback can be drawn instead of an item, or replace one that was drawn and
    # counted.
    items, unused = sum(tally["item"]), tally["rollbacks_drawn"]
    if not tally["order_lines"] - unused <= items <= tally["order_lines"]:
        wrong.append(f"items: {items} for {tally['order_lines']} lines with {unused} unused items")
    return Check(
        "driver's counters add up", not wrong, detail="; ".join(wrong) or f"{sum(drawn.values())} drawn"
    )


def check_constant(c_load: int, c_run: int) -> Check:
    """Check clause 2.1.6.1: the constants of last names of run and load differ by 65..119, but not by 96 or
    112."""
    difference = abs(c_load - c_run)
    allowed = C_LAST_DIFFERENCE_MIN <= difference <= C_LAST_DIFFERENCE_MAX
    passed = allowed and difference not in C_LAST_DIFFERENCES_BARRED
    detail = f"C is {c_load} in the load and {c_run} in the run, {difference} apart"
    return Check(LAST_NAME_CONSTANT, passed, statistic=float(difference), detail=detail)
