"""The Python API, end to end: studies of real servers from a script."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from program import END_S, Program, Running, begun

import pgdyno
from notebooks import execute

SHORT = {"clients": 2, "minutes": 60, "warmup": "0.1s", "schedule": "blocks", "transactions": 100, "seed": 7}
DATA = pgdyno.Pgbench(scale=1)


@pytest.fixture
def own(program: Program, monkeypatch: pytest.MonkeyPatch) -> Program:
    """The environment of this process is that of the program."""
    for name, value in program.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(program.folder)
    return program


def test_blocks_are_results_as_they_end_and_an_exception_leaves_nothing_running(
    own: Program, server: str
) -> None:
    seen = []

    class Enough(Exception):
        pass

    with (
        pytest.raises(Enough),
        pgdyno.start(
            server, server, workload=DATA, blocks=50, results="e.sqlite", progress=False, **SHORT
        ) as study,
    ):
        for result in study:
            seen.append({row["block"] for row in result.trials()})
            assert own.processes()
            if len(seen) == 2:
                raise Enough
    assert seen[0] <= seen[1] and len(seen[1]) >= 2
    assert own.survivors() == []
    stopped = pgdyno.open("e.sqlite")
    assert not stopped.is_finished or len({row["block"] for row in stopped.trials()}) < 50


SCRIPT = """
import signal, sys, pgdyno
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's & ignores it
server = sys.argv[1]
pgdyno.compare(server, server, workload=pgdyno.Pgbench(scale=1), blocks=50, results="e.sqlite", clients=2,
               minutes=60, warmup="0.1s", schedule="blocks", transactions=100, seed=7)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_script_that_ends_early_leaves_nothing_running_and_keeps_its_blocks(
    own: Program, server: str, number: signal.Signals
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, server], stderr=subprocess.PIPE, text=True, cwd=own.folder
    ) as script:
        running = Running(script, own.folder / "out", own.folder / "err")
        running.until(lambda: begun(own.folder / "e.sqlite", 1))
        script.send_signal(number)
        _, said = script.communicate(timeout=END_S)
    assert script.returncode == -number
    assert ("KeyboardInterrupt" in said) is (number is signal.SIGINT)
    assert own.survivors() == []
    kept = {row["block"] for row in pgdyno.open(own.folder / "e.sqlite").trials()}
    assert 0 in kept and len(kept) < 50


@pytest.mark.usefixtures("own")
def test_a_crash_test_says_what_each_arm_lost(server: str) -> None:
    result = pgdyno.crash(server, kind="server", cuts=1, within="1s", quiet=True)
    assert [*result.lost_commits.values()] == [[0]]
    assert "none of 1 kill of the server lost an acknowledged commit" in repr(result)


@pytest.mark.usefixtures("own")
def test_the_notebook_about_a_comparison_executes_and_its_comparison_is_that_of_the_command_line(
    capfd: pytest.CaptureFixture[str],
) -> None:
    ended = execute("compare", options={"blocks": 1, **SHORT})
    said, result = capfd.readouterr(), ended["result"]
    assert result.effect() == ended["provisional"].effect()
    assert len(ended["by_arm"]) == 2
    assert result.command.startswith(
        "pgdyno compare system system,synchronous_commit=off --workload pgbench "
    )
    assert (said.out, "block 1" in said.err) == (f"{result.effect()}\n", True)
    assert (result.verdict, result.effect().low, result.is_finished) == ("undecided", None, True)
    assert {row["block"] for row in result.trials()} == {0}
