"""Signals, closed terminals, and servers that freeze, crash or fail: the end is in order, and what was
measured is kept.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest
from program import END_S, PGBENCH, SCRIPT, SLICES, Program, Running, command_line, measuring, without_slices

from hostile_server import PORT, FreezingProxy
from pgdyno.cli.main import run_command
from pgdyno.measure import engine_runs
from pgdyno.results.reader import Evidence
from pgdyno.server import connections
from pgdyno.server.processes import Server

COMPARE = ("compare", *PGBENCH, *SLICES, "--slice", "0.5s", "--clients", "2", "--rate", "100")
LONG = (*COMPARE, "--window", "60s", "--blocks", "1", "--evidence")
"""A block that takes longer than the test."""

CLIENTS = 2
DRIVE = ("--workload", "pgbench", "--clients", str(CLIENTS), "--warmup", "0s", "--into-existing")
READS = ("-b", "select-only", "--rate", "50")
FREEZES_AFTER_BYTES = 10_000
"""6,000 for logins, and more than a second of these transactions."""

WINDOW = ("--window", "4s")
"""Longer than a pause of the machine."""


@pytest.fixture
def evidence(tmp_path: Path) -> Path:
    return tmp_path / "e.sqlite"


def unread_bytes(pid: int) -> int:
    """Return the number of bytes in the pipe of an engine's commands that it has not read.

    The engine moves the pipe away from descriptor 0, the input of scripts.
    """
    (own,) = [one for one in Path(f"/proc/{pid}/fd").iterdir() if is_read_end(pid, one)]
    with own.open("rb", buffering=0) as pipe:
        return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def is_read_end(pid: int, descriptor: Path) -> bool:
    """Return whether a descriptor of a process is the end of a pipe that reads."""
    flags = Path(f"/proc/{pid}/fdinfo/{descriptor.name}").read_text().split("flags:")[1].split()[0]
    is_pipe = str(descriptor.readlink()).startswith("pipe:")
    return is_pipe and int(flags, 8) & os.O_ACCMODE == os.O_RDONLY


def stands_still(pid: int) -> bool:
    """Return whether all threads of a process are stopped. A running one could still read input."""
    states = [path.read_text().rpartition(") ")[2] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(state.startswith("T") for state in states)


def caught_in_a_block(program: Program, server: str, evidence: Path) -> Running:
    running = program.start(*LONG, evidence, server, server)
    running.until(lambda: measuring(evidence))
    assert len(program.postmasters()) == 2
    return running


def require_kept(program: Program, evidence: Path) -> None:
    """Check that the interrupted study has its measurements and its report, and that nothing else is left."""
    assert program.survivors() == []
    with Evidence(evidence) as opened:
        assert opened.study().ended_because == "interrupted"
        assert [block.status for block in opened.blocks()] == ["interrupted"]
        trials = opened.trials()
    assert [trial.status for trial in trials] == ["interrupted"] * 2
    # Ended slices are complete: every slice has its drained time and its counts.
    assert all(slice.drained_s >= slice.closed_s > slice.opened_s for t in trials for slice in t.slices)
    assert sum(counts.ok for t in trials for s in t.measured for counts in s.kinds.values()) > 0
    with closing(sqlite3.connect(evidence)) as whole:
        assert whole.execute("pragma integrity_check").fetchone() == ("ok",)
    assert evidence.with_suffix(".html").stat().st_size > 10_000
    assert not list(program.cache.glob("runs/run-*"))
    assert sorted(path.name for path in evidence.parent.glob("e.*")) == ["e.html", "e.sqlite"]


def test_a_signal_ends_the_slice_and_keeps_the_measurements_of_a_file_with_one_writer(
    program: Program, server: str, evidence: Path
) -> None:
    running = caught_in_a_block(program, server, evidence)
    second = program.refuse("compare", "--resume", evidence)
    assert f"being written by another pgdyno (process {running.process.pid})" in second.err
    running.signal(signal.SIGINT)
    ended = running.ended()
    assert ended.status == 128 + signal.SIGINT, ended.err
    assert f"interrupted; to continue: pgdyno compare --resume {evidence}" in ended.err
    require_kept(program, evidence)


def test_a_closed_terminal_ends_a_study_in_order_although_its_servers_are_frozen(
    program: Program, server: str, evidence: Path
) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [SCRIPT, *LONG, evidence, server, server],
        stdin=theirs, stdout=theirs, stderr=theirs, env=program.environment(), cwd=program.folder,
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
        freeze(program)
        os.close(ours)  # the kernel sends SIGHUP, and every write fails from now on
        assert process.wait(END_S) == 128 + signal.SIGHUP
    finally:
        process.kill()
        process.wait(END_S)
    require_kept(program, evidence)


def test_a_second_signal_ends_it_at_once(program: Program, server: str, evidence: Path) -> None:
    running = caught_in_a_block(program, server, evidence)
    (engine,) = program.engines()
    # The engine is stopped, so the first signal cannot end the slice: only a second one can.
    engine.suspend()
    try:
        running.until(lambda: stands_still(engine.pid))
        running.signal(signal.SIGINT)
        running.until(lambda: unread_bytes(engine.pid))  # the stop command
        running.signal(signal.SIGTERM)
        ended = running.ended()
    finally:
        if engine.is_running():
            engine.resume()
    assert ended.status == 130
    assert ended.complaints == ["pgdyno: aborted; the results file keeps all completed measurements"]
    assert "Traceback" not in ended.err
    assert program.survivors() == []
    with Evidence(evidence) as opened:
        assert opened.study().ended_because == "interrupted"


def searching(program: Program, evidence: Path, nth: int) -> Callable[[], bool]:
    """Return whether this trial, counted from the start of the program, is past the first step of its search.

    Every step has a separate engine, and only the load after the search writes slices.
    """
    trials: set[int] = set()
    engines: set[int] = set()

    def is_so() -> bool:
        trials.update(begun := without_slices(evidence))
        if begun and len(trials) == nth:
            engines.update(engine.pid for engine in program.engines())
        return len(engines) > 2

    return is_so


@pytest.mark.long
def test_a_study_that_ended_in_a_search_for_the_capacity_searches_anew(
    program: Program, server: str, evidence: Path
) -> None:
    # A loose limit of a low percentile: a step is short, and the machine hardly matters.
    sizes = ("--warehouses", "1", "--clients", "2", "--warmup", "0.2s", "--slice", "0.2s", "--window", "0.4s")
    running = program.start(
        "compare", *sizes, "--schedule", "blocks", "--blocks", "1", "--seed", "11",
        "--capacity", "p50<10ms", "--evidence", evidence, server, server,
    )  # fmt: skip
    running.until(searching(program, evidence, nth=1))
    running.signal(signal.SIGINT)
    ended = running.ended()
    assert ended.status == 130, ended.err
    assert program.survivors() == []
    with Evidence(evidence) as opened:
        (trial,) = opened.trials()
        assert (trial.status, trial.slices) == ("interrupted", [])
        assert trial.reason.startswith("while searching for the capacity: ")
        first, second = opened.blocks()[0].arm_order

    running = program.start("compare", "--resume", evidence)
    running.until(searching(program, evidence, nth=2))  # of the other arm, after the first one's trial
    running.signal(signal.SIGKILL)
    assert running.ended().status == -signal.SIGKILL
    assert program.survivors() == []

    ended = program.succeed("compare", "--resume", evidence, "--json")
    assert (ended.case["comparisons"][0]["blocks"], ended.case["primary"]) == ([0], "capacity")
    with Evidence(evidence) as opened:
        assert [tuple(block.arm_order) for block in opened.blocks()] == [(first, second)]
        trials = opened.trials(all_attempts=True)
    # Its checks ignore messages of the search in the server log.
    assert {(t.arm, t.attempt): (t.status, t.driver.capacity is not None) for t in trials} == {
        (first, 1): ("interrupted", False),
        (first, 2): ("ok", True),
        (first, 3): ("ok", True),
        (second, 1): ("interrupted", False),
        (second, 2): ("ok", True),
    }


@pytest.mark.long  # it waits for the time limits of the engine and of the server's shutdown
def test_a_server_that_freezes_in_a_block_ends_the_study_with_an_error_and_without_a_signal(
    program: Program, server: str, evidence: Path
) -> None:
    running = caught_in_a_block(program, server, evidence)
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


def a_client_of(postmaster: psutil.Process) -> psutil.Process:
    """Return a backend that serves the workload."""
    return next(child for child in postmaster.children() if " pgbench " in command_line(child))


def test_a_study_continues_after_a_server_ended_and_after_one_restarted(
    program: Program, server: str, evidence: Path
) -> None:
    # The window is long enough to kill between the first and the last slice, even after a pause of the
    # machine. PostgreSQL restarts after a backend is killed, and clients reconnect. Between slices no
    # transaction need fail: then only a connection held during the trial detects it.
    running = program.start(
        *COMPARE, "--window", "5s", "--blocks", "3", "--evidence", evidence, server, server
    )
    running.until(lambda: measuring(evidence, 0))
    program.postmasters()[0].kill()
    running.until(lambda: measuring(evidence, 1))
    a_client_of(program.postmasters()[0]).kill()
    ended = running.ended()
    assert ended.status == 0, ended.err
    assert "Traceback" not in ended.err
    assert "! block 1" in ended.err and "! block 2" in ended.err
    assert ended.case["comparisons"][0]["blocks"] == [2]
    with Evidence(evidence) as opened:
        assert [block.status for block in opened.blocks()] == ["failed", "failed", "done"]
        trials = opened.trials()
        logs = {trial.trial: opened.server_log(trial.trial) for trial in trials}
    failed = [trial for trial in trials if trial.status == "failed"]
    assert {trial.block for trial in failed} == {0, 1}
    # The driver noticed it or, if the server crashed after the last slice, the checks did.
    why = r"was lost|were lost|crashed or restarted|no connection"
    assert all(re.search(why, trial.reason) for trial in failed), [trial.reason for trial in failed]
    assert all("ready to accept connections" in logs[trial.trial] for trial in failed)
    (crashed,) = [trial for trial in trials if "terminated by signal 9" in logs[trial.trial]]
    assert (crashed.block, crashed.status) == (1, "failed")


@pytest.fixture(scope="module")
def bench(running_server: Server) -> Server:
    """A server with pgbench's tables."""
    assert run_command(["load", running_server.conninfo("silence"), "--workload", "pgbench", "--quiet"]) == 0
    return running_server


