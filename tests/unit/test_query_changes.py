"""Verdicts on single queries: the probability of a false one over all of them, power, and ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from measured_trials import ARMS
from synthetic_study import Synthetic, study_of

from ok_trial import ok_trial
from pgdyno.analysis.comparison import Comparison, Verdict, judge
from pgdyno.analysis.queries import CALLS_OF_CHANGE_MIN, QueryChanges, QueryTime, query_changes
from pgdyno.analysis.statistics.intervals import Method, summarize
from pgdyno.study.plan import Study

DIFFERENT = {Verdict.SLOWER, Verdict.FASTER}
PLAN = study_of(Synthetic()).plan


def comparison(**changed: object) -> Comparison:
    of = Comparison(ARMS[0], ARMS[1], (), (), (), (), (), {}, {}, None, None, 0.02)
    return replace(of, **changed)  # type: ignore[arg-type]


def changes_of(
    log_ratios: np.ndarray,
    *,
    calls: Sequence[float] = (),
    method: Method = Method.STUDENT,
    failing: Sequence[str] = (),
    plan: Study = PLAN,
    of: Comparison | None = None,
) -> QueryChanges:
    """Return the changes of queries q0, q1, … with these log ratios, of shape (blocks, queries)."""
    trials = [
        ok_trial(trial=10 * block + arm, block=block, arm=arm)
        for block in range(len(log_ratios))
        for arm in (0, 1)
    ]
    n = log_ratios.shape[1]
    times = {
        10 * block + arm: {
            f"q{j}": QueryTime(calls[j] if calls else 100, math.exp(arm * ratios[j]), 1 / n) for j in range(n)
        }
        for block, ratios in enumerate(log_ratios)
        for arm in (0, 1)
    }
    found = query_changes("script", [of or comparison()], trials, times, plan, method, failing)
    return found[0]


def noise(rng: np.random.Generator, blocks: int, queries: int) -> np.ndarray:
    """Log ratios of equal arms: noise that all queries of a block share, and heavy tails of each."""
    return rng.normal(0, 0.02, (blocks, 1)) + 0.02 * rng.standard_t(3, (blocks, queries))


def has_false_alarm(of: QueryChanges, true: Sequence[str] = ()) -> bool:
    return any(change.verdict in DIFFERENT for change in of.changes if change.name not in true)


def blocks_until_verdict(log_ratios: np.ndarray) -> int:
    """Return the block at which a study stops whose throughput follows all queries."""
    for n in range(5, len(log_ratios)):
        summary = summarize(list(-log_ratios[:n].mean(axis=1)), 0.95, Method.ANYTIME)
        if judge(summary, 0.02) is not Verdict.UNDECIDED:
            return n
    return len(log_ratios)


def require_false_alarms_within_the_level(studies: int) -> None:
    """Holm keeps the level over 20 queries, in studies of fixed length and in those that stop early."""
    rng = np.random.default_rng(24)
    fixed = stopped = 0
    for _ in range(studies):
        fixed += has_false_alarm(changes_of(noise(rng, 8, 20)))
        d = noise(rng, 30, 20)
        d[:, 0] += 0.2
        one = changes_of(d[: blocks_until_verdict(d)], method=Method.ANYTIME)
        stopped += has_false_alarm(one, ("q0",))
    limit = 0.05 * studies + 3 * math.sqrt(0.05 * 0.95 * studies)
    assert fixed <= limit, fixed / studies
    assert stopped <= limit, stopped / studies


def test_identical_arms_rarely_have_a_different_query() -> None:
    require_false_alarms_within_the_level(60)


@pytest.mark.long
def test_identical_arms_have_a_different_query_at_most_at_the_level() -> None:
    require_false_alarms_within_the_level(3000)


def test_a_slow_query_among_many_is_found_by_name() -> None:
    rng = np.random.default_rng(7)
    found = 0
    for _ in range(20):
        d = rng.normal(0, 0.02, (10, 214))
        d[:, 100] += 0.15
        slower = changes_of(d).with_verdict(Verdict.SLOWER)
        found += slower[0].name == "q100" if slower else False
    assert found >= 19


def test_differences_come_first_with_the_largest_contribution() -> None:
    d = np.random.default_rng(1).normal([0.1, 0.0, 0.5, -0.2], 1e-4, (6, 4))
    of = changes_of(d)
    assert [change.name for change in of.changes] == ["q2", "q3", "q0", "q1"]
    slower, faster, _, same = of.changes
    assert slower.verdict is Verdict.SLOWER
    assert slower.contribution == pytest.approx(math.expm1(0.5) / 4, rel=0.01)
    assert (faster.verdict, same.verdict) == (Verdict.FASTER, Verdict.SAME)
    assert of.family == 4


def test_a_query_with_few_calls_or_without_a_block_is_not_compared() -> None:
    d = np.full((6, 3), 0.3)
    of = changes_of(d, calls=(CALLS_OF_CHANGE_MIN, CALLS_OF_CHANGE_MIN - 1, 100))
    assert ({change.name for change in of.changes}, of.uncompared) == ({"q0", "q2"}, ["q1"])


def test_no_query_has_a_verdict_if_the_arm_lost_a_block_or_the_query_fails() -> None:
    d = np.random.default_rng(1).normal(0.3, 0.001, (6, 2))
    assert not has_false_alarm(changes_of(d, of=comparison(failed=[3])))
    of = changes_of(d, failing=["q0"])
    assert [change.name for change in of.with_verdict(Verdict.SLOWER)] == ["q1"]


def test_four_blocks_and_a_single_query_give_no_verdict() -> None:
    assert not has_false_alarm(changes_of(np.full((4, 2), 0.3)))
    trials = [ok_trial(trial=arm, block=0, arm=arm) for arm in (0, 1)]
    times = {arm: {"q": QueryTime(100, 1.0, 1.0)} for arm in (0, 1)}
    assert query_changes("script", [comparison()], trials, times, PLAN, Method.STUDENT) == []
