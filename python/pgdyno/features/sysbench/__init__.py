"""Workload sysbench: scripts of sysbench, their options, data and checks."""

from __future__ import annotations

from pgdyno.feature import Feature


def feature() -> Feature:
    """Return the hooks."""
    from pgdyno.features.sysbench.data import Sysbench
    from pgdyno.features.sysbench.parameters import SysbenchParameters

    return Feature("sysbench", workloads=((SysbenchParameters, Sysbench),))
