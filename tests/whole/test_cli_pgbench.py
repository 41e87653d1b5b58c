"""``pgdyno pgbench``: passes every argument to the other program, and returns its exit status."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = [sys.executable, "-c", "from pgdyno.cli.main import main; main()"]


def pgbench(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PGDYNO_ENGINE": str(directory / "pgdyno-engine")}
    command = [*PROGRAM, "pgbench", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """An engine, with a program next to it that prints its arguments."""
    for name in ("pgdyno-engine", "pgdyno-pgbench"):
        program = tmp_path / name
        program.write_text('#!/bin/sh\nprintf "<%s>" "$@"\nexit 2\n')
        program.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["-i", "-s", "10", "mydb", "-S", "-M", "prepared", "-c8", "--json", "--version", "--unknown=1"],
        ["--help"],
        ["-h", "/tmp", "--", "-odd", ""],
    ],
)
def test_every_argument_is_passed_and_the_exit_status_returned(engine: Path, arguments: list[str]) -> None:
    done = pgbench(engine, *arguments)
    assert done.stdout == "".join(f"<{argument}>" for argument in arguments)
    assert done.returncode == 2


def test_a_single_h_requests_help(engine: Path) -> None:
    assert pgbench(engine, "-h").stdout == "<--help>"


def test_a_program_that_is_not_built_is_an_error(engine: Path) -> None:
    (engine / "pgdyno-pgbench").unlink()
    done = pgbench(engine, "-S")
    assert done.returncode == 1
    assert done.stderr.startswith("pgdyno: ")
    assert "make setup" in done.stderr
