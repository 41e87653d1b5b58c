"""Commits of a small repository, and scripts that build them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgdyno.errors import BuildError, UsageError
from pgdyno.interruption import Interruption
from pgdyno.lab.commit_builds import COMPLETE, ScriptBuilds, read_commits, script_builds

INSTALL = "mkdir $PGDYNO_PREFIX/bin && cp n $PGDYNO_PREFIX/bin/postgres"


def git(repository: Path, *arguments: str) -> None:
    name = ("-c", "user.name=n", "-c", "user.email=n@example.org")
    subprocess.run(["git", "-C", str(repository), *name, *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five commits c0 … c4; c2 is a merge of a branch with two commits."""
    path = tmp_path_factory.mktemp("repository")
    git(path, "init", "-q", "-b", "main")

    def commit(name: str) -> None:
        (path / "n").write_text(name)
        git(path, "add", "-A")
        git(path, "commit", "-qm", f"commit {name}\n\nbody")
        git(path, "tag", name)

    commit("c0")
    commit("c1")
    git(path, "checkout", "-qb", "side")
    commit("s1")
    commit("s2")
    git(path, "checkout", "-q", "main")
    git(path, "merge", "-q", "--no-ff", "-m", "merge side", "side")
    git(path, "tag", "c2")
    commit("c3")
    commit("c4")
    return path


@pytest.fixture
def builds(repository: Path, server_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptBuilds]:
    monkeypatch.setenv("PGDYNO_CACHE", str(server_dir / "cache"))
    with Interruption() as stop:
        with script_builds(repository, INSTALL, server_dir / "worktree", stop) as made:
            yield made
        assert not (server_dir / "worktree").exists()
    listed = subprocess.run(
        ["git", "-C", str(repository), "worktree", "list"], check=True, capture_output=True, text=True
    )
    assert len(listed.stdout.splitlines()) == 1


def with_command(builds: ScriptBuilds, command: str) -> ScriptBuilds:
    return ScriptBuilds(builds.repository, command, builds.worktree, builds.cache, builds.interruption)


def test_commits_follow_the_first_parents_and_include_both_ends(repository: Path) -> None:
    found = read_commits(repository, "c0", "main")
    assert [one.subject for one in found] == [
        "commit c0", "commit c1", "merge side", "commit c3", "commit c4"
    ]  # fmt: skip
    assert all(len(one.sha) == 40 for one in found) and found[1].short == found[1].sha[:10]


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ("c0", "c0", "same commit"),
        ("c4", "c0", "exchange them"),
        ("s1", "c1", "exchange them"),
        ("nonesuch", "c0", "no commit 'nonesuch'"),
        ("--upload-pack=x", "c0", "no commit"),
    ],
)
def test_a_wrong_range_is_refused_with_the_remedy(
    repository: Path, good: str, bad: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        read_commits(repository, good, bad)


def test_a_directory_without_a_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a usable clone"):
        read_commits(tmp_path, "a", "b")


def test_each_commit_is_built_once_from_its_own_files(builds: ScriptBuilds, repository: Path) -> None:
    commits = read_commits(repository, "c0", "c4")
    for number in (0, 4, 3):
        prefix = Path(builds.server_of(commits[number]))
        assert (prefix / "bin" / "postgres").read_text() == f"c{number}"
    # A second build would fail, because bin exists.
    assert builds.server_of(commits[4]) == builds.server_of(commits[4])


def test_a_build_that_was_killed_is_made_again(builds: ScriptBuilds, repository: Path) -> None:
    (commit, _) = read_commits(repository, "c0", "c1")
    prefix = Path(builds.server_of(commit))
    (prefix / COMPLETE).unlink()
    (prefix / "bin" / "postgres").write_text("half")
    assert Path(builds.server_of(commit)) == prefix
    assert (prefix / "bin" / "postgres").read_text() == "c0"


@pytest.mark.parametrize(
    ("command", "error", "message"),
    [
        ("echo one; echo 'error: two' >&2; exit 2", BuildError, r"status 2\): one / error: two"),
        ("exit 125", BuildError, "skipped"),
        ("/nonesuch/make", UsageError, "could not run"),
        ("kill -9 $$", UsageError, "could not run"),
        ("true", UsageError, "bin/postgres is missing"),
    ],
)
def test_a_failed_build_skips_the_commit_and_a_wrong_command_ends_the_search(
    builds: ScriptBuilds, repository: Path, command: str, error: type[Exception], message: str
) -> None:
    (commit, _) = read_commits(repository, "c3", "c4")
    with pytest.raises(error, match=message):
        with_command(builds, command).server_of(commit)
    # Nothing half-built is left in the cache.
    assert not [path for path in builds.cache.builds.iterdir() if path.is_dir()]
