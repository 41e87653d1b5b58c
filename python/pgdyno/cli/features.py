"""The assembly: every command with its module and its line of help, and the hooks of every feature.

Only here the core names features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pgdyno.hooks import install_on_demand

if TYPE_CHECKING:
    from pgdyno.feature import Feature

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
    "doctor": ("pgdyno.cli.doctor", "Find sources of measurement noise on this machine, with remedies."),
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


def features() -> None:
    """Give the core the hooks of all features, which it imports when it asks for the first one.

    Each process of pgdyno calls this at its start.
    """
    install_on_demand(lambda: install(all_features()))


def all_features() -> Sequence[Feature]:
    """Import the features with hooks."""
    from pgdyno.features import aged_data, builds, own_data, profiles, sysbench  # noqa: PLC0415

    return [package.feature() for package in (aged_data, builds, own_data, profiles, sysbench)]


def install(found: Sequence[Feature]) -> None:
    """Hand each hook to the package that loops over it. The order of the features has no effect."""
    from pgdyno.measure.dataset_loading import DATA_KINDS  # noqa: PLC0415
    from pgdyno.measure.prepare import PREPARATIONS  # noqa: PLC0415
    from pgdyno.measure.telemetry_collection import PROBE_KINDS  # noqa: PLC0415
    from pgdyno.server.build_store import SERVER_SOURCES  # noqa: PLC0415
    from pgdyno.server.cache_directory import LEFTOVERS  # noqa: PLC0415
    from pgdyno.workloads.registry import WORKLOAD_KINDS  # noqa: PLC0415
    from pgdyno.workloads.workload import TRIAL_CHECKS  # noqa: PLC0415

    WORKLOAD_KINDS.install(kind for feature in found for kind in feature.workloads)
    SERVER_SOURCES.install(source for feature in found for source in feature.servers)
    LEFTOVERS.install(one for feature in found for one in feature.leftovers)
    DATA_KINDS.install(kind for feature in found for kind in feature.data)
    PREPARATIONS.install(one for feature in found for one in feature.prepare)
    TRIAL_CHECKS.install(check for feature in found for check in feature.trial_checks)
    PROBE_KINDS.install(probe for feature in found for probe in feature.probes)
