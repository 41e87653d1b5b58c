"""Mapping of parameters to workloads."""

from __future__ import annotations

from pgdyno.features.sysbench.data import Sysbench
from pgdyno.features.sysbench.parameters import SysbenchParameters
from pgdyno.study.workload_parameters import WorkloadParameters
from pgdyno.workloads.pgbench.data import Pgbench
from pgdyno.workloads.pgbench.parameters import PgbenchParameters
from pgdyno.workloads.tpcc.data import Tpcc
from pgdyno.workloads.tpcc.parameters import TpccParameters
from pgdyno.workloads.workload import Workload


def workload_of(parameters: WorkloadParameters) -> Workload:
    """Return the workload of the parameters. Only this function knows all workloads."""
    match parameters:
        case TpccParameters():
            return Tpcc(parameters)
        case PgbenchParameters():
            return Pgbench(parameters)
        case SysbenchParameters():
            return Sysbench(parameters)
    raise TypeError(f"no workload has parameters like {parameters!r}")
