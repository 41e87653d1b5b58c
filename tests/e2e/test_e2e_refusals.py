"""Usage errors: each is one line with the problem, an exit status, and no side effects.

The command line runs in this process, because starting Python for each row would dominate.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hostile_server import OldServer, tcp_listener
from pgdyno.cli.main import run_command
from pgdyno.server.processes import Cluster

A = "{server}"
EMPTY, CLOSED = "{empty}", "{closed}"

USAGE = {
    "an unknown version": (f"compare {A} 99", "PostgreSQL 99 (is not available|could not be downloaded)"),
    "an unknown profile": (
        f"compare {A} {A},@nothing",
        "unknown profile 'nothing'; available: default, starter",
    ),
    "an unknown setting": (f"compare {A} {A},no_such=1", "has no setting 'no_such'"),
    "a setting of pgdyno's own": (f"compare {A} {A},port=5433", "port cannot be set"),
    "a value out of range": (f"compare {A} {A},commit_delay=100001", "from 0 to 100000"),
    "too few connections in two arms": (
        f"compare {A} {A},max_connections=20 {A},max_connections=30 --clients 200",
        r"--clients: 202 connections.*max_connections=20 \(20\), .*max_connections=30 \(30\): set",
    ),
    "a directory without a server": (f"compare {A} {EMPTY}", "no program 'postgres'"),
    "a malformed DSN": (f"compare {A} postgresql://u:geheim@h/x?nonsense=1", "connection string"),
    "a folder that takes no file": (f"compare {A} {A} --evidence {CLOSED}/e.sqlite", "cannot write"),
    "a report in such a folder": (f"compare {A} {A} --html {CLOSED}/e.html", "cannot write"),
    "a seed below nothing to load": ("load postgresql://h/x --seed -5", "--seed"),
    "a seed below nothing to drive": ("drive postgresql://h/x --seed -5", "--seed"),
}

NOBODY = "postgresql://u@127.0.0.1:{free_port}/x"

FAILURE = {
    "settings that contradict each other": (
        f"compare {A} {A},wal_level=minimal --warehouses 1",
        "wal_level=minimal: .* did not start: FATAL: .*max_wal_senders.*wal_level",
    ),
    "nobody listens": (f"compare {A} {NOBODY}", "no connection.*refused"),
    "no such socket": (f"compare {A} host=/nowhere_dbname=x", "no connection.*/nowhere"),
    "nobody listens to drive": (f"drive {NOBODY}", "no connection.*refused"),
}


@pytest.fixture
def quiet_place(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory. At the end there is no child process and no loaded data.

    Only direct children are checked: the shared server starts and ends its background workers at any time.
    """
    monkeypatch.setenv("PGDYNO_CACHE", str(cache))
    monkeypatch.chdir(tmp_path)
    before, datasets = set(psutil.Process().children()), set(cache.glob("datasets/*"))
    yield tmp_path
    assert set(psutil.Process().children()) <= before
    assert set(cache.glob("datasets/*")) == datasets
    assert not list(cache.glob("runs/run-*"))


@pytest.fixture(scope="module")
def empty_folder(session_dir: Path) -> Path:
    path = session_dir / "empty-folder"
    path.mkdir()
    return path


@pytest.fixture(scope="module")
def closed_folder(session_dir: Path) -> Iterator[Path]:
    """A directory without write access, even for root."""
    path = session_dir / "closed"
    path.mkdir(mode=0o500)
    if os.geteuid() != 0:
        yield path
        return
    mount = ["mount", "-t", "tmpfs", "-o", "ro,size=4k", "pgdyno-test", str(path)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"NO CLOSED FOLDER: every folder is open to root, and {done.stderr.strip()}")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def refused(capfd: pytest.CaptureFixture[str], words: list[str], status: int, says: str) -> None:
    """Check for one line of error; earlier output may only be the plan."""
    assert run_command(words) == status
    out, err = capfd.readouterr()
    *plan, complaint = err.splitlines()
    assert complaint.startswith("pgdyno: ")
    assert re.search(says, complaint)
    assert not [line for line in plan if line.startswith("pgdyno: ") or "Traceback" in line]
    assert "geheim" not in out + err
    assert out == ""


def words_of(command: str, **values: object) -> list[str]:
    """Split into words; ``_`` in the table is a space within a word."""
    return [word.format(**values).replace("_dbname", " dbname") for word in command.split()]


@pytest.mark.parametrize(("command", "says"), USAGE.values(), ids=USAGE)
def test_an_invalid_request_is_one_line_and_status_2(
    command: str,
    says: str,
    server: str,
    quiet_place: Path,
    empty_folder: Path,
    request: pytest.FixtureRequest,
    capfd: pytest.CaptureFixture[str],
) -> None:
    closed = request.getfixturevalue("closed_folder") if CLOSED in command else ""
    refused(capfd, words_of(command, server=server, empty=empty_folder, closed=closed), 2, says)
    assert not list(quiet_place.iterdir())
    assert not list(empty_folder.iterdir())


@pytest.mark.parametrize(("command", "says"), FAILURE.values(), ids=FAILURE)
def test_an_unreachable_server_is_one_line_and_status_1(
    command: str,
    says: str,
    server: str,
    quiet_place: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGPASSWORD", "geheim")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, but not listening
        refused(capfd, words_of(command, server=server, free_port=unused.getsockname()[1]), 1, says)
    assert not list(quiet_place.iterdir())


def test_a_wrong_password_is_rejected_and_not_shown(
    cluster: Cluster,
    server: str,
    quiet_place: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rules = cluster.data_dir / "pg_hba.conf"
    rules.write_text("local all locked scram-sha-256\n" + rules.read_text())
    with cluster.start() as up, up.connect() as connection:
        connection.execute("create role locked login createdb password 'richtig'")
        monkeypatch.setenv("PGPASSWORD", "geheim")
        dsn = f"postgresql://locked@/postgres?host={up.socket.path}&port=5432"
        for command in ("compare", "load", "drive", "check"):
            words = [command, *([server] if command == "compare" else []), dsn]
            refused(capfd, words, 1, "no connection.*password authentication failed")


def test_a_server_that_is_too_old_is_rejected(
    server: str, quiet_place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with OldServer(tcp_listener()) as old:
        words = ["compare", server, f"host=127.0.0.1 port={old.port} dbname=x user=u sslmode=disable"]
        refused(capfd, words, 1, r"runs PostgreSQL 9\.6\.24: pgdyno requires 10 or newer")
