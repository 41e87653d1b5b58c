"""``pgdyno serve``: show results files in a browser, and follow running studies."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer

from pgdyno.cli.console import say
from pgdyno.errors import UsageError


def serve(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Directory; results files below it are shown, too.")
    ] = Path(),
    *,
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port on 127.0.0.1; 0: any free one.")
    ] = 0,
) -> int:
    """Show results files in a browser, and follow running studies.

    Prints an address with a token; only a browser that opened it has access. Pages need no network. Ctrl-C
    ends the server. Examples:

    \b
      pgdyno serve
      pgdyno serve results --port 8080
      pgdyno compare 17 18 --web
    """
    if not directory.is_dir():
        raise UsageError(f"DIR must be a directory (got {directory}): name the one with results files")
    from pgdyno.features.serve.server import address, listening, run  # noqa: PLC0415  # not for --help

    token = secrets.token_urlsafe()
    with listening(port) as listener:
        say(f"{address(listener, token)}   (Ctrl-C ends it)")
        run(listener, token, directory)
    return 0
