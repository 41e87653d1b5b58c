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
from pgdyno.server.processes import Cluster, Server

pytestmark = pytest.mark.server


def require_types_written(server: Server, *, removed: bool = False) -> None:
    """Insert a thousand rows, which must be found by type.

    ``removed``: other rows are in a segment that a checkpoint removes before the reading.
    """
    arm: Any = SimpleNamespace(
        shares_server=False,
        connect=server.connect,
        postmaster_pid=lambda: server.postmaster_pid,
        data_path=lambda: server.data_dir,
        is_restored=lambda: True,
    )
    lab: Any = SimpleNamespace(study=SimpleNamespace(probes=("wal_records",)))
    nothing, trial = cast(Any, None), cast(Any, SimpleNamespace(arm=arm))
    with server.connect() as owner:
        owner.execute("CREATE TABLE IF NOT EXISTS written (a int)")
        add_walinspect(lab, nothing, {0: trial}, ())
        probe = WalReader.start(arm, nothing)
        if removed:
            owner.execute("INSERT INTO written SELECT generate_series(1, 7)")
            owner.execute("SELECT pg_switch_wal()")
            owner.execute("CHECKPOINT")
        owner.execute("INSERT INTO written SELECT generate_series(1, 1000)")
    facts, *rows = probe.stop()
    assert 50_000 < int(facts["read_bytes"] or 0) <= int(facts["wal_bytes"] or 0)
    assert (facts["read_bytes"] == facts["wal_bytes"]) is not removed
    types = {str(row["type"]): int(row["n"] or 0) for row in rows}
    assert types["Heap/INSERT"] + types.get("Heap/INSERT+INIT", 0) == 1000
    assert types["Transaction/COMMIT"] >= 1


def test_pg_waldump_and_pg_walinspect_count_the_records_that_a_checkpoint_has_left(
    build: Build,
    new_cluster: Callable[[Build], AbstractContextManager[Cluster]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if build.has("pg_waldump"):
        with new_cluster(build) as cluster, cluster.start() as server:
            require_types_written(server)
    monkeypatch.setattr(reading, "_waldump", lambda _: None)
    with new_cluster(build_of(Cache.open(), NEWEST_MAJOR)) as cluster, cluster.start() as server:
        require_types_written(server)
        require_types_written(server, removed=True)
        assert "ERROR" not in server.log()


def test_a_study_shows_the_wal_of_its_arms(build: Build, tmp_path: Path) -> None:
    arms = [f"A={build.bin_dir}", f"B={build.bin_dir},full_page_writes=off"]
    study = small_study(arms, probes=("wal_records",), blocks_max=1, aa=False)
    path = tmp_path / "e.sqlite"
    assert run_small(path, study) is StudyEnd.BLOCKS
    report = read_report(path)
    (found,) = wal_of(report.findings.first)
    images = {part.name: part for part in found.parts if "images" in part.name}
    assert found.blocks == 1
    assert sum(part.baseline_bytes for part in images.values()) > 0
    assert sum(part.arm_bytes for part in images.values()) == 0
    assert "WAL per transaction by type of record" in to_markdown(report)
