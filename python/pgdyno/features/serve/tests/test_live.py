"""A running study is followed by its results file: from before its begin to after its end."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import HTTPCookieProcessor, ProxyHandler, build_opener

import numpy as np
import psutil
import pytest
from synthetic_study import (
    CREATED_UNIX_S,
    QuickWriter,
    Synthetic,
    arms_of,
    study_of,
    write_block,
    write_study,
)

from pgdyno.caveats import Caveat
from pgdyno.cli.report import read_report
from pgdyno.features.serve.control import events_of
from pgdyno.features.serve.index import Index, identifier
from pgdyno.features.serve.live import Follower, Update, _shared
from pgdyno.features.serve.options import WebOptions
from pgdyno.features.serve.pages import NotFoundError, path_of
from pgdyno.features.serve.process import _started
from pgdyno.results import results_file
from pgdyno.results.reader import Evidence
from pgdyno.results.records import StudyEnd
from pgdyno.study.cases import UNLIMITED_S

WANTED = Synthetic(effects=(1.0, 1.2), blocks=6, ended=None)


def updated(follower: Follower) -> Update:
    found = follower.update()
    assert found is not None
    return found


def test_a_study_is_followed_from_before_its_begin_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgdyno.features.serve.live.CPU_SHARE_MAX", np.inf)
    path, rng = tmp_path / "e.sqlite", np.random.default_rng(1)
    follower = Follower(path)
    assert updated(follower).state == "waiting" and follower.update() is None
    with QuickWriter.create(path, study_of(WANTED), arms_of(WANTED)) as writer:
        begun = updated(follower)
        assert (begun.state, begun.arms, begun.blocks_done) == ("running", ["17", "18"], 0)
        assert not begun.readings and not begun.standings
        for block in range(3):
            write_block(writer, WANTED, block, rng)
        first = updated(follower)
        assert first.blocks_done == 3 and first.standings is not None and follower.update() is None
        write_block(writer, WANTED, 3, rng)
        writer.add_caveat(Caveat.of("shared-machine", cores=2))
        second = updated(follower)
        assert second.standings and second.caveats and "2" in second.caveats[0]
        writer.finish_study(StudyEnd.BUDGET, CREATED_UNIX_S + 200)
        ended = updated(follower)
        assert ended.state == "ended" and ended.ends_unix_s is None and ended.standings is None
    with Evidence(path) as evidence:
        expected = [
            (trial.arm, of.executed / (of.to_s - of.from_s))
            for trial in evidence.trials()
            for of in evidence.intervals(trial.trial)
        ]
    found = [*first.readings, *second.readings]
    assert sorted((["17", "18"].index(of.arm), of.tps) for of in found) == sorted(expected)
    (standing,) = second.standings
    assert standing.blocks == 4 and [row[0] for row in standing.history] == [1, 2, 3, 4]
    (verdict,) = read_report(path).findings.verdicts_on()
    assert standing.verdict == verdict.verdict
    assert standing.history[-1][1:] == (verdict.percent.value, verdict.percent.low, verdict.percent.high)


def test_the_last_interval_of_each_of_several_arms_is_that_of_its_verdict(tmp_path: Path) -> None:
    path = tmp_path / "e.sqlite"
    names = ("17", "18", "18,fsync=off")
    write_study(path, Synthetic(effects=(1.0, 1.2, 1.0), names=names, blocks=6))
    standings = updated(Follower(path)).standings or ()
    last = [of.history[-1][1:] for of in standings]
    verdicts = read_report(path).findings.verdicts_on()
    assert last == [(of.percent.value, of.percent.low, of.percent.high) for of in verdicts]
    assert max(of.summary.confidence for of in verdicts) > 0.97  # Holm


def test_comparisons_that_take_long_wait_but_not_after_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgdyno.features.serve.live.CPU_SHARE_MAX", 1e-9)
    path, rng = tmp_path / "e.sqlite", np.random.default_rng(1)
    follower = Follower(path)
    with QuickWriter.create(path, study_of(WANTED), arms_of(WANTED)) as writer:
        write_block(writer, WANTED, 0, rng)
        assert updated(follower).standings
        write_block(writer, WANTED, 1, rng)
        waiting = updated(follower)
        assert waiting.blocks_done == 2 and waiting.standings is None
        assert follower.update() is None
        _shared(str(path), path.stat().st_ino).due_s = 0.0
        follower._again_s = 0.0
        assert (later := updated(follower).standings) and later[0].blocks == 2
        write_block(writer, WANTED, 2, rng)
        another_page = updated(Follower(path))
        assert another_page.standings and another_page.standings[0].blocks == 2
        writer.finish_study(StudyEnd.BUDGET, CREATED_UNIX_S)
        (standing,) = updated(follower).standings or ()
        assert standing.blocks == 3


def test_the_budget_is_that_of_all_cases_with_the_time_that_a_resume_adds(tmp_path: Path) -> None:
    path, rng = tmp_path / "e.sqlite", np.random.default_rng(1)
    cases = [replace(WANTED, blocks=20, case=n, levels={"clients": str(n + 1)}) for n in range(2)]
    described = [(study_of(of), arms_of(of)) for of in cases]
    follower = Follower(path)
    with QuickWriter.create(path, *described[0], *described[1:]) as writer:
        for block in range(2):
            for of in cases:
                write_block(writer, of, block, rng)  # 38 s
        found = updated(follower)
        assert (found.blocks_done, found.blocks_expected) == (4, round(4 * 1200 / (4 * 38)))
        assert found.ends_unix_s == CREATED_UNIX_S + 40 + 38 + 1200 - 4 * 38
        writer.note_more_time(900.0)  # of each case
        extended = updated(follower)
        assert extended.blocks_expected == min(2 * 20, round(4 * 1800 / (4 * 38)))
        assert extended.ends_unix_s == CREATED_UNIX_S + 40 + 38 + 1800 - 4 * 38


def test_a_study_that_is_limited_by_its_blocks_only_has_no_latest_end(tmp_path: Path) -> None:
    path, study = tmp_path / "e.sqlite", study_of(WANTED)
    endless = replace(study, plan=study.plan.model_copy(update={"budget_s": UNLIMITED_S}))
    with QuickWriter.create(path, endless, arms_of(WANTED)) as writer:
        write_block(writer, WANTED, 0, np.random.default_rng(1))
        found = updated(Follower(path))
        assert (found.ends_unix_s, found.blocks_expected) == (None, WANTED.blocks)


def test_a_late_page_begins_with_the_last_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgdyno.features.serve.live.TRIALS_MAX", 4)
    path, rng = tmp_path / "e.sqlite", np.random.default_rng(1)
    with QuickWriter.create(path, study_of(WANTED), arms_of(WANTED)) as writer:
        for block in range(5):
            write_block(writer, WANTED, block, rng)
        found = updated(Follower(path))
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT count(*) FROM interval JOIN trial USING (trial) WHERE block >= 3"
        assert connection.execute(query).fetchone() == (len(found.readings),)


def test_a_reader_keeps_no_file_open_and_leaves_it_to_its_writer(tmp_path: Path) -> None:
    path = tmp_path / "e.sqlite"
    with QuickWriter.create(path, study_of(WANTED), arms_of(WANTED)) as writer:
        write_block(writer, WANTED, 0, np.random.default_rng(1))
        follower = Follower(path)
        updated(follower)
    assert not path.with_name("e.sqlite-wal").exists(), "the WAL is merged, because no reader was active"
    assert updated(follower).state == "stopped"


def test_a_file_without_a_study_has_no_readings(tmp_path: Path) -> None:
    results_file.create(tmp_path / "e.sqlite")
    assert updated(Follower(tmp_path / "e.sqlite")).state == "waiting"
    (tmp_path / "f.sqlite").write_text("no database")
    assert updated(Follower(tmp_path / "f.sqlite")).state == "waiting"


def test_events_end_with_the_study_and_escape_hostile_names(tmp_path: Path) -> None:
    path = tmp_path / "e.sqlite"
    wanted = replace(WANTED, title="\x1b[2J<b>\u202e", names=("17", "</script>"))
    with QuickWriter.create(path, study_of(wanted), arms_of(wanted)) as writer:
        writer.finish_study(StudyEnd.BUDGET, CREATED_UNIX_S)

    async def collected() -> list[Any]:
        return [event async for event in events_of(Follower(path))]

    (event,) = asyncio.run(collected())
    assert event["data"].isprintable() and json.loads(event["data"])["title"] == "\\x1b[2J<b>\\u202e"


def test_a_file_that_is_expected_has_a_page_before_it_exists(tmp_path: Path) -> None:
    path = tmp_path / "e.sqlite"
    of = identifier(tmp_path, path)
    assert Index(tmp_path, path).path_of(of) == path and Index(tmp_path).path_of(of) is None
    with pytest.raises(NotFoundError):
        path_of(Index(tmp_path), of)


def test_the_server_of_web_is_a_process_that_the_study_does_not_wait_for(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "e.sqlite"
    WebOptions(web=True).begin(path)
    (process,) = _started
    try:
        url = capfd.readouterr().err.removeprefix("web ").strip()
        opener = build_opener(ProxyHandler({}), HTTPCookieProcessor())
        opener.open(url).close()
        with opener.open(url.partition("?")[0]) as answer:
            page = answer.read().decode()
        assert f"/live/{identifier(tmp_path, path)}/events" in page
        token = url.partition("token=")[2]
        assert token not in " ".join(psutil.Process(process.pid).cmdline())
    finally:
        process.kill()
        process.wait()
        _started.clear()
