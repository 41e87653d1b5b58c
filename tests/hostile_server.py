"""Servers that follow the protocol up to a point, and then stop responding, never stop sending, or refuse.

``WireServer`` is the common part: a thread per connection, and the messages of a login.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Self

ENCRYPTION_REQUESTS = (80877103, 80877104)  # SSLRequest, GSSENCRequest
PORT = 5432
CHUNK_BYTES = 64 << 10
ERROR_BYTES = 20_000_000


def message(tag: bytes, body: bytes) -> bytes:
    return tag + struct.pack("!i", len(body) + 4) + body


def read(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        if not (more := connection.recv(size - len(found))):
            raise EOFError
        found += more
    return found


def read_body(connection: socket.socket) -> bytes:
    (length,) = struct.unpack("!i", read(connection, 4))
    return read(connection, length - 4)


def read_startup(connection: socket.socket) -> bytes:
    """Refuse encryption. Return the body of the first other message."""
    while struct.unpack("!i", (startup := read_body(connection))[:4])[0] in ENCRYPTION_REQUESTS:
        connection.sendall(b"N")
    return startup


ACCEPTED = message(b"R", struct.pack("!i", 0))
READY = message(b"Z", b"I")
COPY = struct.pack("!bhh", 0, 1, 0)
ONE_COLUMN = message(b"T", struct.pack("!h", 1) + b"c\0" + struct.pack("!ihihih", 0, 0, 25, -1, -1, 0))


def login(version: str = "15.0") -> bytes:
    """Return the answer to a login, with the number of a process that does not exist."""
    common = {"client_encoding": "UTF8", "standard_conforming_strings": "on", "is_superuser": "on"}
    parameters = {"server_version": version, **common}
    told = [message(b"S", f"{name}\0{value}\0".encode()) for name, value in parameters.items()]
    return b"".join([ACCEPTED, *told, message(b"K", struct.pack("!ii", 2**31 - 1, 1)), READY])


def unix_listener(folder: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / f".s.PGSQL.{PORT}"))
    listener.listen(128)
    return listener


def tcp_listener() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


class WireServer:
    """Serves each connection in a thread until the end of the block."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.open = [listener]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                self.open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError), connection:
            self.serve(connection)

    def serve(self, connection: socket.socket) -> None:
        raise NotImplementedError


class Mode(StrEnum):
    """Behavior of a hostile server."""

    NEVER_ANSWERS = "accepts and never answers"
    SILENT_AFTER_LOGIN = "answers the login and then nothing"
    SILENT_IN_A_ROW = "goes silent in the middle of a row"
    COPY_IN = "begins a COPY FROM STDIN that nobody asked for"
    COPY_OUT = "begins a COPY TO STDOUT that nobody asked for"


ANSWERS = {
    Mode.SILENT_AFTER_LOGIN: b"",
    Mode.SILENT_IN_A_ROW: ONE_COLUMN + message(b"D", struct.pack("!hi", 1, 100) + b"x" * 100)[:50],
    Mode.COPY_IN: message(b"G", COPY),
    Mode.COPY_OUT: message(b"H", COPY) + message(b"d", b"x\n"),
}
"""Endless response to every query."""


class HostileServer(WireServer):
    """Listens on a Unix socket in a directory."""

    def __init__(self, folder: Path, mode: Mode) -> None:
        self.dsn = f"host={folder} port={PORT} user=u dbname=d connect_timeout=2"
        self._mode = mode
        super().__init__(unix_listener(folder))

    def serve(self, connection: socket.socket) -> None:
        if self._mode is Mode.NEVER_ANSWERS:
            while connection.recv(4096):
                pass
            return
        read_startup(connection)
        connection.sendall(login())
        while (tag := read(connection, 1)) != b"X":
            read_body(connection)
            if tag in b"QS":
                connection.sendall(ANSWERS[self._mode])


class OldServer(WireServer):
    """Accepts every login and reports version 9.6."""

    def serve(self, connection: socket.socket) -> None:
        read_startup(connection)
        connection.sendall(login("9.6.24"))
        while connection.recv(4096):
            pass


class FreezingProxy(WireServer):
    """Forwards bytes between clients and a server, and discards all after a number of bytes from the
    server.
    """

    def __init__(self, folder: Path, to: Path, after_bytes: int) -> None:
        self._to = to
        self._left = after_bytes
        self._lock = threading.Lock()
        self.frozen = threading.Event()
        super().__init__(unix_listener(folder))

    def serve(self, connection: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        server.connect(str(self._to))
        self.open.append(server)
        back = threading.Thread(target=self._pass, args=(server, connection, True), daemon=True)
        back.start()
        self._pass(connection, server, counts=False)
        back.join()

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


class Flood(StrEnum):
    """Kind of endless data."""

    ROWS = "rows"
    EMPTY_ROWS = "rows without columns"
    VALUE = "one value of a gigabyte"
    NOTICES = "notices"
    PARAMETERS = "parameters at login"
    ERROR = "one error of 20 MB, in the colours of a terminal"


def _flood(flood: Flood) -> Iterator[bytes]:
    match flood:
        case Flood.ROWS:
            yield ONE_COLUMN
            yield from itertools.repeat(message(b"D", struct.pack("!hi", 1, 900) + b"x" * 900) * 64)
        case Flood.EMPTY_ROWS:
            yield message(b"T", struct.pack("!h", 0))
            yield from itertools.repeat(message(b"D", struct.pack("!h", 0)) * 8192)
        case Flood.VALUE:
            yield ONE_COLUMN
            yield b"D" + struct.pack("!ihi", 4 + 6 + (1 << 30), 1, 1 << 30)
            yield from itertools.repeat(b"x" * CHUNK_BYTES)
        case Flood.NOTICES:
            notice = message(b"N", b"SNOTICE\0C00000\0M" + b"x" * 900 + b"\0\0")
            yield from itertools.repeat(notice * 64)
        case Flood.PARAMETERS:
            for n in itertools.count():
                yield message(b"S", f"parameter_{n}\0{'x' * 20_000}\0".encode())
        case Flood.ERROR:
            yield message(b"E", b"SERROR\0C42000\0M\x1b[31m" + b"x" * ERROR_BYTES + b"\0\0")
            yield READY


class EndlessServer(WireServer):
    """Listens on a Unix socket in a directory, if given, or on the loopback interface."""

    def __init__(self, flood: Flood, folder: Path | None = None) -> None:
        self._flood = flood
        super().__init__(unix_listener(folder) if folder else tcp_listener())
        place = f"host={folder} port={PORT}" if folder else f"host=127.0.0.1 port={self.port}"
        self.dsn = f"{place} user=u dbname=d sslmode=disable"

    def serve(self, connection: socket.socket) -> None:
        read_startup(connection)
        if self._flood is Flood.PARAMETERS:
            connection.sendall(ACCEPTED)
            self._send(connection)
        connection.sendall(login())
        while (tag := read(connection, 1)) != b"X":
            read_body(connection)
            if tag in b"QS":
                self._send(connection)

    def _send(self, connection: socket.socket) -> None:
        for piece in _flood(self._flood):
            connection.sendall(piece)
