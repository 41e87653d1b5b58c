"""The search for a commit: its state, its steps and its decisions.

- Binary search for the commit at which the verdict changes. Pure: no repository, server or clock.
- Decisions of ``pgdyno bisect`` from anytime-valid intervals.
- The state of ``pgdyno bisect`` in a directory: search.json, beside the results file of each step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from pgdyno.analysis.comparison import Verdict, judge
from pgdyno.analysis.statistics.intervals import LogRatioSummary, Method, ends
from pgdyno.errors import EvidenceError, UsageError
from pgdyno.study.plan import Study

# ----------------------------------------------------------------------
# Binary search for the commit at which the verdict changes. Pure: no repository, server or clock.
#
# Commits are numbers: 0 is GOOD, ``last`` is BAD, and the answer is one of 1 … ``last``. Each test of a
# commit may be wrong. The search spends a level α on its tests, so that any of them is wrong with a
# probability of at most α (Boole's inequality). Before a test its level is chosen from the past only: an
# equal share of the rest for each test that is still needed. Skipped commits can make more tests necessary.
# The shares then become smaller, and their sum stays α.
# ----------------------------------------------------------------------


class Outcome(StrEnum):
    """Outcome of the test of a commit. Undecided ends the search."""

    GOOD = "good"
    BAD = "bad"
    SKIPPED = "skipped"
    UNDECIDED = "undecided"


PLACES = (1 / 2, 3 / 8, 5 / 8, 1 / 4, 3 / 4)
"""Places of the next test among the commits that are left, by the number of skipped ones between them. A
commit that does not build often has neighbors that do not build either."""


def steps_needed(commits: int) -> int:
    """Return the number of tests that find one of ``commits`` ≥ 1 by halving."""
    return math.ceil(math.log2(commits))


@dataclass(frozen=True)
class CommitSearch:
    """State of a search: ``good`` is the last commit like GOOD, ``bad`` the first one like BAD.

    ``level``: what the tests that follow may spend in all.
    """

    good: int
    bad: int
    level: float
    skipped: frozenset[int] = field(default_factory=frozenset)

    @property
    def untested(self) -> list[int]:
        """Commits between the two that can be tested, in their order."""
        return [commit for commit in range(self.good + 1, self.bad) if commit not in self.skipped]

    @property
    def steps_left(self) -> int:
        """Number of tests that are needed, if no further commit is skipped."""
        return steps_needed(len(self.untested) + 1)

    @property
    def next_commit(self) -> int | None:
        """The commit to test next; None at the end of the search."""
        untested = self.untested
        skipped = self.bad - self.good - 1 - len(untested)
        return untested[int((len(untested) - 1) * PLACES[skipped % len(PLACES)])] if untested else None

    @property
    def next_level(self) -> float:
        """Level of the next test."""
        return self.level / max(1, self.steps_left)

    @property
    def is_found(self) -> bool:
        """True if a single commit is left."""
        return self.bad - self.good == 1

    def after(self, commit: int, outcome: Outcome) -> CommitSearch:
        """Return the state after the test of ``next_commit``. A skipped commit spends nothing."""
        if outcome is Outcome.SKIPPED:
            return replace(self, skipped=self.skipped | {commit})
        level = self.level - self.next_level
        if outcome is Outcome.GOOD:
            return replace(self, good=commit, level=level)
        return replace(self, bad=commit, level=level)


def search_commits(search: CommitSearch, test: Callable[[CommitSearch, int], Outcome]) -> CommitSearch:
    """Test commits until the search ends or a test stays undecided. Return the last state."""
    while (commit := search.next_commit) is not None:
        outcome = test(search, commit)
        if outcome is Outcome.UNDECIDED:
            break
        search = search.after(commit, outcome)
    return search


# ----------------------------------------------------------------------
# Decisions of ``pgdyno bisect`` from anytime-valid intervals.
#
# Do GOOD and BAD differ? Is a commit like GOOD or like BAD? Does the commit found differ from its parent?
# Effects are log ratios x of a commit against GOOD; d is that of BAD. Let α be the level of a test.
#
# *Ends.* The two-sided interval of d has a limit nearer to 0, the reference f. With a probability of at least
# 1 − α, f lies between 0 and d. Blocks are added until |f| ≥ PRECISION · |mean|.
#
# *Commit.* Two one-sided sequential tests, each at α. A commit is like BAD if x ≤ f · TOLERANCE is rejected,
# and like GOOD if x ≥ f is rejected (for f > 0; mirrored for f < 0). If x is 0, or up to f · TOLERANCE, BAD
# is wrong, and its probability is at most α. If x is d, or from f on, GOOD is wrong, and its probability is
# at most α. A wide gap between the two limits makes tests short (ADR 20). A commit within the gap has a part
# of the effect; either outcome is correct, and a narrow interval chooses the nearer end.
# ----------------------------------------------------------------------

PRECISION = 0.6
"""Share of the estimated effect that its limit must reach. More makes the test of the ends longer, and those
of commits shorter: python -m bench bisect."""

TOLERANCE = 0.25
"""Share of the reference up to which a commit counts as like GOOD. Builds of the same source differ by a
percent, because their code has other addresses."""


def reference_of(summary: LogRatioSummary) -> float | None:
    """Return the limit of a two-sided interval that is nearer to 0; None if the interval contains 0.

    Before the first interim analysis it is Student's, which allows no decision: further blocks follow.
    """
    low, high = summary.low, summary.high
    if summary.method is not Method.ANYTIME or low is None or high is None or low <= 0 <= high:
        return None
    return low if low > 0 else high


def is_precise(summary: LogRatioSummary) -> bool:
    """Return whether an effect is known well enough, of the ends or of the commit found."""
    reference = reference_of(summary)
    return reference is not None and abs(reference) >= PRECISION * abs(summary.mean)


def are_ends_decided(summary: LogRatioSummary, margin: float) -> bool:
    """Return whether the ends differ by a known effect, or are the same within the margin."""
    return is_precise(summary) or are_ends_same(summary, margin)


def are_ends_same(summary: LogRatioSummary, margin: float) -> bool:
    """Return whether the ends are the same within the margin, as in a comparison."""
    return judge(summary, margin) is Verdict.SAME


def outcome_of(summary: LogRatioSummary, reference: float) -> Outcome:
    """Return whether a commit is like GOOD or like BAD. Both tests have the level 1 − ``confidence``."""
    along = summary if reference > 0 else summary.mirrored()
    # An interval with twice the level has this one at each end.
    low, high = ends(along, 2 * along.confidence - 1)
    far = abs(reference)
    near = TOLERANCE * far
    if along.method is not Method.ANYTIME:
        return Outcome.UNDECIDED
    is_bad, is_good = low > near, high < far
    if is_bad and is_good:
        return Outcome.BAD if along.mean > (near + far) / 2 else Outcome.GOOD
    return Outcome.BAD if is_bad else Outcome.GOOD if is_good else Outcome.UNDECIDED


def is_confirmation_decided(summary: LogRatioSummary, reference: float) -> bool:
    """Return whether the effect of the commit found against its parent is known well enough.

    It is also decided if it is less than half of the reference.
    """
    along = summary if reference > 0 else summary.mirrored()
    is_analyzed = along.method is Method.ANYTIME and along.high is not None
    return is_precise(summary) or (is_analyzed and (along.high or 0.0) < abs(reference) / 2)


def is_confirmed(summary: LogRatioSummary, reference: float) -> bool:
    """Return whether the interval shows a change of the commit in the direction of the ends."""
    found = reference_of(summary)
    return found is not None and (found > 0) == (reference > 0)


# ----------------------------------------------------------------------
# The state of ``pgdyno bisect`` in a directory: search.json, beside the results file of each step.
#
# It is enough to resume a search, and to report it.
# ----------------------------------------------------------------------

NAME = "search.json"
COMMITS_MAX = 1_000_000
"""More commits than any repository of PostgreSQL has. A longer list is a wrong range."""


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Commit(_Value):
    """A commit of the repository: its full hash, and the first line of its message."""

    sha: str
    subject: str

    @property
    def short(self) -> str:
        """Abbreviated hash, as PostgreSQL's commits are named in mails."""
        return self.sha[:10]

    @property
    def title(self) -> str:
        """Text for output: ``1a2b3c4d5e 'Fix planner'``."""
        return f"{self.short} {self.subject!r}"


