"""What a feature adds to the core: one list of hooks for each loop of the core over features.

The core never imports this module. ``feature()`` of the package of a feature returns its hooks, and
``cli/features.py`` hands them to the packages that loop over them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from pgdyno.measure.dataset_loading import DataKind
    from pgdyno.measure.prepare import Preparation
    from pgdyno.measure.telemetry_collection import ProbeKind
    from pgdyno.results.records import Check
    from pgdyno.server.build_store import Progress, ServerSource
    from pgdyno.server.cache_directory import Leftovers
    from pgdyno.workloads.registry import WorkloadKind
    from pgdyno.workloads.workload import Connect


@dataclass(frozen=True)
class Feature:
    """A feature. The order of features has no effect."""

    name: str
    workloads: tuple[WorkloadKind, ...] = ()
    servers: tuple[Callable[[Path, Progress], ServerSource], ...] = ()
    leftovers: tuple[Leftovers, ...] = ()
    data: tuple[DataKind, ...] = ()
    prepare: tuple[Preparation, ...] = ()
    trial_checks: tuple[Callable[[Any, Connect], list[Check]], ...] = ()
    probes: tuple[ProbeKind, ...] = ()
