"""A resume reads the study from its results file: options that it would ignore are rejected by name."""

from pathlib import Path

import pytest

from pgdyno.cli import study_execution
from pgdyno.cli.main import run_command


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("compare --resume e.sqlite --stop budget", "--stop"),
        ("compare --resume e.sqlite --minutes 5 --no-aa", "--no-aa"),
        ("compare --margin 2% --resume e.sqlite", "--margin"),  # though it is the default
        ("compare --resume e.sqlite --schedule blocks --json", "--schedule"),
        ("compare --resume e.sqlite --clients 9", "--clients"),
        ("compare --resume e.sqlite --warehouses 2", "--warehouses"),
        ("compare --resume e.sqlite --evidence f.sqlite", "--evidence"),
        ("run --resume e.sqlite --nearest", "--nearest"),
        ("run --resume e.sqlite --no-aa", "--no-aa"),
    ],
)
def test_options_that_a_resume_does_not_read_are_rejected(
    words: str,
    named: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(study_execution, "resume_study", lambda *_: pytest.fail("it went on"))
    assert run_command(words.split()) == 2
    assert f"{named} cannot be combined with --resume" in capsys.readouterr().err
