"""A profile of a real server, if perf is installed and permitted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pgdyno.features.profiles.perf import ProbeError, Profiler
from pgdyno.server.directories import Account
from pgdyno.server.processes import Runs, Server

BUSY = "SELECT count(*) FROM generate_series(1, 2000000) AS i WHERE i % 7 = 3"


@pytest.fixture
def profiler(running_server: Server, tmp_path: Path, account: Account) -> Iterator[Profiler]:
    try:
        started = Profiler.start(running_server.postmaster_pid, 99, Runs(tmp_path, account))
    except ProbeError as error:
        pytest.skip(str(error))
    yield started
    assert started.process.poll() is not None
    assert not started.folder.exists()


def test_later_backends_are_sampled(running_server: Server, profiler: Profiler) -> None:
    with running_server.connect() as connection:
        connection.execute(BUSY)
    rows = profiler.stop()
    samples = int(rows[0]["samples"] or 0)
    assert samples > 0
    assert sum(int(row["n"] or 0) for row in rows[1:]) == samples


def test_an_abandoned_profile_leaves_nothing(profiler: Profiler) -> None:
    profiler.give_up()
