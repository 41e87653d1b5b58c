"""Endless messages of a hostile server are rejected, and take little memory."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Literal

import psycopg
import pytest
from psycopg.waiting import READY_R, WAIT_R

from hostile_server import EndlessServer, Flood
from pgdyno.server import connections
from pgdyno.server.connections import ReadLimitExceeded, Waiting, _watched, connect

MEMORY_MAX_KIB = 400 << 10
"""Memory limit of the pgdyno process. It needs 100 MiB. Without limits it took 3.6 GB until it was
stopped.
"""

VALUE_MAX_KIB = 2 << 20
"""Limit for one value of the protocol's maximum size, in libpq's buffer and copied to its result.

libpq reads a value completely before pgdyno can count it, if it arrives as fast as it is read.
"""

MEASURED = """
import json, os, sys
from importlib import import_module
from pgdyno.cli.features import commands, features

features()
given = json.loads(sys.argv[1])
modules = [import_module(commands()[name][0]) for name, *_ in given]
main = import_module("pgdyno.cli.main").main
for number, words in enumerate(given):
    if (child := os.fork()) == 0:
        os.dup2(os.open(f"said-{number}", os.O_WRONLY | os.O_CREAT), 1)
        os.dup2(1, 2)
        sys.argv[1:] = words
        main()
    _, status, usage = os.wait4(child, 0)
    print(os.waitstatus_to_exitcode(status), usage.ru_maxrss, flush=True)
"""
"""Run each command in a process of its own, with its output in a file. Print its exit status and peak memory
in KiB.

The peak of a child starts at the memory of the process that starts it, so this is a small process.
"""


@pytest.mark.parametrize(
    ("flood", "family"),
    # Excludes "one value": data that libpq reads at once from a Unix socket cannot be counted.
    [(Flood.ROWS, "tcp"), (Flood.NOTICES, "tcp"), (Flood.ROWS, "unix"), (Flood.EMPTY_ROWS, "unix")],
)
def test_an_endless_response_is_rejected(
    flood: Flood, family: Literal["tcp", "unix"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "READ_BYTES_MAX", 4 << 20)
    with (
        tempfile.TemporaryDirectory() as folder,
        EndlessServer(flood, Path(folder) if family == "unix" else None) as server,
    ):
        connection = connect(server.dsn)
        with pytest.raises(ReadLimitExceeded, match="more than 4 MiB in one result"):
            connection.execute("select 1")
        assert connection.closed


@pytest.mark.parametrize("family", ["tcp", "unix"])
def test_data_are_counted_if_libpq_then_closes_its_socket(family: Literal["tcp", "unix"]) -> None:
    with ExitStack() as sockets:
        if family == "unix":
            sender, reader = socket.socketpair()
        else:
            listener = sockets.enter_context(socket.create_server(("127.0.0.1", 0)))
            sender = socket.create_connection(listener.getsockname())
            reader = listener.accept()[0]
        sockets.enter_context(sender)
        sockets.enter_context(reader)

        def reads_and_closes() -> Waiting:
            yield WAIT_R
            reader.recv(20, socket.MSG_WAITALL)
            reader.close()
            raise psycopg.DatabaseError("lost synchronization with server")

        watched = _watched(reads_and_closes(), lambda _: None, 10, reader.fileno())
        next(watched)
        sender.sendall(bytes(20))
        with pytest.raises(ReadLimitExceeded):
            watched.send(READY_R)


@pytest.mark.parametrize("family", ["tcp", "unix"])
def test_an_endless_login_is_rejected(family: Literal["tcp", "unix"]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        EndlessServer(Flood.PARAMETERS, Path(folder) if family == "unix" else None) as server,
        pytest.raises(psycopg.OperationalError, match="more than 1 MiB in one result"),
    ):
        connect(server.dsn)


def test_no_command_uses_much_memory_with_a_flooding_server(tmp_path: Path) -> None:
    with ExitStack() as servers:
        commands = []
        for flood, command in zip(Flood, cycle(["check", "drive", "load", "compare"]), strict=False):
            server = servers.enter_context(EndlessServer(flood))
            commands.append([command, *[server.dsn] * (2 if command == "compare" else 1)])
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, json.dumps(commands)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "NO_COLOR": "1"},
            check=True,
        )
    for number, (flood, line) in enumerate(zip(Flood, done.stdout.splitlines(), strict=True)):
        status, peak_kib = map(int, line.split())
        said = (tmp_path / f"said-{number}").read_text()
        assert status == 1, (flood, said[:2000])
        assert peak_kib < MEMORY_MAX_KIB + (VALUE_MAX_KIB if flood is Flood.VALUE else 0), flood
        assert "Traceback" not in said and "\x1b" not in said, flood
        assert len(said) < 5000, flood
