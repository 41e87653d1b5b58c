"""``pgdyno config``: show the defaults of options, and those that the user's file changes."""

from __future__ import annotations

import re
from typing import Annotated

import typer
from rich.table import Table

from pgdyno.cli.console import out, print_json, write_out
from pgdyno.cli.options import Json
from pgdyno.features.user_defaults.defaults import (
    UserDefault,
    command_at,
    config_path,
    defaults_in,
    read_config,
    settable,
)

SHOWN = ("compare", "run")
"""Commands whose defaults are shown in any case."""


def config(
    *,
    path: Annotated[bool, typer.Option("--path", help="Print only the path of the file.")] = False,
    json: Json = False,
) -> int:
    """Show the defaults of options, and those that your file changes.

    A table of the file has the name of a command; its keys are the long names of options. Example:

    \b
      [compare]
      minutes = 20
      margin = "1%"
    """
    if path:
        write_out(f"{config_path()}\n")
        return 0
    tables = read_config()
    names = dict.fromkeys((*SHOWN, *tables))
    found = {name: list(defaults_in(tables.get(name, {}), (name,))) for name in names}
    rows = [row for name, of in found.items() for row in _rows(name, of)]
    if json:
        print_json([dict(zip(("command", "key", "value", "from"), row, strict=True)) for row in rows])
        return 0
    exists = "" if config_path().exists() else " (not present)"
    table = Table("command", "key", "value", "from", box=None)
    for row in rows:
        table.add_row(*row)
    out.print(table)
    out.print(f"file: {config_path()}{exists}", soft_wrap=True, highlight=False)
    return 0


def _rows(name: str, given: list[UserDefault]) -> list[tuple[str, str, str, str]]:
    """Return command, key, value and source of each option: those of the file first."""
    own = [(" ".join(one.command), one.key, _shown(one.value), "file") for one in given]
    seen = {one.key for one in given if one.command == (name,)}
    others = [
        (name, key, _default_text(parameter), "default")
        for key, parameter in settable(command_at((name,))).items()
        if key not in seen
    ]
    return [*own, *others]


def _shown(value: str | list[str]) -> str:
    return ", ".join(value) if isinstance(value, list) else value


def _default_text(parameter: object) -> str:
    """Return the default as the help has it; empty without one."""
    stated = re.search(r"\[default: ([^\]]*)\]", getattr(parameter, "help", "") or "")
    default = getattr(parameter, "default", None)
    return stated[1] if stated else "" if default is None or callable(default) else str(default)
