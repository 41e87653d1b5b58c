"""Studies and trials of real servers whose WAL is on another disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from small_study import resume_small, run_small, small_study

from edited_evidence import edited
from pgdyno.cli.report import read_report
from pgdyno.errors import EvidenceError
from pgdyno.features.wal_directory.directories import PREFIX, WalDirectories, facts
from pgdyno.measure.arms import BuildArm, Placement
from pgdyno.measure.progress import Progress
from pgdyno.report.markdown_format import to_markdown
from pgdyno.results.reader import Evidence
from pgdyno.results.records import TrialStatus
from pgdyno.server.builds import Build
from pgdyno.server.processes import Cluster, LiveDirectory
from pgdyno.server.snapshots import take

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("cache_of_studies")]


@pytest.fixture
def wal(server_dir: Path) -> Iterator[Path]:
    path = server_dir / "wal"
    path.mkdir(mode=0o755)
    (path / "notes").touch()
    yield path
    assert [found.name for found in path.iterdir()] == ["notes"]


@pytest.mark.parametrize("schedule", ["slices", "blocks"])
def test_a_study_places_the_wal_of_one_arm_says_so_and_resumes_with_the_same_disk_only(
    build: Build, wal: Path, tmp_path: Path, schedule: str
) -> None:
    server, seen = str(build.bin_dir), set[str]()

    def watch(_: Progress) -> None:
        seen.update(path.name for path in wal.glob(f"{PREFIX}*/0*") if path.stat().st_size)

    study = small_study([server, f"{server},wal_dir={wal}"], blocks_max=1, schedule=schedule)
    path = tmp_path / "e.sqlite"
    run_small(path, study, watch)
    assert seen, "no segment was written there"
    with Evidence(path) as evidence:
        assert [trial.status for trial in evidence.trials()] == [TrialStatus.OK] * 2
        plain, placed = (arm.server for arm in evidence.arms())
        assert "wal_dir" not in plain
        assert {"wal_dir": str(wal), "wal_disk": placed["wal_disk"]} == facts(wal)
        kinds = {caveat.kind for caveat in evidence.caveats()}
        cache_is_there = evidence.study().plan.arms[1].wal_dir == str(wal)
    assert cache_is_there and "wal-with-data" in kinds  # the test has one disk
    text = to_markdown(read_report(path)).replace("\\", "")
    assert f"WAL directory with the data → {wal}" in text
    assert f"wal_dir={wal}" in text
    assert f"| wal disk | – | {placed['wal_disk']} |" in text
    if schedule == "blocks":  # a resume is the same with any schedule
        require_resume_with_the_same_disk_only(path)


def require_resume_with_the_same_disk_only(path: Path) -> None:
    resume_small(path)
    with edited(path) as connection:
        (text,) = connection.execute("SELECT server FROM arm WHERE arm = 1").fetchone()
        other = json.dumps({**json.loads(text), "wal_disk": "/dev/other, xfs"})
        connection.execute("UPDATE arm SET server = ? WHERE arm = 1", [other])
    with pytest.raises(EvidenceError, match=r"another server of .*/dev/other, xfs; now"):
        resume_small(path)


def test_a_trial_restores_evicts_crashes_and_recovers_with_its_wal_elsewhere(
    cluster: Cluster, server_dir: Path, wal: Path
) -> None:
    run = LiveDirectory(server_dir / "run")
    run.path.mkdir()
    run.path.chmod(0o711)
    places = WalDirectories(cluster.account, set())
    snapshot = take(cluster.data_dir)
    arm = BuildArm(
        index=0,
        name="a",
        build=cluster.build,
        database="postgres",
        settings={},
        optional=(),
        snapshot=snapshot,
        placement=Placement("data", [run]),
        position=0,
        seed=1,
        account=cluster.account,
        before_restore=partial(places.place, wal, True),
    )
    try:
        for block in range(2):
            arm.restore(block)
            (found,) = wal.glob(f"{PREFIX}*")
            assert arm.drop_cache() >= 0
            arm.start()
            with arm.connect() as connection:
                connection.execute("create table t as select 1 as n from generate_series(1, 20000)")
                assert connection.execute("select count(*) from pg_ls_waldir()").fetchone() == (
                    len([path for path in found.iterdir() if path.is_file()]),
                )
                connection.execute("select pg_switch_wal()")
            assert arm.recover() > 0
            with arm.connect() as connection:
                assert connection.execute("select sum(n) from t").fetchone() == (20000,)
            arm.stop()
        arm.before_restore = partial(places.place, None, True)
        arm.restore(2)
        assert not (run.data_dir / "pg_wal").is_symlink()
        arm.start()
        arm.stop()
    finally:
        arm.stop()
