"""Checks after a pgbench trial: valid growth passes, and each kind of lost change is detected."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import astuple, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pgdyno.errors import DatasetError
from pgdyno.server.engine import TargetResult
from pgdyno.workloads.pgbench import data
from pgdyno.workloads.pgbench.data import Pgbench, Sums, check_balances, check_history, check_rows
from pgdyno.workloads.pgbench.parameters import Effect, PgbenchParameters, Script

PRISTINE = Sums.pristine(2)
MOVED = replace(
    PRISTINE, branch_balance=5, teller_balance=5, account_balance=5, history=1, history_delta=5
)  # by one tpcb-like
SKIPPED = replace(PRISTINE, account_balance=7, history=1, history_delta=7)  # by one simple-update


def failed(grown: Sums, *effects: Effect) -> set[str]:
    return {check.name for check in check_balances(grown, effects) if not check.passed}


def test_the_state_after_each_script_passes() -> None:
    nothing, one = PRISTINE.since(PRISTINE), MOVED.since(PRISTINE)
    skipped = SKIPPED.since(PRISTINE)
    both = Sums(*(a + b for a, b in zip(astuple(one), astuple(skipped), strict=True)))
    assert failed(one, "all") == failed(one, "all", "none") == set()
    assert failed(skipped, "accounts") == failed(skipped, "accounts", "none") == set()
    assert failed(both, "all", "accounts") == set()
    assert failed(nothing, "none") == set()


@pytest.mark.parametrize(
    ("column", "effects", "names"),
    [
        ("branch_balance", ("all",), {"tellers agree with branches"}),
        ("teller_balance", ("all",), {"tellers agree with branches", "accounts agree with tellers"}),
        ("account_balance", ("all",), {"accounts agree with history", "accounts agree with tellers"}),
        ("history_delta", ("all",), {"accounts agree with history"}),
        ("account_balance", ("all", "accounts"), {"accounts agree with history"}),
        ("teller_balance", ("accounts",), {"tellers agree with branches", "tellers unchanged"}),
        (
            "account_balance",
            ("none",),
            {"accounts agree with history", "accounts agree with tellers", "accounts unchanged"},
        ),
    ],
)
def test_a_lost_or_spurious_change_is_found(
    column: str, effects: tuple[Effect, ...], names: set[str]
) -> None:
    grown = PRISTINE.since(PRISTINE)
    assert failed(replace(grown, **{column: 1}), *effects) == names


def test_lost_rows_and_lost_commits_are_found() -> None:
    assert check_rows(PRISTINE).passed
    assert not check_rows(replace(PRISTINE, tellers=19)).passed
    assert not check_rows(replace(PRISTINE, accounts=PRISTINE.accounts + 1)).passed
    assert not check_rows(Sums.pristine(0)).passed
    assert check_history(3, 3).passed
    assert not check_history(2, 3).passed


def test_no_balance_is_checked_for_scripts_with_unknown_effect() -> None:
    assert check_balances(MOVED, ("all", "unknown")) == []


def end(
    monkeypatch: pytest.MonkeyPatch,
    scripts: list[Script],
    totals: Mapping[str, Mapping[str, int]],
    after: Sums,
    log: str | None = None,
) -> dict[str, bool]:
    @contextmanager
    def closing(connection: object) -> Any:
        yield connection

    monkeypatch.setattr(data, "closing", closing)
    monkeypatch.setattr(data, "read_sums", lambda _: after)
    parameters = PgbenchParameters(scale=2, scripts=tuple(scripts))
    checks = Pgbench(parameters).checks(2, restored=True)
    found = checks.end(lambda: cast(Any, None), TargetResult({}, totals, {}, {}, 0), log)
    return {check.name: check.passed for check in found}


def counts(ok: int, failed: int = 0, retried: int = 0) -> dict[str, int]:
    return {"ok": ok, "failed": failed, "retried": retried, "rolled_back": 0, "skipped": 0}


def test_a_trial_of_builtin_scripts_is_held_against_the_drivers_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scripts = [Script(name="tpcb-like"), Script(name="select-only", weight=3)]
    totals = {"tpcb-like": counts(1), "select-only": counts(3)}
    found = end(monkeypatch, scripts, totals, MOVED)
    assert {"history conserved", "mix"} <= found.keys() and all(found.values())
    for wrong, check in (("tpcb-like", "history conserved"), ("select-only", "mix")):
        more = totals | {wrong: counts(2 if wrong == "tpcb-like" else 3000)}
        assert not end(monkeypatch, scripts, more, MOVED)[check]


def test_errors_of_a_custom_script_are_expected_in_the_number_counted_by_the_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = "2026 ERROR:  duplicate key value violates unique constraint\n2026 WARNING:  mine\n"
    own = [Script(name="f.sql", text="INSERT …")]
    assert end(monkeypatch, own, {"f.sql": counts(5, failed=1)}, MOVED, log) == {"server log": True}
    assert end(monkeypatch, own, {"f.sql": counts(5)}, MOVED, log) == {"server log": False}
    builtin = end(monkeypatch, [Script(name="tpcb-like")], {"tpcb-like": counts(1, failed=1)}, MOVED, log)
    assert not builtin["server log"]


@pytest.mark.parametrize(
    ("there", "message"),
    [
        ({"unlogged": 1}, "have unlogged true, not false: use unlogged true, or load them again"),
        ({"accounts_copy": 1}, "have accounts_copy true, not false: use accounts_copy true"),
        ({"fillfactor": 90}, "have fillfactor 90, not 100: use fillfactor 90"),
        ({"partitions": 4, "partition_method": "hash"}, "have partitions 4, not 0: use partitions 4"),
        ({"indexes": ""}, r"have indexes none, not pgbench_history \(tid\): use indexes none"),
        ({}, None),
    ],
)
def test_tables_that_differ_are_refused_with_the_key_of_a_study_file(
    there: Mapping[str, int | str], message: str | None
) -> None:
    workload = Pgbench(PgbenchParameters(scale=2, indexes=("pgbench_history (tid)",)))
    found = {**workload.parameters.shape(), **there}
    rows = SimpleNamespace(
        fetchone=lambda: (2,),
        fetchall=lambda: [tuple(found.values())],
        description=[SimpleNamespace(name=name) for name in found],
    )
    connection = cast(Any, SimpleNamespace(execute=lambda *_: rows, info=SimpleNamespace(dbname="d")))
    if message is None:
        workload.require(connection)
    else:
        with pytest.raises(DatasetError, match=message):
            workload.require(connection)


def test_the_forecast_grows_with_copy_and_indexes() -> None:
    def added(scale: int = 2, **data: Any) -> int:
        return Pgbench(PgbenchParameters(scale=scale, **data)).bytes_completed

    assert added() == 0
    indexed, copied = added(indexes=("pgbench_accounts (bid, abalance)",)), added(accounts_copy=True)
    assert 0 < indexed < copied
    assert added(scale=4, accounts_copy=True) == 2 * copied
