"""A search with planted commits and drawn blocks, and the studies that measure a step."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from rich.console import Console
from synthetic_study import Synthetic, study_of, write_study

from pgdyno.analysis.statistics.intervals import Method, summarize
from pgdyno.errors import BuildError, DiskFullError, Interrupted
from pgdyno.features.bisect import run as bisect_run
from pgdyno.features.bisect.command import BisectView, bisect_json, is_conclusive, sentences
from pgdyno.features.bisect.run import LOST, Bisection, Decided, Found, Measurement, StepEnded, StepStarted
from pgdyno.features.bisect.search import (
    Commit,
    Confirmation,
    Ends,
    Measured,
    Outcome,
    SearchRecord,
    Step,
    read_search,
)
from pgdyno.interruption import Interruption
from pgdyno.measure.progress import BlockEnded, BlockStarted, Noted, PreparationStep, Running
from pgdyno.results.records import StudyEnd, TrialStatus
from pgdyno.study.plan import Study

N = 8
COMMITS = tuple(Commit(sha=f"{i:010x}{0:030x}", subject=f"commit {i}") for i in range(N + 1))
NUMBERS = {commit.short: i for i, commit in enumerate(COMMITS)}


class Lab:
    """Fake servers and blocks. ``rates`` of the commits relative to GOOD; each block takes 30 s.

    ``runs``: commits of each comparison, in order. A results file is its number of blocks.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rates: Mapping[int, float] = {}
        self.broken: Mapping[int, Exception] = {}
        self.failed: set[int] = set()
        self.runs: list[tuple[int, int]] = []
        self.events: list[Any] = []

    def server_of(self, commit: Commit) -> str:
        if (number := NUMBERS[commit.short]) in self.broken:
            raise self.broken[number]
        return commit.sha

    def measure(self, path: Path, study: Study, rule: Decided, left_s: float) -> Found:
        Study.model_validate(study.model_dump())  # as the results file is read
        baseline, commit = (NUMBERS[arm.name] for arm in study.arms)
        self.runs.append((baseline, commit))
        ratio = self.rates.get(commit, 1.0) / self.rates.get(baseline, 1.0)
        d = math.log(ratio) + np.random.default_rng(commit).normal(0, 0.02, 200)
        n = 0
        while not (is_decided := n >= 5 and rule(summarize(list(d[:n]), study.confidence, Method.ANYTIME))):
            if 30 * (n + 1) > left_s:
                break
            n += 1
        path.touch()
        is_lost = commit in self.failed
        summary = summarize(list(d[:n]), study.confidence, Method.ANYTIME) if n else None
        measured = Measured(
            file=path.name,
            blocks=n,
            spent_s=30.0 * n,
            mean=summary and summary.mean,
            low=summary and summary.low,
            high=summary and summary.high,
            confidence=study.confidence,
        )
        reason = LOST if is_lost else "" if is_decided else "no time"
        return Found(measured, summary, is_decided and not is_lost, is_lost, reason)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def new_record() -> SearchRecord:
    study = study_of(Synthetic(names=("GOOD", "BAD"), stops_on_verdict=True)).plan
    return SearchRecord(repository="/r", commits=COMMITS, study=study, confidence=0.95, minutes=120)


def run(lab: Lab, record: SearchRecord | None = None) -> SearchRecord:
    with Interruption() as stop:
        return Bisection(
            lab.folder, record or new_record(), lab.events.append, stop, lab.server_of, lab.measure
        ).run()


def slower_from(planted: int, ratio: float = 0.8) -> dict[int, float]:
    return dict.fromkeys(range(planted, N + 1), ratio)


@pytest.mark.parametrize(("planted", "ratio"), [*((n, 0.8) for n in range(1, N + 1)), (3, 0.01), (3, 1.3)])
def test_the_planted_commit_is_found_and_compared_with_its_parent(
    lab: Lab, planted: int, ratio: float
) -> None:
    lab.rates = slower_from(planted, ratio)
    record = run(lab)
    assert record.search.bad == planted and is_conclusive(record)
    assert lab.runs[0] == (0, N) and lab.runs[-1] == (planted - 1, planted)
    assert all(baseline == 0 for baseline, _ in lab.runs[:-1])
    assert len(lab.runs) <= 1 + 3 + 1
    assert record.level_spent <= 0.05 + 1e-12
    assert read_search(lab.folder) == record
    found, direction = bisect_json(record, "d"), "slower" if ratio < 1 else "faster"
    assert found["found"]["sha"] == COMMITS[planted].sha and found["direction"] == direction
    effect = found["confirmation"]["effect"]
    assert effect["low"] <= effect["value"] <= effect["high"]
    assert (effect["high"] < 0) == (ratio < 1) and effect["low"] * effect["high"] > 0
    assert sentences(record, "d")[0].startswith(f"First {direction} commit: {COMMITS[planted].sha}")
    numbers = [event.number for event in lab.events if isinstance(event, StepStarted)]
    assert numbers == list(range(1, len(lab.runs) + 1))
    assert sum(isinstance(event, StepEnded) for event in lab.events) == len(lab.runs)


