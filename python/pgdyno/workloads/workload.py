"""Interface of a workload for a study, its registry, sessions for its checks, and tests of its distributions.

- Interface of a workload for the lab: its data on a server, and checks of a trial.
- Sessions for checks: read-only, with plans that do not depend on statistics.
- Goodness-of-fit tests of counts against specified shares.
- Registry: the workload of parameters.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import psycopg
import scipy  # its parts load when first used: stats alone takes a second

from pgdyno.errors import DatasetError, ServerError
from pgdyno.hooks import Hooks
from pgdyno.results.records import Check
from pgdyno.server.engine import TargetResult, dataset_format
from pgdyno.server.processes import Connection
from pgdyno.study.workload_parameters import WorkloadParameters

# ----------------------------------------------------------------------
# Interface of a workload for the lab: its data on a server, and checks of a trial.
# ----------------------------------------------------------------------

Connect = Callable[[], Connection]
"""Opens a new connection to the workload's database, in autocommit mode. Raises ConnectError."""

OnPhase = Callable[[str], None]
"""Called at the start of each phase, with its name."""


class TrialChecks(Protocol):
    """Checks of one trial on one server."""

    def begin(self, conn: Connection) -> None:
        """Read the values before the driver connects."""

    def end(self, connect: Connect, result: TargetResult, server_log: str | None) -> list[Check]:
        """Run all checks after the trial. The server must be idle.

        ``result`` is of the trial's target. ``server_log``: log during the trial, None if it
        is not readable. Raises ConnectError, DatasetError, ServerError.
        """


INVARIANT = "invariant "
"""Start of the names of checks by queries of the user, which are followed by a file and a query."""

TrialCheck = Callable[[Any, Connect], list[Check]]
"""Checks after a trial that a feature adds, given the parameters of the workload. The server is idle."""

TRIAL_CHECKS: Hooks[TrialCheck] = Hooks("trial_checks")


class Workload(Protocol):
    """A workload with its parameters: data on a server and checks."""

    @property
    def format(self) -> str:
        """Format of its data: a digest of everything that loading writes."""

    @property
    def bytes_completed(self) -> int:
        """Bytes that ``complete`` adds to the size forecast by the engine."""
        return 0

    def require_replaceable(self, conn: Connection) -> None:
        """Raise DatasetError if pgdyno did not create the tables that ``complete`` replaces."""
        del conn

    def complete(self, conn: Connection, on_phase: OnPhase) -> None:
        """Complete the engine's load; replaces results of an earlier call. Raises DatasetError."""
        del conn, on_phase

    def require(self, conn: Connection) -> None:
        """Raise DatasetError unless the database contains exactly these data, completely loaded."""

    def invariants(self, connect: Connect) -> list[Check]:
        """Check what holds at any time, provided that only this workload has changed its data.

        Raises ConnectError, DatasetError, ServerError.
        """

    def checks(self, clients: int, *, restored: bool) -> TrialChecks:
        """Return the checks of one trial. ``restored``: it begins with data as they were loaded."""


def load_command(own: WorkloadParameters) -> str:
    """Return the advice to load these data, with all parameters that are not the default."""
    fields = type(own).model_fields
    options = "".join(f" --{name} {value}" for name, value in own if value != fields[name].default)
    return f"load them with pgdyno load --into-existing --workload {own.kind}{options}"


def require_comment(
    conn: Connection, table: str, own: WorkloadParameters, load: str, use: Callable[[str, str], str]
) -> None:
    """Raise DatasetError unless the comment of a complete load is on the table, and its data are these.

    ``load``: how to get these. ``use``: returns what to use for a name and its value in the comment, which
    need not have all of the parameters.
    """
    ((text,),) = conn.execute("SELECT obj_description(to_regclass(%s), 'pg_class')", (table,)).fetchall()
    comment, name = str(text), conn.info.dbname
    if not comment.startswith(f"made by pgdyno: {own.kind} "):
        raise DatasetError(f"the database {name} contains no complete {own.kind} data: {load}")
    if not comment.endswith(f" format={dataset_format(own.kind)}"):
        raise DatasetError(f"the data in {name} were loaded by another version of pgdyno: {load}")
    found = dict(part.partition("=")[::2] for part in comment.split() if "=" in part)
    for key, value in own.shape().items():
        if (there := found.get(key, str(value))) != str(value):
            raise DatasetError(
                f"the data in {name} have {key} {there}, not {value}: use {use(key, there)}, or {load}"
            )