class Measured(_Value):
    """Effect in one results file: log ratios of a commit against the baseline, with an interval.

    ``low`` and ``high`` are None without an interval. ``file``: name of the results file.
    """

    file: str
    blocks: int
    spent_s: float
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float


class Step(_Value):
    """The test of commit number ``commit``. ``measured``: None if it was skipped before its first block.

    ``level``: probability of a wrong outcome, which is spent. ``reason``: why it was skipped or is undecided.
    """

    commit: int
    outcome: Outcome
    level: float
    measured: Measured | None = None
    reason: str = ""


class Ends(StrEnum):
    """Result of the comparison of GOOD and BAD."""

    DIFFERENT = "different"
    SAME = "same"
    UNDECIDED = "undecided"


class Confirmation(StrEnum):
    """Result of the comparison of the commit found with its parent."""

    CONFIRMED = "confirmed"
    NOT_CONFIRMED = "not confirmed"
    UNDECIDED = "undecided"


class SearchRecord(_Value):
    """A search. ``commits``: GOOD first, BAD last. ``study``: that of a step, with its placeholder arms.

    ``script``: command that builds a commit; empty if pgdyno builds it. ``ends``, ``confirmation``: None
    until they are measured. ``reference``: the log ratio from which commits count as like BAD. ``minutes``:
    total time for blocks.
    """

    repository: str
    commits: tuple[Commit, ...]
    study: Study
    script: str = ""
    confidence: float
    minutes: float
    ends: Ends | None = None
    ends_measured: Measured | None = None
    ends_reason: str = ""
    reference: float | None = None
    steps: tuple[Step, ...] = ()
    confirmation: Confirmation | None = None
    confirmation_measured: Measured | None = None
    confirmation_reason: str = ""

    @property
    def last(self) -> int:
        """Number of BAD."""
        return len(self.commits) - 1

    @property
    def level_of_ends(self) -> float:
        """Level of the comparison of GOOD and BAD: an equal share for each test of the search."""
        return (1 - self.confidence) / (1 + steps_needed(self.last))

    @property
    def search(self) -> CommitSearch:
        """State of the search after the steps so far."""
        state = CommitSearch(0, self.last, 1 - self.confidence - self.level_of_ends)
        for step in self.steps:
            if step.outcome is not Outcome.UNDECIDED:
                state = state.after(step.commit, step.outcome)
        return state

    @property
    def level_spent(self) -> float:
        """Maximum probability that any outcome so far is wrong: the sum of the levels (Boole)."""
        return self.level_of_ends + sum(step.level for step in self.steps)

    @property
    def undecided(self) -> Step | None:
        """The step that ended the search, or None."""
        last = self.steps[-1] if self.steps else None
        return last if last is not None and last.outcome is Outcome.UNDECIDED else None

    @property
    def measured(self) -> list[Measured]:
        """All comparisons so far."""
        found = (self.ends_measured, self.confirmation_measured, *(step.measured for step in self.steps))
        return [one for one in found if one is not None]

    @property
    def spent_s(self) -> float:
        """Time of all blocks."""
        return sum(one.spent_s for one in self.measured)


def read_search(folder: Path) -> SearchRecord:
    """Return the search in a directory. Raises UsageError: no search; EvidenceError: damaged."""
    path = folder / NAME
    try:
        return SearchRecord.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise UsageError(f"{folder} has no search ({NAME}): name the directory of pgdyno bisect") from None
    except ValidationError as error:
        raise EvidenceError(f"{path} is damaged ({error.errors()[0]['msg']}): start a new search") from error


def write_search(folder: Path, record: SearchRecord) -> None:
    """Write the search atomically: after a crash the file has the state before or after the step."""
    part = folder / f".{NAME}.part"
    part.write_text(record.model_dump_json(indent=1), encoding="utf-8")
    part.replace(folder / NAME)
