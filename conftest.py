"""Servers for tests, in directories that the unprivileged user of servers can access."""

from __future__ import annotations

import functools
import gc
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

from pgdyno.cli.features import features
from pgdyno.cli.main import OBJECTS_BETWEEN_COLLECTIONS
from pgdyno.measure.host_counters import Tree
from pgdyno.measure.machine import read_limits
from pgdyno.server.build_store import system_builds
from pgdyno.server.builds import Build, read_build
from pgdyno.server.directories import Account, server_account
from pgdyno.server.processes import Cluster, InitOptions, Server

# Hypothesis has a wall-clock deadline per example, which a busy machine misses. The examples are the same in
# every run, so that a change is not refused for an example that has nothing to do with it.
settings.register_profile(
    "reproducible", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("reproducible")

features()
gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)

# A shell's nohup and & ignore signals, which programs started by tests would inherit.
for number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)

FUZZ = 25
"""Number of damaged files that each fuzz test tries; ``make long-test`` tries 500."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fuzz", type=int, default=FUZZ, metavar="N", help="damaged files a fuzz test tries")
    parser.addoption("--long", action="store_true", help="run only the tests that are marked long")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select the long tests with --long, and the others without it.

    Those with servers come first: their files are long, and each keeps to one process of ``make test``.
    """
    is_long = config.getoption("--long")
    wanted = dict.fromkeys(item for item in items if (item.get_closest_marker("long") is not None) == is_long)
    config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
    items[:] = sorted(wanted, key=lambda item: not {"server", "e2e"} & {m.name for m in item.iter_markers()})


@pytest.fixture
def fuzz(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--fuzz"))


@pytest.fixture(scope="session", autouse=True)
def _state_of_its_own() -> Iterator[None]:
    """Separate directories of state and configuration, so that tests use neither the noise history of the
    user nor the user's defaults, and the name of a terminal that can draw.
    """
    with tempfile.TemporaryDirectory(prefix="pgdyno-state-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", folder)
        patch.setenv("XDG_CONFIG_HOME", folder)
        patch.setenv("TERM", "xterm")
        yield


@pytest.fixture
def refusal(capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return a function that runs a command, which must be refused in one line, and returns this line.

    Only a plan may precede it, if the request was valid.
    """
    from pgdyno.cli.main import run_command

    def refused(words: str | Sequence[str], status: int = 2) -> str:
        assert run_command(words.split() if isinstance(words, str) else words) == status
        *before, message = capfd.readouterr().err.splitlines()
        assert message.startswith("pgdyno: ") and (status != 2 or not before)
        return message

    return refused


MEMORY = Path("/dev/shm")
ROOM_BYTES = 12 * 10**9
"""Free memory from which the data directories of tests, up to 2 GB for each process, are in memory."""


@pytest.fixture(scope="session")
def place_of_servers(request: pytest.FixtureRequest) -> Path:
    """Return the directory for data directories. On a disk their copies take half of the CPU time of a study.

    Long tests use a disk: they measure the machine, cut its power, or load large data.
    """
    disk = Path(tempfile.gettempdir())
    if request.config.getoption("--long") or not MEMORY.is_dir():
        return disk
    found = os.statvfs(MEMORY)
    free_bytes = min(
        found.f_bavail * found.f_frsize,
        psutil.virtual_memory().available,
        read_limits(Tree()).memory_bytes or ROOM_BYTES,
    )
    return MEMORY if free_bytes >= ROOM_BYTES and not found.f_flag & os.ST_NOEXEC else disk


def _reachable_directory(parent: Path) -> Path:
    path = Path(tempfile.mkdtemp(prefix="pgdyno-test-", dir=parent))
    path.chmod(0o755)
    return path


@pytest.fixture(scope="session")
def account() -> Account:
    return server_account()


@pytest.fixture
def server_dir(place_of_servers: Path) -> Iterator[Path]:
    """A directory for data directories that the servers' user can access (as root it cannot access
    tmp_path).
    """
    path = _reachable_directory(place_of_servers)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def session_dir(place_of_servers: Path) -> Iterator[Path]:
    path = _reachable_directory(place_of_servers)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def module_dir(session_dir: Path) -> Path:
    """A directory for the servers of a module, also if two processes run its tests, or one twice."""
    return _reachable_directory(session_dir)


@pytest.fixture(scope="module")
def cache_of_studies(session_dir: Path) -> Iterator[None]:
    """A cache of the session for the studies of a module, so that they do not fill that of the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGDYNO_CACHE", str(session_dir / "cache-of-studies"))
        yield


@pytest.fixture(scope="session")
def build() -> Build:
    """The build in PGDYNO_TEST_PG_BIN, else the first installed one."""
    if named := os.environ.get("PGDYNO_TEST_PG_BIN"):
        return read_build(Path(named), "system", "named by PGDYNO_TEST_PG_BIN")
    builds = system_builds()
    if not builds:
        pytest.skip("NO SERVER: no PostgreSQL is installed; tests of servers did not run")
    return builds[0]


@pytest.fixture(scope="session")
def empty_cluster_of(account: Account, session_dir: Path) -> Callable[[Build], Cluster]:
    """Return a function that makes a data directory which is never started, once per build, to be copied."""

    @functools.cache
    def make(build: Build) -> Cluster:
        cluster = Cluster(build, _reachable_directory(session_dir) / "data", account)
        cluster.initdb(InitOptions(sync=False))
        return cluster

    return make


@pytest.fixture(scope="session")
def empty_cluster(build: Build, empty_cluster_of: Callable[[Build], Cluster]) -> Cluster:
    return empty_cluster_of(build)


@pytest.fixture
def cluster_of(
    empty_cluster_of: Callable[[Build], Cluster], account: Account, server_dir: Path
) -> Callable[[Build], Cluster]:
    """Return a function that makes a new stopped cluster of a build for one test."""
    return lambda build: _copy(empty_cluster_of(build), server_dir / "data", account)


@pytest.fixture
def cluster(empty_cluster: Cluster, cluster_of: Callable[[Build], Cluster]) -> Cluster:
    """A new stopped cluster for one test."""
    return cluster_of(empty_cluster.build)


@pytest.fixture(scope="session")
def new_cluster(
    empty_cluster_of: Callable[[Build], Cluster], account: Account, session_dir: Path
) -> Callable[[Build], AbstractContextManager[Cluster]]:
    """Return a function that makes a stopped cluster for several tests."""

    @contextmanager
    def make(build: Build) -> Iterator[Cluster]:
        directory = _reachable_directory(session_dir)
        try:
            yield _copy(empty_cluster_of(build), directory / "data", account)
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    return make


def _copy(empty: Cluster, data_dir: Path, account: Account) -> Cluster:
    copy_with_owner(empty.data_dir, data_dir)
    return Cluster(empty.build, data_dir, account)


def copy_with_owner(data_dir: Path, copy: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "--archive", "--no-target-directory", data_dir, copy], check=True)


