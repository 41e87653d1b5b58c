"""Mapping of parameters to workloads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pgdyno.hooks import Hooks
from pgdyno.study.workload_parameters import WorkloadParameters
from pgdyno.workloads.workload import Workload

WorkloadKind = tuple[type[WorkloadParameters], Callable[[Any], Workload]]
"""The class of the parameters of a workload, and what makes the workload from them."""

WORKLOAD_KINDS: Hooks[WorkloadKind] = Hooks("workloads")


def workload_of(parameters: WorkloadParameters) -> Workload:
    """Return the workload of the parameters."""
    made_by = dict(WORKLOAD_KINDS)
    return next(made_by[of] for of in type(parameters).__mro__ if of in made_by)(parameters)
