"""The option ``--fit`` with an optional value, which the parser of options does not have."""

from __future__ import annotations

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
            if arg.startswith("--fit=") and arg != "--fit=anyway":
                raise UsageError(f"{arg} is invalid: use --fit, or --fit=anyway")
        return super().parse_args(ctx, [self.anyway if arg == "--fit=anyway" else arg for arg in args])


class PlanCommand(FitCommand):
    """The command ``study plan``, which shows a fit that loses the question in any case."""

    anyway = "--fit"
