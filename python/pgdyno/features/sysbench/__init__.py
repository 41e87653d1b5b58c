"""Workload sysbench: scripts of sysbench, their options, data and checks."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    parameters=("parameters:SysbenchParameters",),
    workloads=("data:WORKLOAD",),
    workload_options=("options:SysbenchOptions",),
)