# ----------------------------------------------------------------------
# Sessions for checks: read-only, with plans that do not depend on statistics.
# ----------------------------------------------------------------------

WORK_MEM = "256MB"
"""work_mem for a hash table of all orders of 30 warehouses. For more, PostgreSQL uses temporary files or
sorts, which is slower but correct."""

NO_TIMEOUTS = (  # the second since PostgreSQL 17
    "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN "
    "('statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout')"
)
"""Switches off timeouts of the server, the database and the role for a session with long statements."""

SESSION = {
    "application_name": "pgdyno check",
    "default_transaction_read_only": "on",
    "work_mem": WORK_MEM,
    "jit": "off",  # costs more than it saves here; unknown before 11
    # A trial ends without ANALYZE. If the planner estimates one row instead of 300,000, a nested loop takes
    # minutes and a hash join a second. All joins of the conditions have equality keys, so a hash join is
    # always possible.
    "enable_nestloop": "off",
    "enable_hashjoin": "on",
    "enable_hashagg": "on",
}


@contextlib.contextmanager
def checking(conn: Connection, workload: str) -> Iterator[None]:
    """Prepare the session, and convert errors of PostgreSQL. Raises DatasetError (no such tables),
    ServerError.
    """
    name = conn.info.dbname  # not available after a loss of the connection
    try:
        prepare_session(conn)
        yield
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
        raise DatasetError(f"the database {name} contains no {workload} data: {first_line(error)}") from error
    except psycopg.Error as error:
        raise ServerError(f"checking {name} failed: {first_line(error)}") from error


def prepare_session(conn: Connection) -> None:
    """Set the settings of SESSION that this version has, and no timeouts."""
    conn.execute(NO_TIMEOUTS)
    conn.execute(
        "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS wanted (name, value)"
        " JOIN pg_settings USING (name)",
        (list(SESSION), list(SESSION.values())),
    )


def first_line(error: psycopg.Error) -> str:
    """Return the message without the statement and the caret."""
    return str(error).partition("\n")[0]


# ----------------------------------------------------------------------
# Goodness-of-fit tests of counts against specified shares.
#
# All of them must be accurate far in the tail, because they exclude a trial with a correct driver only about
# once in a million trials. They use exact distributions if these are cheap. For many bins they use a
# chi-square distribution, with bins pooled to a sufficient expected count.
# ----------------------------------------------------------------------

FALSE_ALARMS_PER_TRIAL = 1e-6
"""Probability that all these tests together fail a trial with a correct driver. A long study has hundreds of
trials; at this rate one study in thousands loses one trial at random. So a failed check indicates a fault.
The loss of power is small, because the counts are large: 2% rollbacks instead of 1% are three standard
deviations in 1000 transactions, and ten in 10,000."""

EXPECTED_PER_BIN_MIN = 50.0
"""Minimum expected count per bin; others are pooled. Simulated at 1e-5
(tests/unit/test_workload_goodness.py): with 5, the usual rule of thumb for 5% tests, the tails of the
chi-square distribution are several times too thin; with 50 they are accurate within a factor of two."""


@dataclass(frozen=True)
class GoodnessOfFit:
    """Result of a test. ``p_value``: probability of counts at least as extreme if the shares are correct.
    ``detail``: text for output."""

    statistic: float | None
    p_value: float
    detail: str


def tests_of(fits: Mapping[str, GoodnessOfFit]) -> list[Check]:
    """Return the tests of one trial as checks, with FALSE_ALARMS_PER_TRIAL divided among them
    (Bonferroni)."""
    threshold = FALSE_ALARMS_PER_TRIAL / max(1, len(fits))
    return [
        Check(name, fit.p_value >= threshold, fit.statistic, fit.p_value, fit.detail)
        for name, fit in fits.items()
    ]


