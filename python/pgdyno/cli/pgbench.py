"""``pgdyno pgbench``: the engine's program that takes pgbench's options, in the place of this one."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer
from typer.core import TyperCommand

from pgdyno.engine import find_pgbench

NAME = "pgdyno pgbench"


class PassedOn(TyperCommand):
    """A command whose arguments are another program's: none is looked at here."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """All of them, as they are."""
        ctx.args = list(args)
        return args


AS_COMMAND = {"cls": PassedOn, "add_help_option": False}


def pgbench(context: typer.Context) -> None:
    """Run pgbench's benchmarks with pgdyno's engine.

    Takes pgbench's options and prints its output: docs/reference/pgbench.md.
    """
    program = find_pgbench()
    # To pgbench -h is a host; alone it can only mean the other thing.
    arguments = ["--help"] if context.args == ["-h"] else context.args
    sys.stdout.flush()
    os.execv(program, [NAME, *arguments])
