"""A minimal connection pooler: it assigns a server process to each transaction or to each session."""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Literal

from hostile_server import ENCRYPTION_REQUESTS
from pgdyno.server.processes import PORT, SUPERUSER, Server

POOL_WAIT_S = 60.0
"""Time limit of a client that waits for a process; a test that exceeds it has found a defect."""


class Pooler:
    """Listens on a port of the loopback interface until ``end``."""

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
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    def dsn(self, dbname: str) -> str:
        """Return the connection string of a database behind the pooler."""
        port = self._listener.getsockname()[1]
        return f"host=127.0.0.1 port={port} user={SUPERUSER} dbname={dbname} sslmode=disable"

    def end(self) -> None:
        """Close every connection."""
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError), client:
            while struct.unpack("!i", (startup := _read_body(client))[:4])[0] in ENCRYPTION_REQUESTS:
                client.sendall(b"N")
            words = startup[4:].split(b"\0")
            dbname = words[words.index(b"database") + 1].decode()
            try:
                pool = self._pool(dbname)
            except ConnectionError as refused:
                client.sendall(_message(b"E", f"SFATAL\0C3D000\0M{refused}\0\0".encode()))
                return
            client.sendall(_LOGIN)
            self._relay(client, pool)

    def _relay(self, client: socket.socket, pool: queue.Queue[socket.socket]) -> None:
        process: socket.socket | None = None
        try:
            while (tag := _read(client, 1)) != b"X":
                if process is None:
                    process = pool.get(timeout=POOL_WAIT_S)
                process.sendall(_message(tag, _read_body(client)))
                if tag in (b"Q", b"S") and _answer(process, client) == b"I" and self._mode == "transaction":
                    pool.put(process)
                    process = None
        finally:
            if process is not None:
                process.sendall(_message(b"Q", b"DISCARD ALL\0"))
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
        self._open.append(process)
        body = struct.pack("!i", 196608) + f"user\0{SUPERUSER}\0database\0{dbname}\0\0".encode()
        process.sendall(struct.pack("!i", len(body) + 4) + body)
        if _answer(process, None) != b"I":
            raise ConnectionError(f'database "{dbname}" does not exist')
        return process


def _answer(process: socket.socket, client: socket.socket | None) -> bytes:
    """Pass an answer on to the client. Return the state of the transaction; empty if the server let go."""
    with contextlib.suppress(EOFError):
        while True:
            tag, body = _read(process, 1), _read_body(process)
            if client is not None:
                client.sendall(_message(tag, body))
            if tag == b"Z":
                return body
    return b""


def _message(tag: bytes, body: bytes) -> bytes:
    return tag + struct.pack("!i", len(body) + 4) + body


def _read_body(connection: socket.socket) -> bytes:
    (length,) = struct.unpack("!i", _read(connection, 4))
    return _read(connection, length - 4)


def _read(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        if not (more := connection.recv(size - len(found))):
            raise EOFError
        found += more
    return found


_PARAMETERS = {"server_version": "15.0", "client_encoding": "UTF8", "standard_conforming_strings": "on"}
_LOGIN = b"".join(
    [
        _message(b"R", struct.pack("!i", 0)),
        *(_message(b"S", f"{name}\0{value}\0".encode()) for name, value in _PARAMETERS.items()),
        _message(b"K", struct.pack("!ii", 2**31 - 1, 1)),  # no process has this number
        _message(b"Z", b"I"),
    ]
)


@contextlib.contextmanager
def pooler(
    server: Server,
    size: int = 2,
    mode: Literal["transaction", "session"] = "transaction",
    *,
    is_round_robin: bool = False,
) -> Iterator[Pooler]:
    """Yield a pooler for the duration of the block."""
    made = Pooler(server, size, mode, is_round_robin=is_round_robin)
    try:
        yield made
    finally:
        made.end()
