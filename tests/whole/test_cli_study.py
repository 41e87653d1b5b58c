"""``pgdyno study``: errors of a file are reported by line, and studies of the package are found."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pgdyno.cli import options
from pgdyno.cli import run as cli_run
from pgdyno.cli.main import run_command
from pgdyno.features.fitting import options as fit_options
from pgdyno.results.records import LOST, NOT_THE_QUESTION
from pgdyno.study.sizing import MachineSize

STUDIES = Path(__file__).parents[2] / "studies"
TEMPLATE = (STUDIES / "templates" / "upgrade.toml").read_text()


def test_all_problems_are_reported_including_those_found_by_servers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    wrong = TEMPLATE.replace('"18"]', '"9.6"]').replace('["starter"]', '["stater"]\nport = 5')
    path.write_text(wrong)
    assert run_command(["study", "check", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        f"pgdyno: {path}: factors.server[2]: PostgreSQL 9.6 is not supported: use 10 or newer",
        f"pgdyno: {path}: settings.port: port cannot be set: servers listen on a private Unix socket only",
        f"pgdyno: {path}: settings.profiles[0]: unknown profile 'stater': did you mean starter?",
    ]


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


MOPPEL_2022 = "moppel-2022-a-billion-transactions"


@pytest.fixture
def a_machine_of_24_gb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "machine_size", lambda: MachineSize(2, 24 * 2**30))
    monkeypatch.setattr(fit_options, "free_bytes", lambda _: 50 * 2**30)


@pytest.mark.usefixtures("a_machine_of_24_gb")
def test_a_fit_that_loses_the_question_is_rejected_and_planned_with_its_needs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    refusal: Callable[..., str],
) -> None:
    monkeypatch.chdir(tmp_path)
    message = refusal(f"run {MOPPEL_2022} --fit --minutes 30")
    assert "data : memory: 5.56" in message and "MemoryMax=" in message and "--fit=anyway" in message
    assert not list(tmp_path.iterdir())
    assert run_command(["study", "plan", MOPPEL_2022, "--fit", "--minutes", "30", "--json"]) == 0
    _, lost, *needs = json.loads(capfd.readouterr().out)["lost_question"]
    assert lost.startswith("data : memory")
    assert "MemoryMax=" in needs[0] and [need.startswith("or needs ") for need in needs[1:]] == [True]


@pytest.mark.usefixtures("a_machine_of_24_gb")
def test_a_forced_fit_runs_and_its_changes_list_the_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []
    monkeypatch.setattr(
        cli_run, "run_and_report", lambda _, request, **more: given.append((request, more)) or 0
    )
    monkeypatch.chdir(tmp_path)
    assert run_command(["run", MOPPEL_2022, "--fit=anyway", "--minutes", "30"]) == 0
    ((request, more),) = given
    assert request.changes[0]["key"] == LOST + "data : memory"
    assert more["heading"].startswith(NOT_THE_QUESTION)
