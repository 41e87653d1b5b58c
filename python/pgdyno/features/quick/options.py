"""Option --quick: a preset of the number of blocks and of the window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import typer

from pgdyno.cli.options import StudyOptions
from pgdyno.study.plan import VERDICT_BLOCKS_MIN

QUICK = "--quick"

WINDOW = "2s"
"""Measured time per arm and block: four slices of the default length."""

PRESET = {"--blocks": str(VERDICT_BLOCKS_MIN), "--window": WINDOW}
"""Options for which --quick stands. So few blocks have a single analysis, after the last of them."""

EXCLUDED = {"--blocks": ("--blocks",), "--window": ("--window", "--transactions", "-t", "--capacity")}
"""Options that take the place of one of the preset."""


@dataclass(frozen=True)
class QuickOptions(StudyOptions):
    """The value of --quick."""

    COMMANDS: ClassVar = {"compare": "clients"}

    quick: Annotated[
        bool,
        typer.Option(
            QUICK,
            help=f"Estimate in about a minute of measuring, and show what would decide: --blocks "
            f"{PRESET['--blocks']} --window {WINDOW}.",
        ),
    ] = False

    @classmethod
    def spelled(cls, args: list[str], _command: str) -> list[str]:
        """Return the arguments with the options for which --quick stands, unless others take their place."""
        own = args[: args.index("--")] if "--" in args else args
        if QUICK not in own:
            return args
        given = {one.partition("=")[0] if one.startswith("--") else one[:2] for one in own}
        added = [(name, value) for name, value in PRESET.items() if not given & {*EXCLUDED[name]}]
        return [*(word for pair in added for word in pair), *args]
