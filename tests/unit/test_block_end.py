"""The end of a block: kinds of transactions that never succeed, and the rates that the progress shows."""

from __future__ import annotations

from collections import Counter

import pytest

from example_studies import make_study
from pgdyno.errors import WorkloadError
from pgdyno.measure.block import rate_of_trial, require_working_kinds
from pgdyno.results.records import CapacitySearch, DriverFacts, Failure
from pgdyno.study.values import SearchStep

MISSING = Failure("pay", "42P01", 70, 'relation "x" does not exist (SQLSTATE 42P01)')


def test_a_kind_that_never_succeeds_is_an_error_with_its_message() -> None:
    with pytest.raises(
        WorkloadError, match=r'pay failed on 18 \(SQLSTATE 42P01: relation "x" does not exist\)'
    ):
        require_working_kinds("18", {"read": 5}, [MISSING])


@pytest.mark.parametrize("sqlstate", ["40001", "40P01", "57P01", "53300", "connection", "abandoned"])
def test_conflicts_and_lost_connections_may_end(sqlstate: str) -> None:
    require_working_kinds("18", {}, [Failure("pay", sqlstate, 70)])


def test_a_kind_with_a_success_works() -> None:
    require_working_kinds("18", {"pay": 1}, [MISSING])


def test_a_few_failures_prove_nothing() -> None:
    require_working_kinds("18", {}, [Failure("pay", "42P01", 3)])


def test_the_progress_shows_the_capacity_that_was_found_and_not_the_rate_of_the_window() -> None:
    study, ok = make_study(), Counter({"new_order": 500})
    assert rate_of_trial(study, 0, ok, 10.0, DriverFacts()) == study.workload.pace.of(ok, 10.0)
    seeking = study.model_copy(update={"capacity": "p99 < 20ms"})
    tried = [SearchStep(100.0, 5.0), SearchStep(110.0, 80.0)]
    found = rate_of_trial(
        seeking, 0, ok, 10.0, DriverFacts(capacity=CapacitySearch("p99 < 20ms", 200.0, tried))
    )
    assert found == pytest.approx(105, abs=1)
    assert rate_of_trial(seeking, 0, ok, 10.0, DriverFacts()) is None
