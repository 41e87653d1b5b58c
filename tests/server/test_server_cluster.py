"""Clusters: created, started, stopped, and never left behind; also of the oldest and the newest version."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import psycopg
import pytest
from server_of_major import OLDEST_MIDDLE_NEWEST, build_of

from pgdyno.errors import ServerError, StartError
from pgdyno.measure.server_probes import autovacuum_runs
from pgdyno.results.records import Kept
from pgdyno.server.builds import NEWEST_MAJOR, OLDEST_MAJOR, Build, read_build
from pgdyno.server.cache_directory import Cache
from pgdyno.server.directories import Account
from pgdyno.server.processes import Cluster, InitOptions, Server
from pgdyno.server.safety import safety
from pgdyno.server.settings import MachineResources, ProfileInput, request
from pgdyno.server.settings_catalogue import catalogue, compiled_differences
from pgdyno.server.snapshots import restore, take
from pgdyno.workloads.server_log import EXPECTED, EXPECTED_OF_ANY_SCRIPT, check_log

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


def test_requested_settings_are_in_effect(cluster: Cluster) -> None:
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


def test_a_server_without_hot_standby_is_ready_only_after_its_crash_recovery(cluster: Cluster) -> None:
    """From PostgreSQL 15 on, its postmaster.pid reports a standby during the recovery."""
    server = cluster.start()
    with server.connect() as connection:
        connection.execute("create table t (n int)")
        connection.execute("insert into t select generate_series(1, 500000)")
    server.stop("immediate")
    with cluster.start({"hot_standby": "off"}) as again:
        assert value(again, "select count(*) from t") == 500_000


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
    # The sockets of a killed program stay until the next study: put them where the test removes them.
    place = {"TMPDIR": str(cluster.data_dir.parent)}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **place}
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


SMALL = MachineResources(memory_bytes=2**29, cores=4, disk="ssd")


@pytest.fixture(scope="module")
def cache() -> Cache:
    return Cache.open()


@pytest.mark.parametrize("major", OLDEST_MIDDLE_NEWEST)
def test_a_version_runs_with_the_starter_profile_and_restores(
    cache: Cache, cluster_of: Callable[[Build], Cluster], server_dir: Path, major: int
) -> None:
    build = build_of(cache, major)
    known = catalogue(build, cache)
    assert "compiled by" in known.version_text
    assert "CC" in known.compiled
    asked = request(
        ["starter"], {"synchronous_commit": "off"}, ProfileInput(SMALL, build.version, known.definitions)
    )
    cluster = cluster_of(build)
    with cluster.start(asked.settings, optional=asked.optional) as server:
        assert set(server.dropped) <= asked.optional
        assert server.effective["shared_buffers"] == "128MB"
        assert server.effective["data_checksums"] == "on"
        assert server.effective["lc_collate" if major < 16 else "lc_messages"] == "C"
        assert safety(server.effective).badges["power-loss"].kept is Kept.PARTLY
        with server.connect() as connection:
            assert connection.info.server_version == build.version.number
            connection.execute("create table t as select 1 as n")
            assert autovacuum_runs(connection) == 0
    assert "database system is shut down" in server.log()
    snapshot = take(cluster.data_dir)
    restore(snapshot, server_dir / "live", cache.account, sync=False)
    with Cluster(build, server_dir / "live", cache.account).start() as server, server.connect() as connection:
        assert connection.execute("select n from t").fetchone() == (1,)
        assert "interrupted" not in server.log()


def commands_of(server: Server) -> list[str]:
    """Return the command lines of a server's processes that have not ended meanwhile."""
    found = []
    for child in psutil.Process(server.postmaster_pid).children():
        with contextlib.suppress(psutil.Error):
            found.append(" ".join(child.cmdline()))
    return found