def fit_weights(drawn: Mapping[str, int], weights: Mapping[str, float]) -> GoodnessOfFit:
    """Return the chi-square test of the numbers of drawn transactions per kind against the weights."""
    total = sum(weights.values())
    kinds = list(weights)
    if any(n for kind, n in drawn.items() if kind not in weights):
        return GoodnessOfFit(None, 0.0, f"drawn kinds without a weight: {sorted(set(drawn) - set(kinds))}")
    return fit_distribution([drawn.get(kind, 0) for kind in kinds], [weights[kind] / total for kind in kinds])


def fit_share(successes: int, n: int, share: float) -> GoodnessOfFit:
    """Return the exact two-sided binomial test of ``successes`` in ``n`` against ``share``."""
    if n == 0:
        return GoodnessOfFit(None, 1.0, f"none drawn; {share:.1%} expected")
    p_value = float(scipy.stats.binomtest(successes, n, share).pvalue)
    return GoodnessOfFit(
        successes / n, p_value, f"{successes} of {n} ({successes / n:.3%}), {share:.1%} expected"
    )


def fit_distribution(observed: Sequence[int], probability: npt.ArrayLike) -> GoodnessOfFit:
    """Return Pearson's chi-square test of ``observed`` counts against ``probability``, both of equal length.

    The least likely bins are pooled until each pool has a sufficient expected count. Pooling depends on the
    number of draws and the probabilities only, so the test keeps its level. Bins of similar probability are
    pooled, which keeps the contrast of likely and unlikely values, the signature of NURand. Counts with the
    probability 0 give p = 0.
    """
    counts = np.asarray(observed, dtype=np.float64)
    p = np.asarray(probability, dtype=np.float64)
    if counts.shape != p.shape:
        raise ValueError(f"{counts.size} bins counted, {p.size} expected")
    n = counts.sum()
    if counts[p == 0].any():
        return GoodnessOfFit(
            None, 0.0, f"{int(counts[p == 0].sum())} of {int(n)} draws are impossible values"
        )
    pool = _pools(p, n)
    pools = pool.max() + 1
    if pools < 2:
        return GoodnessOfFit(None, 1.0, f"{int(n)} draws are too few for a test")
    expected = np.bincount(pool, weights=p * n, minlength=pools)
    found = np.bincount(pool, weights=counts, minlength=pools)
    statistic = float(((found - expected) ** 2 / expected).sum())
    p_value = float(scipy.stats.chi2.sf(statistic, pools - 1))
    return GoodnessOfFit(
        statistic, p_value, f"chi-square {statistic:.1f} on {pools - 1} degrees of freedom, {int(n)} draws"
    )


def _pools(p: npt.NDArray[np.float64], n: float) -> npt.NDArray[np.intp]:
    """Return the pool of every bin, numbered from 0, the least likely bins first. A last pool that is too
    small is merged with the one before."""
    order = np.argsort(p, kind="stable")
    pool = np.empty(p.size, dtype=np.intp)
    current, expected = 0, 0.0
    for index in order:
        pool[index] = current
        expected += p[index] * n
        if expected >= EXPECTED_PER_BIN_MIN:
            current, expected = current + 1, 0.0
    if expected > 0.0 and current > 0:
        pool[pool == current] = current - 1
    return pool


# ----------------------------------------------------------------------
# Registry: the workload of parameters.
# ----------------------------------------------------------------------

WorkloadKind = tuple[type[WorkloadParameters], Callable[[Any], Workload]]
"""The class of the parameters of a workload, and what makes the workload from them."""

WORKLOAD_KINDS: Hooks[WorkloadKind] = Hooks("workloads")


def workload_of(parameters: WorkloadParameters) -> Workload:
    """Return the workload of the parameters."""
    made_by = dict(WORKLOAD_KINDS)
    return next(made_by[of] for of in type(parameters).__mro__ if of in made_by)(parameters)
