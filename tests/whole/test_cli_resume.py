"""A resume reads the study from its results file: options that it would ignore are rejected by name."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic_study import Synthetic, write_study

from pgdyno.cli.main import run_command
from pgdyno.errors import ServerError
from pgdyno.features.crash import run as crash_run
from pgdyno.features.crash.options import DurabilityOptions
from pgdyno.interruption import Interruption
from pgdyno.measure import study_runner
from pgdyno.results.records import StudyEnd


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("compare --resume e.sqlite --stop budget", "--stop"),
        ("compare --margin 2% --resume e.sqlite", "--margin"),  # though it is the default
        ("compare --resume e.sqlite --schedule blocks --json", "--schedule"),
        ("compare --resume e.sqlite --warehouses 2", "--warehouses"),
        ("compare --resume e.sqlite --evidence f.sqlite", "--evidence"),
        ("run --resume e.sqlite --nearest", "--nearest"),
        ("run --resume e.sqlite --no-aa", "--no-aa"),
        ("run --resume e.sqlite --drivers 2", "--drivers"),
        ("run --resume e.sqlite --fit=anyway", "--fit"),
        ("run --resume e.sqlite --data shop.dump", "--data"),
    ],
)
def test_options_that_a_resume_does_not_read_are_rejected(
    words: str, named: str, monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(study_runner, "resume_study", lambda *_: pytest.fail("it went on"))
    assert f"{named} cannot be combined with --resume" in refusal(words)


@pytest.mark.parametrize("path", [".", "/", "missing.sqlite"])
def test_a_resume_names_a_results_file_that_does_not_exist(
    path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["compare", "--resume", path]) == 1
    assert capsys.readouterr().err == f"pgdyno: no results file at {path}: check the name\n"


@pytest.mark.parametrize("fails", [False, True])
def test_cuts_are_added_to_a_complete_study_without_measuring_on(
    fails: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "e.sqlite"
    write_study(path, Synthetic(effects=(1, 1.2), blocks=6, ended=StudyEnd.VERDICT))
    cut: list[Path] = []

    def follow(_: DurabilityOptions, of: Path, *_rest: object, **_options: object) -> None:
        cut.append(of)
        if fails:
            raise ServerError("the disk did not answer")

    monkeypatch.setattr(study_runner, "resume_study", lambda *_: pytest.fail("it went on"))
    monkeypatch.setattr(DurabilityOptions, "follow", follow)
    monkeypatch.setattr(crash_run, "missing_for_power_cuts", lambda _: [])
    assert run_command(["compare", "--resume", str(path), "--durability", "--cuts", "7"]) == int(fails)
    assert cut == [path]
    shown = capsys.readouterr()
    assert "faster" in shown.out  # the study is reported in any case
    again = f"the disk did not answer; to continue: pgdyno compare --resume {path} --durability --cuts 7"
    assert (again in shown.err) == fails


def test_ctrl_c_during_the_cuts_keeps_the_study_and_says_how_to_continue(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "e.sqlite"
    write_study(path, Synthetic(effects=(1, 1.2), blocks=6, ended=StudyEnd.VERDICT))

    def follow(_: DurabilityOptions, _path: Path, interruption: Interruption, **_options: object) -> None:
        signal.raise_signal(signal.SIGINT)
        interruption.check()

    monkeypatch.setattr(DurabilityOptions, "follow", follow)
    monkeypatch.setattr(crash_run, "missing_for_power_cuts", lambda _: [])
    assert run_command(["compare", "--resume", str(path), "--durability"]) == 128 + signal.SIGINT
    shown = capsys.readouterr()
    assert "faster" in shown.out
    assert f"interrupted; to continue: pgdyno compare --resume {path} --durability" in shown.err
