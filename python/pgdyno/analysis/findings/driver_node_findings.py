"""Load generators on other nodes: what each did in the ok trials of a case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from pgdyno.results.driver_facts import DriverNode
from pgdyno.results.records import Trial, TrialStatus


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
    return DriverNodeSummary(
        name=name,
        trials=len(seen),
        clients=max(node.clients for node in seen),
        executed_per_s=median(node.executed_per_s for node in seen),
        driver_cpu_share=_median([node.driver_cpu_share for node in seen]),
        busy_share=_median([node.busy_share for node in seen]),
        wake_late_p99_ms_max=max(late_ns) / 1e6 if late_ns else None,
        received_bytes_per_s=_median([node.received_bytes_per_s for node in seen]),
        sent_bytes_per_s=_median([node.sent_bytes_per_s for node in seen]),
        clock_spread_ms_max=1e3 * max(node.clock_spread_s for node in seen),
        ceiling_per_s=_median([node.ceiling_per_s for node in seen]),
        ceiling_share_max=max(shares, default=None),
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
