"""``pgdyno serve``: show results files in a browser, and follow running studies."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from pathlib import Path
from typing import Annotated

import typer

from pgdyno.cli.console import say
from pgdyno.errors import UsageError


def serve(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Directory; results files below it are shown, too.", exists=False),
    ] = Path(),
    *,
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port on 127.0.0.1; 0: any free one.")
    ] = 0,
) -> int:
    """Show results files in a browser, and follow running studies.

    Prints an address with a token; only a browser that opened it has access. Pages are read-only, and need no
    network. Ctrl-C ends the server. Examples:

    \b
      pgdyno serve
      pgdyno serve results --port 8080
      pgdyno compare 17 18 --web
    """
    if not directory.is_dir():
        raise UsageError(f"DIR must be a directory (got {directory}): name the one with results files")
    token = secrets.token_urlsafe(24)
    with listening(port) as listener:
        say(f"{address(listener, token)}   (Ctrl-C ends it)")
        run(listener, token, directory)
    return 0


def listening(port: int = 0) -> socket.socket:
    """Return a socket that accepts connections on 127.0.0.1. Raises UsageError."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(("127.0.0.1", port))
    except OSError as error:
        found.close()
        raise UsageError(f"--port {port}: {error.strerror}: choose another port, or none") from error
    found.listen()
    return found


def address(listener: socket.socket, token: str, path: str = "/") -> str:
    """Return the address of a page, with the token."""
    return f"http://127.0.0.1:{listener.getsockname()[1]}{path}?token={token}"


def run(listener: socket.socket, token: str, directory: Path) -> None:
    """Serve until a signal, at the lowest priority: a study on this machine goes first."""
    import uvicorn  # noqa: PLC0415  # not for --help

    from pgdyno.features.serve.access import Guard  # noqa: PLC0415
    from pgdyno.features.serve.index import Index  # noqa: PLC0415
    from pgdyno.features.serve.pages import application  # noqa: PLC0415

    os.nice(19)
    guard = Guard(application(Index(directory)), token, listener.getsockname()[1])
    config = uvicorn.Config(
        guard,
        http="h11",
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="error",
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    try:
        asyncio.run(uvicorn.Server(config).serve([listener]))
    except KeyboardInterrupt:
        return
