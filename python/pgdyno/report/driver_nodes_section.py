"""Load generators on other nodes: a row per node."""

from __future__ import annotations

from pgdyno.analysis.findings.case_findings import Findings
from pgdyno.analysis.findings.driver_node_findings import DriverNodeSummary, driver_node_summaries
from pgdyno.estimate import ABSENT, number_text, share_text
from pgdyno.report.result_tables import Table

COLUMNS = (
    "node",
    "trials",
    "clients",
    "tx/s",
    "CPU of driver",
    "CPU busy",
    "timer delay p99, ms",
    "received, kB/s",
    "sent, kB/s",
    "clock error, ms",
    "SELECT 1 per s",
    "share of SELECT 1",
)


def driver_nodes(findings: Findings) -> Table:
    """Return the table of the nodes; empty if the driver ran on the machine of pgdyno."""
    return Table(
        "Load generators",
        COLUMNS,
        [_row(one) for one in driver_node_summaries(findings.trials)],
        "Medians over the trials of a node, in the measured part of a block with all its arms; maxima of "
        "the timer delay, the clock error and the share of SELECT 1. The nodes are a random choice for each "
        "block. SELECT 1 per s is the rate of the same clients before, with few other nodes: a generator far "
        "below it is not the limit. Traffic of the loopback interface is not included.",
        numeric=frozenset(COLUMNS[1:]),
        dispensable=(
            "received, kB/s",
            "sent, kB/s",
            "CPU busy",
            "clock error, ms",
            "trials",
            "SELECT 1 per s",
        ),
    )


def _row(node: DriverNodeSummary) -> list[str]:
    return [
        node.name,
        str(node.trials),
        str(node.clients),
        number_text(node.executed_per_s),
        _share(node.driver_cpu_share),
        _share(node.busy_share),
        number_text(node.wake_late_p99_ms_max),
        _kilobytes(node.received_bytes_per_s),
        _kilobytes(node.sent_bytes_per_s),
        number_text(node.clock_spread_ms_max),
        number_text(node.ceiling_per_s),
        _share(node.ceiling_share_max),
    ]


def _share(value: float | None) -> str:
    return ABSENT if value is None else share_text(value)


def _kilobytes(value: float | None) -> str:
    return ABSENT if value is None else number_text(value / 1e3)