def test_a_higher_latency_under_a_fixed_load_is_slower(lab: Lab) -> None:
    lab.rates = slower_from(5, 1.3)  # of the median latency
    wanted = Synthetic(names=("GOOD", "BAD"), stops_on_verdict=True, fixed_rate_per_s=500.0)
    record = run(lab, new_record().model_copy(update={"study": study_of(wanted).plan}))
    assert bisect_json(record, "d")["direction"] == "slower"
    first, ends, *_ = sentences(record, "d")
    assert first.startswith(f"First slower commit: {COMMITS[5].sha}")
    assert "median latency: +" in ends


def test_ends_without_a_difference_end_the_search_with_their_interval(lab: Lab) -> None:
    record = run(lab)
    assert record.ends is Ends.SAME and len(lab.runs) == 1 and not is_conclusive(record)
    text = " ".join(sentences(record, "d"))
    assert "same within ±2%" in text and "CI" in text and "--margin" in text
    assert bisect_json(record, "d")["found"] is None


@pytest.mark.parametrize("minutes", [1.0, 4.0])
def test_ends_or_a_step_without_a_decision_are_reported_with_the_remedy_and_continued(
    lab: Lab, minutes: float
) -> None:
    lab.rates = slower_from(6)
    record = run(lab, new_record().model_copy(update={"minutes": minutes}))
    text = "\n".join(sentences(record, "d"))
    assert "--resume d --minutes" in text
    if minutes == 1.0:
        assert record.ends is Ends.UNDECIDED and len(lab.runs) == 1
    else:  # five blocks for the ends
        assert record.undecided is not None and record.undecided.measured is not None
        assert "one of 8 commits" in text
    again = run(lab, record.model_copy(update={"minutes": 240.0}))
    assert again.search.bad == 6 and is_conclusive(again) and again.undecided is None


def test_a_lost_block_of_the_ends_or_of_the_confirmation_requires_a_new_search(lab: Lab) -> None:
    lab.rates = slower_from(6)
    whole = run(lab)
    lab.failed = {6, N}
    for record in (new_record(), whole.model_copy(update={"confirmation": None})):
        text = "\n".join(sentences(run(lab, record), "d"))
        assert f"({LOST}). Start a new search." in text and "--resume" not in text


def test_commits_that_do_not_build_are_skipped_and_the_range_is_reported(lab: Lab) -> None:
    lab.rates = slower_from(5)
    lab.broken = {number: BuildError("it does not compile") for number in (3, 4, 5)}
    record = run(lab)
    assert (record.search.good, record.search.bad) == (2, 6) and record.confirmation is None
    assert not is_conclusive(record) and record.level_spent <= 0.05 + 1e-12
    text = "\n".join(sentences(record, "d"))
    assert "one of 4 commits" in text and text.count("it does not compile") == 3
    assert [step.level for step in record.steps if step.outcome is Outcome.SKIPPED] == [0.0] * 3


@pytest.mark.parametrize("fault", [{"broken": {4: BuildError("it failed")}}, {"failed": {4}}], ids=str)
def test_a_skipped_commit_away_from_the_planted_one_does_not_matter(lab: Lab, fault: dict[str, Any]) -> None:
    vars(lab).update(fault, rates=slower_from(7))
    record = run(lab)
    (skipped,) = [step for step in record.steps if step.outcome is Outcome.SKIPPED]
    assert skipped.commit == 4 and "failed" in skipped.reason
    assert record.search.bad == 7 and is_conclusive(record)


def test_an_error_of_the_ends_or_of_the_machine_is_not_blamed_on_a_commit(lab: Lab) -> None:
    lab.rates, lab.broken = slower_from(7), {4: DiskFullError("disk full")}
    with pytest.raises(DiskFullError):
        run(lab)
    assert read_search(lab.folder).steps == ()
    lab.broken = {N: BuildError("it does not compile")}
    with pytest.raises(BuildError, match="compile"):
        run(lab)


def test_a_history_with_several_changes_ends_at_one_of_them(lab: Lab) -> None:
    lab.rates = {1: 0.8, 2: 0.8, 3: 1.0, 4: 1.0, 5: 0.8, 6: 0.8, 7: 0.8, 8: 0.8}
    record = run(lab)
    assert record.search.bad in (1, 5) and is_conclusive(record)


def test_a_commit_with_a_part_of_the_effect_is_reported_as_such(lab: Lab) -> None:
    lab.rates = {**slower_from(3), **slower_from(6, 0.64)}
    record = run(lab)
    assert record.confirmation is Confirmation.CONFIRMED
    assert "other commits have a part" in " ".join(sentences(record, "d"))


