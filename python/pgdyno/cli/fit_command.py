"""The options ``--fit`` and ``--fleet`` with an optional value, which the parser of options does not have."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand

from pgdyno.errors import UsageError

ANYWAY = "--fit-anyway"
"""Hidden option of ``pgdyno run`` that replaces ``--fit=anyway``."""


class FitCommand(TyperCommand):
    """The command ``run``, in which ``--fit=anyway`` is an option of its own."""

    anyway = ANYWAY

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. Raises UsageError for another value of ``--fit``."""
        for arg in args:
            if not ctx.resilient_parsing and arg.startswith("--fit=") and arg != "--fit=anyway":
                raise UsageError(f"{arg} is invalid: use --fit, or --fit=anyway")
        args = [self.anyway if arg == "--fit=anyway" else arg for arg in args]
        return super().parse_args(ctx, with_address(args))


ADDRESS = re.compile(r"auto|\S+:[0-9]{1,5}")
"""Address of a Ray cluster: of this machine, or of its head."""


def with_address(args: Sequence[str]) -> list[str]:
    """Return the arguments with the address ``auto`` after a ``--fleet`` without one."""
    found = []
    for place, arg in enumerate(args):
        following = args[place + 1] if place + 1 < len(args) else ""
        is_alone = arg == "--fleet" and not ADDRESS.fullmatch(following)
        found.append("--fleet=auto" if is_alone else arg)
    return found


class PlanCommand(FitCommand):
    """The command ``study plan``, which shows a fit that loses the question in any case."""

    anyway = "--fit"