@pytest.fixture(scope="session", autouse=True)
def _initdb_runs_once_for_its_arguments(session_dir: Path) -> Iterator[None]:
    """Copy the result of initdb for later clusters of the same build and arguments, which saves CPU time."""
    initdb, made = Cluster.initdb, dict[object, Path]()

    def initdb_or_copy(
        cluster: Cluster, options: InitOptions | None = None, more: Sequence[str] = ()
    ) -> None:
        # Whether initdb syncs makes no difference to its files.
        key = (cluster.build.build_id, replace(options or InitOptions(), sync=False), tuple(more))
        is_new = not cluster.data_dir.exists() or not any(cluster.data_dir.iterdir())
        if key in made and is_new:
            copy_with_owner(made[key], cluster.data_dir)
            return
        initdb(cluster, options, more)
        made[key] = _reachable_directory(session_dir) / "data"
        copy_with_owner(cluster.data_dir, made[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "initdb", initdb_or_copy)
        yield


@pytest.fixture(scope="session")
def new_server(
    build: Build, new_cluster: Callable[[Build], AbstractContextManager[Cluster]]
) -> Callable[[], AbstractContextManager[Server]]:
    """Return a function that starts a server with default settings."""

    @contextmanager
    def start() -> Iterator[Server]:
        with new_cluster(build) as cluster, cluster.start() as server:
            yield server

    return start


@pytest.fixture(scope="module")
def running_server(new_server: Callable[[], AbstractContextManager[Server]]) -> Iterator[Server]:
    """A server for one file, so that two files may name their databases alike. Tests create their own."""
    with new_server() as server:
        yield server


@pytest.fixture(scope="module")
def loading_server(
    build: Build, new_cluster: Callable[[Build], AbstractContextManager[Cluster]]
) -> Iterator[Server]:
    """A server whose loads write no WAL. With fsync off, for speed: its tests measure no durability."""
    settings = {"wal_level": "minimal", "max_wal_senders": "0", "autovacuum": "off", "fsync": "off"}
    with new_cluster(build) as cluster, cluster.start(settings) as server:
        yield server
