"""``pgdyno pgbench``: passes every argument to the other program, and returns its exit status."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pgdyno.cli.main import run_command

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
