"""Programs and the engine as child processes: they end with all that they have started, and with pgdyno."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

import pgdyno.server.engine
from pgdyno.errors import EngineError, Interrupted
from pgdyno.interruption import Interruption
from pgdyno.measure import engine_runs
from pgdyno.measure.engine_runs import DRAIN_TIMEOUT_S, run_load
from pgdyno.server import child, processes
from pgdyno.server.directories import OURSELVES
from pgdyno.server.engine import Engine, find_engine, version_text
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


def test_a_program_is_asked_to_end_and_its_output_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = tmp_path / "child.py"  # a machine that stalls may take longer than GRACE_S
    text = Path(child.__file__).read_text()
    patient.write_text(text.replace(f"GRACE_S = {child.GRACE_S}", f"GRACE_S = {END_S}"))
    assert patient.read_text() != text
    monkeypatch.setattr(child, "__file__", str(patient))
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
        left = Started([int(pgdyno.stdout.readline()) for _ in range(3)])
        try:
            assert len(left.handles) == 3 and not left.have_ended()
            pgdyno.kill()
            assert left.have_ended(END_S)
        finally:
            left.end()


def test_a_program_runs_where_and_with_what_it_is_told(tmp_path: Path) -> None:
    shown = ["/bin/sh", "-c", 'echo "$PWD $WORD"; cat']

    def feed(process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        with process.stdin as pipe:
            pipe.write(b"x")

    done = run_tool(shown, OURSELVES, END_S, feed=feed, directory=tmp_path, environment={"WORD": "w"})
    assert done.stdout == f"{tmp_path} w\nx"
    with pytest.raises(subprocess.TimeoutExpired):
        run_tool(["/bin/sleep", "600"], OURSELVES, 0.0)
    assert run_tool(["/bin/cat"], OURSELVES, END_S).stdout == ""  # no input


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shell script instead of the engine, to which tests append."""
    path = tmp_path / "pgdyno-engine"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    monkeypatch.setenv("PGDYNO_ENGINE", str(path))
    return path


def script(program: Path, text: str) -> None:
    program.write_text(f"#!/bin/sh\n{text}\n")


def test_the_specification_is_the_first_line_and_orders_follow(program: Path) -> None:
    script(program, 'read -r a; read -r b; printf \'{"event":"result","got":[%s,%s]}\\n\' "$a" "$b"')
    with Engine("drive", {"clients": 3}) as engine:
        engine.proceed()
        events = list(engine.events())
    assert events == [{"event": "result", "got": [{"clients": 3}, {"do": "continue"}]}]


def test_an_end_without_a_result_is_an_error_with_the_engines_last_output(program: Path) -> None:
    script(program, "read -r a; echo 'out of luck' >&2; exit 3")
    with Engine("drive", {}) as engine, pytest.raises(EngineError, match=r"status 3.*out of luck"):
        list(engine.events())


def test_a_death_in_the_middle_of_a_line_is_an_error_of_the_engine(program: Path) -> None:
    script(program, 'read -r a; echo \'{"event":"started"}\'; printf \'{"event":"resu\'; kill -9 $$')
    with Engine("drive", {}) as engine, pytest.raises(EngineError, match=r"without a result \(status -9"):
        assert [event["event"] for event in engine.events()] == ["started"]


