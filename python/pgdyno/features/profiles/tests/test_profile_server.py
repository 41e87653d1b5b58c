"""A profile of a real server, if perf is installed and permitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgdyno.features.profiles.perf import ProbeError, Profiler
from pgdyno.server.directories import Account
from pgdyno.server.processes import Runs, Server


@pytest.fixture
def runs(tmp_path: Path, account: Account) -> Runs:
    return Runs(tmp_path, account)


BUSY = "SELECT count(*) FROM generate_series(1, 2000000) AS i WHERE i % 7 = 3"


def test_later_backends_are_sampled(running_server: Server, runs: Runs) -> None:
    try:
        profiler = Profiler.start(running_server.postmaster_pid, 99, runs)
    except ProbeError as error:
        pytest.skip(str(error))
    with running_server.connect() as connection:
        connection.execute(BUSY)
    rows = profiler.stop()
    samples = int(rows[0]["samples"] or 0)
    assert samples > 0
    assert sum(int(row["n"] or 0) for row in rows[1:]) == samples
    assert not profiler.folder.exists()
    assert profiler.process.poll() is not None


def test_an_abandoned_profile_leaves_nothing(running_server: Server, runs: Runs) -> None:
    try:
        profiler = Profiler.start(running_server.postmaster_pid, 99, runs)
    except ProbeError as error:
        pytest.skip(str(error))
    profiler.give_up()
    assert profiler.process.poll() is not None
    assert not profiler.folder.exists()
