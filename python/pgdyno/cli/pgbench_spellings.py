"""Spellings of pgbench in ``pgdyno compare``: the same meaning, or an error that names our option."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand

from pgdyno.errors import UsageError

SCRIPTS = {
    "-S": "select-only",
    "--select-only": "select-only",
    "-N": "simple-update",
    "--skip-some-updates": "simple-update",
}
"""Options of pgbench that are built-in scripts."""

RUN_TIME = (
    "{given} is the time of one run of pgbench: use --window 60s for the measurement per arm and block, or "
    "--minutes 5 for the whole comparison"
)


class CompareCommand(TyperCommand):
    """The command ``compare``, which accepts spellings of pgbench."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. Raises UsageError for an option of pgbench with another meaning."""
        return super().parse_args(ctx, args if ctx.resilient_parsing else with_our_spellings(args))


def with_our_spellings(args: Sequence[str]) -> list[str]:
    """Return the arguments with built-in scripts as ``--builtin``. Raises UsageError for ``-T``."""
    own = args.index("--") if "--" in args else len(args)
    found: list[str] = []
    for arg in args[:own]:
        if arg in SCRIPTS:
            found += ["--builtin", SCRIPTS[arg]]
        elif arg.startswith("-T") or arg.partition("=")[0] == "--time":
            raise UsageError(RUN_TIME.format(given="--time" if arg.startswith("--") else "-T"))
        else:
            found.append(arg)
    return [*found, *args[own:]]
