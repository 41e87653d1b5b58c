"""A server that sends endlessly: rows, one value, notices, parameters, or a long error."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Literal

from hostile_server import ENCRYPTION_REQUESTS, LOGIN, ONE_COLUMN, PORT, READY, message

CHUNK_BYTES = 64 << 10
ERROR_BYTES = 20_000_000


class Flood(StrEnum):
    """Kind of endless data."""

    ROWS = "rows"
    EMPTY_ROWS = "rows without columns"
    VALUE = "one value of a gigabyte"
    NOTICES = "notices"
    PARAMETERS = "parameters at login"
    ERROR = "one error of 20 MB, in the colours of a terminal"


def _cstrings(*words: str) -> bytes:
    return b"".join(word.encode() + b"\0" for word in words)


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
                yield message(b"S", _cstrings(f"parameter_{n}", "x" * 20_000))
        case Flood.ERROR:
            yield message(b"E", b"SERROR\0C42000\0M\x1b[31m" + b"x" * ERROR_BYTES + b"\0\0")
            yield READY


@contextlib.contextmanager
def endless_server(
    flood: Flood, *, folder: Path | None = None, family: Literal["tcp", "unix"] = "tcp"
) -> Iterator[str]:
    """Yield the connection string of the server."""
    if family == "tcp":
        listener = socket.create_server(("127.0.0.1", 0))
        place = f"host=127.0.0.1 port={listener.getsockname()[1]}"
    else:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{folder}/.s.PGSQL.{PORT}")
        listener.listen()
        place = f"host={folder} port={PORT}"
    open_sockets: list[socket.socket] = [listener]
    threading.Thread(target=_accept, args=(listener, flood, open_sockets), daemon=True).start()
    try:
        yield f"{place} user=u dbname=d sslmode=disable"
    finally:
        for one in open_sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def _accept(listener: socket.socket, flood: Flood, open_sockets: list[socket.socket]) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            open_sockets.append(connection)
            threading.Thread(target=_serve, args=(connection, flood), daemon=True).start()


def _serve(connection: socket.socket, flood: Flood) -> None:
    with contextlib.suppress(OSError, EOFError):
        while struct.unpack("!i", _body(connection)[:4])[0] in ENCRYPTION_REQUESTS:
            connection.sendall(b"N")
        if flood is Flood.PARAMETERS:
            connection.sendall(message(b"R", struct.pack("!i", 0)))
            for piece in _flood(flood):
                connection.sendall(piece)
        connection.sendall(LOGIN)
        while (tag := _read(connection, 1)) != b"X":
            _body(connection)
            if tag in (b"Q", b"S"):
                for piece in _flood(flood):
                    connection.sendall(piece)


def _body(connection: socket.socket) -> bytes:
    (length,) = struct.unpack("!i", _read(connection, 4))
    return _read(connection, length - 4)


def _read(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        if not (more := connection.recv(size - len(found))):
            raise EOFError
        found += more
    return found
