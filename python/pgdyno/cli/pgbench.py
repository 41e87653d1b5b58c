"""``pgdyno pgbench``: replace this process with the engine's pgbench-compatible program."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer
from typer.core import TyperCommand

from pgdyno.engine import PGBENCH, find_program

NAME = "pgdyno pgbench"


class PassedOn(TyperCommand):
    """Command that passes all arguments to another program."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the arguments unchanged."""
        ctx.args = list(args)
        return args


AS_COMMAND = {"cls": PassedOn, "add_help_option": False}


def pgbench(context: typer.Context) -> None:
    """Run pgbench benchmarks with the pgdyno engine.

    Accepts the options of pgbench and prints its output format: pgdyno docs reference/pgbench.
    """
    program = find_program(PGBENCH)
    # pgbench's -h takes a host name; without one it can only mean --help.
    arguments = ["--help"] if context.args == ["-h"] else context.args
    sys.stdout.flush()
    os.execv(program, [NAME, *arguments])
