"""Load generators in reports.

- Load generators on other nodes: what each did in the ok trials of a case.
- Load generators on other nodes: a row per node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from pgdyno.analysis.case_findings import Findings
from pgdyno.report.document import Section, Table, tables_section
from pgdyno.report.json_format import Result
from pgdyno.results.records import DriverNode, Trial, TrialStatus
from pgdyno.units import ABSENT, number_text, share_text

# ----------------------------------------------------------------------
# Load generators on other nodes: what each did in the ok trials of a case.
# ----------------------------------------------------------------------


@dataclass(frozen=True)
class DriverNodeSummary:
    """One node over its trials: medians; of lateness, clocks and the share of SELECT 1 the maximum.

    None if unknown. ``trials`` is their number: a study may have more nodes than a block uses.
    """

    name: str
    trials: int
    clients: int
    executed_per_s: float
    driver_cpu_share: float | None
    busy_share: float | None
    wake_late_p99_ms_max: float | None
    received_bytes_per_s: float | None
    sent_bytes_per_s: float | None
    clock_spread_ms_max: float
    ceiling_per_s: float | None
    ceiling_share_max: float | None


def driver_node_summaries(trials: Sequence[Trial]) -> list[DriverNodeSummary]:
    """Return the summary of each node, by name; empty if the driver ran on the machine of pgdyno."""
    nodes: dict[str, list[DriverNode]] = {}
    for trial in trials:
        if trial.status is TrialStatus.OK:
            for node in trial.driver.nodes or ():
                nodes.setdefault(node.name, []).append(node)
    return [_summary(name, nodes[name]) for name in sorted(nodes)]


def _summary(name: str, seen: Sequence[DriverNode]) -> DriverNodeSummary:
    late_ns = [node.wake_late_ns.p99 for node in seen if node.wake_late_ns.p99 is not None]
    shares = [node.executed_per_s / node.ceiling_per_s for node in seen if node.ceiling_per_s]
    medians: dict[str, Any] = {key: _median([getattr(node, key) for node in seen]) for key in MEDIANS}
    return DriverNodeSummary(
        name=name,
        trials=len(seen),
        clients=max(node.clients for node in seen),
        wake_late_p99_ms_max=max(late_ns) / 1e6 if late_ns else None,
        clock_spread_ms_max=1e3 * max(node.clock_spread_s for node in seen),
        ceiling_share_max=max(shares, default=None),
        **medians,
    )


MEDIANS = (
    *("executed_per_s", "received_bytes_per_s", "sent_bytes_per_s", "ceiling_per_s"),
    *("driver_cpu_share", "busy_share"),
)


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


# ----------------------------------------------------------------------
# Load generators on other nodes: a row per node.
# ----------------------------------------------------------------------

_COLUMNS: Mapping[str, Callable[[DriverNodeSummary], str]] = {
    "node": lambda node: node.name,
    "trials": lambda node: str(node.trials),
    "clients": lambda node: str(node.clients),
    "tx/s": lambda node: number_text(node.executed_per_s),
    "CPU of driver": lambda node: _share(node.driver_cpu_share),
    "CPU busy": lambda node: _share(node.busy_share),
    "timer delay p99, ms": lambda node: number_text(node.wake_late_p99_ms_max),
    "received, kB/s": lambda node: _kilobytes(node.received_bytes_per_s),
    "sent, kB/s": lambda node: _kilobytes(node.sent_bytes_per_s),
    "clock error, ms": lambda node: number_text(node.clock_spread_ms_max),
    "SELECT 1 per s": lambda node: number_text(node.ceiling_per_s),
    "share of SELECT 1": lambda node: _share(node.ceiling_share_max),
}
"""Columns of the table, with the text of a node."""


def sections(findings: Findings) -> Iterator[Section]:
    """Yield the table of the nodes of a case."""
    yield replace(tables_section("drivers", [driver_nodes(findings)]), after="checks")


def driver_nodes(findings: Findings) -> Table:
    """Return the table of the nodes; empty if the driver ran on the machine of pgdyno."""
    return Table(
        "Load generators",
        tuple(_COLUMNS),
        [[text(one) for text in _COLUMNS.values()] for one in driver_node_summaries(findings.trials)],
        "Medians over the trials of a node, in the measured part of a block with all its arms; maxima of "
        "the timer delay, the clock error and the share of SELECT 1. The nodes are a random choice for each "
        "block. SELECT 1 per s is the rate of the same clients before, with few other nodes: a generator far "
        "below it is not the limit. Traffic of the loopback interface is not included.",
        numeric=frozenset(_COLUMNS.keys() - {"node"}),
        dispensable=(
            "received, kB/s",
            "sent, kB/s",
            "CPU busy",
            "clock error, ms",
            "trials",
            "SELECT 1 per s",
        ),
    )


def _share(value: float | None) -> str:
    return ABSENT if value is None else share_text(value)


def _kilobytes(value: float | None) -> str:
    return ABSENT if value is None else number_text(value / 1e3)


RESULT = Result(
    "driver_nodes",
    dict[str, list[DriverNodeSummary]],
    "Load generators by case; empty if this machine generated the load.",
    lambda of: {case.study.case: driver_node_summaries(case.trials) for case in of.cases},
)
