"""Servers that freeze under load, closed terminals, and runs in which everything fails."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import subprocess
import termios
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest
from program import END_S, SCRIPT, Program, measuring

from hostile_server import PORT, FreezingProxy, freezing_proxy
from pgdyno.cli.main import run_command
from pgdyno.drive import drive_specification
from pgdyno.results.reader import Evidence
from pgdyno.server import limited_connection
from pgdyno.server.running import Server

CLIENTS = 2
DRIVE = ("--workload", "pgbench", "--clients", str(CLIENTS), "--warmup", "0.2s", "--into-existing")
LONG = ("--window", "40s", "--slice", "0.5s", "--blocks", "1")
READS = ("-b", "select-only", "--warmup", "0s")
FREEZES_AFTER_BYTES = 100_000
"""About a thousand read-only transactions: in the middle of the window, after the logins."""


@pytest.fixture(scope="module")
def bench(running_server: Server) -> Server:
    """A server with pgbench's tables."""
    assert (
        run_command(
            ["load", running_server.conninfo("silence"), "--workload", "pgbench", "--scale", "1", "--quiet"]
        )
        == 0
    )
    return running_server


@pytest.fixture
def proxy(bench: Server, server_dir: Path) -> Iterator[FreezingProxy]:
    with freezing_proxy(server_dir, bench.socket.path / f".s.PGSQL.{PORT}", FREEZES_AFTER_BYTES) as proxy:
        yield proxy


@pytest.fixture
def through(bench: Server, server_dir: Path, proxy: FreezingProxy) -> str:
    """The database behind the proxy."""
    del proxy
    return bench.conninfo("silence").replace(str(bench.socket.path), str(server_dir)) + " connect_timeout=2"


def test_transactions_without_a_response_are_counted_and_invalidate_the_run(
    through: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(drive_specification, "DRAIN_TIMEOUT_S", 0.5)
    monkeypatch.setattr(limited_connection, "ANSWER_TIMEOUT_S", 0.2)
    assert run_command(["drive", through, *DRIVE, *READS, "--window", "3s"]) == 1
    said = capsys.readouterr()
    assert re.search(
        rf"^{CLIENTS} transactions canceled and counted as failed: no response within", said.out, re.M
    )
    (complaint,) = [line for line in said.err.splitlines() if line.startswith("pgdyno: ")]
    assert complaint.startswith("pgdyno: the run is not valid: timed out after")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
def test_one_signal_ends_a_drive_of_a_silent_server_with_its_results_so_far(
    program: Program, through: str, proxy: FreezingProxy, number: signal.Signals
) -> None:
    running = program.start("drive", through, *DRIVE, *READS, "--window", "1000s")
    running.until(lambda: proxy.frozen.is_set() and "tx/s" in running.err.read_text())
    running.signal(number)
    ended = running.ended()
    assert ended.status == 128 + number, ended.err
    assert ended.complaints == ["pgdyno: interrupted; the results are incomplete"]
    assert "tx/s" in ended.err
    assert "no transaction succeeded" not in ended.out
    assert re.search(r"µs CPU per transaction", ended.out)


def test_a_drive_in_which_every_transaction_fails_is_one_error(program: Program, bench: Server) -> None:
    read_only = bench.conninfo("silence").replace(
        "options=''", "options='-c default_transaction_read_only=on'"
    )
    ended = program.run("drive", read_only, *DRIVE, "--window", "5s")
    assert ended.status == 1
    (complaint,) = ended.complaints
    assert re.match(
        r"pgdyno: no transaction succeeded, [\d,]+ failed: .*read-only transaction.*SQLSTATE 25006.*primary",
        complaint,
    )
    before = [line for line in ended.err.splitlines() if line != complaint]
    # The error once, and a line for each part of the run without a success.
    assert len([line for line in before if "25006" in line]) == 1
    assert len([line for line in before if "no transaction succeeded" in line]) <= 2


def test_a_closed_terminal_ends_a_study_in_order(
    program: Program, server: str, loaded: Program, tmp_path: Path
) -> None:
    evidence = tmp_path / "e.sqlite"
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [SCRIPT, "compare", "--warehouses", "1", "--clients", "2", "--warmup", "0.5s", *LONG, "--seed", "7",
         "--evidence", str(evidence), server, server],
        stdin=theirs, stdout=theirs, stderr=theirs, env=program.environment(), cwd=tmp_path,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
    )  # fmt: skip
    os.close(theirs)
    try:
        while not measuring(evidence):
            assert process.poll() is None
            with suppress(BlockingIOError):
                os.set_blocking(ours, False)
                os.read(ours, 65536)
        os.close(ours)  # the kernel sends SIGHUP, and every write fails from now on
        assert process.wait(END_S) == 128 + signal.SIGHUP
    finally:
        process.kill()
        process.wait(END_S)
    with Evidence(evidence) as opened:
        assert opened.study().ended_because == "interrupted"
    assert evidence.with_suffix(".html").stat().st_size > 10_000
    assert not list(program.cache.glob("runs/run-*"))
    assert program.survivors() == []


def test_a_frozen_server_does_not_delay_a_study_that_stops(
    program: Program, server: str, loaded: Program, tmp_path: Path
) -> None:
    evidence = tmp_path / "e.sqlite"
    running = program.start(
        "compare", "--warehouses", "1", "--clients", "2", "--warmup", "0.5s", *LONG, "--seed", "7",
        "--evidence", evidence, server, server,
    )  # fmt: skip
    running.until(lambda: measuring(evidence))
    freeze(program)
    running.signal(signal.SIGTERM)
    ended = running.ended()
    assert ended.status == 128 + signal.SIGTERM, ended.err
    with Evidence(evidence) as opened:
        assert opened.study().ended_because == "interrupted"
        assert {trial.status for trial in opened.trials()} == {"interrupted"}
    assert evidence.with_suffix(".html").stat().st_size > 10_000
    assert not list(program.cache.glob("runs/run-*"))
    assert program.survivors() == []


@pytest.mark.long  # it waits for the time limits of the engine and of the server's shutdown
def test_a_server_that_freezes_in_a_block_ends_the_study_with_an_error_and_without_a_signal(
    program: Program, server: str, loaded: Program, tmp_path: Path
) -> None:
    evidence = tmp_path / "e.sqlite"
    running = program.start(
        "compare", "--warehouses", "1", "--clients", "2", "--warmup", "0.5s", "--window", "10s",
        "--seed", "7", "--blocks", "1", "--evidence", evidence, server, server,
    )  # fmt: skip
    running.until(lambda: measuring(evidence))
    freeze(program)
    ended = running.ended()
    assert ended.status == 1, ended.err
    with Evidence(evidence) as opened:
        assert opened.study().ended_because is not None
        assert {trial.status for trial in opened.trials()} == {"failed"}
        assert all(trial.reason for trial in opened.trials())
    assert not list(program.cache.glob("runs/run-*"))
    assert program.survivors() == []


def freeze(program: Program) -> None:
    """Suspend the servers with all their processes: their sockets stay open without a response."""
    frozen = [p for postmaster in program.postmasters() for p in (postmaster, *postmaster.children())]
    for process in frozen:
        with suppress(psutil.NoSuchProcess):
            process.suspend()


def test_the_database_is_consistent_after_the_load(bench: Server) -> None:
    with closing(bench.connect("silence")) as connection:
        row = connection.execute("select count(*) from pgbench_branches").fetchone()
    assert row == (1,)
