"""Workload load: the load of the data itself, measured in each block with the settings of each arm."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    parameters=("parameters:LoadParameters",),
    workloads=("data:WORKLOAD",),
    data=("data:DATA",),
    prepare=("data:PREPARATION",),
    study_errors=("parameters:errors_of",),
    session=("drive:open_session",),
)