def test_a_commit_that_does_not_differ_from_its_parent_is_not_confirmed(lab: Lab) -> None:
    lab.rates = slower_from(6)
    whole = run(lab)
    lab.runs.clear()
    assert run(lab, whole) == whole and lab.runs == []  # a complete search is only reported
    lab.rates = {}  # as if all of it had been noise
    record = run(lab, whole.model_copy(update={"confirmation": None, "confirmation_measured": None}))
    assert record.confirmation is Confirmation.NOT_CONFIRMED and not is_conclusive(record)
    assert "less than half" in " ".join(sentences(record, "d"))


def test_two_neighbors_are_one_comparison(lab: Lab) -> None:
    lab.rates = slower_from(1)
    record = run(lab, new_record().model_copy(update={"commits": (COMMITS[0], COMMITS[N])}))
    assert len(lab.runs) == 1 and is_conclusive(record) and record.level_of_ends == pytest.approx(0.05)


def written(path: Path, ended: StudyEnd, failed: bool = False) -> None:
    statuses = {(3, 1): TrialStatus.FAILED} if failed else {}
    # Two slices are too few for a rise by chance.
    wanted = Synthetic(effects=(1.0, 0.8), blocks=6, noise=0.002, stops_on_verdict=True, slices=2)
    write_study(path, replace(wanted, ended=ended, statuses=statuses))


def measured(path: Path, rule: Decided, left_s: float) -> Found:
    with Interruption() as stop:
        return Measurement(lambda _: None, stop)(path, new_record().study, rule, left_s)


def no_study(*_: object) -> StudyEnd:
    raise AssertionError("nothing is left to measure")


@pytest.mark.parametrize("failed", [False, True])
def test_a_finished_study_is_not_measured_again_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failed: bool
) -> None:
    monkeypatch.setattr(bisect_run, "resume_study", no_study)
    written(tmp_path / "s.sqlite", StudyEnd.VERDICT, failed)
    found = measured(tmp_path / "s.sqlite", lambda summary: summary.mean < -0.1, 3600)
    assert found.is_decided != failed and found.is_lost == failed
    assert found.measured.blocks == (5 if failed else 6) and found.measured.spent_s == pytest.approx(6 * 38)


def test_a_study_without_time_left_is_undecided_with_its_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bisect_run, "resume_study", no_study)
    monkeypatch.setattr(bisect_run, "start_study", no_study)
    written(tmp_path / "s.sqlite", StudyEnd.BUDGET)
    for name, blocks in (("s", 6), ("new", 0)):
        found = measured(tmp_path / f"{name}.sqlite", lambda _: False, 0.0)
        assert not found.is_decided and found.reason and found.measured.blocks == blocks


def test_ctrl_c_during_a_study_ends_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bisect_run, "start_study", lambda *_: StudyEnd.INTERRUPTED)
    with pytest.raises(Interrupted):
        measured(tmp_path / "s.sqlite", lambda _: False, 60.0)


def test_the_time_left_after_a_resume_is_that_of_a_comparison_per_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ends, step = (Measured(file=name, blocks=9, spent_s=600, confidence=0.95) for name in ("ends", "step"))
    undecided = Step(commit=4, outcome=Outcome.UNDECIDED, level=0.0, measured=step)
    record = new_record().model_copy(update={"ends_measured": ends, "steps": (undecided,)})
    view = BisectView(record, quiet=False)
    view(StepStarted(2, 5, "commit abc"))
    view(StepEnded("like GOOD", step.model_copy(update={"spent_s": 1200})))  # another 600 s of the same step
    assert "; about 45 min of blocks left" in capsys.readouterr().err


def test_the_view_shows_the_step_its_blocks_and_what_takes_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("console", "live_view"):
        monkeypatch.setattr(f"pgdyno.cli.{module}.err", Console(stderr=True, width=200, force_terminal=False))
    now_s = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    view = BisectView(new_record(), quiet=False)
    screen = Console(file=io.StringIO(), width=80)

    def drawn() -> str:
        screen.print(view._draw())
        return "\n".join(map(str.rstrip, cast(io.StringIO, screen.file).getvalue().splitlines()))

    view(StepStarted(2, 5, "commit abc"))
    view(PreparationStep("building abc"))
    now_s += 8
    assert "step 2 of about 5: commit abc\npreparing" in drawn() and "building abc, 8 s" in drawn()
    view(BlockStarted(0, None, 0.0, 240.0, "tx/s", arms=("good", "abc")))
    view(Running(1, "measure", 90.0, None, rate=90.0))
    view(BlockEnded(0, (600.0, 590.0)))
    assert "step 2 of about 5: commit abc\nblock 1" in drawn() and "590" in drawn()
    view(Noted("smallest detectable effect"))
    view(StepEnded("like GOOD", None))
    view(StepStarted(3, 5, "commit def"))
    screen.file = io.StringIO()
    assert "commit def\npreparing" in drawn() and "590" not in drawn()
    now_s += 60
    view.log_if_silent()
    assert capsys.readouterr().err.splitlines()[1:] == [
        "step 2 of about 5: commit abc … like GOOD",
        "  preparing, 1 min",
    ]
