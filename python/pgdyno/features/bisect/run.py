"""The run of a search: builds of commits, and a study for each step.

- Commits of a repository, and the builds that the script of a user makes of them.
- Execution of ``pgdyno bisect``: GOOD against BAD, then commits against GOOD, then the commit found against
  its parent. Each is a study of two arms with its own results file, which stops on a rule of the search.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from pgdyno.analysis.comparison import Comparison
from pgdyno.analysis.measurement_noise import InterimResult, interim_result
from pgdyno.analysis.statistics.intervals import LogRatioSummary
from pgdyno.errors import BuildError, DatasetError, ServerError, UsageError, WorkloadError, in_one_line
from pgdyno.features.bisect.search import (
    COMMITS_MAX,
    Commit,
    CommitSearch,
    Confirmation,
    Ends,
    Measured,
    Outcome,
    SearchRecord,
    Step,
    are_ends_decided,
    are_ends_same,
    is_confirmation_decided,
    is_confirmed,
    outcome_of,
    reference_of,
    search_commits,
    write_search,
)
from pgdyno.features.builds.source import git_commit, run_git
from pgdyno.interruption import Interruption
from pgdyno.measure.progress import PreparationStep, Progress, Watch
from pgdyno.measure.study_runner import (
    Budget,
    InterimAnalysis,
    interim_analysis_of,
    resume_study,
    start_study,
)
from pgdyno.measure.trial import Lab
from pgdyno.results.reader import Evidence
from pgdyno.results.records import BlockStatus, StudyEnd
from pgdyno.server.builds import MARK
from pgdyno.server.cache_directory import Cache
from pgdyno.server.directories import OURSELVES, locked, locked_if_free, open_to_all
from pgdyno.server.processes import end_tree, launch_tree
from pgdyno.study.cases import Request, only_case
from pgdyno.study.plan import Study
from pgdyno.study.schedule import seed_of

# ----------------------------------------------------------------------
# Commits of a repository, and the builds that the script of a user makes of them.
# ----------------------------------------------------------------------

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

    Raises UsageError: no repository, unknown revision, ``good`` is not an ancestor along the first parents.
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
    parents = run_git(repository, ["log", "-1", "--format=%P", lines[1].partition("\t")[0], "--"]).split()
    if parents[:1] != [first]:  # on a branch: the commit after it may lack its changes
        raise UsageError(
            f"GOOD ({good}) is not an ancestor of BAD ({bad}) along first parents: name the merge that "
            "contains it"
        )
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
        """Return the directory of the build, which a search makes at most once.

        Other searches make their own: the command may run a script that was changed since.
        Raises BuildError if the commit does not build, and UsageError if the command is wrong.
        """
        digest = hashlib.sha256(f"{self.worktree}\0{self.command}".encode()).hexdigest()[:8]
        name = f"commit-{commit.short}-{digest}"
        prefix = self.cache.builds / name
        with locked(self.cache.builds / f".{name}.lock"):
            if not (prefix / COMPLETE).is_file():
                shutil.rmtree(prefix, ignore_errors=True)
                self._build(commit, prefix)
            (prefix / MARK).touch()  # records the last use for `cache list` and `prune`
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
                # Makefiles do not know which objects of the previous commit are stale.
                run_git(self.worktree, ["clean", "-ffdxq"])
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


# ----------------------------------------------------------------------
# Execution of ``pgdyno bisect``: GOOD against BAD, then commits against GOOD, then the commit found against
# its parent. Each is a study of two arms with its own results file, which stops on a rule of the search.
# ----------------------------------------------------------------------

SPENT = "the time of the search is spent"
LOST = "a server failed during measurement"

TREND_MAX = 0.5
"""Maximum of the margin that trends of a large effect may have."""


@dataclass(frozen=True)
class StepStarted:
    """A comparison begins. ``number``: its place, ``expected``: how many there are, if none is skipped."""

    number: int
    expected: int
    what: str


@dataclass(frozen=True)
class StepEnded:
    """A comparison ended. ``result`` in words; ``measured``: None without a block."""

    result: str
    measured: Measured | None


Decided = Callable[[LogRatioSummary], bool]
ServerOf = Callable[[Commit], str]

View = Callable[[StepStarted | StepEnded | Progress], None]
"""Shows an event of a search."""


@dataclass(frozen=True)
class RuledResult(InterimResult):
    """Interim result of one arm that stops on a rule of the search instead of a verdict.

    An effect that may still change within the windows has no decision yet. After a block that an arm lost it
    never has one, so the study ends.
    """

    rule: Decided

    @property
    def is_decided(self) -> bool:
        """True if the rule is met, or never can be."""
        (comparison,) = self.comparisons
        return bool(comparison.lost_by_an_arm) or _is_decided(comparison, self.rule)


def _is_decided(comparison: Comparison, rule: Decided) -> bool:
    primary = comparison.primary
    can_be = comparison.decision is not None and not comparison.may_trend
    return can_be and primary is not None and rule(primary.summary)


@dataclass(frozen=True)
class Found:
    """Result of a comparison. ``reason``: why it has no decision. ``is_lost``: an arm failed in a block."""

    measured: Measured
    summary: LogRatioSummary | None
    is_decided: bool
    is_lost: bool
    reason: str = ""


Measure = Callable[[Path, Study, Decided, float], Found]
"""Compares two commits in a results file until the rule is met, or the seconds of blocks are spent."""


@dataclass(frozen=True)
class Measurement:
    """The comparison by a study on real servers."""

    view: View
    interruption: Interruption

    def __call__(self, path: Path, study: Study, rule: Decided, left_s: float) -> Found:
        """See Measure. Raises Interrupted, and the errors of studies."""

        def watch_for(_: Sequence[str]) -> AbstractContextManager[Watch]:
            return nullcontext(self.view)

        def analysis_of(of: Path) -> InterimAnalysis:
            analyze = interim_analysis_of(of)

            def ruled(lab: Lab, budget: Budget) -> RuledResult:
                found = analyze(lab, budget)
                return RuledResult(found.comparisons, found.method, rule)

            return ruled

        if path.exists():
            found = _found(path, rule)
            left_s -= found.measured.spent_s
            if found.is_decided or found.is_lost or left_s <= 0:
                return found
            end = resume_study(path, left_s / 60, watch_for, self.interruption, analysis_of)
        elif left_s <= 0:
            measured = Measured(file=path.name, blocks=0, spent_s=0.0, confidence=study.confidence)
            return Found(measured, None, is_decided=False, is_lost=False, reason=SPENT)
        else:
            study = study.model_copy(update={"budget_s": left_s})
            request = Request(study.title, [only_case(study)], f"pgdyno bisect --resume {path.parent}")
            end = start_study(path, request, watch_for, self.interruption, analysis_of)
        if end is StudyEnd.INTERRUPTED:
            raise self.interruption.interrupted("interrupted; completed measurements are kept")
        return _found(path, rule)


@dataclass
class Bisection:
    """A running search in ``folder``. ``record`` is stored after each comparison."""

    folder: Path
    record: SearchRecord
    view: View
    interruption: Interruption
    server_of: ServerOf
    measure: Measure

    def run(self) -> SearchRecord:
        """Run or continue the search to its end. Return its record.

        Raises Interrupted, and errors of the ends, of the machine and of the request. An error of another
        commit skips it.
        """
        if self.record.ends is not Ends.DIFFERENT and not self._compare_ends():
            return self.record
        state = search_commits(self._without_undecided(), self._test)
        is_alone = self.record.last == 1  # GOOD is the parent: the ends are the confirmation
        if state.is_found and not is_alone and self.record.confirmation in (None, Confirmation.UNDECIDED):
            self._confirm(state)
        return self.record

    def _compare_ends(self) -> bool:
        """Compare GOOD and BAD. Return whether they differ by a known effect."""
        record = self.record
        good, bad = record.commits[0], record.commits[-1]
        self._begin(1, f"GOOD {good.short} and BAD {bad.short}")
        study = self._study(good, bad, 1 - record.level_of_ends)
        study = _with_profile(study) if record.last == 1 else study
        found = self._measure("ends", study, lambda one: are_ends_decided(one, study.margin))
        summary = found.summary
        ends = Ends.UNDECIDED
        if found.is_decided and summary is not None:
            # Within the margin comes first: the user asked for no smaller effect.
            ends = Ends.SAME if are_ends_same(summary, study.margin) else Ends.DIFFERENT
        reference = reference_of(summary) if ends is Ends.DIFFERENT and summary is not None else None
        self._store(ends=ends, ends_measured=found.measured, ends_reason=found.reason, reference=reference)
        self._end(str(ends), found)
        return ends is Ends.DIFFERENT

    def _test(self, search: CommitSearch, number: int) -> Outcome:
        """Test one commit and store its step."""
        commit, good = self.record.commits[number], self.record.commits[0]
        done = sum(step.outcome is not Outcome.SKIPPED for step in self.record.steps)
        self._begin(2 + done, f"commit {commit.title}")
        reference = self.record.reference
        assert reference is not None, "the ends come first"

        def rule(summary: LogRatioSummary) -> bool:
            return outcome_of(summary, reference) is not Outcome.UNDECIDED

        try:
            study = self._study(good, commit, 1 - search.next_level)
            found = self._measure(f"step-{number}-{commit.short}", study, rule)
        except (ServerError, DatasetError, WorkloadError) as error:
            self.interruption.check()
            reason = in_one_line(error)
            self._add(Step(commit=number, outcome=Outcome.SKIPPED, level=0.0, reason=reason))
            self.view(StepEnded(f"skipped: {reason}", None))
            return Outcome.SKIPPED
        outcome = Outcome.UNDECIDED
        if found.is_lost:
            outcome = Outcome.SKIPPED
        elif found.is_decided and found.summary is not None:
            outcome = outcome_of(found.summary, reference)
        level = search.next_level if outcome in (Outcome.GOOD, Outcome.BAD) else 0.0
        self._add(
            Step(commit=number, outcome=outcome, level=level, measured=found.measured, reason=found.reason)
        )
        words = {Outcome.GOOD: "like GOOD", Outcome.BAD: "like BAD"}.get(outcome, str(outcome))
        self._end(words, found)
        return outcome

    def _confirm(self, state: CommitSearch) -> None:
        """Compare the commit found with its parent, with CPU profiles if perf is available."""
        parent, commit = (self.record.commits[number] for number in (state.good, state.bad))
        self._begin(self._expected(), f"commit {commit.title} and its parent {parent.short}")
        reference = self.record.reference
        assert reference is not None, "the ends come first"
        study = _with_profile(self._study(parent, commit, self.record.confidence))
        found = self._measure(
            "confirmation", study, lambda summary: is_confirmation_decided(summary, reference)
        )
        confirmation = Confirmation.UNDECIDED
        if found.is_decided and found.summary is not None:
            is_there = is_confirmed(found.summary, reference)
            confirmation = Confirmation.CONFIRMED if is_there else Confirmation.NOT_CONFIRMED
        self._store(
            confirmation=confirmation, confirmation_measured=found.measured, confirmation_reason=found.reason
        )
        self._end(str(confirmation), found)

    def _study(self, baseline: Commit, commit: Commit, confidence: float) -> Study:
        """Return the study of two commits. Raises BuildError and other errors of their builds."""
        template = self.record.study
        arms = tuple(
            template.arms[0].model_copy(
                update={"name": one.short, "is_named": True, "server": self._built(one)}
            )
            for one in (baseline, commit)
        )
        reference = self.record.reference
        # An effect that changes within the windows by less than the gap between both ends does not matter.
        margin = 0.0 if reference is None else min(abs(reference) / 2, TREND_MAX)
        return template.model_copy(
            update={
                "title": f"{commit.short} against {baseline.short}",
                "arms": arms,
                "confidence": confidence,
                "margin": max(template.margin, margin),
                "seed": seed_of(template.seed, f"{baseline.sha} {commit.sha}"),
            }
        )

    def _built(self, commit: Commit) -> str:
        """Return the server of a commit. Raises BuildError."""
        if self.record.script:
            self.view(PreparationStep(f"building {commit.short}"))
        return self.server_of(commit)

    def _measure(self, name: str, study: Study, rule: Decided) -> Found:
        """Measure until the rule is met or the time of the search is spent."""
        path = self.folder / f"{name}.sqlite"
        return self.measure(path, study, rule, 60 * self.record.minutes - self._spent_before(path))

    def _spent_before(self, path: Path) -> float:
        """Return the seconds of the comparisons in other results files."""
        return sum(one.spent_s for one in self.record.measured if one.file != path.name)

    def _without_undecided(self) -> CommitSearch:
        """Forget the undecided step, which continues in its results file. Return the state."""
        steps = tuple(step for step in self.record.steps if step.outcome is not Outcome.UNDECIDED)
        self.record = self.record.model_copy(update={"steps": steps})
        return self.record.search

    def _expected(self) -> int:
        """Return the number of comparisons of the search, if no further commit is skipped."""
        done = sum(step.outcome in (Outcome.GOOD, Outcome.BAD) for step in self.record.steps)
        return 1 + done + self.record.search.steps_left + (self.record.last > 1)

    def _begin(self, number: int, what: str) -> None:
        self.view(StepStarted(number, self._expected(), what))

    def _end(self, result: str, found: Found) -> None:
        self.view(StepEnded(f"{result}: {found.reason}" if found.reason else result, found.measured))

    def _add(self, step: Step) -> None:
        self._store(steps=(*self.record.steps, step))

    def _store(self, **changes: object) -> None:
        self.record = self.record.model_copy(update=changes)
        write_search(self.folder, self.record)


def _with_profile(study: Study) -> Study:
    """Return the study with CPU profiles, if perf is installed: they show what changed in the server."""
    if shutil.which("perf") is None:
        return study
    return study.model_copy(update={"probes": tuple(dict.fromkeys((*study.probes, "profile")))})


def _found(path: Path, rule: Decided) -> Found:
    with Evidence(path, verify=False) as evidence:
        (comparison,) = interim_result(evidence, 0).comparisons
        study = evidence.study(0)
        blocks = evidence.blocks(0)
    failed = any(block.status is BlockStatus.FAILED for block in blocks)
    summary = comparison.primary.summary if comparison.primary else None
    is_decided = _is_decided(comparison, rule)
    lost = comparison.lost_by_an_arm or (failed and study.ended_because is StudyEnd.FAILED)
    measured = Measured(
        file=path.name,
        blocks=len(comparison.blocks),
        spent_s=sum((of.ended_unix_s or of.started_unix_s) - of.started_unix_s for of in blocks),
        mean=summary.mean if summary else None,
        low=summary.low if summary else None,
        high=summary.high if summary else None,
        confidence=summary.confidence if summary else study.plan.confidence,
    )
    reason = ""
    if lost and not is_decided:
        reason = f"{LOST}; see pgdyno report {path}"
    elif not is_decided:
        trending = comparison.is_unsteady or comparison.may_trend
        reason = "the effect may depend on the length of the warm-up" if trending else SPENT
    return Found(measured, summary, is_decided, bool(lost) and not is_decided, reason)


def run_bisect(folder: Path, record: SearchRecord, view: View, interruption: Interruption) -> SearchRecord:
    """Run or continue a search in its directory, and return its record. See ``Bisection.run``."""
    repository = Path(record.repository)
    with ExitStack() as stack:
        # Without a script the build is made when the study is prepared; one that fails skips the commit.
        server_of: ServerOf = (
            stack.enter_context(script_builds(repository, record.script, folder, interruption)).server_of
            if record.script
            else lambda commit: f"git:{repository}@{commit.sha}"
        )
        measure = Measurement(view, interruption)
        return Bisection(folder, record, view, interruption, server_of, measure).run()
