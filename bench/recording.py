"""Requests of the engine's clients, recorded by a relay, and their replay by the bare loop of floor.c.

The loop sends the same bytes to the same server, without the draws, histograms and checks of a driver. It
repeats them, so that an inserted link is inserted again: the server refuses this in as many round trips.

The file has for each client two numbers of 32 bits, the requests sent once and all requests, and each request
after its length.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from bench.drivers import DriverRun, engine_drive, floor

READY = b"Z\0\0\0\5"
IDLE = READY + b"I"
CALIBRATION = b"Q\0\0\0\5\0"
"""An empty query: the engine measures round trips with it before its first slice."""

START_S = 0.1
"""Length of the run whose cost is that of the start: connections, statements, graphs, memory, results."""

REQUESTS_MIN = 5
"""A session with fewer is idle, or not that of a client."""

RECORDED_S_MIN = 1.0
"""Minimum length of a recorded run."""

OPEN_TIMEOUT_S = 30.0
"""Maximum time for the start of the relay, and for its end."""


@dataclass
class Session:
    """Requests of a connection, each with all messages up to a response, and the ends of these responses."""

    requests: list[bytes] = field(default_factory=list)
    ends: list[bytes] = field(default_factory=list)
    sending: bytearray = field(default_factory=bytearray)
    received: bytes = b""

    def note_response(self, chunk: bytes) -> None:
        """Note a part of a response. A part that ends with ReadyForQuery ends it."""
        self.received = (self.received + chunk)[-len(IDLE) :]
        if self.received.startswith(READY):
            self.requests.append(bytes(self.sending))
            self.ends.append(self.received)
            self.sending.clear()

    def cut(self) -> tuple[int, list[bytes]]:
        """Return the number of requests sent once, and all, without login and an open transaction."""
        last = max((i for i, end in enumerate(self.ends) if end == IDLE), default=0)
        requests = [request for request in self.requests[1 : last + 1] if request != CALIBRATION]
        return max((i + 1 for i, request in enumerate(requests) if _prepares(request)), default=0), requests


def _prepares(request: bytes) -> bool:
    """Return whether a request prepares a statement that has a name."""
    return (request[:1] == b"P" and request[5:6] != b"\0") or request[5:13] == b"PREPARE "


@dataclass(frozen=True)
class Recording:
    """A file for the bare loop, its number of clients, and their requests per operation."""

    path: Path
    clients: int
    requests_per_operation: float

    def bare_us(self, program: Path, conninfo: str, duration_s: float) -> float:
        """Return the client CPU time of the bare loop per operation, in µs."""
        run = floor(program, conninfo, f"@{self.path}", 1, self.clients, 1, duration_s)
        return run.client_us * self.requests_per_operation


def record(
    directory: Path, conninfo: str, workload: Mapping[str, Any], clients: int, duration_s: float
) -> Recording:
    """Run the engine through a relay and record its requests."""
    with _relay(directory, conninfo) as (sessions, relayed):
        run = engine_drive(relayed, dict(workload), clients, None, max(duration_s, RECORDED_S_MIN))
    cuts = [cut for cut in map(Session.cut, sessions) if len(cut[1]) - cut[0] >= REQUESTS_MIN]
    path = directory / "recording"
    with path.open("wb") as file:
        for setup, requests in cuts:
            file.write(struct.pack("=II", setup, len(requests)))
            for request in requests:
                file.write(struct.pack("=I", len(request)) + request)
    sent = sum(len(requests) - setup for setup, requests in cuts)
    return Recording(path, len(cuts), sent / run.transactions)


def driven(
    conninfo: str, workload: dict[str, Any], clients: int, duration_s: float
) -> tuple[DriverRun, float]:
    """Run the engine. Return the run, and its client CPU time per operation without the start, in µs."""
    start = engine_drive(conninfo, workload, clients, None, START_S)
    run = engine_drive(conninfo, workload, clients, None, duration_s)
    cpu_s = run.cost.cpu_s - start.cost.cpu_s
    return run, cpu_s / (run.transactions - start.transactions) * 1e6


@contextmanager
def _relay(directory: Path, conninfo: str) -> Iterator[tuple[list[Session], str]]:
    """Relay to the server of ``conninfo``. Yields what is recorded, and the conninfo of the relay."""
    parts, sessions = conninfo_to_dict(conninfo), list[Session]()
    name = f".s.PGSQL.{parts['port']}"
    here, there = directory / name, Path(str(parts["host"])) / name
    is_open, ended, tasks = threading.Event(), asyncio.Event(), list[asyncio.Task[None] | None]()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, server = await asyncio.open_unix_connection(there)
        sessions.append(session := Session())
        tasks.append(asyncio.current_task())

        async def requests() -> None:
            while chunk := await reader.read(65536):
                session.sending += chunk
                server.write(chunk)
            server.close()

        async def responses() -> None:
            while chunk := await answers.read(65536):
                session.note_response(chunk)
                writer.write(chunk)
            writer.close()

        await asyncio.gather(requests(), responses(), return_exceptions=True)

    async def serve() -> None:
        async with await asyncio.start_unix_server(accept, here):
            loops.append(asyncio.get_running_loop())
            is_open.set()
            await ended.wait()
            await asyncio.gather(*filter(None, tasks), return_exceptions=True)  # the engine has closed them

    loops = list[asyncio.AbstractEventLoop]()
    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    if not is_open.wait(OPEN_TIMEOUT_S):
        raise RuntimeError(f"the relay did not open {here}")
    try:
        yield sessions, make_conninfo(conninfo, host=str(directory))
    finally:
        loops[0].call_soon_threadsafe(ended.set)
        thread.join(OPEN_TIMEOUT_S)
        here.unlink(missing_ok=True)
