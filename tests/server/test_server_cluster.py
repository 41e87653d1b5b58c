"""Clusters: created, started, stopped, and never left behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pgdyno.errors import ServerError, StartError, UsageError
from pgdyno.server.processes import Cluster, Server

pytestmark = pytest.mark.server

ENDS_WITHIN_S = 30.0


def value(server: Server, query: str) -> object:
    with server.connect() as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def test_a_server_starts_answers_and_stops_cleanly(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is appended to, and each start reads its own part."""
    with cluster.start() as server:
        assert value(server, "select current_user") == "pgdyno"
        assert value(server, "show data_checksums") == "on"
        socket = server.socket.path
        assert socket.stat().st_mode & 0o077 == 0
    assert "database system is shut down" in server.log()
    assert "FATAL" not in server.log().split("shutdown request")[0]
    assert not socket.exists()
    monkeypatch.setenv("PGOPTIONS", "-c work_mem=77MB")
    with cluster.start() as second:
        assert value(second, "show work_mem") == "4MB", "options of the user's environment"
    assert second.log().count("starting PostgreSQL") == 1
    assert cluster.log_path.read_text().count("starting PostgreSQL") == 2


def test_a_database_in_sql_ascii_returns_text(running_server: Server) -> None:
    with running_server.connect() as connection:
        connection.execute(
            "CREATE DATABASE plain TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'"
        )
    with running_server.connect("plain") as connection:
        assert connection.execute("SELECT current_database()::text").fetchone() == ("plain",)


def test_an_immediate_stop_leaves_recovery_to_the_next_start(cluster: Cluster) -> None:
    server = cluster.start()
    server.stop("immediate")
    with cluster.start() as again:
        assert "was interrupted" in again.log()


def test_requested_settings_are_in_effect_and_unknown_optional_ones_dropped(cluster: Cluster) -> None:
    asked = {
        "shared_buffers": "40MB",
        "checkpoint_timeout": "15min",
        "synchronous_commit": "OFF",
        "fsync": "f",
    }
    with cluster.start(asked) as server:
        assert server.effective["shared_buffers"] == "40MB"
        assert server.effective["fsync"] == "off"
        assert server.dropped == {}
    with cluster.start({"nonesuch": "1"}, optional={"nonesuch"}) as server:
        assert list(server.dropped) == ["nonesuch"]


def test_a_server_that_cannot_have_its_settings_does_not_start(cluster: Cluster) -> None:
    cases = [
        ({"nonesuch": "1"}, "nonesuch"),
        ({"shared_buffers": "lots"}, "shared_buffers"),
        ({"shared_buffers": "8000GB"}, "shared memory"),
        ({"nonesuch.depth": "1"}, "has no such setting"),
    ]
    for settings, words in cases:
        with pytest.raises(StartError, match=words) as raised:
            cluster.start(settings)
        assert "\n" not in str(raised.value)
        assert not (cluster.data_dir / "postmaster.pid").exists()


def test_a_setting_controlled_by_pgdyno_is_rejected_with_the_reason(cluster: Cluster) -> None:
    with pytest.raises(UsageError, match="private Unix socket"):
        cluster.start({"Port": "5433"})


def test_two_servers_on_one_data_directory_are_rejected(cluster: Cluster) -> None:
    with cluster.start() as server, pytest.raises(StartError, match=r"postmaster\.pid"):
        cluster.start()
    assert not server.alive


def test_stopping_a_crashed_server_reports_the_crash(cluster: Cluster) -> None:
    server = cluster.start()
    os.kill(server.postmaster_pid, signal.SIGQUIT)
    server.process.wait(ENDS_WITHIN_S)
    with pytest.raises(ServerError, match="exited unexpectedly"):
        server.stop()


def test_killing_pgdyno_ends_its_servers(cluster: Cluster) -> None:
    program = (
        "import sys, signal; from pathlib import Path\n"
        "from pgdyno.server.directories import server_account\n"
        "from pgdyno.server.builds import read_build\n"
        "from pgdyno.server.processes import Cluster\n"
        "build = read_build(Path(sys.argv[1]), 'system', 'test')\n"
        "server = Cluster(build, Path(sys.argv[2]), server_account()).start()\n"
        "print(server.postmaster_pid, flush=True); signal.pause()\n"
    )
    arguments = [str(cluster.build.bin_dir), str(cluster.data_dir)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True, env=environment
    ) as parent:
        assert parent.stdout is not None
        postmaster = os.pidfd_open(int(parent.stdout.readline()))
        parent.send_signal(signal.SIGKILL)
    ended, _, _ = select.select([postmaster], [], [], ENDS_WITHIN_S)
    os.close(postmaster)
    assert ended, "the postmaster outlived pgdyno"
    assert Path(cluster.log_path).read_text().count("received immediate shutdown request") == 1
