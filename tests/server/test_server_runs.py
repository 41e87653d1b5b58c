"""Live directories: removed at the end, and cleaned up after a crash of their owner."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path

import pytest

from pgdyno.server.directories import Account
from pgdyno.server.processes import Cluster, Runs, end_postmaster

pytestmark = pytest.mark.server


def test_a_run_has_a_directory_that_servers_reach_and_that_goes_at_the_end(
    account: Account, server_dir: Path
) -> None:
    with Runs(server_dir, account).open("a") as run:
        assert account.can_reach(run.data_dir)
        assert Runs(server_dir, account).sweep() == []
    assert not run.path.exists()


def test_a_dead_owners_server_is_ended_and_its_directory_removed(
    cluster: Cluster, account: Account, server_dir: Path
) -> None:
    left = server_dir / "run-left"
    left.mkdir(mode=0o755)
    shutil.move(cluster.data_dir, left / "data")
    (left / "owner.lock").touch()
    server = Cluster(cluster.build, left / "data", account).start()
    assert server.alive
    assert Runs(server_dir, account).sweep() == [left]
    server.process.wait(30)
    server.socket.remove()
    assert not left.exists()


def test_a_directory_with_a_running_owner_is_not_removed(account: Account, server_dir: Path) -> None:
    owned = server_dir / "run-owned"
    owned.mkdir()
    with (owned / "owner.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert Runs(server_dir, account).sweep() == []
    assert owned.exists()


def test_another_programs_process_number_is_not_taken_for_a_server(server_dir: Path) -> None:
    import os

    (server_dir / "postmaster.pid").write_text(f"{os.getpid()}\n")
    end_postmaster(server_dir)  # it would end this test
    assert (server_dir / "postmaster.pid").exists()
