"""The commands, each loaded when it is asked for: all of them together take a second of CPU time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

SUMMARIES = {
    "compare": "Say which server is faster, by how much, and how sure.",
    "run": "Run a study: every case of its factors, with telemetry, and report it beside the published "
    "figures.",
    "report": "Show what a study found: verdict, numbers, caveats.",
    "history": "Say when a study that is run again and again began to give other results, and what else "
    "changed then.",
    "load": "Load a workload's data into the database that DSN names.",
    "drive": "Drive the clients once against a loaded database.",
    "check": "Check that a database's data agree with each other.",
    "pgbench": "Run pgbench's benchmarks with pgdyno's engine.",
    "doctor": "Say what on this machine disturbs measurements, and how to quiet it.",
    "demo": "Compare two PostgreSQL versions for three minutes.",
    "study": "Check and explain study files; list those that come with pgdyno.",
    "servers": "List servers: those that are here or can be fetched.",
    "settings": "Show the settings profiles; explain a setting.",
    "cache": "Show and prune the cache of servers and datasets.",
}
"""Each is a module beside this one, with a function of its name, or with an ``app`` that has commands of its
own. What is said here of it is what its own help begins with: ``tests/unit/test_cli_commands.py``."""


class Loading(Mapping[str, Any]):
    """The commands by name: looking one up loads it."""

    def __getitem__(self, name: str) -> Any:
        """As click has it."""
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
    """The program's commands, and their list in its help, for which none of them is loaded."""

    def __init__(self, **given: Any) -> None:
        """What typer gives, but for the commands, of which it knows none."""
        super().__init__(**given)
        self.commands = Loading()  # type: ignore[assignment]  # nothing adds to it

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Their list in the help."""
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))