def test_an_engine_that_does_not_end_is_killed(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its output is closed, but it continues: a timeout of zero expires at once.
    monkeypatch.setattr(pgdyno.server.engine, "EXIT_TIMEOUT_S", 0.0)
    script(program, "read -r a; exec tail -f /dev/null > /dev/null")
    with Engine("drive", {}) as engine:
        with pytest.raises(EngineError, match="did not end"):
            list(engine.events())
        assert engine._process.returncode == -signal.SIGKILL


def test_the_engine_has_the_time_to_drain() -> None:
    assert pgdyno.server.engine.EXIT_TIMEOUT_S > DRAIN_TIMEOUT_S


def test_commands_to_an_ended_engine_are_ignored(program: Path) -> None:
    script(program, 'read -r a; echo \'{"event":"result"}\'')
    with Engine("load", {}) as engine:
        assert [event["event"] for event in engine.events()] == ["result"]
        engine.stop()


def test_leaving_the_block_closes_the_input_and_waits_for_the_end(program: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    script(program, f'read -r a; echo \'{{"event":"started"}}\'; cat > /dev/null; echo ended > {trace}')
    with pytest.raises(ZeroDivisionError), Engine("drive", {}) as engine:
        next(engine.events())
        _ = 1 / 0
    assert trace.read_text() == "ended\n"


def test_a_missing_engine_is_an_error_with_build_instructions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGDYNO_ENGINE", str(tmp_path / "pgdyno-engine"))
    with pytest.raises(EngineError, match="make setup"):
        find_engine()


def test_the_version_names_the_engine_and_the_commit_of_the_build(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(program, """echo '{"version": "9.9", "profile": "debug"}'""")
    module = tmp_path / "installed" / "pgdyno" / "server" / "engine.py"
    monkeypatch.setattr(pgdyno.server.engine, "__file__", str(module))
    unknown = f"pgdyno {pgdyno.__version__}\nengine 9.9, debug build, {program}"
    assert version_text() == unknown
    module.parents[1].mkdir(parents=True)
    (module.parents[1] / "commit").write_text("0123abcd")
    assert version_text() == unknown.replace("\n", ", commit 0123abcd\n")


def test_the_version_of_a_checkout_has_its_commit(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(program, "echo broken")
    checkout = Path(pgdyno.__file__).parents[2]
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True, check=False
    ).stdout.strip()
    known = re.search(r", commit (\w+)", version_text())
    assert bool(known) == (checkout / ".git").exists()
    assert known is None or commit.startswith(known[1])


@pytest.mark.parametrize("text", ["missing", "#!/bin/sh\necho broken", "no program", "#!/bin/sh\nexit 1"])
def test_the_version_says_why_there_is_no_engine(program: Path, text: str) -> None:
    program.write_text(text)
    if text == "missing":
        program.unlink()
    assert version_text().splitlines()[1].startswith("no engine: ")


def test_the_first_signal_requests_a_stop_and_the_second_exits() -> None:
    heard: list[str] = []
    # Click would turn a bare KeyboardInterrupt into an exit status without a message.
    with pytest.raises(Interrupted, match="aborted"), Interruption() as interruption:
        interruption.check()
        with interruption.tell(lambda: heard.append("stop")):
            os.kill(os.getpid(), signal.SIGINT)
        with interruption.tell(lambda: heard.append("late")):
            assert heard == ["stop", "late"]
        with pytest.raises(Interrupted):
            interruption.check()
        os.kill(os.getpid(), signal.SIGTERM)


def test_an_engine_is_not_waited_for_when_the_user_ends_it_at_once(program: Path, tmp_path: Path) -> None:
    # In a single process that does not end by itself: only a signal ends it.
    script(program, 'read -r a; echo \'{"event":"started"}\'; exec tail -f /dev/null')
    with pytest.raises(KeyboardInterrupt), Engine("drive", {}) as engine:
        next(engine.events())
        raise KeyboardInterrupt
    assert engine._process.returncode == -signal.SIGKILL


def test_signals_reach_the_thread_that_waits_and_not_the_one_that_starts_servers() -> None:
    blocked = processes._launcher.submit(signal.pthread_sigmask, signal.SIG_BLOCK, ()).result()
    assert {signal.SIGINT, signal.SIGTERM} <= blocked


def test_the_share_of_a_load_is_that_of_its_rows_while_they_are_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    phases = [("create", 0), ("copy", 5), ("copy", 10), ("index", 10), ("vacuum", 10)]
    events = [{"event": "progress", "phase": phase, "rows": rows, "rows_total": 10} for phase, rows in phases]
    engine = SimpleNamespace(events=lambda: iter([*events, {"event": "result"}]), stop=lambda: None)
    monkeypatch.setattr(engine_runs, "Engine", lambda *_: nullcontext(engine))
    shown: list[tuple[str, float]] = []
    run_load({}, Interruption(), lambda *progress: shown.append(progress), lambda _: None)
    assert shown == [("create", 0.0), ("copy", 0.5), ("copy", 1.0), ("index", 0.0), ("vacuum", 0.0)]
