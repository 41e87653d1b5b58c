"""The assembly: every command with its module and its line of help, and the hooks of workloads and features.

Only here the core names features.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib import import_module

from pgdyno.feature import Feature
from pgdyno.hooks import use_features

COMMANDS = {
    "compare": (
        "pgdyno.cli.compare",
        "Compare servers: which is faster, by how much, with confidence intervals.",
    ),
    "run": ("pgdyno.cli.run", "Run a study file: all cases, with telemetry, next to published results."),
    "report": ("pgdyno.cli.report", "Show the results of a study: verdict, figures, caveats."),
    "bisect": (
        "pgdyno.features.bisect.command",
        "Find the commit that changed the performance, by binary search.",
    ),
    "crash": (
        "pgdyno.features.crash.command",
        "Crash servers on purpose and count the acknowledged commits that are gone.",
    ),
    "history": (
        "pgdyno.features.history.command",
        "Find when the results of a repeated study changed, and what changed with them.",
    ),
    "load": ("pgdyno.features.runs.command", "Load the data of a workload into a database."),
    "drive": ("pgdyno.features.runs.command", "Run a workload once against a loaded database."),
    "check": ("pgdyno.features.runs.command", "Check the consistency of the data of a workload."),
    "pgbench": ("pgdyno.features.runs.command", "Run pgbench benchmarks with the pgdyno engine."),
    "doctor": (
        "pgdyno.features.doctor.command",
        "Find sources of measurement noise on this machine, with remedies.",
    ),
    "demo": (
        "pgdyno.features.demo.command",
        "Measure the effect of synchronous_commit in about two minutes.",
    ),
    "study": ("pgdyno.features.planning.command", "Check, explain and list study files."),
    "servers": ("pgdyno.cli.servers", "List installed and downloadable PostgreSQL servers."),
    "workload": (
        "pgdyno.features.statements.command",
        "Make scripts from the statements of a running database.",
    ),
    "data": ("pgdyno.features.own_data.command", "Name, list and remove data of your own for --data."),
    "settings": ("pgdyno.cli.settings", "Show settings profiles and explain settings."),
    "docs": ("pgdyno.cli.docs", "Print a page of the documentation, or a section of it."),
    "cache": ("pgdyno.cli.cache", "List and prune the cache of servers and datasets."),
}
"""Module and help of each command. The module has a function of that name, or an ``app`` with subcommands.
``tests/unit/test_cli_commands.py`` keeps the help equal to the command's own."""


WORKLOADS = ("tpcc", "pgbench")
"""Workloads of the core, in the order of lists: packages in ``pgdyno.workloads``. Each has the constants
PARAMETERS in ``parameters.py`` and WORKLOAD in ``data.py``."""

FEATURES = (
    "aged_data",
    "bisect",
    "builds",
    "capacity",
    "cluster",
    "crash",
    "crash_disk",
    "demo",
    "doctor",
    "drivers",
    "factors",
    "fitting",
    "fleet",
    "history",
    "hosts",
    "own_data",
    "planning",
    "profiles",
    "published",
    "runs",
    "statements",
    "sysbench",
)
"""Features in any order: packages in ``pgdyno.features``, each with a constant FEATURE."""


def features() -> None:
    """Let the core ask the features for their hooks. Each process of pgdyno calls this at its start."""
    use_features(all_features)


@functools.cache
def all_features() -> Sequence[Feature]:
    """Import the features. The workloads of the core are the first of them."""
    return [
        *map(_workload, WORKLOADS),
        *(import_module(f"pgdyno.features.{name}").FEATURE for name in FEATURES),
    ]


def _workload(name: str) -> Feature:
    """Return a workload of the core as a feature."""
    package = f"pgdyno.workloads.{name}"
    return Feature(
        name,
        parameters=lambda: [import_module(f"{package}.parameters").PARAMETERS],
        workloads=lambda: [import_module(f"{package}.data").WORKLOAD],
    )
