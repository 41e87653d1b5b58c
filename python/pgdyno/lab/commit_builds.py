"""Commits of a repository, and the builds that the script of a user makes of them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pgdyno.errors import BuildError, UsageError
from pgdyno.interruption import Interruption
from pgdyno.results.search_file import COMMITS_MAX, Commit
from pgdyno.server.cache_directory import Cache
from pgdyno.server.file_system import locked, locked_if_free, open_to_all
from pgdyno.server.server_account import OURSELVES
from pgdyno.server.server_process import end_tree, launch_tree
from pgdyno.server.source_trees import git_commit, run_git

BUILD_TIMEOUT_S = 7200.0
"""Limit of a build. PostgreSQL takes 20 minutes on one slow core."""

LOG_LINES = 10
"""Lines of a failed build in the message: the error of the compiler is at the end."""

SKIP_STATUS = 125
"""Exit status of a script that cannot test a commit, as in ``git bisect run``."""

PREFIX = "PGDYNO_PREFIX"
COMMIT = "PGDYNO_COMMIT"

WORKTREE = "pgdyno-bisect-worktree"
"""Name of the worktree, by which an abandoned one is recognized in the repository."""

LOCK = "lock"
"""File in the directory of a search, which the process holds that continues it."""

COMPLETE = ".complete"
"""File in a build that the script has finished. One without it was interrupted, and is made again."""


def read_commits(repository: Path, good: str, bad: str) -> list[Commit]:
    """Return the commits from ``good`` to ``bad``, both included, along the first parents.

    Raises UsageError: no repository, unknown revision, ``good`` is not an ancestor of ``bad``.
    """
    first, last = (git_commit(repository, revision).commit for revision in (good, bad))
    if first == last:
        raise UsageError(f"GOOD and BAD are the same commit ({good} is {bad}): name two commits")
    if not _is_ancestor(repository, first, last):
        is_reverse = _is_ancestor(repository, last, first)
        remedy = "exchange them" if is_reverse else f"use git merge-base {good} {bad} as GOOD"
        raise UsageError(f"GOOD ({good}) is not an ancestor of BAD ({bad}): {remedy}")
    form = "--format=%H%x09%s"
    start = run_git(repository, ["log", "-1", form, first, "--"])
    listed = run_git(repository, ["log", "--first-parent", "--reverse", form, f"{first}..{last}", "--"])
    lines = [*start.splitlines(), *listed.splitlines()]
    if len(lines) > COMMITS_MAX:
        raise UsageError(f"{len(lines)} commits between {good} and {bad}: choose a smaller range")
    return [Commit(sha=sha, subject=subject) for sha, _, subject in (line.partition("\t") for line in lines)]


def _is_ancestor(repository: Path, first: str, last: str) -> bool:
    try:
        return run_git(repository, ["merge-base", first, last]).strip() == first
    except BuildError:  # no common ancestor
        return False


@dataclass(frozen=True)
class ScriptBuilds:
    """Builds by a command of the user, each in a directory of the cache. ``worktree``: where it runs."""

    repository: Path
    command: str
    worktree: Path
    cache: Cache
    interruption: Interruption

    def server_of(self, commit: Commit) -> str:
        """Return the directory of the build, which is made at most once.

        Raises BuildError if the commit does not build, and UsageError if the command is wrong.
        """
        digest = hashlib.sha256(f"{self.repository}\0{self.command}".encode()).hexdigest()[:8]
        name = f"commit-{commit.short}-{digest}"
        prefix = self.cache.builds / name
        with locked(self.cache.builds / f".{name}.lock"):
            if not (prefix / COMPLETE).is_file():
                shutil.rmtree(prefix, ignore_errors=True)
                self._build(commit, prefix)
        return str(prefix)

    def _build(self, commit: Commit, prefix: Path) -> None:
        """Build into the final directory, because installed files may contain its name."""
        self._check_out(commit)
        log = self.worktree.with_name(f"build-{commit.short}.log")
        prefix.mkdir(mode=0o755)
        is_complete = False
        try:
            status = self._run(commit, prefix, log)
            if status != 0:
                raise _failure(commit, status, log)
            if not (prefix / "bin" / "postgres").is_file():
                raise UsageError(
                    f"--build-script ended with status 0 for {commit.short}, but ${PREFIX}/bin/postgres is "
                    f"missing: install the server to ${PREFIX} ({log})"
                )
            open_to_all(prefix)
            (prefix / COMPLETE).touch()
            is_complete = True
        finally:
            if not is_complete:
                shutil.rmtree(prefix, ignore_errors=True)

    def _check_out(self, commit: Commit) -> None:
        try:
            if self.worktree.is_dir():
                run_git(self.worktree, ["checkout", "--quiet", "--force", "--detach", commit.sha])
            else:
                place = [str(self.worktree), commit.sha]
                run_git(self.repository, ["worktree", "add", "--force", "--quiet", "--detach", *place])
        except BuildError as error:  # of the repository or the disk: no reason to skip the commit
            raise UsageError(f"{commit.short} could not be checked out: {error}") from error

    def _run(self, commit: Commit, prefix: Path, log: Path) -> int:
        """Run the command. All that it has started ends with it, and with pgdyno."""
        environment = {**os.environ, PREFIX: str(prefix), COMMIT: commit.sha}
        with log.open("wb") as output:
            process = launch_tree(
                ["/bin/sh", "-c", self.command],
                OURSELVES,
                output=output,
                directory=self.worktree,
                environment=environment,
            )
        try:
            with self.interruption.tell(process.terminate):
                status = process.wait(BUILD_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise BuildError(
                f"{commit.short} does not build: --build-script ran for {BUILD_TIMEOUT_S / 3600:g} h"
            ) from None
        finally:
            end_tree(process)
        self.interruption.check()
        return status


def _failure(commit: Commit, status: int, log: Path) -> Exception:
    """Return the error of a script that ended with this status."""
    lines = log.read_text(errors="replace").strip().splitlines()[-LOG_LINES:]
    tail = " / ".join(lines) or "no output"
    if status == SKIP_STATUS:
        return BuildError(f"--build-script skipped {commit.short} (status {SKIP_STATUS})")
    if status in (126, 127) or status > 128:
        return UsageError(f"--build-script could not run for {commit.short} (status {status}): {tail}")
    return BuildError(f"{commit.short} does not build (--build-script, status {status}): {tail} ({log})")


@contextmanager
def script_builds(
    repository: Path, command: str, folder: Path, interruption: Interruption
) -> Iterator[ScriptBuilds]:
    """Provide the builds of a script, with a worktree in the directory of the search.

    At the end the worktree is removed; the builds stay in the cache. The worktrees of killed searches are
    removed from the repository, too.
    """
    worktree = folder.absolute() / WORKTREE
    for stale in {worktree, *_abandoned_worktrees(repository)}:
        _remove_worktree(repository, stale)
    try:
        yield ScriptBuilds(repository, command, worktree, Cache.open(), interruption)
    finally:
        _remove_worktree(repository, worktree)


def _abandoned_worktrees(repository: Path) -> list[Path]:
    """Return the worktrees of searches whose pgdyno was killed, also those whose directory was deleted."""
    common = repository / run_git(repository, ["rev-parse", "--git-common-dir"]).removesuffix("\n")
    found = []
    for link in sorted(common.glob(f"worktrees/{WORKTREE}*/gitdir")):
        path = (link.parent / os.fsdecode(link.read_bytes().removesuffix(b"\n"))).parent
        if path.name == WORKTREE and not _is_searching(path.parent):
            found.append(path)
    return found


def _is_searching(folder: Path) -> bool:
    """Return whether a process holds the lock of the search in this directory."""
    if not (folder / LOCK).is_file():
        return False
    with locked_if_free(folder / LOCK) as free:
        return not free


def _remove_worktree(repository: Path, worktree: Path) -> None:
    """Delete a worktree of ours in any state, such as that of a git that was killed."""
    shutil.rmtree(worktree, ignore_errors=True)
    with suppress(BuildError):  # git does not know it
        run_git(repository, ["worktree", "remove", "--force", "--force", str(worktree)])
