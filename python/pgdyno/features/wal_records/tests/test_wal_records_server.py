"""WAL of real servers: both ways of reading give the same types, and a study has the table."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from server_of_major import build_of
from small_study import run_small, small_study

from pgdyno.cli.report import read_report
from pgdyno.features.wal_records import reading
from pgdyno.features.wal_records.reading import WalReader, add_walinspect
from pgdyno.features.wal_records.section import wal_of
from pgdyno.report.markdown_format import to_markdown
from pgdyno.results.records import StudyEnd
from pgdyno.server.builds import NEWEST_MAJOR, Build
from pgdyno.server.cache_directory import Cache
from pgdyno.server.processes import Cluster

pytestmark = pytest.mark.server


def types_written(cluster: Cluster, *, removed: bool = False) -> dict[str, int]:
    """Insert a thousand rows, and return the number of records by type.

    ``removed``: other rows are in a segment that a checkpoint removes before the reading.
    """
    with cluster.start() as server:
        arm = SimpleNamespace(
            shares_server=False,
            connect=server.connect,
            postmaster_pid=lambda: server.postmaster_pid,
            data_path=lambda: cluster.data_dir,
            is_restored=lambda: True,
        )
        with server.connect() as owner:
            owner.execute("CREATE TABLE written (a int)")
            owner.commit()
            lab = SimpleNamespace(study=SimpleNamespace(probes=("wal_records",)))
            add_walinspect(cast(Any, lab), cast(Any, None), {0: cast(Any, SimpleNamespace(arm=arm))}, ())
            probe = WalReader.start(cast(Any, arm), cast(Any, None))
            if removed:
                owner.execute("INSERT INTO written SELECT generate_series(1, 7)")
                owner.execute("SELECT pg_switch_wal()")
                owner.commit()
                owner.autocommit = True
                owner.execute("CHECKPOINT")
                owner.autocommit = False
            owner.execute("INSERT INTO written SELECT generate_series(1, 1000)")
            owner.commit()
        facts, *types = probe.stop()
        assert 50_000 < int(facts["read_bytes"] or 0) <= int(facts["wal_bytes"] or 0)
        assert (facts["read_bytes"] == facts["wal_bytes"]) is not removed
        return {str(row["type"]): int(row["n"] or 0) for row in types}


def test_pg_waldump_and_pg_walinspect_count_the_same_records(
    build: Build,
    new_cluster: Callable[[Build], AbstractContextManager[Cluster]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    newest = build_of(Cache.open(), NEWEST_MAJOR)
    ways = 0
    for of, without in ((build, False), (newest, True)):
        with monkeypatch.context() as patch, new_cluster(of) as cluster:
            if without:
                patch.setattr(reading, "_waldump", lambda _: None)
            elif not (of.bin_dir / "pg_waldump").is_file():
                continue
            found = types_written(cluster)
            inserted = found["Heap/INSERT"] + found.get("Heap/INSERT+INIT", 0)
            assert (inserted, found["Transaction/COMMIT"] >= 1) == (1000, True)
            ways += 1
    assert ways


def test_pg_walinspect_reads_what_a_checkpoint_has_left(
    new_cluster: Callable[[Build], AbstractContextManager[Cluster]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_waldump", lambda _: None)
    with new_cluster(build_of(Cache.open(), NEWEST_MAJOR)) as cluster:
        found = types_written(cluster, removed=True)
        assert found["Heap/INSERT"] + found.get("Heap/INSERT+INIT", 0) == 1000
        assert "ERROR" not in cluster.log_path.read_text()


def test_a_study_shows_the_wal_of_its_arms(build: Build, tmp_path: Path) -> None:
    study = small_study(
        [f"A={build.bin_dir}", f"B={build.bin_dir},full_page_writes=off"],
        probes=("wal_records",),
        blocks_max=2,
        aa=False,
    )
    path = tmp_path / "e.sqlite"
    assert run_small(path, study) is StudyEnd.BLOCKS
    report = read_report(path)
    (found,) = wal_of(report.findings.first)
    images = {part.name: part for part in found.parts if "images" in part.name}
    assert found.blocks == 2
    assert sum(part.baseline_bytes for part in images.values()) > 0
    assert sum(part.arm_bytes for part in images.values()) == 0
    assert "WAL per transaction by type of record" in to_markdown(report)
