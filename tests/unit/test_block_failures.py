"""Kinds of transactions that never succeed: a study ends with their error instead of repeating it."""

from __future__ import annotations

import pytest

from pgdyno.errors import WorkloadError
from pgdyno.lab.block import require_working_kinds
from pgdyno.results.records import Failure

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
