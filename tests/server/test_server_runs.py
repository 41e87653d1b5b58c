"""Live directories: removed at the end, and cleaned up after a crash of their owner or of their postmaster,
whose remains are removed before the directory is used or removed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from pgdyno.measure.arms import BuildArm, Placement
from pgdyno.server.builds import Build
from pgdyno.server.directories import Account
from pgdyno.server.processes import (
    Cluster,
    LiveDirectory,
    Runs,
    Server,
    clear_after_kill,
    end_postmaster,
    note_program,
)
from pgdyno.server.snapshots import restore, take
from shared_memory import Segment, of_postmaster, still_there

pytestmark = pytest.mark.server


def test_a_run_has_a_directory_that_servers_reach_and_that_goes_at_the_end(
    account: Account, server_dir: Path
) -> None:
    with Runs(server_dir, account).open("a") as run:
        assert account.can_reach(run.data_dir)
        assert Runs(server_dir, account).sweep() == []
    assert not run.path.exists()


def test_a_dead_owners_server_is_ended_and_its_directory_removed(
    build: Build, run: Path, account: Account
) -> None:
    server = Cluster(build, run / "data", account).start()
    assert server.alive
    assert Runs(run.parent, account).sweep() == [run]
    server.process.wait(END_S)
    server.socket.remove()
    assert not run.exists()


def test_a_directory_with_a_running_owner_is_not_removed(account: Account, server_dir: Path) -> None:
    owned = server_dir / "run-owned"
    owned.mkdir()
    with (owned / "owner.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert Runs(server_dir, account).sweep() == []
    assert owned.exists()


def test_another_programs_process_number_is_not_taken_for_a_server(server_dir: Path) -> None:
    (server_dir / "postmaster.pid").write_text(f"{os.getpid()}\n")
    end_postmaster(server_dir)  # it would end this test
    assert (server_dir / "postmaster.pid").exists()


END_S = 60.0
"""Time limit of all waits; longer is a failure."""


def until(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + END_S
    while not condition():
        assert time.monotonic() < deadline_s


def alive(process: psutil.Process) -> bool:
    """Return whether a process runs. A zombie does not: its new parent reaps it later."""
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


@pytest.fixture
def run(cluster: Cluster, account: Account, server_dir: Path) -> Iterator[Path]:
    """A directory of runs without an owner, with a cluster in which nothing runs yet."""
    left = server_dir / "run-left"
    left.mkdir(mode=0o755)
    shutil.move(cluster.data_dir, left / "data")
    (left / "owner.lock").touch()
    yield left
    clear_after_kill(left / "data", account)


def killed(build: Build, data_dir: Path, account: Account) -> tuple[psutil.Process, set[Segment]]:
    """Start a server there and kill its postmaster; see ``kill``."""
    return kill(Cluster(build, data_dir, account).start())


def kill(server: Server) -> tuple[psutil.Process, set[Segment]]:
    """Kill the postmaster of a server.

    Return a backend that has not noticed it, because it is busy, and the remaining shared memory.
    """
    connection = server.connect()
    backend = psutil.Process(connection.info.backend_pid)
    connection.pgconn.send_query(b"do $$ begin loop end loop; end $$")
    until(lambda: backend.cpu_times().user > 0.05)
    segments = of_postmaster(server.postmaster_pid)
    assert segments
    server.process.kill()
    server.process.wait(END_S)
    server.socket.remove()
    connection.close()
    assert "its postmaster was killed by signal 9" in server.last_words()
    assert alive(backend)
    assert still_there(segments) == segments
    return backend, segments


def test_the_sweep_ends_its_backends_and_frees_its_shared_memory(
    build: Build, run: Path, account: Account
) -> None:
    backend, segments = killed(build, run / "data", account)
    assert Runs(run.parent, account).sweep() == [run]
    assert not alive(backend)
    assert still_there(segments) == set()
    assert not run.exists()


def test_a_restore_ends_its_backends_before_it_copies(
    build: Build, run: Path, account: Account, empty_cluster: Cluster
) -> None:
    backend, segments = killed(build, run / "data", account)
    restore(take(empty_cluster.data_dir), run / "data", account, sync=False)
    assert not alive(backend)
    assert still_there(segments) == set()
    with Cluster(build, run / "data", account).start() as server, server.connect() as connection:
        clear_after_kill(run / "data", account)  # changes nothing under a running server
        assert connection.execute("select 1").fetchone() == (1,)


def test_an_arm_that_stops_ends_the_backends_of_its_killed_server(
    build: Build, run: Path, account: Account, empty_cluster: Cluster
) -> None:
    """They would run on beside the trial of the next arm."""
    snapshot, place = take(empty_cluster.data_dir), Placement("data", [LiveDirectory(run)])
    arm = BuildArm(0, "a", build, "postgres", {}, (), snapshot, place, position=0, seed=1, account=account)
    arm.restore(0)
    arm.start()
    backend, segments = kill(arm.running)
    arm.stop()
    assert not alive(backend)
    assert still_there(segments) == set()


def test_a_run_that_ends_frees_the_shared_memory_of_its_killed_server(
    build: Build, run: Path, account: Account
) -> None:
    with Runs(run.parent, account).open("a") as own:
        shutil.move(run / "data", own.data_dir)
        backend, segments = killed(build, own.data_dir, account)
    assert not alive(backend)
    assert still_there(segments) == set()


def test_a_server_that_initdb_ran_is_cleared_away_too(build: Build, run: Path, account: Account) -> None:
    # It writes no postmaster.opts, and a negative process ID.
    command = [str(build.program("postgres")), "--single", "-D", str(run / "data"), "postgres"]
    as_account = {"user": account.uid, "group": account.gid, "extra_groups": []} if account.switch else {}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/",
        **as_account,  # type: ignore[call-overload]
    ) as single:  # fmt: skip
        assert single.stdout.read(1)  # its prompt
        segments = of_postmaster(single.pid)
        assert segments
        note_program(run / "data", build.program("postgres"))
        single.kill()
        single.wait(END_S)
        assert still_there(segments) == segments
        assert (run / "data/postmaster.pid").read_text().startswith("-")
        clear_after_kill(run / "data", account)
    assert still_there(segments) == set()


def test_a_backend_that_is_still_dying_holds_its_shared_memory(
    build: Build, run: Path, account: Account
) -> None:
    # Linux takes tens of milliseconds to free this much memory. Until then the segment is attached, but the
    # process has no program any more.
    server = Cluster(build, run / "data", account).start()
    connection = server.connect()
    backend = psutil.Process(connection.info.backend_pid)
    connection.pgconn.send_query(b"select string_agg(repeat('x', 100000000), '') from generate_series(1, 9)")
    until(lambda: backend.memory_info().rss > 900_000_000)
    segments = of_postmaster(server.postmaster_pid)
    backend.kill()
    server.process.kill()
    server.process.wait(END_S)
    server.socket.remove()
    connection.close()
    clear_after_kill(run / "data", account)
    assert still_there(segments) == set()


def test_a_segment_whose_header_was_never_written_is_removed(
    build: Build, run: Path, account: Account
) -> None:
    # As a postmaster leaves it that is killed while it syncs postmaster.pid, which then has the segment.
    data_dir = run / "data"
    key = data_dir.stat().st_ino & 0x7FFFFFFF
    # The interpreter may be out of reach of that user, so it starts as this one.
    create = (
        f"import ctypes, os; of = ctypes.CDLL(None); os.setgid({account.gid}); os.setuid({account.uid}); "
        f"print(of.shmget({key}, 56, 0o3600))"
    )
    with subprocess.Popen([sys.executable, "-c", create], stdout=subprocess.PIPE, text=True) as killed_start:
        assert killed_start.stdout is not None
        segment = int(killed_start.stdout.read())
    assert still_there({segment}) == {segment}
    (data_dir / "postmaster.pid").write_text(f"{killed_start.pid}\n")
    note_program(data_dir, build.program("postgres"))
    clear_after_kill(data_dir, account)
    assert still_there({segment}) == set()
