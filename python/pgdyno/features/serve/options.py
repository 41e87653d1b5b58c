"""Option --web: a page that follows the study."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from pgdyno.cli.console import say
from pgdyno.cli.options import StudyOptions


@dataclass(frozen=True)
class WebOptions(StudyOptions):
    """Value of --web."""

    COMMANDS: ClassVar = {"compare": ""}
    GROUP = "output"
    READ_ON_RESUME = True

    web: Annotated[
        bool,
        typer.Option("--web", help="Print the address of a page that follows the study (pgdyno serve)."),
    ] = False

    def begin(self, path: Path) -> None:
        """Start a server for the page, and print its address. An earlier request to stop is void."""
        from pgdyno.features.serve import stop  # noqa: PLC0415

        stop.forget(path)
        if self.web:
            from pgdyno.features.serve.process import start  # noqa: PLC0415

            say(f"web {start(path)}")
