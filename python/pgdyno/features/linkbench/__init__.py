"""Workload linkbench: the social graph of LinkBench, its data, operations and checks."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    parameters=("parameters:LinkBenchParameters",),
    workloads=("data:WORKLOAD",),
    workload_options=("options:LinkBenchOptions",),
    caveats=("caveats.toml",),
)
