"""Decisions of a bisect search: which intervals decide, and how often they are wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pgdyno.analysis.statistics.intervals import LogRatioSummary, Method, student, summarize, with_error
from pgdyno.features.bisect.search import (
    PRECISION,
    TOLERANCE,
    Outcome,
    are_ends_decided,
    are_ends_same,
    is_confirmation_decided,
    is_confirmed,
    is_precise,
    outcome_of,
    reference_of,
)

EXACT = 1e-6
"""An SD at which the interval is a point."""


def summary(mean: float, sd: float, n: int = 8, confidence: float = 0.99) -> LogRatioSummary:
    return with_error(mean, sd, n, confidence, Method.ANYTIME)


@pytest.mark.parametrize(
    ("mean", "reference", "outcome"),
    [
        (0.0, -0.04, Outcome.GOOD),
        (-0.05, -0.04, Outcome.BAD),
        (0.05, -0.04, Outcome.GOOD),  # faster, where BAD is slower
        (0.05, 0.04, Outcome.BAD),
        (-0.05, 0.04, Outcome.GOOD),
        # Within the gap the nearer end is chosen.
        (-0.04 * (1 + TOLERANCE) / 2 - 0.001, -0.04, Outcome.BAD),
        (-0.04 * (1 + TOLERANCE) / 2 + 0.001, -0.04, Outcome.GOOD),
    ],
)
def test_a_narrow_interval_decides_for_the_nearer_end(
    mean: float, reference: float, outcome: Outcome
) -> None:
    assert outcome_of(summary(mean, EXACT), reference) is outcome


def test_a_wide_interval_decides_nothing() -> None:
    wide = summary(-0.05, 0.2)
    assert outcome_of(wide, -0.04) is Outcome.UNDECIDED
    assert reference_of(wide) is None and not is_precise(wide)
    assert not are_ends_decided(wide, 0.02) and not is_confirmation_decided(wide, -0.04)
    assert not is_confirmed(wide, -0.04)


def test_students_interval_of_the_first_blocks_decides_nothing() -> None:
    # After two blocks a study has Student's interval, which is not valid for several analyses.
    first = student([-0.05, -0.0501], 0.95)
    assert first.high is not None and first.high < 0
    assert outcome_of(first, -0.04) is Outcome.UNDECIDED
    assert reference_of(first) is None and not are_ends_same(first, 0.02)


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_reference_is_the_limit_nearer_to_zero(sign: int) -> None:
    found = summary(sign * 0.05, 0.01)
    reference = reference_of(found)
    assert reference is not None and 0 < sign * reference < 0.05
    assert reference in (found.low, found.high)
    assert is_precise(found) == (abs(reference) >= PRECISION * 0.05)


def test_a_commit_with_a_part_of_the_effect_is_confirmed_and_measured_no_further() -> None:
    partial = summary(-0.01, 0.004, n=8)
    assert is_confirmation_decided(partial, -0.04) and not is_precise(partial)
    assert not is_confirmation_decided(summary(-0.01, 0.02, n=8), -0.04)
    assert is_confirmed(summary(-0.02, 0.004), -0.04)
    assert not is_confirmed(summary(0.02, 0.004), -0.04)  # the wrong direction


def share_wrong(truth: float, reference: float, level: float, wrong: Outcome, paths: int = 400) -> float:
    """Return how often the first decision within 60 blocks of SD 2.5% is the wrong one."""
    rng = np.random.default_rng(7)
    count = 0
    for d in truth + rng.normal(0, 0.025, (paths, 60)):
        for n in range(5, 61):
            outcome = outcome_of(summarize(list(d[:n]), 1 - level, Method.ANYTIME), reference)
            if outcome is not Outcome.UNDECIDED:
                count += outcome is wrong
                break
    return count / paths


def test_wrong_outcomes_are_as_rare_as_the_level_promises() -> None:
    reference, level = -0.04, 0.2
    error = 3 * math.sqrt(level * (1 - level) / 400)
    near = TOLERANCE * reference
    assert 0 < share_wrong(near, reference, level, Outcome.BAD) < level + error
    assert 0 < share_wrong(reference, reference, level, Outcome.GOOD) < level + error
