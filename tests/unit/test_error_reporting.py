"""Errors: one line, never a traceback on the terminal. Unexpected ones have a file and an exit status."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic_study import Synthetic, write_study

from pgdyno.cli import error_reporting, report, streams
from pgdyno.cli.main import run_command
from pgdyno.cli.streams import sane_size
from pgdyno.errors import in_one_line
from pgdyno.server.processes import last_messages

PROGRAM = [sys.executable, "-c", "from pgdyno.cli.main import main; main()"]
LIMIT_S = 120.0


def a_failing_report(*_: object) -> None:
    raise LookupError("of postgresql://u:hunter2@h/d and pa55word")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(report, "read_files", a_failing_report)
    return tmp_path / "state" / "pgdyno"


def test_an_unexpected_error_is_one_line_and_a_file_without_passwords(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PGPASSWORD", "pa55word")
    assert run_command(["report", "password=secret"]) == error_reporting.EXIT_STATUS == 70
    told = capsys.readouterr()
    (file,) = state.iterdir()
    assert told.out == ""
    assert told.err.count("\n") == 1 and str(file) in told.err
    assert told.err.startswith("pgdyno: internal error (LookupError: of postgresql://u:***@h/d")
    text = file.read_text()
    assert "a_failing_report" in text and "LookupError" in text and "command: pgdyno report" in text
    assert not re.search("hunter2|pa55word|=secret", text + told.err)
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("is_writable", [True, False])
def test_without_a_state_directory_the_file_is_a_temporary_one(
    is_writable: bool, state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state.parent.write_text("a file where the directory would be")
    temporary = state.parent.parent / ("t" if is_writable else "state/t")
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    assert run_command(["report", "e"]) == 70
    told = capsys.readouterr().err
    assert ("could not be written" in told) is not is_writable
    assert not is_writable or str(*temporary.iterdir()) in told


def test_only_the_newest_files_are_kept(state: Path) -> None:
    state.mkdir(parents=True)
    for n in range(error_reporting.KEPT_MAX + 5):
        (state / f"traceback-20000101-0000{n:02}-x.txt").touch()
    (state / "noise.jsonl").touch()
    run_command(["report", "e"])
    names = sorted(path.name for path in state.iterdir())
    assert len(names) == error_reporting.KEPT_MAX + 1 and "noise.jsonl" in names
    assert "traceback-20000101-000005-x.txt" not in names
    assert any(not name.startswith("traceback-2000") for name in names if name != "noise.jsonl")


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (MemoryError(), 1, "out of memory"),
        (RecursionError("too deep"), 70, "internal error (RecursionError: too deep)"),
        (PermissionError(13, "Permission denied", "/x"), 1, "/x: Permission denied"),
    ],
)
def test_each_kind_of_error_has_its_status(
    error: Exception,
    status: int,
    words: str,
    state: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> None:
        raise error

    assert not state.exists()
    monkeypatch.setattr(report, "read_files", fail)
    assert run_command(["report", "e"]) == status
    assert words in capsys.readouterr().err


@pytest.fixture
def results(tmp_path: Path) -> str:
    write_study(tmp_path / "e", Synthetic(blocks=2, slices=2))
    return str(tmp_path / "e")


def test_a_closed_output_is_reported_in_one_line(results: str) -> None:
    words = [*PROGRAM, "report", results]
    done = subprocess.run(
        words, stderr=subprocess.PIPE, text=True, preexec_fn=lambda: os.close(1), timeout=LIMIT_S, check=False
    )
    message = "pgdyno: cannot write to standard output: Bad file descriptor\n"
    assert (done.returncode, done.stderr) == (1, message)


def test_a_full_output_is_reported_in_one_line(
    results: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path("/dev/full").open("w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert run_command(["report", results, "--json"]) == 1
    message = "pgdyno: cannot write to standard output: No space left on device\n"
    assert capsys.readouterr().err == message


def test_a_page_is_complete_with_every_stream_closed(tmp_path: Path, results: str) -> None:
    """No opened file gets the descriptor of a closed stream, so nothing is printed into it."""
    pages = [tmp_path / "closed.html", tmp_path / "open.html"]
    words = ["report", results, "--html"]
    subprocess.run(
        [*PROGRAM, *words, pages[0]], preexec_fn=lambda: os.closerange(0, 3), timeout=LIMIT_S, check=True
    )
    assert run_command([*words, str(pages[1])]) == 0
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_a_reader_that_goes_leaves_no_complaint(results: str) -> None:
    words = [*PROGRAM, "report", results, "--csv"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(LIMIT_S) == 1


def test_a_terminal_without_width_has_80_columns(
    results: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    importlib.reload(streams)  # as every start of the program
    shown = []
    for columns in (None, "80"):
        if columns:
            monkeypatch.setenv("COLUMNS", columns)
        assert run_command(["report", results]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]


@pytest.mark.parametrize("columns", ["0", "1", "-5", "²", "99999999", "", "x", "132"])
def test_a_width_that_no_terminal_has_is_forgotten(columns: str) -> None:
    environ = {"COLUMNS": columns, "LINES": "0", "HOME": "/"}
    sane_size(environ)
    assert environ == {"HOME": "/"} | ({"COLUMNS": "132"} if columns == "132" else {})


def test_a_call_to_ray_without_an_answer_does_not_end_the_process_differently() -> None:
    program = (
        "import threading; from pgdyno.cli.main import main; from pgdyno.interruption import RAY_THREAD; "
        "import atexit; atexit.register(print, 'finalized'); "
        "threading.Thread(target=threading.Event().wait, name=RAY_THREAD, daemon=True).start(); main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "report", "missing.sqlite"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 1
    assert "missing.sqlite" in done.stderr
    assert "finalized" not in done.stdout


REFUSED = "FATAL:  the database system is in recovery mode"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            "column x does not exist\nLINE 1: select x\n               ^",
            "column x does not exist / LINE 1: select x / ^",
        ),
        (
            f'connection failed: connection to server at "::1", port 5432 failed: {REFUSED}\n'
            f'connection to server at "::1", port 5432 failed: {REFUSED}\n'
            "Multiple connection attempts failed. All failures were:\n"
            f"- host: 'localhost', hostaddr: '::1': connection failed: {REFUSED}\n"
            f"- host: 'localhost', hostaddr: '127.0.0.1': connection failed: {REFUSED}",
            'connection failed: connection to server at "::1", port 5432 failed: '
            "FATAL: the database system is in recovery mode",
        ),
        (
            "it ended: FATAL:  one / HINT:  a / FATAL:  two / FATAL:  one",
            "it ended: FATAL: one / HINT: a / FATAL: two",
        ),
    ],
)
def test_a_message_of_several_lines_becomes_one_without_repetitions(error: str, line: str) -> None:
    assert in_one_line(Exception(error)) == line


def test_an_error_sent_to_every_client_is_reported_once() -> None:
    log = "".join(
        f"2026-11-22 13:00:0{n}.000 UTC [10{n}] FATAL:  terminating connection due to immediate shutdown\n"
        for n in range(5)
    )
    assert last_messages(log) == "FATAL:  terminating connection due to immediate shutdown"
