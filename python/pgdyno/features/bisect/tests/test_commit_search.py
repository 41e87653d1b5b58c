"""Binary search over commits: any planted commit is found, and the levels never exceed the bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.features.bisect.search import CommitSearch, Outcome, search_commits, steps_needed


def found(planted: int, last: int, broken: frozenset[int] = frozenset()) -> tuple[CommitSearch, list[float]]:
    levels: list[float] = []

    def test(search: CommitSearch, commit: int) -> Outcome:
        assert search.good < commit < search.bad
        if commit in broken:
            return Outcome.SKIPPED
        levels.append(search.next_level)
        return Outcome.BAD if commit >= planted else Outcome.GOOD

    return search_commits(CommitSearch(0, last, 0.05), test), levels


@pytest.mark.parametrize("last", [1, 2, 3, 7, 8, 64, 65])
def test_every_planted_commit_is_found_in_the_least_number_of_tests(last: int) -> None:
    for planted in range(1, last + 1):
        end, levels = found(planted, last)
        assert end.is_found and end.bad == planted
        assert len(levels) <= steps_needed(last)
        assert sum(levels) <= 0.05 + 1e-12
        if last in (8, 64):  # every test halves the commits
            assert levels == pytest.approx([0.05 / steps_needed(last)] * steps_needed(last))


@given(st.data())
def test_a_range_with_skipped_commits_has_the_planted_one_and_keeps_the_bound(data: st.DataObject) -> None:
    last = data.draw(st.integers(1, 80))
    planted = data.draw(st.integers(1, last))
    broken = frozenset(data.draw(st.sets(st.integers(1, last), max_size=last))) - {last}
    end, levels = found(planted, last, broken)
    assert end.good < planted <= end.bad
    assert set(range(end.good + 1, end.bad)) <= broken  # nothing that can be tested is left
    assert sum(levels) <= 0.05 + 1e-12 and all(level > 0 for level in levels)


def test_an_undecided_test_ends_the_search_with_what_is_known() -> None:
    outcomes = iter([Outcome.BAD, Outcome.UNDECIDED])
    end = search_commits(CommitSearch(0, 8, 0.05), lambda *_: next(outcomes))
    assert (end.good, end.bad, end.is_found) == (0, 4, False)
    assert end.next_commit == 2 and end.level == pytest.approx(0.05 * 2 / 3)


def test_after_a_skipped_commit_a_distant_one_is_tested() -> None:
    search, tried = CommitSearch(0, 64, 0.05), []
    for _ in range(4):
        tried.append(search.next_commit)
        search = search.after(tried[-1], Outcome.SKIPPED)
    assert tried[0] == 32 and min(abs(a - b) for a in tried for b in tried if a != b) > 4
