"""Binary search for the commit at which the verdict changes. Pure: no repository, server or clock.

Commits are numbers: 0 is GOOD, ``last`` is BAD, and the answer is one of 1 … ``last``. Each test of a commit
may be wrong. The search spends a level α on its tests, so that any of them is wrong with a probability of at
most α (Boole's inequality). Before a test its level is chosen from the past only: an equal share of the rest
for each test that is still needed. Skipped commits can make more tests necessary. The shares then become
smaller, and their sum stays α.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum


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
