"""One cache for all end-to-end tests, so that data are loaded once. No process may outlive a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from program import Program

from pgdyno.server.builds import Build


@pytest.fixture(scope="session")
def cache(session_dir: Path) -> Path:
    path = session_dir / "cache"
    for folder in (path, path / "sockets"):
        folder.mkdir(mode=0o755)
    return path


@pytest.fixture(scope="session")
def server(build: Build) -> str:
    """The arm under test: the installed build, given as a directory."""
    return str(build.bin_dir)


@pytest.fixture
def program(cache: Path, tmp_path: Path) -> Iterator[Program]:
    """pgdyno with the shared cache. After the test no process of that cache runs."""
    program = Program(cache, tmp_path)
    yield program
    program.end()
    assert program.survivors() == []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.e2e)