@pytest.mark.parametrize("major", OLDEST_MIDDLE_NEWEST)
def test_the_file_of_a_logging_collector_is_the_server_log(
    cache: Cache, cluster_of: Callable[[Build], Cluster], major: int
) -> None:
    cluster = cluster_of(build_of(cache, major))
    settings = {"logging_collector": "on", "log_rotation_age": "1min", "log_truncate_on_rotation": "on"}
    for n in range(2):
        with cluster.start(settings) as server:
            assert server.effective["logging_collector"] == "on"
            assert any("logger" in words for words in commands_of(server))
            with server.connect() as connection:
                connection.execute("checkpoint")
                for _ in range(2):
                    with pytest.raises(psycopg.errors.DivisionByZero):
                        connection.execute("select 1/0")
                    connection.execute("select pg_rotate_logfile()")
            deadline_s = time.monotonic() + 60
            while server.log().count("ERROR:  division by zero") < 2:
                assert time.monotonic() < deadline_s, server.log()
            assert "checkpoint starting" in server.log()
            assert check_log(server.log(), {"failed": 2}, [*EXPECTED, *EXPECTED_OF_ANY_SCRIPT]).passed
        assert server.log().count("redirecting log output to logging collector process") == 1
        assert cluster.log_path.read_text().count("division by zero") == 2 * (n + 1)
    assert [path.name for path in cluster.log_path.parent.glob("*.log")] == [cluster.log_path.name]


def test_a_setting_newer_than_the_server_is_an_error_unless_optional(
    cache: Cache, cluster_of: Callable[[Build], Cluster]
) -> None:
    cluster = cluster_of(build_of(cache, OLDEST_MAJOR))
    with pytest.raises(StartError, match="jit"):
        cluster.start({"jit": "off"})
    with cluster.start({"jit": "off"}, optional={"jit"}) as server:
        assert list(server.dropped) == ["jit"]


def test_an_optional_setting_that_the_sample_file_lacks_is_in_effect(
    cache: Cache, cluster_of: Callable[[Build], Cluster]
) -> None:
    cluster = cluster_of(build_of(cache, NEWEST_MAJOR))
    with cluster.start({"jit_expressions": "off"}, optional={"jit_expressions"}) as server:
        assert server.dropped == {}
        assert server.effective["jit_expressions"] == "off"


def test_checksums_and_segment_size_are_the_same_whatever_the_versions_default(
    cache: Cache, server_dir: Path
) -> None:
    cluster = Cluster(build_of(cache, NEWEST_MAJOR), server_dir / "data", cache.account)
    cluster.initdb(InitOptions(checksums=False, wal_segment_mb=4, sync=False))
    with cluster.start() as server:
        assert server.effective["data_checksums"] == "off"
        assert server.effective["wal_segment_size"] == "4MB"


def test_two_installations_of_one_build_have_their_own_libraries(
    build: Build, account: Account, server_dir: Path
) -> None:
    """PostgreSQL finds them relative to its program, of which both have a copy."""
    cache = Cache.at(server_dir / "cache", account)
    share = Path(catalogue(build, cache).compiled["SHAREDIR"])
    common = os.path.commonpath([build.bin_dir, share])
    for root in (server_dir.resolve() / "a", server_dir.resolve() / "b"):
        bin_dir, own_share = (root / path.relative_to(common) for path in (build.bin_dir, share))
        bin_dir.mkdir(parents=True)
        for program in ("postgres", "initdb"):
            shutil.copy(build.program(program), bin_dir)
        for path in build.bin_dir.parent.iterdir():
            if path != build.bin_dir:
                (bin_dir.parent / path.name).symlink_to(path)
        if not own_share.exists():
            own_share.parent.mkdir(parents=True, exist_ok=True)
            own_share.symlink_to(share)
        found = catalogue(read_build(bin_dir, "system", "a copy"), cache).library_dir
        assert found is not None
        assert found.is_relative_to(root)


def test_builds_of_different_compilers_are_distinguished(cache: Cache) -> None:
    builds = [build_of(cache, major) for major in (OLDEST_MAJOR, NEWEST_MAJOR)]
    known = {build.label: catalogue(build, cache) for build in builds}
    told = " ".join(compiled_differences(known))
    compilers = {one.version_text.split("compiled by ")[1] for one in known.values()}
    assert ("the compilers differ" in told) == (len(compilers) > 1)
    assert compiled_differences(dict([*known.items()][:1])) == []
