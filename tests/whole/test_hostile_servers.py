"""Servers that stop responding or send unexpected messages: every command ends with an error."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hostile_server import HostileServer, Mode
from pgdyno.cli.main import run_command
from pgdyno.interruption import SIGNALS, stopping
from pgdyno.measure import engine_runs
from pgdyno.server import connections
from pgdyno.server.connections import NoAnswer, connect

COMMANDS = {
    "check": ["check", "{dsn}"],
    "check of pgbench": ["check", "{dsn}", "--workload", "pgbench"],
    "drive": ["drive", "{dsn}", "--into-existing"],
    "drive of pgbench": ["drive", "{dsn}", "--into-existing", "--workload", "pgbench"],
    "load": ["load", "{dsn}"],
    "load into a database": ["load", "{dsn}", "--into-existing", "--workload", "pgbench"],
    "compare": ["compare", "{dsn}", "{dsn} application_name=b", "--evidence", "{folder}/e.sqlite"],
}  # fmt: skip

SAYS = {
    Mode.NEVER_ANSWERS: "the login timed out after 2 s",
    Mode.SILENT_AFTER_LOGIN: "waiting for a statement and a second connection",
    Mode.SILENT_IN_A_ROW: "waiting for a statement and a second connection",
    Mode.COPY_IN: "unexpected COPY",
    Mode.COPY_OUT: "unexpected COPY",
}

Started = Callable[[Mode], str]


@pytest.fixture
def started() -> Iterator[Started]:
    """Start a hostile server and return its connection string."""
    with ExitStack() as stack:

        def start(mode: Mode) -> str:
            # The path of a socket must be short, unlike pytest's directories.
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pgdyno-test-")))
            return stack.enter_context(HostileServer(folder, mode)).dsn

        yield start


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch, server_dir: Path) -> None:
    """Unchanged behavior with short limits."""
    monkeypatch.setattr(connections, "ANSWER_TIMEOUT_S", 0.2)
    monkeypatch.setattr(connections, "CONNECT_TIMEOUT_S", 0.2)
    monkeypatch.setattr(engine_runs, "CONNECT_TIMEOUT_S", 1.0)
    monkeypatch.setenv("PGDYNO_CACHE", str(server_dir))


@pytest.mark.parametrize(
    ("command", "mode"),
    # A login takes its 2 s, whatever the workload.
    [pair for pair in product(COMMANDS, Mode) if pair[1] is not Mode.NEVER_ANSWERS or " " not in pair[0]],
)
@pytest.mark.usefixtures("impatient")
def test_every_command_ends_with_one_line_about_the_server(
    started: Started, mode: Mode, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dsn = started(mode)
    arguments = [word.format(dsn=dsn, folder=tmp_path) for word in COMMANDS[command]]
    assert run_command(arguments) == 1
    complaints = [line for line in capsys.readouterr().err.splitlines() if line.startswith("pgdyno: ")]
    assert len(complaints) == 1
    assert SAYS[mode] in complaints[0]


@pytest.mark.parametrize("mode", [Mode.NEVER_ANSWERS, Mode.SILENT_AFTER_LOGIN], ids=lambda m: m.name.lower())
@pytest.mark.parametrize(
    ("command", "number"), [*product(["check"], SIGNALS), ("drive", signal.SIGINT), ("load", signal.SIGINT)]
)
def test_one_signal_ends_a_wait_for_a_silent_server_with_the_signals_status(
    started: Started,
    mode: Mode,
    command: str,
    number: signal.Signals,
    server_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    watched = connections._watched

    def signalled(gen: Any, check: Callable[[bool], None], *limits: Any) -> Any:
        def first(has_arrived: bool) -> None:
            if stopping.since_s is None:
                signal.raise_signal(number)
                stopping.grace_s = 0.0
            check(has_arrived)

        return watched(gen, first, *limits)

    monkeypatch.setattr(connections, "_watched", signalled)
    monkeypatch.setenv("PGDYNO_CACHE", str(server_dir))
    # Its own limits are at least 15 s: the signal ends it.
    dsn = started(mode).replace("connect_timeout=2", "connect_timeout=1000")
    words = [word.format(dsn=dsn, folder=server_dir) for word in COMMANDS[command]]
    assert run_command(words) == 128 + number
    said = capsys.readouterr().err
    assert [line for line in said.splitlines() if line.startswith("pgdyno: interrupted")], said


def test_a_statement_continues_while_the_server_responds_on_another_connection(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "ANSWER_TIMEOUT_S", 0.0)
    monkeypatch.setattr(connections, "TICK_S", 0.001)
    asked: list[str] = []
    monkeypatch.setattr(connections._Statement, "_ask", lambda _: asked.append("asked"))
    with connect(started(Mode.SILENT_AFTER_LOGIN)) as connection:
        connection.statement_timeout_s = 0.5
        with pytest.raises(NoAnswer, match=r"timed out after [01] s waiting for a statement:"):
            connection.execute("select 1")
        assert len(asked) > 2
        assert connection.closed


def test_an_incomplete_response_is_an_error_although_the_server_responds_elsewhere(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MIDDLE_TIMEOUT_S", 0.3)
    with (
        connect(started(Mode.SILENT_IN_A_ROW)) as connection,
        pytest.raises(NoAnswer, match="waiting for the rest of a result"),
    ):
        connection.execute("select 1")


def test_a_dsn_may_set_the_limit_on_a_login_but_not_lift_it() -> None:
    limit_s = connections.CONNECT_TIMEOUT_S
    cases = {"7": 7, "1": 2, "0": limit_s, "-1": limit_s, "x": 15, None: 15}
    assert {given: connections._connect_timeout_s(given) for given in cases} == cases


def test_keepalives_of_a_dsn_are_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, object] = {}

    def refuse(conninfo: str, **given: object) -> None:
        del conninfo
        asked.update(given)
        raise psycopg.OperationalError("not here")

    monkeypatch.setattr(connections.BoundedConnection, "connect", refuse)
    with pytest.raises(psycopg.OperationalError):
        connect("host=/nowhere tcp_user_timeout=5 keepalives_idle=9")
    assert {name: asked.get(name) for name in connections.TCP_LIMITS} == {
        **connections.TCP_LIMITS,
        "tcp_user_timeout": None,
        "keepalives_idle": None,
    }
