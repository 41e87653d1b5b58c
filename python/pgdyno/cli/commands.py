"""Commands, imported on first use: importing all of them takes a second of CPU time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

SUMMARIES = {
    "compare": "Compare servers: which is faster, by how much, with confidence intervals.",
    "run": "Run a study file: all cases, with telemetry, next to published results.",
    "report": "Show the results of a study: verdict, figures, caveats.",
    "bisect": "Find the commit that changed the performance, by binary search.",
    "crash": "Crash servers on purpose and count the acknowledged commits that are gone.",
    "history": "Find when the results of a repeated study changed, and what changed with them.",
    "load": "Load the data of a workload into a database.",
    "drive": "Run a workload once against a loaded database.",
    "check": "Check the consistency of the data of a workload.",
    "pgbench": "Run pgbench benchmarks with the pgdyno engine.",
    "doctor": "Find sources of measurement noise on this machine, with remedies.",
    "demo": "Measure the effect of synchronous_commit in about two minutes.",
    "study": "Check, explain and list study files.",
    "servers": "List installed and downloadable PostgreSQL servers.",
    "workload": "Make scripts from the statements of a running database.",
    "data": "Name, list and remove data of your own for --data.",
    "settings": "Show settings profiles and explain settings.",
    "docs": "Print a page of the documentation, or a section of it.",
    "cache": "List and prune the cache of servers and datasets.",
}
"""One line of help per command. Each command is a module of this package, with a function of that name or an
``app`` with subcommands. ``tests/unit/test_cli_commands.py`` keeps it equal to the command's own help."""


class Loading(Mapping[str, Any]):
    """Commands by name; access imports the command."""

    def __getitem__(self, name: str) -> Any:
        """Return the click command. Raises KeyError."""
        if name not in SUMMARIES:
            raise KeyError(name)
        module = import_module(f"pgdyno.cli.{name}")
        group = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
        if hasattr(module, "app"):
            group.add_typer(module.app, name=name)
        else:
            group.command(name, **getattr(module, "AS_COMMAND", {}))(getattr(module, name))
        return typer.main.get_group(group).commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(SUMMARIES)

    def __len__(self) -> int:
        return len(SUMMARIES)


class Commands(TyperGroup):
    """Top-level command group that lists its commands without importing them."""

    def __init__(self, **given: Any) -> None:
        """Take typer's arguments; replace its empty set of commands."""
        super().__init__(**given)
        self.commands = Loading()  # type: ignore[assignment]  # nothing adds to it

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))
