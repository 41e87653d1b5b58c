"""Files side by side: changes with intervals, what differs, other questions, and every format."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_forms import FORMS, analyze_once, matching, plain, report_of
from several_hosts import LARGE, LARGER, SMALL, written
from synthetic_study import HOST, Synthetic

from pgdyno.analysis.statistics.intervals import student
from pgdyno.analysis.statistics.pooled_quantiles import BLOCKS_MIN
from pgdyno.cli.main import run_command
from pgdyno.errors import EvidenceError, PgdynoError, UsageError
from pgdyno.features.hosts import sections
from pgdyno.features.hosts.sections import HostsReport
from pgdyno.features.hosts.sections import read_files as read_pooled
from pgdyno.features.side_by_side import report
from pgdyno.features.side_by_side.findings import (
    FILES_MAX,
    P99,
    AcrossFiles,
    FilesFindings,
    ReadFile,
    change_between,
    find_files,
    read_p99,
)
from pgdyno.features.side_by_side.report import build_side_by_side, read_files
from pgdyno.results.records import TrialStatus
from pgdyno.study.defaults import Schedule
from pgdyno.units import Better, Estimate

WEEK_S = 7 * 86_400.0
LATER = replace(SMALL, seed=5, created_unix_s=SMALL.created_unix_s + WEEK_S, effects=(1.0, 1.2))


@pytest.fixture(autouse=True)
def _each_file_is_analyzed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    analyze_once(monkeypatch, sections, report)


def found_in(**studies: Synthetic) -> FilesFindings:
    return find_files({name: ReadFile(report_of(of).findings, {}) for name, of in studies.items()})


def across(found: FilesFindings, arm: str, metric: str = "nopm", baseline: str = "") -> AcrossFiles:
    every = found.paired if baseline else found.levels
    (one,) = [of for of in every if (of.arm, of.metric, of.baseline) == (arm, metric, baseline)]
    return one


def change_of(of: AcrossFiles) -> Estimate:
    (one,) = of.changes
    return one.change


def test_the_change_of_a_level_is_the_ratio_of_the_levels_in_both_files() -> None:
    found = found_in(a=SMALL, b=LATER)
    for metric in ("nopm", P99, "server_cpu"):
        of = across(found, "18", metric)
        before, after = (one.estimate for one in of.files)
        assert change_of(of).value == pytest.approx(100 * (after.value / before.value - 1))
        assert (change_of(of).low is None) == (metric == P99), "too few blocks for a tail"


def test_the_paired_change_is_the_ratio_of_the_changes_and_drift_between_the_files_cancels() -> None:
    drifted = replace(LATER, rate_per_s=LATER.rate_per_s / 2)
    paired, level = (change_of(across(found_in(a=SMALL, b=drifted), "18", baseline=of)) for of in ("17", ""))
    assert paired.value == pytest.approx(100 * (1.2 / 1.1 - 1), abs=4) and level.value < -35
    assert paired.low > 0 and paired.high - paired.low < level.high - level.low


def test_a_paired_change_that_a_file_holds_back_is_omitted_and_named() -> None:
    found = found_in(a=SMALL, b=replace(LATER, statuses={(3, 1): TrialStatus.FAILED}))
    assert found.levels and not found.paired
    (results,) = [of for of in build_side_by_side(found).sections if of.id == "results"]
    assert [of for of in results.sentences if of.endswith(" biased: b: 18 vs. 17.")]


def test_the_interval_of_a_change_covers_the_truth_in_95_percent_of_the_pairs() -> None:
    rng, covered, pairs = np.random.default_rng(3), 0, 2000

    def level(n: int, mean: float, sd: float) -> Estimate:
        of = student([float(one) for one in rng.normal(mean, sd, n)], 0.95)
        ends = (math.exp(of.low), math.exp(of.high))
        return Estimate(math.exp(of.mean), "tx/s", n, Better.MORE, *ends)

    for _ in range(pairs):
        change = change_between(level(6, 7.0, 0.05), level(12, 7.1, 0.02), Better.MORE)
        covered += change.low <= 100 * math.expm1(0.1) <= change.high
    assert 0.94 < covered / pairs < 0.98


@pytest.mark.parametrize("unknown", [{"low": None, "high": None}, {"confidence": 0.9}])
def test_a_change_lacks_an_interval_if_a_level_has_none_or_another_confidence(
    unknown: Mapping[str, Any],
) -> None:
    known = Estimate(100.0, "tx/s", 6, Better.MORE, 90.0, 111.0)
    change = change_between(replace(known, **unknown), replace(known, value=110.0, high=120.0), Better.MORE)
    assert change.value == pytest.approx(10) and change.low is None and change.high is None


def test_the_p99_of_many_blocks_has_an_interval_around_that_of_all_transactions(tmp_path: Path) -> None:
    (path,) = written(tmp_path, a=replace(SMALL, blocks=BLOCKS_MIN, slices=2))
    study = report_of(replace(SMALL, blocks=BLOCKS_MIN, slices=2)).findings
    known = read_p99(path, study)
    for of in study.first.arms:
        merged, level = of.quantiles_ms("all")["p99"], known["", of.arm.name]
        assert level.value == pytest.approx(merged.value) and level.low < level.value < level.high
    (few,) = written(tmp_path, few=SMALL)
    assert not read_p99(few, report_of(SMALL).findings)


OTHER_QUESTIONS: dict[str, dict[str, Any]] = {
    r"workload warehouses differs \(10 vs\. 20\)": {"warehouses": 20},
    r"workload mix differs": {"mix": "new-order=1"},
    r"rate differs": {"fixed_rate_per_s": 900.0},
    r"clients differs \(8 vs\. 64\)": {"arms": [{"clients": "64"}] * 2},
    r"schedule differs \(slices vs\. blocks\)": {"schedule": Schedule.BLOCKS},
}


@pytest.mark.parametrize("words", OTHER_QUESTIONS)
def test_files_with_another_load_are_refused_with_the_difference(words: str) -> None:
    changed = OTHER_QUESTIONS[words]
    with pytest.raises(EvidenceError, match=f"not ask the same question: {words}"):
        found_in(a=SMALL, b=replace(LATER, **changed))


def test_files_without_a_common_arm_or_case_and_copies_are_refused() -> None:
    with pytest.raises(EvidenceError, match=r"no arm with the same specification \(a: 17, 18; b: 15, 16\)"):
        found_in(a=SMALL, b=replace(LATER, names=("15", "16")))
    with pytest.raises(EvidenceError, match="no case in common"):
        found_in(a=SMALL, b=replace(LATER, levels={"scale": "1"}))
    with pytest.raises(EvidenceError, match="copies of one file"):
        found_in(a=SMALL, b=SMALL)
    study = ReadFile(report_of(SMALL).findings, {})
    with pytest.raises(UsageError, match=r"at most 20 files \(got 21\): use pgdyno history"):
        find_files({str(n): study for n in range(FILES_MAX + 1)})


def test_arms_of_one_specification_are_compared_and_others_are_named() -> None:
    found = found_in(a=SMALL, b=replace(LATER, names=("19", "18")))
    assert {of.arm for of in found.levels} == {"18"} and not found.paired
    assert found.left_out == ["a: arm 17", "b: arm 19"]
    assert all(" of 17" not in of.name and " of 19" not in of.name for of in found.differences)


def test_what_differs_is_named_but_numbers_of_blocks_are_no_reason_for_a_change() -> None:
    changed = replace(LATER, blocks=8, versions=("17", "18.4"), host={**HOST, "kernel": "Linux 6.2.0"})
    found = found_in(a=SMALL, b=changed)
    named = {of.name: list(of.values.values()) for of in found.differences}
    assert named["the machine's kernel"] == ["Linux 6.1.0", "Linux 6.2.0"]
    assert named["the server of 18"] == ["18", "18.4"] and named["blocks"] == ["6", "8"]
    times, differ = found.caveats
    assert times.parameters == {"kind": "on-different-days", "days": "2026-11-18, 2026-11-25"}
    assert differ.parameters["differences"] == "the machine's kernel; the server of 18"


def test_settings_that_differ_are_named_but_not_the_paths_of_a_run() -> None:
    def with_settings(of: Synthetic, **settings: str) -> ReadFile:
        study = report_of(of).findings
        (case,) = study.cases
        trials = [replace(trial, settings={**trial.settings, **settings}) for trial in case.trials]
        return ReadFile(replace(study, cases=[replace(case, trials=trials)]), {})

    one = with_settings(SMALL, data_directory="/a", hba_file="/a/b", work_mem="4MB")
    other = with_settings(LATER, data_directory="/c", hba_file="/c/b", work_mem="8MB")
    named = [of.name for of in find_files({"a": one, "b": other}).differences]
    assert named == ["work_mem of 17", "work_mem of 18"]


def test_files_of_one_day_are_not_paired_too() -> None:
    (times,) = found_in(a=SMALL, b=replace(LATER, created_unix_s=SMALL.created_unix_s + 3600)).caveats
    assert times.parameters["kind"] == "at-different-times"


@pytest.mark.parametrize("form", [form for form in FORMS if form != "summary"])
def test_every_form_has_three_files_with_cases_and_an_unfinished_one(form: str) -> None:
    def cases(of: Synthetic) -> list[Synthetic]:
        return [replace(of, levels={"scale": scale}, seed=of.seed + int(scale)) for scale in ("1", "5")]

    last = replace(LATER, created_unix_s=LATER.created_unix_s + WEEK_S, seed=9, ended=None)
    files = {name: report_of(*cases(of)).findings for name, of in (("x", SMALL), ("y", LATER), ("z", last))}
    built = build_side_by_side(find_files({name: ReadFile(of, {}) for name, of in files.items()}))
    text = plain(FORMS[form](built))
    assert "scale 5" in text and "z" in text
    if form in ("terminal", "md", "html"):
        assert "Not a paired comparison" in text and "Still running or interrupted: z." in text
    if form == "csv":
        assert {row["file"] for row in csv.DictReader(io.StringIO(text))} == {"x", "y", "z"}


def test_files_without_a_block_have_a_report(tmp_path: Path) -> None:
    paths = written(tmp_path, a=replace(SMALL, blocks=0), b=replace(LATER, blocks=0))
    built = read_files(paths, "side-by-side")
    assert not built.headlines and FORMS["html"](built)


WAYS = [("whole", "LATER", False), ("whole", "LARGER", True), ("side-by-side", "LARGER", False)]
WAYS += [("pooled", "LATER", True), ("published", "LATER", True)]


@pytest.mark.parametrize(("as_", "second", "is_pooled"), WAYS)
def test_files_of_one_machine_are_not_pooled_unless_asked(
    tmp_path: Path, as_: str, second: str, is_pooled: bool
) -> None:
    same = replace(SMALL, seed=5, created_unix_s=SMALL.created_unix_s + WEEK_S)
    paths = written(tmp_path, a=SMALL, b={"LATER": same, "LARGER": LARGER}[second])
    pooled, apart = read_pooled(paths, as_), read_files(paths, as_)
    assert isinstance(pooled, HostsReport) == is_pooled
    assert (apart is None) == is_pooled


def test_the_command_shows_files_and_refuses_a_gate_and_a_single_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = map(str, written(tmp_path, a=SMALL, b=replace(LATER, host=LARGE)))
    assert run_command(["report", a, b, "--as", "side-by-side", "--json"]) == 0
    document = json.loads(matching(capsys.readouterr().out))
    assert [of["code"] for of in document["caveats"]] == ["not-paired", "files-differ"]
    assert run_command(["report", a, "--as", "side-by-side"]) == 2
    assert run_command(["report", a, b, "--as", "side-by-side", "--fail-if", "slower"]) == 2
    errors = capsys.readouterr().err
    assert "requires several results files" in errors and "side-by-side view and no comparison" in errors
    with pytest.raises(PgdynoError):
        read_files([Path(a), tmp_path / "none.sqlite"], "side-by-side")
