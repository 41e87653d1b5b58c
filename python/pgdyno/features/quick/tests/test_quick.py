"""The quick estimate: its design, its interval, and the command that would decide."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_forms import FORMS, plain, report_of
from synthetic_study import Synthetic

from pgdyno.analysis.comparison import Verdict
from pgdyno.analysis.statistics.intervals import Method
from pgdyno.analysis.study_findings import StudyFindings
from pgdyno.features.quick.options import QuickOptions
from pgdyno.features.quick.section import MINUTES_MAX, minutes_needed, sections
from pgdyno.report.study_report import build_study
from pgdyno.study.defaults import BUDGET_MIN
from requested_study import requested_by

QUICK = Synthetic(blocks=5, slices=4, effects=(1.0, 1.005), noise=0.02, stops_on_verdict=False)
COMMAND = "pgdyno compare 17 18 --quick --clients 8 --seed 3 --evidence 'a b.sqlite' --html=x.html"


def with_command(wanted: Synthetic, command: str = COMMAND) -> StudyFindings:
    findings = report_of(wanted).findings
    (case,) = findings.cases
    return replace(findings, cases=[replace(case, study=replace(case.study, command=command))])


def told(study: StudyFindings) -> list[str]:
    return [sentence for section in sections(study) for sentence in section.sentences]


def test_five_short_blocks_are_fixed_in_advance_and_analyzed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    study = requested_by("compare 17 18 --quick", monkeypatch).cases[0].study
    assert (study.blocks_max, study.window_s) == (5, 2.0)
    assert not study.stops_on_verdict and not study.needs_anytime_intervals
    assert study.arms == requested_by("compare 17 18", monkeypatch).cases[0].study.arms


SPELLED = {
    "17 18 --quick": ["--blocks", "5", "--window", "2s", "17", "18", "--quick"],
    "17 18": ["17", "18"],
    "17 18 --quick --blocks 9": ["--window", "2s", "17", "18", "--quick", "--blocks", "9"],
    "17 18 --quick -t 100": ["--blocks", "5", "17", "18", "--quick", "-t", "100"],
    "17 18 --quick --window=4s": ["--blocks", "5", "17", "18", "--quick", "--window=4s"],
    "17 18 -- --quick": ["17", "18", "--", "--quick"],
}


@pytest.mark.parametrize("words", SPELLED)
def test_other_options_take_the_place_of_those_of_the_preset(words: str) -> None:
    assert QuickOptions.spelled(words.split(), "compare") == SPELLED[words]


def test_an_undecided_estimate_names_its_resolution_and_the_command_that_would_decide() -> None:
    study = with_command(QUICK)
    (comparison,) = study.first.comparisons
    assert comparison.verdict is Verdict.UNDECIDED
    assert comparison.primary.summary.method is Method.STUDENT
    resolved, command = told(study)
    assert re.fullmatch(
        r"Quick estimate of 18: 5 blocks detect a change of [\d.]+% or more .80% power.\.", resolved
    )
    found = re.fullmatch(r"To decide: pgdyno compare 17 18 --clients 8 --minutes (\d+)", command)
    assert found and BUDGET_MIN <= int(found[1]) <= MINUTES_MAX


def test_a_large_effect_is_decided_and_needs_no_further_command() -> None:
    study = with_command(replace(QUICK, effects=(1.0, 1.4)))
    assert study.first.comparisons[0].verdict is Verdict.FASTER
    assert [one.startswith("Quick estimate") for one in told(study)] == [True]


def test_more_noise_needs_more_minutes_and_too_much_a_quieter_machine() -> None:
    def minutes(noise: float) -> int:
        study = with_command(replace(QUICK, noise=noise, effects=(1.0, 1.0)))
        return minutes_needed(study.first.comparisons[0], study.first)

    assert minutes(0.005) < minutes(0.02) < minutes(0.1) and minutes(0.1) > MINUTES_MAX
    (_, refused) = told(with_command(replace(QUICK, noise=0.1, effects=(1.0, 1.0))))
    assert (
        refused
        == f"More than {MINUTES_MAX} min would be needed to decide: reduce the noise first (pgdyno doctor)."
    )


def test_arguments_of_a_script_stay_at_the_end() -> None:
    command = "pgdyno compare 17 18 --quick --minutes 2 -- --tables=8"
    last = told(with_command(QUICK, command))[-1]
    assert re.fullmatch(r"To decide: pgdyno compare 17 18 --minutes \d+ -- --tables=8", last)


@pytest.mark.parametrize(
    ("wanted", "command"),
    [
        (QUICK, "pgdyno compare 17 18 -- --quick"),
        (QUICK, "pgdyno compare 17 18 --quick 'unbalanced"),
        (replace(QUICK, blocks=0), COMMAND),
        (replace(QUICK, blocks=1), COMMAND),
    ],
)
def test_other_studies_and_those_without_a_result_have_no_estimate(wanted: Synthetic, command: str) -> None:
    assert not [one for one in told(with_command(wanted, command)) if one.startswith("Quick")]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_but_csv_has_the_command_that_would_decide(form: str) -> None:
    text: Any = plain(FORMS[form](build_study(with_command(QUICK))))
    assert ("To decide: pgdyno compare 17 18" in " ".join(text.split())) == (form != "csv")
