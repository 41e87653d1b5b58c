"""pgdyno-pgbench prompts for a password on the terminal, without echo."""

from __future__ import annotations

import os
import pty
import socket
import struct
import threading
from pathlib import Path

from pgdyno.server.engine import PGBENCH, find_program

PASSWORD = "none of your business"
ASKS = b"R" + struct.pack("!ii", 8, 3)
"""AuthenticationCleartextPassword."""

REFUSAL = b"".join([b"SFATAL\0", b"VFATAL\0", b"C28P01\0", b"Mnot you\0", b"\0"])


def _message(connection: socket.socket, tag_bytes: int) -> bytes:
    head = connection.recv(tag_bytes + 4, socket.MSG_WAITALL)
    if len(head) < tag_bytes + 4:
        return b""
    (length,) = struct.unpack("!i", head[tag_bytes:])
    return connection.recv(length - 4, socket.MSG_WAITALL)


def _serve(listener: socket.socket, said: list[bytes]) -> None:
    """Request a password from every client, and then reject it."""
    for _ in range(2):
        connection, _ = listener.accept()
        with connection:
            _message(connection, 0)
            connection.sendall(ASKS)
            if answer := _message(connection, 1):
                said.append(answer)
                connection.sendall(b"E" + struct.pack("!i", 4 + len(REFUSAL)) + REFUSAL)


def _at_a_terminal(command: list[str], question: bytes, answer: bytes) -> tuple[str, int]:
    """Return the terminal output of a program that is answered once, and its exit status."""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(command[0], command)
    shown, answered = b"", False
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # Linux reports the end in this way
            break
        shown += piece
        if question in shown and not answered:
            answered = os.write(terminal, answer) > 0
    os.close(terminal)
    return shown.decode(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_password_is_prompted_for_without_echo(tmp_path: Path) -> None:
    script = tmp_path / "one.sql"
    script.write_text("select 1;\n")
    said: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=_serve, args=(listener, said), daemon=True)
        server.start()
        port = listener.getsockname()[1]
        where = f"host=127.0.0.1 port={port} user=u dbname=d sslmode=disable passfile=/nowhere"
        command = [str(find_program(PGBENCH)), "-n", "-f", str(script), where]
        shown, status = _at_a_terminal(command, b"Password: ", PASSWORD.encode() + b"\n")
        server.join()
    assert said == [PASSWORD.encode() + b"\0"]
    assert PASSWORD not in shown
    assert shown.splitlines() == [
        "Password: ",
        f'pgdyno-pgbench: error: connection to server at "127.0.0.1", port {port} failed: FATAL:  not you',
        "pgdyno-pgbench: error: could not create connection for setup",
    ]
    assert status == 1
