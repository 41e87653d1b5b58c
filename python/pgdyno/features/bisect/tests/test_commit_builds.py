"""Commits of a small repository, and scripts that build them."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fake_sources import git
from pgdyno.errors import BuildError, Interrupted, UsageError
from pgdyno.features.bisect.run import COMPLETE, LOCK, WORKTREE, ScriptBuilds, read_commits, script_builds
from pgdyno.interruption import Interruption
from pgdyno.server.builds import MARK
from pgdyno.server.cache_directory import prune
from pgdyno.server.directories import locked

INSTALL = "mkdir $PGDYNO_PREFIX/bin && cp n $PGDYNO_PREFIX/bin/postgres"


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
        with script_builds(repository, INSTALL, server_dir, stop) as made:
            yield made
        assert not (server_dir / WORKTREE).exists()
    assert worktrees(repository) == {repository}


def worktrees(repository: Path) -> set[Path]:
    listed = git(repository, "worktree", "list", "--porcelain")
    named = (line.partition(" ") for line in listed.splitlines())
    return {Path(path) for word, _, path in named if word == "worktree"}


def build_by(command: str, builds: ScriptBuilds) -> str:
    (commit, _) = read_commits(builds.repository, "c3", "c4")
    return replace(builds, command=command).server_of(commit)


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
        ("s1", "c4", "name the merge that contains it"),
        ("s2", "c2", "name the merge that contains it"),
        ("nonesuch", "c0", "no commit 'nonesuch'"),
        ("--upload-pack=x", "c0", "no commit"),
    ],
)
def test_a_wrong_range_is_refused_with_the_remedy(
    repository: Path, good: str, bad: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        read_commits(repository, good, bad)


def test_each_commit_is_built_once_from_its_own_files_and_again_after_a_kill(
    builds: ScriptBuilds, repository: Path
) -> None:
    commits = read_commits(repository, "c0", "c4")
    for number in (0, 4, 3):
        prefix = Path(builds.server_of(commits[number]))
        assert (prefix / "bin" / "postgres").read_text() == f"c{number}"
    # A second build would fail, because bin exists.
    assert builds.server_of(commits[3]) == str(prefix)
    (prefix / COMPLETE).unlink()
    (prefix / "bin" / "postgres").write_text("half")
    assert builds.server_of(commits[3]) == str(prefix)
    assert (prefix / "bin" / "postgres").read_text() == "c3"


def test_a_search_keeps_its_own_builds_when_it_is_resumed(
    builds: ScriptBuilds, repository: Path, server_dir: Path, tmp_path: Path
) -> None:
    commit, _ = read_commits(repository, "c0", "c1")
    own = builds.server_of(commit)
    for folder, is_own in ((tmp_path, False), (server_dir, True)):
        with script_builds(repository, INSTALL, folder, builds.interruption) as made:
            assert (made.server_of(commit) == own) == is_own


def test_a_build_has_no_files_of_the_previous_commit_and_hooks_of_the_repository_do_not_run(
    builds: ScriptBuilds, repository: Path, server_dir: Path
) -> None:
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {server_dir}/hook\nexit 1\n")
    hook.chmod(0o755)
    script = f"test ! -e left.o && touch left.o && echo '*.o' > .gitignore && {INSTALL}"
    try:
        for commit in read_commits(repository, "c3", "c4"):
            replace(builds, command=script).server_of(commit)
    finally:
        hook.unlink()
    assert not (server_dir / "hook").exists()


def test_a_build_that_was_made_or_used_lately_is_not_pruned(builds: ScriptBuilds, repository: Path) -> None:
    commit = read_commits(repository, "c0", "c1")[0]
    for _ in range(2):
        prefix = Path(builds.server_of(commit))
        assert prune(builds.cache, older_than_s=3600.0) == []
        os.utime(prefix / MARK, (0, 0))
    assert [item.path for item in prune(builds.cache, older_than_s=3600.0)] == [prefix]
    assert builds.server_of(commit) == str(prefix)


def test_a_failed_build_skips_the_commit_and_a_wrong_command_ends_the_search(builds: ScriptBuilds) -> None:
    for command, error, message in (
        ("echo one; echo 'error: two' >&2; exit 2", BuildError, r"status 2\): one / error: two"),
        ("exit 125", BuildError, "skipped"),
        ("/nonesuch/make", UsageError, "could not run"),
        ("kill -9 $$", UsageError, "could not run"),
        ("true", UsageError, "bin/postgres is missing"),
    ):
        with pytest.raises(error, match=message):
            build_by(command, builds)
        # Nothing half-built is left in the cache.
        assert not [path for path in builds.cache.builds.iterdir() if path.is_dir()]


def test_nothing_that_a_script_has_started_is_left(builds: ScriptBuilds, server_dir: Path) -> None:
    script = (
        f"sleep 600 & echo $! > {server_dir}/pids; setsid sleep 600 & echo $! >> {server_dir}/pids; exit 3"
    )
    with pytest.raises(BuildError, match="status 3"):
        build_by(script, builds)
    left = [int(pid) for pid in (server_dir / "pids").read_text().split() if Path("/proc", pid).exists()]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


def test_a_signal_ends_the_script_and_all_that_it_has_started(builds: ScriptBuilds, server_dir: Path) -> None:
    script = f"sleep 600 & echo $! > {server_dir}/pid; kill -INT {os.getpid()}; wait"
    with pytest.raises(Interrupted):
        build_by(script, builds)
    assert not Path("/proc", (server_dir / "pid").read_text().strip()).exists()


def test_worktrees_of_killed_searches_are_removed_and_no_others(
    repository: Path, tmp_path: Path, server_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGDYNO_CACHE", str(server_dir / "cache"))

    def search(name: str) -> Path:
        (tmp_path / name).mkdir()
        (tmp_path / name / LOCK).touch()
        git(repository, "worktree", "add", "--detach", str(tmp_path / name / WORKTREE), "c1")
        return tmp_path / name

    # A killed git leaves locks behind, and also a worktree that is not complete.
    own, killed, deleted, running = map(search, ("own", "killed", "deleted", "running"))
    (repository / ".git" / "worktrees" / WORKTREE / "index.lock").touch()
    git(repository, "worktree", "lock", "--reason", "initializing", str(killed / WORKTREE))
    shutil.rmtree(deleted)
    mine = tmp_path / "mine"
    git(repository, "worktree", "add", "--detach", str(mine), "c2")
    try:
        with (
            locked(running / LOCK),
            locked(own / LOCK),
            Interruption() as stop,
            script_builds(repository, "exit 125", own, stop) as builds,
        ):
            assert worktrees(repository) == {repository, running / WORKTREE, mine}
            assert not (killed / WORKTREE).exists() and (running / WORKTREE / "n").exists()
            with pytest.raises(BuildError, match="skipped"):
                builds.server_of(read_commits(repository, "c0", "c1")[1])
        assert worktrees(repository) == {repository, running / WORKTREE, mine}
    finally:
        for path in (running / WORKTREE, mine):
            git(repository, "worktree", "remove", "--force", str(path))
