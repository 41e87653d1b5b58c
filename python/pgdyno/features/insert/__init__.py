"""Workload insert: the insert benchmark, with a snapshot of the state in which each of its phases begins."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    parameters=("parameters:InsertParameters",),
    workloads=("data:WORKLOAD",),
    workload_options=("options:InsertOptions",),
    data=("phases:DATA",),
    case_sections=("section:sections",),
)
