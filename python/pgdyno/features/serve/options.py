"""Option --web: a page that follows the study."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from pgdyno.cli.console import say
from pgdyno.cli.options import StudyOptions
from pgdyno.errors import UsageError

Web = Annotated[bool, typer.Option("--web", help="Print the address of a live page (see pgdyno serve).")]


@dataclass(frozen=True)
class WebOptions(StudyOptions):
    """Value of --web."""

    COMMANDS: ClassVar = {"compare": "", "run": ""}
    GROUP = "output"
    READ_ON_RESUME = True

    web: Web = False

    def check_elsewhere(self, option: str) -> None:
        """Raise UsageError: the results file is on another machine."""
        if self.web:
            raise UsageError(f"--web cannot be combined with {option}: remove one of them")

    def begin(self, path: Path) -> None:
        """Start a server for the page, and print its address. An earlier request to stop is void."""
        from pgdyno.features.serve import stop  # noqa: PLC0415

        stop.forget(path)
        if self.web:
            from pgdyno.features.serve.process import start  # noqa: PLC0415

            say(f"web {start(path)}")
