"""A server that follows the protocol up to a point given by its mode, and then stops responding."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

ENCRYPTION_REQUESTS = (80877103, 80877104)  # SSLRequest, GSSENCRequest
PORT = 5432


class Mode(StrEnum):
    """Behavior of the server."""

    NEVER_ANSWERS = "accepts and never answers"
    SILENT_AFTER_LOGIN = "answers the login and then nothing"
    SILENT_IN_A_ROW = "goes silent in the middle of a row"
    COPY_IN = "begins a COPY FROM STDIN that nobody asked for"
    COPY_OUT = "begins a COPY TO STDOUT that nobody asked for"


def message(tag: bytes, body: bytes) -> bytes:
    return tag + struct.pack("!i", len(body) + 4) + body


READY = message(b"Z", b"I")
LOGIN = b"".join(
    [
        message(b"R", struct.pack("!i", 0)),
        *(
            message(b"S", f"{name}\0{value}\0".encode())
            for name, value in {
                "server_version": "15.0",
                "client_encoding": "UTF8",
                "standard_conforming_strings": "on",
                "is_superuser": "on",
            }.items()
        ),
        message(b"K", struct.pack("!ii", 1, 1)),
        READY,
    ]
)
COPY = struct.pack("!bhh", 0, 1, 0)
ONE_COLUMN = message(b"T", struct.pack("!h", 1) + b"c\0" + struct.pack("!ihihih", 0, 0, 25, -1, -1, 0))
ANSWERS = {
    Mode.SILENT_AFTER_LOGIN: b"",
    Mode.SILENT_IN_A_ROW: ONE_COLUMN + message(b"D", struct.pack("!hi", 1, 100) + b"x" * 100)[:50],
    Mode.COPY_IN: message(b"G", COPY),
    Mode.COPY_OUT: message(b"H", COPY) + message(b"d", b"x\n"),
}
"""Endless response to every query."""


class HostileServer:
    """Listens on a Unix socket in a directory, with a thread per connection."""

    def __init__(self, folder: Path, mode: Mode) -> None:
        self.dsn = f"host={folder} port={PORT} user=u dbname=d connect_timeout=2"
        self._mode = mode
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / f".s.PGSQL.{PORT}"))
        self._listener.listen(128)
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def end(self) -> None:
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):
            if self._mode is Mode.NEVER_ANSWERS:
                while connection.recv(4096):
                    pass
                return
            while _code(connection) in ENCRYPTION_REQUESTS:
                connection.sendall(b"N")
            connection.sendall(LOGIN)
            while True:
                tag, length = struct.unpack("!ci", _read(connection, 5))
                _read(connection, length - 4)
                if tag in b"QS":
                    connection.sendall(ANSWERS[self._mode])
                elif tag == b"X":
                    connection.close()


def _code(connection: socket.socket) -> int:
    """Read the code of a message before the login: an encryption request, or the protocol version."""
    (length,) = struct.unpack("!i", _read(connection, 4))
    code: int
    (code,) = struct.unpack("!i", _read(connection, length - 4)[:4])
    return code


def _read(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        if not (more := connection.recv(size - len(found))):
            raise EOFError
        found += more
    return found


@contextlib.contextmanager
def hostile_server(folder: Path, mode: Mode) -> Iterator[HostileServer]:
    server = HostileServer(folder, mode)
    try:
        yield server
    finally:
        server.end()


class FreezingProxy:
    """Forwards bytes between clients and a server, and discards all after a number of bytes from the
    server.
    """

    def __init__(self, folder: Path, to: Path, after_bytes: int) -> None:
        self._to = to
        self._left = after_bytes
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / f".s.PGSQL.{PORT}"))
        self._listener.listen(128)
        self._open: list[socket.socket] = []
        self.frozen = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def end(self) -> None:
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(self._to))
                self._open += [client, server]
                for source, target, counts in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._pass, args=(source, target, counts), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, counts: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                with self._lock:
                    self._left -= len(data) if counts else 0
                    if self._left < 0:
                        self.frozen.set()
                if not self.frozen.is_set():
                    target.sendall(data)
            if not self.frozen.is_set():
                target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def freezing_proxy(folder: Path, to: Path, after_bytes: int) -> Iterator[FreezingProxy]:
    proxy = FreezingProxy(folder, to, after_bytes)
    try:
        yield proxy
    finally:
        proxy.end()
