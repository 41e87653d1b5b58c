"""The assembly: every command with its module and its line of help, and the hooks of workloads and features.

Only here the core names features.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from importlib import import_module

from pgdyno.feature import Feature
from pgdyno.hooks import use_features

OF_CORE = {
    "compare": ("compare", "Compare servers: which is faster, by how much, with confidence intervals."),
    "run": ("run", "Run a study file: all cases, with telemetry, next to published results."),
    "report": ("report", "Show the results of a study: verdict, figures, caveats."),
    "docs": ("docs", "Print a page of the documentation, or a section of it."),
}
"""Commands of the core, as in ``Feature``."""

WORKLOADS = ("tpcc", "pgbench")
"""Workloads of the core, in the order of lists: packages in ``pgdyno.workloads``. Each has the constants
PARAMETERS in ``parameters.py`` and WORKLOAD in ``data.py``."""

FEATURES = (
    "aged_data",
    "beside",
    "bisect",
    "builds",
    "bundles",
    "cache",
    "capacity",
    "cluster",
    "crash",
    "crash_disk",
    "demo",
    "dips",
    "disturbed_blocks",
    "doctor",
    "drivers",
    "dumps",
    "explore",
    "exports",
    "factors",
    "fitting",
    "fleet",
    "gates",
    "history",
    "hosts",
    "insert",
    "io_clocks",
    "linkbench",
    "load_time",
    "matrix",
    "memory_limit",
    "noise_history",
    "open_metrics",
    "outliers",
    "own_data",
    "own_data_checks",
    "planning",
    "plans",
    "profiles",
    "published",
    "python_api",
    "quick",
    "running_server",
    "runs",
    "serve",
    "servers",
    "settings_catalogue",
    "side_by_side",
    "statement_parameters",
    "statement_waits",
    "statements",
    "study_form",
    "sysbench",
    "unpacked",
    "user_defaults",
    "wal_directory",
    "wal_records",
    "waterfalls",
    "wraparound",
)
"""Features in any order: packages in ``pgdyno.features``, each with a constant FEATURE."""


def features() -> None:
    """Let the core ask the features for their hooks. Each process of pgdyno calls this at its start."""
    use_features(all_features)


@functools.cache
def all_features() -> Sequence[Feature]:
    """Import the features. The core's commands and workloads are the first of them."""
    return [
        Feature("pgdyno.cli", commands=OF_CORE),
        *map(_workload, WORKLOADS),
        *(import_module(f"pgdyno.features.{name}").FEATURE for name in FEATURES),
    ]


def _workload(name: str) -> Feature:
    """Return a workload of the core as a feature."""
    return Feature(
        f"pgdyno.workloads.{name}", parameters=("parameters:PARAMETERS",), workloads=("data:WORKLOAD",)
    )


@functools.cache
def public() -> Mapping[str, str]:
    """Return the place ``module:name`` of each object of the Python API, by name."""
    return {
        place.partition(":")[2]: f"{feature.package}.{place}"
        for feature in all_features()
        for place in feature.public
    }


@functools.cache
def commands() -> Mapping[str, tuple[str, str]]:
    """Return the module and the line of help of each command, in the order of ``pgdyno --help``."""
    return {
        name: (f"{feature.package}.{module}", text)
        for feature in all_features()
        for name, (module, text) in feature.commands.items()
    }
