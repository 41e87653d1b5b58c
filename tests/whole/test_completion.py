"""Completion of arguments, as bash, zsh and fish request it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pgdyno.cli.main import run_command
from pgdyno.server import build_store


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a current directory with a settings file and a study, and no servers."""
    monkeypatch.setenv("PGDYNO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(build_store, "system_builds", list)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    Path("tuned.conf").touch()
    Path("mine.toml").touch()
    Path("sub").mkdir()
    Path("sub", "other.sql").touch()
    return tmp_path


def completed(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    shell: str,
    words: str,
    number: int | None = None,
) -> list[str]:
    """Return the completions of a command line, whose last word is incomplete, and no other output."""
    monkeypatch.setenv("_PGDYNO_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1 if number is None else number))
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", words)
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    with pytest.raises(SystemExit):
        run_command([])
    said = capsys.readouterr()
    assert said.err == ""
    return [line for line in said.out.replace('"', "").splitlines() if line]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_run_completes_bundled_studies_and_study_files(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = " ".join(completed(monkeypatch, capsys, shell, "pgdyno run "))
    assert "clients-sweep" in text and "mine.toml" in text and "sub/" in text


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("pgdyno run cli", ["clients-sweep"]),
        ("pgdyno run --fit=x cli", ["clients-sweep"]),
        ("pgdyno study plan cli", ["clients-sweep"]),
        ("pgdyno compare ", ["system", "devel", "git:"]),
        ("pgdyno compare 17 sys", ["system"]),
        ("pgdyno compare 17 18,", ["18,@default", "18,@starter", "18,@sub/", "18,@tuned.conf"]),
        ("pgdyno compare 17 18,@starter,@t", ["18,@starter,@tuned.conf"]),
        ("pgdyno compare 17 18,@./sub/", ["18,@./sub/other.sql"]),
        ("pgdyno compare 17 18, @ sta", ["starter"]),  # bash splits words at @
        ("pgdyno compare 17 18,work", []),
        ("pgdyno compare 17 18 --workload ", ["tpcc", "pgbench", "insert", "linkbench", "sysbench"]),
        ("pgdyno settings show sta", ["starter"]),
        ("pgdyno settings explain jit --server sys", ["system"]),
        ("pgdyno servers path sys", ["system"]),
        ("pgdyno crash 18,@t", ["18,@tuned.conf"]),
    ],
)
def test_bash_completes_arguments(
    words: str, found: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert completed(monkeypatch, capsys, "bash", words) == found


def test_an_error_does_not_appear_in_the_prompt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: Path
) -> None:
    def fail() -> list[Any]:
        raise ValueError("broken")

    monkeypatch.setenv("XDG_STATE_HOME", str(place))
    monkeypatch.setattr(build_store, "system_builds", fail)
    monkeypatch.setenv("_PGDYNO_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "pgdyno compare 1")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert run_command([]) != 0
    assert capsys.readouterr() == ("", "")
