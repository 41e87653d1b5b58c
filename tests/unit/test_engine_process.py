"""The engine as a child process, replaced by misbehaving programs."""

import json
import os
import signal
from pathlib import Path

import pytest

import pgdyno.server.engine
from pgdyno.errors import EngineError, Interrupted
from pgdyno.interruption import Interruption
from pgdyno.measure.engine_runs import DRAIN_TIMEOUT_S
from pgdyno.server import processes
from pgdyno.server.engine import Engine, find_engine


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


def test_the_first_signal_requests_a_stop_and_the_second_exits() -> None:
    heard: list[str] = []
    with Interruption() as interruption:
        interruption.check()
        with interruption.tell(lambda: heard.append("stop")):
            os.kill(os.getpid(), signal.SIGINT)
        assert heard == ["stop"]
        with pytest.raises(Interrupted):
            interruption.check()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)


def test_an_immediate_exit_is_reported() -> None:
    # Click would turn a bare KeyboardInterrupt into an exit status without a message.
    with pytest.raises(Interrupted, match="aborted"), Interruption():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)


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


def test_a_late_listener_is_notified_at_once() -> None:
    heard: list[str] = []
    with Interruption() as interruption:
        os.kill(os.getpid(), signal.SIGINT)
        with interruption.tell(lambda: heard.append("stop")):
            assert heard == ["stop"]


def test_events_are_json(program: Path) -> None:
    script(program, f"read -r a; echo '{json.dumps({'event': 'failed', 'stage': 'connect'})}'; exit 1")
    with Engine("drive", {}) as engine:
        assert list(engine.events())[-1]["stage"] == "connect"
