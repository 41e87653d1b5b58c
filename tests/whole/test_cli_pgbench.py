"""``pgdyno pgbench``: passes every argument to the other program, and returns its exit status.

That program prompts for a password on the terminal, without echo.
"""

from __future__ import annotations

import os
import pty
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hostile_server import WireServer, message, read, read_body, read_startup, tcp_listener
from pgdyno.cli.main import run_command
from pgdyno.server.engine import PGBENCH, find_program

PROGRAM = [sys.executable, "-c", "from pgdyno.cli.main import main; main()"]
OPTIONS = ["-i", "-s", "10", "mydb", "-S", "-M", "prepared", "-c8", "--json", "--version", "--unknown=1"]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program next to an engine, which prints its arguments."""
    for name in ("pgdyno-engine", "pgdyno-pgbench"):
        path = tmp_path / name
        path.write_text('#!/bin/sh\nprintf "<%s>" "$@"\nexit 2\n')
        path.chmod(0o755)
    monkeypatch.setenv("PGDYNO_ENGINE", str(tmp_path / "pgdyno-engine"))
    return tmp_path / "pgdyno-pgbench"


@pytest.mark.usefixtures("program")
def test_the_process_becomes_the_program_and_has_its_exit_status() -> None:
    done = subprocess.run([*PROGRAM, "pgbench", *OPTIONS], capture_output=True, text=True, check=False)
    assert done.stdout == "".join(f"<{argument}>" for argument in OPTIONS)
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [
        (["--help"], ["--help"]),
        (["-h", "/tmp", "--", "-odd", ""], ["-h", "/tmp", "--", "-odd", ""]),
        pytest.param(["-h"], ["--help"], id="a single -h requests help"),
    ],
)
def test_every_argument_is_passed(
    program: Path, arguments: list[str], passed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    executed: list[tuple[Path, list[str]]] = []
    monkeypatch.setattr(os, "execv", lambda path, words: executed.append((path, words[1:])))
    run_command(["pgbench", *arguments])
    assert executed == [(program, passed)]


def test_a_program_that_is_not_built_is_an_error(program: Path, refusal: Callable[..., str]) -> None:
    program.unlink()
    assert "make setup" in refusal("pgbench -S", 1)


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
