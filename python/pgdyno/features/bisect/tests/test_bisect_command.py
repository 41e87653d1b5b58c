"""The command line of bisect: its directory, its result, and its end by a signal."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from fake_sources import git
from pgdyno.cli.main import run_command
from pgdyno.errors import ServerError
from pgdyno.features.bisect import command as bisect_command
from pgdyno.features.bisect.search import Ends, SearchRecord, read_search


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three commits v0, v1, v2 in the current directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "repository"
    path.mkdir()
    git(path, "init", "-q")
    for number in range(3):
        git(path, "commit", "-q", "--allow-empty", "-m", f"commit {number}")
        git(path, "tag", f"v{number}")
    return path


def command(repository: Path, *words: str) -> list[str]:
    return ["bisect", "v0", "v2", "--repository", str(repository), "--directory", "d", *words]


def test_an_existing_directory_is_not_used_for_a_new_search_and_a_damaged_one_not_continued(
    repository: Path, refusal: Callable[..., str]
) -> None:
    Path("d").mkdir()
    assert "--resume d" in refusal(command(repository))
    assert list(Path("d").iterdir()) == []
    Path("d/search.json").write_text('{"repository": 1}')
    assert "is damaged" in refusal("bisect --resume d", 1)
    assert "--minutes" in refusal(command(repository, "--directory", "new", "--minutes", "0"))
    assert not Path("new").exists()


def test_the_search_is_stored_and_its_end_is_reported(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ran(folder: Path, record: SearchRecord, *_: object) -> SearchRecord:
        assert read_search(folder) == record
        return record.model_copy(update={"ends": Ends.SAME})

    monkeypatch.setattr(bisect_command, "run_bisect", ran)
    words = ("--settings", "@starter,work_mem=64MB", "--minutes", "30", "--workload", "pgbench")
    assert run_command(command(repository, *words, "--json", "--confidence", "99%")) == 4
    document = json.loads(capsys.readouterr().out)
    assert document["ends"]["result"] == "same" and document["found"] is None
    assert document["commits"] == 2 and document["conclusive"] is False
    stored = read_search(Path("d"))
    assert [commit.subject for commit in stored.commits] == ["commit 0", "commit 1", "commit 2"]
    assert stored.confidence == 0.99 and stored.minutes == 30 and not stored.study.aa
    assert stored.study.arms[0].settings == {"work_mem": "64MB"} and stored.search.next_commit == 1
    # A resume adds minutes.
    assert run_command(["bisect", "--resume", "d", "--minutes", "15", "--json", "--quiet"]) == 4
    assert read_search(Path("d")).minutes == 45


def test_without_a_build_script_a_commit_is_an_arm_of_the_catalogue(
    repository: Path, refusal: Callable[..., str], server_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGDYNO_CACHE", str(server_dir / "cache"))
    assert "the sources contain neither configure nor meson.build" in refusal(command(repository), 1)


def test_ctrl_c_names_the_command_that_continues(
    repository: Path, monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., str]
) -> None:
    def stopped(*_: object) -> SearchRecord:
        signal.raise_signal(signal.SIGTERM)
        raise ServerError("the server is gone")

    monkeypatch.setattr(bisect_command, "run_bisect", stopped)
    told = refusal(command(repository), 128 + signal.SIGTERM)
    assert "interrupted; to continue: pgdyno bisect --resume d" in told
    assert read_search(Path("d")).steps == ()
