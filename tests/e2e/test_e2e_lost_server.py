"""A server that crashes in a trial: the trial fails, the study continues or stops, and the rest is kept."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import psutil
from program import Program, Running, command_line, measuring

from pgdyno.results.reader import Evidence

SIZES = ("--warehouses", "1", "--clients", "2", "--seed", "7", "--warmup", "0.2s", "--slice", "0.2s")


def a_client_of(postmaster: psutil.Process) -> int:
    """Return a backend that serves the workload."""
    return next(p.pid for p in postmaster.children() if " tpcc " in command_line(p))


def lose_a_server(
    program: Program, server: str, evidence: Path, block: int, which: str, *options: str
) -> Running:
    # One second per arm is measured: enough time to kill between the first and the last slice.
    running = program.start(
        "compare", *SIZES, "--window", "1.2s", "--evidence", evidence, "--json", *options, server, server
    )
    running.until(lambda: measuring(evidence, block))
    postmaster = program.postmasters()[0]
    os.kill(postmaster.pid if which == "postmaster" else a_client_of(postmaster), signal.SIGKILL)
    return running


def test_the_study_continues_after_a_server_crash(
    program: Program, server: str, loaded: Program, tmp_path: Path
) -> None:
    evidence = tmp_path / "e.sqlite"
    ended = lose_a_server(program, server, evidence, 0, "postmaster", "--blocks", "2").ended()
    assert ended.status == 0, ended.err
    assert "Traceback" not in ended.err
    assert "! block 1" in ended.err
    found = ended.json()
    assert found["comparisons"][0]["blocks"] == [1]
    assert {"ok": 1, "failed": 1} in [arm["trials"] for arm in found["arms"]]
    with Evidence(evidence) as opened:
        assert [block.status for block in opened.blocks()] == ["failed", "done"]
        failed = [trial for trial in opened.trials() if trial.status == "failed"]
        logs = [opened.server_log(trial.trial) for trial in failed]
    assert {trial.block for trial in failed} == {0}
    # The driver noticed it or, if the server crashed after the last slice, the checks did.
    assert all(
        re.search("the server was lost|server were lost|crashed or restarted|no connection", trial.reason)
        for trial in failed
    )
    assert all("ready to accept connections" in log for log in logs)


def test_a_server_that_crashed_and_restarted_invalidates_its_trial(
    program: Program, server: str, loaded: Program, tmp_path: Path
) -> None:
    # PostgreSQL restarts after a backend is killed, and clients reconnect. Between slices no transaction need
    # fail: then only a connection held during the trial detects it.
    evidence = tmp_path / "e.sqlite"
    ended = lose_a_server(program, server, evidence, 0, "backend", "--blocks", "1").ended()
    assert ended.status == 1, ended.err
    (complaint,) = ended.complaints
    why = r"were lost: \d|was lost in the middle|crashed or restarted"
    assert re.match(rf"pgdyno: no result, because no block is valid: .*({why})", complaint)
    assert "Traceback" not in ended.err
    assert ended.json()["comparisons"][0]["blocks"] == []
    with Evidence(evidence) as opened:
        (crashed,) = [
            trial for trial in opened.trials() if "terminated by signal 9" in opened.server_log(trial.trial)
        ]
        assert crashed.status == "failed"
        assert crashed.reason


def test_the_study_stops_after_a_server_crash_on_request(
    program: Program, server: str, loaded: Program, tmp_path: Path
) -> None:
    evidence = tmp_path / "e.sqlite"
    running = lose_a_server(
        program, server, evidence, 1, "postmaster", "--blocks", "9", "--on-failure", "stop"
    )
    ended = running.ended()
    assert ended.status == 1
    assert ended.json()["comparisons"][0]["blocks"] == [0]
    with Evidence(evidence) as opened:
        assert opened.study().ended_because == "failed"
        assert [block.status for block in opened.blocks()] == ["done", "failed"]
        statuses = [trial.status for trial in opened.trials()]
    assert statuses[:2] == ["ok", "ok"]
    assert "failed" in statuses[2:]  # also that of the other arm, unless all its slices were done
    assert evidence.with_suffix(".html").exists()
