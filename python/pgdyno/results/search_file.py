"""The state of ``pgdyno bisect`` in a directory: search.json, beside the results file of each step.

It is enough to resume a search, and to report it.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from pgdyno.errors import EvidenceError, UsageError
from pgdyno.study.commit_search import CommitSearch, Outcome, steps_needed
from pgdyno.study.plan import Study

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
    def spent_s(self) -> float:
        """Time of all blocks."""
        found = (self.ends_measured, self.confirmation_measured, *(step.measured for step in self.steps))
        return sum(one.spent_s for one in found if one is not None)


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
