"""A/A blocks of a minimal real study: they run, are stored, and are not shown as blocks."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from small_study import COUNTED, resume_small, run_small, small_study

from pgdyno.analysis.study_findings import find_study
from pgdyno.features.noise_history.entries import HistoryFile, history_path, load_of
from pgdyno.measure.progress import BlockStarted, Progress
from pgdyno.report import html_format, json_format, markdown_format
from pgdyno.report.study_report import build_study
from pgdyno.results.reader import Evidence
from pgdyno.results.records import StudyEnd, TrialStatus
from pgdyno.server.builds import Build
from pgdyno.study import schedule
from pgdyno.study.plan import Study
from pgdyno.study.schedule import aa_arm_after

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("cache_of_studies")]


def the_smallest(server: str, blocks: int) -> Study:
    """An A/A block of the second arm follows its second block, if there is one per block."""
    arms = [server, f"{server},work_mem=8MB"]
    studies = (small_study(arms, blocks_max=blocks, seed=seed, **COUNTED) for seed in range(200))
    return next(study for study in studies if aa_arm_after(study, 1) == 1)


def test_an_aa_block_runs_with_the_arms_is_hidden_and_stored(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(schedule, "BLOCKS_PER_AA", 1)  # not after ten blocks, to save time
    began: list[str] = []

    def watch(progress: Progress) -> None:
        if isinstance(progress, BlockStarted):
            began.append(progress.case)

    path, study = tmp_path / "e.sqlite", the_smallest(str(build.bin_dir), 2)
    run_small(path, study, watch)
    assert began == ["", "", f"A/A of {study.arms[1].name}"]
    # The time is over: a resume does not repeat completed blocks.
    assert resume_small(path, watch) is StudyEnd.BLOCKS
    with Evidence(path) as evidence:
        assert evidence.cases() == [0]
        numbers = [number for number in evidence.aa_cases() if evidence.blocks(number)]
        assert len(numbers) == 1
        twins = evidence.trials(numbers[0])
        assert [(trial.block, trial.arm, trial.status) for trial in twins] == [(1, 0, "ok"), (1, 1, "ok")]
        assert all(trial.settings["work_mem"] == "8MB" for trial in twins)
        assert twins[0].start_s is not None
        assert {(trial.block, trial.arm) for trial in evidence.trials()} == {(0, 0), (0, 1), (1, 0), (1, 1)}
        found = find_study(evidence)
    assert len(found.first.noise.log_ratios) == 1
    assert [of.trials_by_status for of in found.first.arms] == [{TrialStatus.OK: 2}] * 2
    report = build_study(found)
    for text in (html_format.to_html(report), markdown_format.to_markdown(report), report.csv()):
        assert f"{found.first.arms[0].arm.name} (A/A)" not in text
    (case,) = json.loads(json_format.to_json(report))["study"]["cases"]
    assert case["noise"]["n"] == 1
    # With five known A/A blocks for the load of each arm, the next study runs none.
    history = HistoryFile(history_path())
    known = json.loads(history.path.read_text().splitlines()[0])
    for arm, number in itertools.product((0, 1), range(5)):
        load = load_of(schedule.aa_study(study, arm))
        history.append({**known, "id": f"{arm} {number}", "load": load})
    again = tmp_path / "again.sqlite"
    run_small(again, study)
    with Evidence(again) as evidence:
        assert not evidence.aa_cases()
        noise = find_study(evidence).first.noise
    # Earlier blocks are left out if those of today have another noise, as on a busy machine.
    assert len(noise.before) + noise.left_out == 11
    assert list(noise.log_ratios) == []
    assert noise.why_no_aa == "11 blocks of earlier studies are known"
