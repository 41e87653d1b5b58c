"""A server that crashes after the last slice and restarts: its measurements do not count."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from small_study import run_small, small_study

from pgdyno.cli.options import expanded
from pgdyno.errors import ConnectError, PgdynoError
from pgdyno.features.runs import command as drive_command
from pgdyno.measure import drive
from pgdyno.measure.engine_runs import EngineRun, run_drive
from pgdyno.results.reader import Evidence
from pgdyno.results.records import StudyEnd
from pgdyno.server.processes import Server

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("cache_of_studies")]


@pytest.fixture(scope="module")
def mortal(new_server: Callable[[], AbstractContextManager[Server]]) -> Iterator[Server]:
    """A server for these tests only, because they crash it."""
    with new_server() as server:
        yield server


def crash(server: Server) -> None:
    """Kill a process of the server. Return when PostgreSQL has ended all others and accepts connections
    again.
    """
    with contextlib.closing(server.connect()) as victim, contextlib.closing(server.connect()) as bystander:
        os.kill(victim.info.backend_pid, signal.SIGKILL)
        with contextlib.suppress(psycopg.Error):
            while True:
                bystander.execute("select 1")
    while True:
        with contextlib.suppress(ConnectError), server.connect():
            return


@pytest.fixture
def crashes_at_the_end(mortal: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """Crash after a complete run, when the driver has ended."""

    def driven(*arguments: Any, **options: Any) -> EngineRun:
        run = run_drive(*arguments, **options)
        assert run.complete
        crash(mortal)
        return run

    for module in (drive, drive_command):
        monkeypatch.setattr(module, "run_drive", driven)
    return mortal


def test_a_crash_after_the_last_slice_fails_the_trials_on_a_running_server(
    crashes_at_the_end: Server, tmp_path: Path
) -> None:
    dsn, path = crashes_at_the_end.conninfo(), tmp_path / "e.sqlite"
    study = small_study([f"a={dsn}", f"b={dsn}"], blocks_max=1)
    assert run_small(path, study) is StudyEnd.BLOCKS
    with Evidence(path) as opened:
        trials = [(trial.status, trial.reason) for trial in opened.trials()]
    why = "the server crashed or restarted during the trial: an idle connection was lost"
    assert trials == [("failed", why)] * 2


def test_a_crash_after_the_last_slice_invalidates_a_single_run(
    crashes_at_the_end: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    dsn = crashes_at_the_end.conninfo("single_run")
    expanded(drive_command.load)(dsn, workload="pgbench", quiet=True)
    capsys.readouterr()
    with pytest.raises(PgdynoError, match="the run is not valid: the server crashed or restarted"):
        expanded(drive_command.drive)(
            dsn, clients=2, window=0.4, warmup=0.0, workload="pgbench", json=True, quiet=True
        )
    assert '"complete": false' in capsys.readouterr().out
