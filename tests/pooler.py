"""A minimal connection pooler: it assigns a server process to each transaction or to each session."""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import threading
from typing import Literal

from hostile_server import WireServer, login, message, read, read_body, read_startup, tcp_listener
from pgdyno.server.processes import PORT, SUPERUSER, Server

POOL_WAIT_S = 60.0
"""Time limit of a client that waits for a process; a test that exceeds it has found a defect."""


class Pooler(WireServer):
    """Listens on a port of the loopback interface until the end of the block."""

    def __init__(
        self,
        server: Server,
        size: int = 2,
        mode: Literal["transaction", "session"] = "transaction",
        *,
        is_round_robin: bool = False,
    ) -> None:
        self._server, self._size, self._mode = server, size, mode
        self._queue = (
            queue.Queue if is_round_robin else queue.LifoQueue
        )  # the default of pgbouncer is the latter
        self._pools: dict[str, queue.Queue[socket.socket]] = {}
        self._making = threading.Lock()
        super().__init__(tcp_listener())

    def dsn(self, dbname: str) -> str:
        """Return the connection string of a database behind the pooler."""
        return f"host=127.0.0.1 port={self.port} user={SUPERUSER} dbname={dbname} sslmode=disable"

    def serve(self, connection: socket.socket) -> None:
        words = read_startup(connection)[4:].split(b"\0")
        dbname = words[words.index(b"database") + 1].decode()
        try:
            pool = self._pool(dbname)
        except ConnectionError as refused:
            connection.sendall(message(b"E", f"SFATAL\0C3D000\0M{refused}\0\0".encode()))
            return
        connection.sendall(login())
        self._relay(connection, pool)

    def _relay(self, client: socket.socket, pool: queue.Queue[socket.socket]) -> None:
        process: socket.socket | None = None
        try:
            while (tag := read(client, 1)) != b"X":
                if process is None:
                    process = pool.get(timeout=POOL_WAIT_S)
                process.sendall(message(tag, read_body(client)))
                if tag in (b"Q", b"S") and _answer(process, client) == b"I" and self._mode == "transaction":
                    pool.put(process)
                    process = None
        finally:
            if process is not None:
                process.sendall(message(b"Q", b"DISCARD ALL\0"))
                _answer(process, None)
                pool.put(process)

    def _pool(self, dbname: str) -> queue.Queue[socket.socket]:
        with self._making:
            if dbname not in self._pools:
                pool = self._queue()
                for _ in range(self._size):
                    pool.put(self._process(dbname))
                self._pools[dbname] = pool
            return self._pools[dbname]

    def _process(self, dbname: str) -> socket.socket:
        process = socket.socket(socket.AF_UNIX)
        process.connect(str(self._server.socket.path / f".s.PGSQL.{PORT}"))
        self.open.append(process)
        body = struct.pack("!i", 196608) + f"user\0{SUPERUSER}\0database\0{dbname}\0\0".encode()
        process.sendall(struct.pack("!i", len(body) + 4) + body)
        if _answer(process, None) != b"I":
            raise ConnectionError(f'database "{dbname}" does not exist')
        return process


def _answer(process: socket.socket, client: socket.socket | None) -> bytes:
    """Pass an answer on to the client. Return the state of the transaction; empty if the server let go."""
    with contextlib.suppress(EOFError):
        while True:
            tag, body = read(process, 1), read_body(process)
            if client is not None:
                client.sendall(message(tag, body))
            if tag == b"Z":
                return body
    return b""
