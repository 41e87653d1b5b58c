"""A resumed study has no fixed number of blocks: the interval that applies to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from synthetic_study import Synthetic, write_study

from edited_evidence import edited
from example_studies import make_study
from pgdyno.analysis.statistics.intervals import Method
from pgdyno.analysis.study_findings import find_study
from pgdyno.interruption import Interruption
from pgdyno.measure import study_runner as lab_study
from pgdyno.measure.trial import Lab
from pgdyno.report.markdown_format import to_markdown
from pgdyno.report.study_report import build_study
from pgdyno.results.reader import Evidence
from pgdyno.results.records import StudyEnd


@contextmanager
def nobody(_names: Sequence[str]) -> Iterator[object]:
    yield lambda _event: None


@contextmanager
def made_ready(studies: Sequence[object], *_: object) -> Iterator[list[SimpleNamespace]]:
    yield [SimpleNamespace(study=study, arms=[], records=[], data_path=Path()) for study in studies]


def resumed(path: Path, minutes: float | None, monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    """Resume a study of 12 blocks without interim analyses, in which nothing further runs."""
    write_study(path, Synthetic(stops_on_verdict=False))
    stored = make_study(**{"stop": "budget", **changes}).model_dump_json()
    with edited(path) as connection:
        connection.execute("UPDATE study_case SET plan = ?", (stored,))
    monkeypatch.setattr(lab_study, "prepare_arms", made_ready)
    monkeypatch.setattr(lab_study, "require_comparable", lambda *_: None)
    monkeypatch.setattr(lab_study, "_measure", lambda *_: StudyEnd.BUDGET)
    monkeypatch.setattr(lab_study.aa_blocks, "with_aa", lambda labs, *_: labs)
    monkeypatch.setattr(lab_study.aa_blocks, "NOISE_HISTORIES", ())
    with Interruption() as interruption:
        lab_study.resume_study(path, minutes, nobody, interruption)


@pytest.mark.parametrize(
    ("minutes", "changes", "method"),
    [
        (5.0, {}, Method.ANYTIME),
        (5.0, {"blocks_max": 20}, Method.ANYTIME),
        (None, {}, Method.STUDENT),  # to the end that was fixed beforehand
        (5.0, {"blocks_max": 12}, Method.STUDENT),  # no block is left to be run
        (5.0, {"blocks_max": 20, "schedule": "sequential"}, Method.STUDENT),  # there is only one analysis
    ],
)
def test_an_extended_study_has_anytime_valid_intervals(
    tmp_path: Path,
    minutes: float | None,
    changes: dict[str, object],
    method: Method,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "e.sqlite"
    resumed(path, minutes, monkeypatch, **changes)
    with Evidence(path) as evidence:
        found = find_study(evidence)
    primary = found.first.comparisons[0].primary
    assert primary is not None and primary.summary.method is method
    text = " ".join(to_markdown(build_study(found)).split())
    assert ("The study was resumed: its length (12 blocks in total) was not fixed in advance" in text) == (
        method is Method.ANYTIME
    )
    assert ("looked after" in text) is False


def test_results_of_warm_ups_are_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Lab] = []

    def measure(_path: object, _writer: object, labs: Sequence[Lab], *_: object) -> StudyEnd:
        taken.extend(labs)
        return StudyEnd.BUDGET

    resumed(tmp_path / "e", 5.0, monkeypatch, warmup_s=4.0, warmup_min_s=2.0)
    with edited(tmp_path / "e") as connection:
        connection.execute("UPDATE interval SET role = 'warm-up' WHERE position < 4")
    monkeypatch.setattr(lab_study, "_measure", measure)
    with Interruption() as interruption:
        lab_study.resume_study(tmp_path / "e", 5.0, nobody, interruption)
    (lab,) = taken
    assert {arm: len(rates) for arm, rates in lab.rates.items()} == {0: 12, 1: 12}
    with Evidence(tmp_path / "e") as evidence:
        trial = evidence.trials()[0]
        rates = [sum(k.executed for k in one.kinds.values()) for one in evidence.intervals(trial.trial)]
    assert len(rates) == 4 and lab.rates[trial.arm][trial.block] == pytest.approx(rates)