@pytest.fixture
def proxy(bench: Server, server_dir: Path) -> Iterator[FreezingProxy]:
    with FreezingProxy(server_dir, bench.socket.path / f".s.PGSQL.{PORT}", FREEZES_AFTER_BYTES) as proxy:
        yield proxy


@pytest.fixture
def through(bench: Server, server_dir: Path, proxy: FreezingProxy) -> str:
    """The database behind the proxy."""
    del proxy
    return bench.conninfo("silence").replace(str(bench.socket.path), str(server_dir)) + " connect_timeout=4"


def test_transactions_without_a_response_are_counted_and_invalidate_the_run(
    program: Program, through: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_runs, "DRAIN_TIMEOUT_S", 0.5)
    monkeypatch.setattr(connections, "ANSWER_TIMEOUT_S", 0.2)
    ended = program.run("drive", through, *DRIVE, *READS, *WINDOW)
    assert ended.status == 1
    assert re.search(
        rf"^{CLIENTS} transactions canceled and counted as failed: no response in time", ended.out, re.M
    )
    (complaint,) = ended.complaints
    assert complaint.startswith("pgdyno: the run is not valid: timed out after")


def test_one_signal_ends_a_drive_of_a_silent_server_with_its_results_so_far(
    program: Program, through: str, proxy: FreezingProxy
) -> None:
    running = program.start("drive", through, *DRIVE, *READS, "--window", "1000s")
    running.until(lambda: proxy.frozen.is_set() and "tx/s" in running.err.read_text())
    running.signal(signal.SIGINT)
    ended = running.ended()
    assert ended.status == 128 + signal.SIGINT, ended.err
    assert ended.complaints == ["pgdyno: interrupted; the results are incomplete"]
    assert "tx/s" in ended.err
    assert "no transaction succeeded" not in ended.out
    assert re.search(r"µs CPU per transaction", ended.out)


def test_a_drive_in_which_every_transaction_fails_is_one_error(program: Program, bench: Server) -> None:
    read_only = bench.conninfo("silence").replace(
        "options=''", "options='-c default_transaction_read_only=on'"
    )
    ended = program.refuse("drive", read_only, *DRIVE, "--rate", "50", *WINDOW)
    assert re.match(
        r"pgdyno: no transaction succeeded, [\d,]+ failed: .*read-only transaction.*SQLSTATE 25006.*primary",
        ended.complaint,
    )
    before = [line for line in ended.err.splitlines() if line != ended.complaint]
    assert len([line for line in before if "25006" in line]) == 1  # the error once
