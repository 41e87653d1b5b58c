"""Exports: valid documents of each format without biased values, and files that are never wrong ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from report_forms import report_of
from several_hosts import LARGER, SMALL, written
from synthetic_study import Synthetic, write_study

from pgdyno.cli.main import run_command
from pgdyno.features.exports.formats import FORMATS, exported

SLOWER = Synthetic(effects=(1, 0.9), blocks=8, slices=4)


@pytest.fixture
def results(tmp_path: Path) -> str:
    path = tmp_path / "results.sqlite"
    write_study(path, SLOWER)
    return str(path)


def test_bencher_has_the_levels_and_the_ratio_with_their_intervals() -> None:
    case = report_of(SLOWER).findings.first
    found = json.loads(exported(report_of(SLOWER).findings, "bencher"))
    assert set(found) == {"17", "18", "18 vs. 17"}
    level, percent = case.arms[1].levels["nopm"], case.comparisons[0].primary.percent
    assert found["18"]["nopm"] == {"value": level.value, "lower_value": level.low, "upper_value": level.high}
    assert found["18 vs. 17"]["nopm"] == {
        "value": 100 + percent.value,
        "lower_value": 100 + percent.low,
        "upper_value": 100 + percent.high,
    }
    # Bencher requires a number, and slugs of measures are at most 64 characters long.
    assert all(
        isinstance(value["value"], float) and len(name) <= 64
        for of in found.values()
        for name, value in of.items()
    )


def test_each_metric_is_in_the_document_of_its_direction() -> None:
    found = {
        name: {one["name"]: one for one in json.loads(exported(report_of(SLOWER).findings, name))}
        for name in FORMATS
        if name != "bencher"
    }
    assert "18 vs. 17: nopm" in found["customBiggerIsBetter"]
    assert {"18: latency.all.p99", "17: server_cpu"} <= set(found["customSmallerIsBetter"])
    assert not set(found["customBiggerIsBetter"]) & set(found["customSmallerIsBetter"])
    assert all({"name", "unit", "value"} <= set(one) for of in found.values() for one in of.values())


def test_a_biased_ratio_and_a_lower_bound_are_not_exported() -> None:
    stalled = Synthetic(effects=(1, 0.9), blocks=8, slices=4, stalled=[(2, 1)])
    assert set(json.loads(exported(report_of(stalled).findings, "bencher"))) == {"17", "18"}
    overloaded = Synthetic(
        effects=(1.0, 0.6), blocks=5, slices=2, fixed_rate_per_s=3000.0, skipped=(0.0, 0.6)
    )
    assert any(
        ms and ms.is_bound for ms in report_of(overloaded).findings.first.arms[1].quantiles_ms("all").values()
    )
    of_arm = json.loads(exported(report_of(overloaded).findings, "bencher"))
    assert "latency.all.p99" in of_arm["17"] and "latency.all.p99" not in of_arm["18"]


def test_few_blocks_have_no_interval() -> None:
    few = report_of(Synthetic(effects=(1, 0.9), blocks=3, slices=4)).findings
    found = json.loads(exported(few, "bencher"))
    assert all(set(value) == {"value"} for of in found.values() for value in of.values())


def test_the_option_writes_each_format_beside_the_gate(
    results: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {name: tmp_path / name for name in FORMATS}
    options = [part for name, path in files.items() for part in ("--export", f"{name}={path}")]
    assert run_command(["report", results, *options, "--fail-if", "slower"]) == 3
    assert "18" in capsys.readouterr().out
    findings = report_of(SLOWER).findings
    assert {name: path.read_text() for name, path in files.items()} == {
        name: exported(findings, name) for name in FORMATS
    }


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("bencher", "--export must be FORMAT=FILE"),
        ("xml=a.xml", "customSmallerIsBetter (got xml=a.xml)"),
        ("bencher={results}", "never overwritten"),
        ("bencher=/nowhere/a.json", "/nowhere"),
    ],
)
def test_invalid_options_are_refused_before_the_report(
    option: str, message: str, results: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["report", results, "--export", option.format(results=results)]) != 0
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_files_of_several_studies_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = map(str, written(tmp_path, small=SMALL, large=LARGER))
    assert run_command(["report", *files, "--export", f"bencher={tmp_path / 'b.json'}"]) == 2
    assert "one study" in capsys.readouterr().err
