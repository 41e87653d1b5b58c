"""Relays to PostgreSQL that delay each message: ``python -m bench.delayed_relay SOCKET=MS SOCKET=MS…``.

Each relay listens on a free port of 127.0.0.1. One line has the ports in the order of the servers. The
process ends at the end of its input, that is, with its parent.
"""

from __future__ import annotations

import asyncio
import sys


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """Write each chunk ``delay_s`` after it was read. Chunks keep their order, and do not wait for others."""
    loop = asyncio.get_running_loop()
    while chunk := await reader.read(65536):
        loop.call_later(delay_s, writer.write, chunk) if delay_s else writer.write(chunk)
    loop.call_later(delay_s, writer.close)


async def _serve(path: str, delay_s: float) -> int:
    """Start a relay to a Unix socket, and return its port. ``delay_s``: of each direction."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(path)
        try:
            await asyncio.gather(_forward(reader, back, delay_s), _forward(there, writer, delay_s))
        except OSError:  # the client or the server has gone
            back.close()
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    await server.start_serving()
    SERVERS.append(server)
    return int(server.sockets[0].getsockname()[1])


SERVERS: list[asyncio.Server] = []
"""Open relays, which would end without a reference."""


async def _main(relays: list[str]) -> None:
    parts = [one.rpartition("=") for one in relays]
    ports = [await _serve(path, float(ms) / 1000) for path, _, ms in parts]
    print(*ports, flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1:]))
