"""Workload sysbench: scripts of sysbench, their options, data and checks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pgdyno.feature import Feature

if TYPE_CHECKING:
    from pgdyno.cli.options import WorkloadGroup
    from pgdyno.study.workload_parameters import WorkloadParameters
    from pgdyno.workloads.registry import WorkloadKind


def _parameters() -> Iterable[type[WorkloadParameters]]:
    from pgdyno.features.sysbench.parameters import SysbenchParameters

    yield SysbenchParameters


def _workloads() -> Iterable[WorkloadKind]:
    from pgdyno.features.sysbench.data import Sysbench
    from pgdyno.features.sysbench.parameters import SysbenchParameters

    yield SysbenchParameters, Sysbench


def _workload_options() -> Iterable[type[WorkloadGroup]]:
    from pgdyno.features.sysbench.options import SysbenchOptions

    yield SysbenchOptions


FEATURE = Feature(
    "sysbench", parameters=_parameters, workloads=_workloads, workload_options=_workload_options
)
