"""Servers for tests, in directories that the unprivileged user of servers can access."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from pgdyno.server.build import Build, read_build
from pgdyno.server.cluster import Cluster, InitOptions
from pgdyno.server.find_build import system_builds
from pgdyno.server.running import Server
from pgdyno.server.server_account import Account, server_account

# Hypothesis has a wall-clock deadline per example, which a busy machine misses. The examples are the same in
# every run, so that a change is not refused for an example that has nothing to do with it.
settings.register_profile(
    "reproducible", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("reproducible")


# A shell's nohup and & ignore signals, which programs started by tests would inherit.
for number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)

FUZZ = 50
"""Number of damaged files that each fuzz test tries; the default takes seconds."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fuzz", type=int, default=FUZZ, metavar="N", help="damaged files a fuzz test tries")
    parser.addoption("--long", action="store_true", help="run only the tests that are marked long")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select the long tests with --long, and the others without it."""
    wanted = [
        item for item in items if (item.get_closest_marker("long") is not None) == config.getoption("--long")
    ]
    config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
    items[:] = wanted


@pytest.fixture
def fuzz(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--fuzz"))


@pytest.fixture(scope="session", autouse=True)
def _state_of_its_own() -> Iterator[None]:
    """Separate state directory, so that tests do not use the noise history of the user."""
    with tempfile.TemporaryDirectory(prefix="pgdyno-state-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", folder)
        yield


def _reachable_directory() -> Path:
    path = Path(tempfile.mkdtemp(prefix="pgdyno-test-"))
    path.chmod(0o755)
    return path


@pytest.fixture(scope="session")
def account() -> Account:
    return server_account()


@pytest.fixture
def server_dir() -> Iterator[Path]:
    """A directory for data directories that the servers' user can access (as root it cannot access
    tmp_path).
    """
    path = _reachable_directory()
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def session_dir() -> Iterator[Path]:
    path = _reachable_directory()
    yield path
    shutil.rmtree(path, ignore_errors=True)


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
def empty_cluster(build: Build, account: Account, session_dir: Path) -> Cluster:
    """A new data directory that was never started, to be copied."""
    cluster = Cluster(build, session_dir / "empty", account)
    cluster.initdb(InitOptions(sync=False))
    return cluster


@pytest.fixture
def cluster(empty_cluster: Cluster, account: Account, server_dir: Path) -> Cluster:
    """A new stopped cluster for one test."""
    shutil.copytree(empty_cluster.data_dir, server_dir / "data", symlinks=True)
    (server_dir / "data").chmod(0o700)
    for path in (server_dir / "data", *(server_dir / "data").rglob("*")):
        account.own(path)
    return Cluster(empty_cluster.build, server_dir / "data", account)


@pytest.fixture(scope="session")
def new_server(
    build: Build, account: Account, session_dir: Path
) -> Callable[[str], AbstractContextManager[Server]]:
    """Return a function that starts a server with default settings in a directory with this name."""

    @contextmanager
    def start(name: str) -> Iterator[Server]:
        cluster = Cluster(build, session_dir / name, account)
        cluster.initdb(InitOptions(sync=False))
        with cluster.start() as server:
            yield server

    return start


@pytest.fixture(scope="session")
def running_server(new_server: Callable[[str], AbstractContextManager[Server]]) -> Iterator[Server]:
    """A server for the whole session. Tests create their own databases in it."""
    with new_server("running") as server:
        yield server
