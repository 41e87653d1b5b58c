"""``pgdyno serve``: show results files in a browser, and follow running studies."""

from __future__ import annotations

import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from pgdyno.cli.console import say
from pgdyno.errors import UsageError

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL

TOKEN_BYTES_MAX = 1024


def serve(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Directory; results files below it are shown, too.")
    ] = Path(),
    *,
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port on 127.0.0.1; 0: any free one.")
    ] = 0,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File with the token of the address; created if it is missing."),
    ] = None,
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

    token = secrets.token_urlsafe() if token_file is None else kept_token(token_file)
    with listening(port) as listener:
        say(f"{address(listener, token)}   (Ctrl-C ends it)")
        run(listener, token, directory)
    return 0


def kept_token(path: Path) -> str:
    """Return the token in a file; it is created if it is missing. Raises UsageError, OSError."""
    with suppress(FileExistsError), os.fdopen(os.open(path, NEW, 0o600), "w") as file:
        file.write(f"{secrets.token_urlsafe()}\n")
    with path.open("rb") as file:
        of, found = os.fstat(file.fileno()), file.read(TOKEN_BYTES_MAX + 1).strip()
    if of.st_mode & (stat.S_IRWXO | stat.S_IWGRP) or of.st_uid not in (0, os.geteuid()):
        raise UsageError(f"--token-file {path}: others know or can change it: remove it for a new one")
    if not re.fullmatch(rb"[\w-]{16,%d}" % TOKEN_BYTES_MAX, found):
        raise UsageError(
            f"--token-file {path}: a token has 16 letters, digits, - or _: remove it for a new one"
        )
    return found.decode()
