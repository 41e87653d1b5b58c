"""Budget of a study: kept within the length of a trial, whatever the duration of blocks."""

from hypothesis import given
from hypothesis import strategies as st

from pgdyno.measure.study_runner import Budget


@given(budget_s=st.floats(10, 1e5), blocks=st.lists(st.floats(1, 100), min_size=1, max_size=500))
def test_the_budget_is_kept_within_half_a_block(budget_s: float, blocks: list[float]) -> None:
    budget = Budget(budget_s, spent_s=0.0)
    ran = 0
    for block_s in blocks:
        if not budget.allows_another():
            break
        budget.spend(block_s)
        ran += 1
    # The first block runs regardless of the budget. A later one starts if half of the previous block still
    # fits, so the overrun is at most half of that one plus the excess of its own duration.
    if ran > 1:
        before_s, last_s = blocks[ran - 2], blocks[ran - 1]
        assert budget.spent_s <= budget_s + last_s - before_s / 2 + 1e-6


def test_time_spent_before_a_resume_counts() -> None:
    budget = Budget(budget_s=100, spent_s=90)
    budget.spend(30)
    assert not budget.allows_another()


def test_a_study_that_has_spent_its_time_runs_nothing_more() -> None:
    assert not Budget(budget_s=100, spent_s=105).allows_another()
    assert Budget(budget_s=100, spent_s=0).allows_another()


def test_the_number_of_blocks_is_guessed_from_the_last() -> None:
    budget = Budget(budget_s=100, spent_s=0)
    assert budget.passes_expected(0) is None
    budget.spend(20)
    assert budget.passes_expected(1) == 5


def test_the_running_block_is_included_in_the_expected_ones() -> None:
    budget = Budget(100.0, spent_s=90.0)
    budget.spend(12.0)
    assert budget.passes_expected(7) == 8
