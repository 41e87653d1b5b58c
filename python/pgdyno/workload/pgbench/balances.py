"""Do pgbench's tables agree with each other and with the driver, after scripts whose effect is known?

A script of effect "all" adds one amount to an account, a teller and a branch and writes it into the history;
one of effect "accounts" leaves tellers and branches out; one of effect "none" changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection

from pgdyno.study.pgbench_parameters import Effect
from pgdyno.workload.check import Check
from pgdyno.workload.pgbench.sums import ACCOUNTS_PER_BRANCH, TELLERS_PER_BRANCH, Sums


def check_rows(sums: Sums) -> Check:
    """Ten tellers and 100 000 accounts to a branch."""
    due = (sums.branches * TELLERS_PER_BRANCH, sums.branches * ACCOUNTS_PER_BRANCH)
    detail = f"{sums.branches} branches, {sums.tellers} tellers, {sums.accounts} accounts"
    passed = sums.branches > 0 and (sums.tellers, sums.accounts) == due
    return Check(
        "rows", passed, float(abs(sums.tellers - due[0]) + abs(sums.accounts - due[1])), None, detail
    )


def check_balances(grown: Sums, effects: Collection[Effect]) -> list[Check]:
    """What must hold of the growth since the balances last agreed. Nothing where an effect is unknown."""
    if "unknown" in effects:
        return []
    checks = [
        _equal(
            "tellers agree with branches", "tellers", grown.teller_balance, "branches", grown.branch_balance
        ),
        _equal(
            "accounts agree with history", "accounts", grown.account_balance, "history", grown.history_delta
        ),
    ]
    if "accounts" not in effects:
        pair = ("accounts", grown.account_balance, "tellers", grown.teller_balance)
        checks.append(_equal("accounts agree with tellers", *pair))
    if "all" not in effects:
        checks.append(_equal("tellers unchanged", "tellers", grown.teller_balance, "before", 0))
    if not {"all", "accounts"} & set(effects):
        checks.append(_equal("accounts unchanged", "accounts", grown.account_balance, "before", 0))
    return checks


def check_history(grown: int, committed: int) -> Check:
    """Rows of the history = transactions that write one, as the driver counted their commits."""
    detail = f"driver committed {committed}, the history has {grown} more"
    return Check("history conserved", grown == committed, float(grown - committed), None, detail)


def _equal(name: str, what: str, value: int, other: str, due: int) -> Check:
    detail = f"{what} have grown by {value}, {other} by {due}"
    return Check(name, value == due, float(value - due), None, detail)
