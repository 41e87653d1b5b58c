"""Workload linkbench on servers: its data, the checks after a trial, and exact distributions for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

from pgdyno.features.linkbench.parameters import MIXES, LinkBenchParameters
from pgdyno.results.records import Check
from pgdyno.server.engine import TargetResult, dataset_format
from pgdyno.server.processes import Connection
from pgdyno.workloads.server_log import EXPECTED, Expected, check_log, counted_in
from pgdyno.workloads.workload import (
    Connect,
    GoodnessOfFit,
    Workload,
    checking,
    fit_distribution,
    fit_share,
    fit_weights,
    load_command,
    require_comment,
    tests_of,
)

EXPECTED_OF_ADDS = (
    Expected("ERROR", re.compile(r'duplicate key value .*"linktable_pkey"'), "duplicate_keys"),
)

UNCORRELATED_READS = 0.995

EXPONENTS = {"link_read": 0.8, "link_write": 0.741, "node_read": 0.625, "node_update": 0.606}
"""Exponents of the Zipf distributions of ids. Nodes to delete are uniform."""

UNCORRELATED_WRITES = {"executed": (0.8, 0.995), "configured": (0.741, 0.95)}
"""Exponent of link writes that are not correlated with the number of links, and their share."""


def _sql(name: str) -> bytes:
    return resources.files(__package__).joinpath("sql", f"{name}.sql").read_bytes()


@dataclass(frozen=True)
class LinkBench(Workload):
    """See Workload. The engine loads everything; a comment on linktable says what."""

    parameters: LinkBenchParameters

    @property
    def format(self) -> str:
        """Format of the engine."""
        return dataset_format(self.parameters.kind)

    def require(self, conn: Connection) -> None:
        """Check the comment that a complete load leaves."""
        own = self.parameters
        require_comment(conn, "linktable", own, load_command(own), "{} {}".format)

    def invariants(self, connect: Connect) -> list[Check]:
        """Check that each count is the number of visible links, both ways."""
        with closing(connect()) as conn, checking(conn, "linkbench"):
            differing, first = _row(conn, "differing_counts")
            (invalid,) = _row(conn, "invalid_links")
        detail = f"{differing} counts differ" + (f", for example {first}" if differing else "")
        return [
            Check("counts of links", differing == 0, float(differing), detail=detail),
            Check(
                "visibility of links", invalid == 0, float(invalid), detail=f"{invalid} are neither 0 nor 1"
            ),
        ]

    def checks(self, clients: int, *, restored: bool) -> LinkBenchChecks:
        """Return the checks. Numbers of restored data are known; others are read before the trial."""
        del clients
        return LinkBenchChecks(self, restored)


def _row(conn: Connection, name: str) -> tuple[Any, ...]:
    (row,) = conn.execute(_sql(name)).fetchall()
    return row


LINKS_LOADED = (
    "SELECT substring(obj_description('linktable'::regclass, 'pg_class') FROM ' links=([0-9]+) ')::bigint"
)


@dataclass
class LinkBenchChecks:
    """See TrialChecks."""

    workload: LinkBench
    restored: bool
    links_before: int = 0
    nodes_before: int = 0

    def begin(self, conn: Connection) -> None:
        """Read the numbers of links and nodes, of restored data in the comment: tables would warm caches."""
        with checking(conn, "linkbench"):
            if self.restored:
                ((self.links_before,),) = conn.execute(LINKS_LOADED).fetchall()
                self.nodes_before = self.workload.parameters.nodes
            else:
                self.links_before, self.nodes_before = _row(conn, "totals")

    def end(self, connect: Connect, result: TargetResult, server_log: str | None) -> list[Check]:
        """Check counts, committed changes, distributions and log."""
        checks = self.workload.invariants(connect)
        with closing(connect()) as conn, checking(conn, "linkbench"):
            links, nodes = _row(conn, "totals")
        of = result.counters
        changed = of["links_added"] + of["links_shown"] - of["links_hidden"]
        checks += [
            check_change("links conserved", links - self.links_before, changed),
            check_change(
                "nodes conserved", nodes - self.nodes_before, of["nodes_added"] - of["nodes_deleted"]
            ),
        ]
        checks += tests_of(fits(result.tally, self.workload.parameters))
        if server_log is not None:
            counted = {**counted_in(result.totals.values()), "duplicate_keys": of["duplicate_keys"]}
            checks.append(check_log(server_log, counted, (*EXPECTED, *EXPECTED_OF_ADDS)))
        return checks


def check_change(name: str, grown: int, committed: int) -> Check:
    """Check the growth of a number of rows against the changes that the driver committed."""
    detail = f"driver committed {committed:+d}, the database has {grown:+d}"
    return Check(name, grown == committed, float(grown - committed), detail=detail)


def fits(tally: Mapping[str, Any], parameters: LinkBenchParameters) -> dict[str, GoodnessOfFit]:
    """Return the tests of the drawn operations against the distributions of the edition."""
    exponent, uncorrelated = UNCORRELATED_WRITES[parameters.distributions]
    ranks, nodes = tally["ranks"], parameters.nodes
    exponents = {**EXPONENTS, "link_write_uncorrelated": exponent, "node_delete": 0.0}
    by_rank = {
        f"ranks of {name}": fit_distribution(ranks[name], rank_bins(nodes, exponents[name], len(ranks[name])))
        for name in ranks
    }
    reads, writes = sum(ranks["link_read"]), sum(ranks["link_write"])
    written = writes + sum(ranks["link_write_uncorrelated"])
    sizes = multiget_sizes(parameters.distributions)
    return {
        "mix": fit_weights(tally["drawn"], MIXES[parameters.edition]),
        **by_rank,
        "correlated reads": fit_share(tally["correlated_reads"], reads, 1 - UNCORRELATED_READS),
        "correlated writes": fit_share(writes, written, 1 - uncorrelated),
        "link types": fit_share(tally["link_types"][0], sum(tally["link_types"]), 0.5),
        "links of a multiget": fit_distribution(tally["multiget"], sizes),
    }


# ----------------------------------------------------------------------
# Exact distributions of what the engine draws, for tests of its counts.
# ----------------------------------------------------------------------

MULTIGET_MAX = 127
"""Maximum number of links of a multiget."""

MULTIGET_SHARE = 0.382
"""Parameter of the geometric distribution of the number of links of a multiget."""

TERMS = 10_000
"""Terms of a harmonic number that are added one by one; an asymptotic formula has the others."""


def harmonic(n: int, exponent: float) -> float:
    """Return the sum of k^-exponent over k = 1 … n, with a relative error below 1e-12.

    Source: Euler-Maclaurin formula for the terms after the first TERMS.
    """
    low, high = float(min(n, TERMS)), float(n)
    total = float((np.arange(1, low + 1) ** -exponent).sum())
    integral = (high ** (1 - exponent) - low ** (1 - exponent)) / (1 - exponent)
    slopes = -exponent * (high ** (-exponent - 1) - low ** (-exponent - 1))
    return float(total + integral + (high**-exponent - low**-exponent) / 2 + slopes / 12)


def rank_bins(nodes: int, exponent: float, bins: int) -> npt.NDArray[np.float64]:
    """Return the probabilities of bins of ranks: bin k has the ranks 2^k - 1 to 2^(k+1) - 2.

    Exponent 0: uniform. Source: Gray et al., Quickly generating billion-record synthetic databases (1994).
    Their approximation of the Zipf distribution is exact for the first two ranks.
    """
    ends = np.minimum(2.0 ** np.arange(bins + 1) - 1, nodes)
    if exponent == 0.0:
        return np.diff(ends / nodes)
    zeta, second = harmonic(nodes, exponent), 0.5**exponent
    eta = (1 - (2 / nodes) ** (1 - exponent)) / (1 - (1 + second) / zeta)
    below = 1 - (1 - (ends / nodes) ** (1 - exponent)) / eta
    below[0], below[1] = 0.0, 1 / zeta
    return np.diff(below)


def multiget_sizes(distributions: str) -> npt.NDArray[np.float64]:
    """Return the probabilities of 0 … MULTIGET_MAX links of a multiget.

    LinkBench adds the configured minimum, 1, to a geometric number that is at least 1.
    """
    drawn = np.arange(1, MULTIGET_MAX + 1)
    probability = MULTIGET_SHARE * (1 - MULTIGET_SHARE) ** (drawn - 1)
    size = np.minimum(drawn + (distributions == "executed"), MULTIGET_MAX)
    found = np.asarray(np.bincount(size, weights=probability, minlength=MULTIGET_MAX + 1), np.float64)
    found[MULTIGET_MAX] += 1 - found.sum()
    return found


WORKLOAD = (LinkBenchParameters, LinkBench)
