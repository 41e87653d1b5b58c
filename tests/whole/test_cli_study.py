"""``pgdyno study``: studies of the package are found, and a fit reports what it loses."""

import json
import tomllib
from pathlib import Path

import pytest
import report_forms

from pgdyno.cli import options
from pgdyno.cli import run as cli_run
from pgdyno.cli.main import run_command
from pgdyno.features.fitting import options as fit_options
from pgdyno.results.records import LOST, NOT_THE_QUESTION
from pgdyno.study.defaults import MachineSize

STUDIES = Path(__file__).parents[2] / "studies"


def test_studies_are_found_by_name_and_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["study", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {one["name"] for one in listed} == {path.stem for path in STUDIES.rglob("*.toml")}
    for one in listed:
        assert run_command(["study", "check", one["name"]]) == 0
    assert run_command(["study", "list"]) == 0
    assert "moppel-2022-a-billion-transactions" in capsys.readouterr().out


def test_the_printed_schema_equals_the_shipped_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["study", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((STUDIES / "study.schema.json").read_text())


def test_the_schema_allows_all_bundled_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = json.loads((STUDIES / "study.schema.json").read_text())
    monkeypatch.setattr(report_forms, "the_schema", lambda: whole)
    for path in STUDIES.rglob("*.toml"):
        assert list(report_forms.mismatches(tomllib.loads(path.read_text()), whole)) == [], path


MOPPEL_2022 = "moppel-2022-a-billion-transactions"


def test_a_forced_fit_that_loses_the_question_has_its_needs_in_the_plan_and_lists_its_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(options, "machine_size", lambda: MachineSize(2, 24 * 2**30))
    monkeypatch.setattr(fit_options, "free_bytes", lambda _: 50 * 2**30)
    monkeypatch.chdir(tmp_path)
    assert run_command(["study", "plan", MOPPEL_2022, "--fit", "--minutes", "30", "--json"]) == 0
    _, lost, *needs = json.loads(capfd.readouterr().out)["lost_question"]
    assert lost.startswith("data : memory")
    assert "run.memory_limit = " in needs[0] and [need.startswith("or needs ") for need in needs[1:]] == [
        True
    ]
    given = []
    monkeypatch.setattr(
        cli_run, "run_and_report", lambda _, request, **more: given.append((request, more)) or 0
    )
    assert run_command(["run", MOPPEL_2022, "--fit=anyway", "--minutes", "30"]) == 0
    ((request, more),) = given
    assert request.changes[0]["key"] == LOST + "data : memory"
    assert more["heading"].startswith(NOT_THE_QUESTION)
