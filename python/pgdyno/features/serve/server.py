"""The server: a socket on 127.0.0.1, its address with a token, and the loop that answers requests."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from pgdyno.errors import UsageError
from pgdyno.features.serve import control, filing
from pgdyno.features.serve.access import Guard
from pgdyno.features.serve.index import Index
from pgdyno.features.serve.pages import ROUTES, application
from pgdyno.features.serve.studies import Studies

TICK_S = 1.0
"""Time between two checks for the end. Those of uvicorn, ten per second, take a third of the CPU time."""


def listening(port: int = 0) -> socket.socket:
    """Return a socket that accepts connections on 127.0.0.1; 0: any free port. Raises UsageError."""
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


def all_pages(index: Index) -> Starlette:
    """Return the application with its forms."""
    studies = Studies(index)
    return application(
        index, [one for of in (control.routes, filing.routes, *ROUTES) for one in of(index, studies)]
    )


class Server(uvicorn.Server):
    """Server that ends at a signal, or when it is asked to. ``may_end``: asked each second."""

    def __init__(self, config: uvicorn.Config, may_end: Callable[[], bool]) -> None:
        super().__init__(config)
        self._may_end = may_end

    async def main_loop(self) -> None:
        """Wait for the end."""
        while not await self.on_tick(0) and not self._may_end():
            await asyncio.sleep(TICK_S)


def run(
    listener: socket.socket,
    token: str,
    directory: Path,
    expected: Path | None = None,
    may_end: Callable[[Guard], bool] = lambda _: False,
) -> None:
    """Serve until a signal, at the lowest priority: a study on this machine goes first."""
    index = Index(directory, expected)
    guard = Guard(all_pages(index), token, listener.getsockname()[1])
    os.nice(19)  # after Studies has begun
    config = uvicorn.Config(
        guard,
        http="h11",
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="critical",
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    with suppress(KeyboardInterrupt), closing(index):
        asyncio.run(Server(config, lambda: may_end(guard)).serve([listener]))
