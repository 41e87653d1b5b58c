"""Decisions of ``pgdyno bisect`` from anytime-valid intervals.

Do GOOD and BAD differ? Is a commit like GOOD or like BAD? Does the commit found differ from its parent?
Effects are log ratios x of a commit against GOOD; d is that of BAD. Let α be the level of a test.

*Ends.* The two-sided interval of d has a limit nearer to 0, the reference f. With a probability of at least
1 − α, f lies between 0 and d. Blocks are added until |f| ≥ PRECISION · |mean|.

*Commit.* Two one-sided sequential tests, each at α. A commit is like BAD if x ≤ f · TOLERANCE is rejected,
and like GOOD if x ≥ f is rejected (for f > 0; mirrored for f < 0). If x is 0, or up to f · TOLERANCE, BAD is
wrong, and its probability is at most α. If x is d, or from f on, GOOD is wrong, and its probability is at
most α. A wide gap between the two limits makes tests short (ADR 20). A commit within the gap has a part of
the effect; either outcome is correct, and a narrow interval chooses the nearer end.
"""

from __future__ import annotations

from pgdyno.analysis.comparison.verdict import Verdict, judge
from pgdyno.analysis.statistics.effect import LogRatioSummary, Method
from pgdyno.study.commit_search import Outcome

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
    return judge(summary, summary.equivalence(summary.confidence), margin) is Verdict.SAME


def outcome_of(summary: LogRatioSummary, reference: float) -> Outcome:
    """Return whether a commit is like GOOD or like BAD. Both tests have the level 1 − ``confidence``."""
    along = (summary if reference > 0 else summary.mirrored()).equivalence(summary.confidence)
    far = abs(reference)
    near = TOLERANCE * far
    if along.method is not Method.ANYTIME or along.low is None or along.high is None:
        return Outcome.UNDECIDED
    is_bad, is_good = along.low > near, along.high < far
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
