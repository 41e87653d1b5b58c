"""pgdyno-pgbench prompts for a password on the terminal, without echo."""

from __future__ import annotations

import os
import pty
import socket
import struct
from pathlib import Path

from hostile_server import WireServer, message, read, read_body, read_startup, tcp_listener
from pgdyno.server.engine import PGBENCH, find_program

PASSWORD = "none of your business"
ASKS = message(b"R", struct.pack("!i", 3))
"""AuthenticationCleartextPassword."""

REFUSAL = b"".join([b"SFATAL\0", b"VFATAL\0", b"C28P01\0", b"Mnot you\0", b"\0"])


class AsksForPassword(WireServer):
    """Requests a password from every client, and then rejects it."""

    def __init__(self) -> None:
        self.said: list[bytes] = []
        super().__init__(tcp_listener())

    def serve(self, connection: socket.socket) -> None:
        read_startup(connection)
        connection.sendall(ASKS)
        read(connection, 1)
        self.said.append(read_body(connection))
        connection.sendall(message(b"E", REFUSAL))


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
    with AsksForPassword() as server:
        where = f"host=127.0.0.1 port={server.port} user=u dbname=d sslmode=disable passfile=/nowhere"
        command = [str(find_program(PGBENCH)), "-n", "-f", str(script), where]
        shown, status = _at_a_terminal(command, b"Password: ", PASSWORD.encode() + b"\n")
        port = server.port
    assert server.said == [PASSWORD.encode() + b"\0"]
    assert PASSWORD not in shown
    assert shown.splitlines() == [
        "Password: ",
        f'pgdyno-pgbench: error: connection to server at "127.0.0.1", port {port} failed: FATAL:  not you',
        "pgdyno-pgbench: error: could not create connection for setup",
    ]
    assert status == 1
