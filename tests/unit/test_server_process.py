"""A program and all that it has started end together, and with pgdyno."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from pgdyno.server.directories import OURSELVES
from pgdyno.server.processes import end_tree, launch_tree, run_tool

END_S = 60.0
"""Time limit of all waits; longer is a failure."""

START = "sleep 600 & echo $!; setsid sleep 600 & echo $!; (setsid sleep 600 & echo $!); "
"""Start three programs: in the session, in one of its own, and one without a parent. Print their IDs."""


class Started:
    """Programs that must end. Handles refer to them, even if their IDs are used again."""

    def __init__(self, pids: list[int]) -> None:
        self.handles: list[int] = []
        for pid in pids:
            with suppress(ProcessLookupError):
                self.handles.append(os.pidfd_open(pid))

    def have_ended(self, within_s: float = 0.0) -> bool:
        return all(select.select([handle], [], [], within_s)[0] for handle in self.handles)

    def end(self) -> None:
        for handle in self.handles:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            os.close(handle)


def started(output: int) -> Started:
    """Read the three IDs that START prints."""
    with os.fdopen(output, "rb", buffering=0) as lines:
        return Started([int(lines.readline()) for _ in range(3)])


@pytest.mark.parametrize(
    ("end", "status"), [("exit 3", 3), ("kill -9 $$", 128 + signal.SIGKILL), ("true", 0)]
)
def test_what_a_program_leaves_has_ended_before_its_status_is_known(end: str, status: int) -> None:
    done = run_tool(["/bin/sh", "-c", START + end], OURSELVES, END_S)
    assert done.returncode == status
    left = Started([int(line) for line in done.stdout.splitlines()])
    try:
        assert left.handles == []  # reaped, too
    finally:
        left.end()


def test_a_program_is_asked_to_end_and_its_output_is_kept(tmp_path: Path) -> None:
    ready, output = tmp_path / "ready", tmp_path / "output"
    os.mkfifo(ready)
    script = f"trap 'echo bye; exit 7' TERM; sleep 600 & echo > {ready}; wait"
    with output.open("wb") as file, launch_tree(["/bin/sh", "-c", script], OURSELVES, output=file) as process:
        ready.read_text()
        process.terminate()
        assert process.wait(END_S) == 7
    assert output.read_text() == "bye\n"


def test_a_program_that_ignores_signals_is_killed_with_all_others() -> None:
    output, written = os.pipe()
    command = ["/bin/sh", "-c", "trap '' TERM QUIT INT HUP; " + START + "wait"]
    with os.fdopen(written, "wb") as file:
        process = launch_tree(command, OURSELVES, output=file)
    left = started(output)
    try:
        assert len(left.handles) == 3 and not left.have_ended()
        end_tree(process)
        assert left.have_ended() and process.returncode == 128 + signal.SIGKILL
        end_tree(process)
    finally:
        left.end()


def test_a_program_ends_with_a_killed_pgdyno_and_so_does_all_that_it_has_started() -> None:
    code = "import sys\nfrom pgdyno.server.processes import *\n"
    code += "from pgdyno.server.directories import OURSELVES\n"
    code += f"launch_tree(['/bin/sh', '-c', {START + 'wait'!r}], OURSELVES, output=sys.stdout.buffer).wait()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as pgdyno:
        assert pgdyno.stdout is not None
        left = Started([int(pgdyno.stdout.readline()) for _ in range(3)])
        try:
            assert len(left.handles) == 3 and not left.have_ended()
            pgdyno.kill()
            assert left.have_ended(END_S)
        finally:
            left.end()


def test_a_program_runs_where_and_with_what_it_is_told(tmp_path: Path) -> None:
    shown = ["/bin/sh", "-c", 'echo "$PWD $WORD"; cat']
    done = run_tool(shown, OURSELVES, END_S, feed=[b"x"], directory=tmp_path, environment={"WORD": "w"})
    assert done.stdout == f"{tmp_path} w\nx"
    with pytest.raises(subprocess.TimeoutExpired):
        run_tool(["/bin/sleep", "600"], OURSELVES, 0.0)
