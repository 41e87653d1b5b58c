"""Endless messages of a hostile server are rejected, and take little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Literal

import psycopg
import pytest

from hostile_server import EndlessServer, Flood
from pgdyno.server.connections import ReadLimitExceeded, connect

MEMORY_MAX_KIB = 400 << 10
"""Memory limit of the pgdyno process. It needs 100 MiB. Without limits it took 3.6 GB until it was
stopped.
"""

VALUE_MAX_KIB = 2 << 20
"""Limit for one value of the protocol's maximum size, in libpq's buffer and copied to its result.

libpq reads a value completely before pgdyno can count it, if it arrives as fast as it is read.
"""

END_S = 120.0


COMMANDS = ("check", "drive", "load", "compare")

MEASURED = """
import json, os, sys
from importlib import import_module
from pgdyno.cli.features import commands, features

features()
for name in sys.argv[1:]:
    import_module(commands()[name][0])
main = import_module("pgdyno.cli.main").main
for line in sys.stdin:
    folder, *words = json.loads(line)
    if (child := os.fork()) == 0:
        os.chdir(folder)
        os.dup2(os.open("said", os.O_WRONLY | os.O_CREAT), 1)
        os.dup2(1, 2)
        sys.argv[1:] = words
        main()
    _, status, usage = os.wait4(child, 0)
    print(os.waitstatus_to_exitcode(status), usage.ru_maxrss, flush=True)
"""
"""Run each command of the input in a process and directory of its own, with its output in the file ``said``.
Print its exit status and peak memory in KiB.

The peak of a child starts at the memory of the process that starts it, so this is a small process.
"""


@pytest.fixture(scope="module")
def measured() -> Iterator[Callable[..., list[int]]]:
    """Return a function that runs a command and returns its exit status and peak memory in KiB."""
    with subprocess.Popen(
        [sys.executable, "-c", MEASURED, *COMMANDS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
    ) as process:

        def run(folder: Path, *words: str) -> list[int]:
            print(json.dumps([str(folder), *words]), file=process.stdin, flush=True)
            return [int(word) for word in process.stdout.readline().split()]

        yield run


@pytest.mark.parametrize(
    ("flood", "family"),
    [
        *((flood, "tcp") for flood in (Flood.ROWS, Flood.EMPTY_ROWS, Flood.VALUE, Flood.NOTICES)),
        # Excludes "one value": data that libpq reads at once from a Unix socket cannot be counted.
        *((flood, "unix") for flood in (Flood.ROWS, Flood.EMPTY_ROWS, Flood.NOTICES)),
    ],
)
def test_an_endless_response_is_rejected(flood: Flood, family: Literal["tcp", "unix"]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        EndlessServer(flood, Path(folder) if family == "unix" else None) as server,
    ):
        connection = connect(server.dsn)
        with pytest.raises(ReadLimitExceeded, match="more than 32 MiB in one result"):
            connection.execute("select 1")
        assert connection.closed


@pytest.mark.parametrize("family", ["tcp", "unix"])
def test_an_endless_login_is_rejected(family: Literal["tcp", "unix"]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        EndlessServer(Flood.PARAMETERS, Path(folder) if family == "unix" else None) as server,
        pytest.raises(psycopg.OperationalError, match="more than 1 MiB in one result"),
    ):
        connect(server.dsn)


@pytest.mark.parametrize(("flood", "command"), list(zip(Flood, cycle(COMMANDS), strict=False)))
def test_no_command_uses_much_memory_with_a_flooding_server(
    flood: Flood, command: str, tmp_path: Path, measured: Callable[..., list[int]]
) -> None:
    with EndlessServer(flood) as server:
        status, peak_kib = measured(tmp_path, command, *[server.dsn] * (2 if command == "compare" else 1))
    said = (tmp_path / "said").read_text()
    assert status == 1, said[:2000]
    assert "Traceback" not in said
    assert peak_kib < MEMORY_MAX_KIB + (VALUE_MAX_KIB if flood is Flood.VALUE else 0)
    assert len(said) < 5000
    assert "\x1b" not in said
