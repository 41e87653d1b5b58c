"""Mapping of parameters to workloads."""

from __future__ import annotations

from pgdyno.study.pgbench_parameters import PgbenchParameters
from pgdyno.study.sysbench_parameters import SysbenchParameters
from pgdyno.study.tpcc_parameters import TpccParameters
from pgdyno.study.workload_parameters import WorkloadParameters
from pgdyno.workload.interface import Workload
from pgdyno.workload.pgbench.pgbench_workload import Pgbench
from pgdyno.workload.sysbench.sysbench_workload import Sysbench
from pgdyno.workload.tpcc.tpcc_workload import Tpcc


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
