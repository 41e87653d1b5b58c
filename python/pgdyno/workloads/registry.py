"""Mapping of parameters to workloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pgdyno.hooks import Hooks
from pgdyno.study.workload_parameters import WorkloadParameters
from pgdyno.workloads.pgbench.data import Pgbench
from pgdyno.workloads.pgbench.parameters import PgbenchParameters
from pgdyno.workloads.tpcc.data import Tpcc
from pgdyno.workloads.tpcc.parameters import TpccParameters
from pgdyno.workloads.workload import Workload

WorkloadKind = tuple[type[WorkloadParameters], Callable[[Any], Workload]]
"""The class of the parameters of a workload, and what makes the workload from them."""

WORKLOAD_KINDS: Hooks[WorkloadKind] = Hooks("workloads")
OF_CORE: Mapping[type[WorkloadParameters], Callable[[Any], Workload]] = {
    TpccParameters: Tpcc,
    PgbenchParameters: Pgbench,
}


def workload_of(parameters: WorkloadParameters) -> Workload:
    """Return the workload of the parameters."""
    return {**OF_CORE, **dict(WORKLOAD_KINDS)}[type(parameters)](parameters)
