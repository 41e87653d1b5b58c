"""Did the driver draw what TPC-C demands? Statistical tests of its tally.

The tally is that of docs/reference/engine-protocol.md ("The tally of tpcc").

The tally counts what the driver meant to do, at the moment it drew it, so that retries and failures do not
bias it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pgdyno.workload.check import Check
from pgdyno.workload.goodness import Fit, fit_distribution, fit_share, fit_weights, tests_of
from pgdyno.workload.tpcc.deck import fit_deck
from pgdyno.workload.tpcc.nurand import C_ID, C_LAST, ITEM

ROLLBACK_SHARE = 0.01
REMOTE_LINE_SHARE = 0.01
REMOTE_PAYMENT_SHARE = 0.15
BY_NAME_SHARE = 0.60
LINES_MIN, LINES_MAX = 5, 15
C_ID_BIN, ITEM_BIN = 3, 100
C_LAST_DIFFERENCE_MIN, C_LAST_DIFFERENCE_MAX = 65, 119
C_LAST_DIFFERENCES_BARRED = (96, 112)

Mix = str | Mapping[str, float]
Tally = Mapping[str, Any]


def check_conformance(tally: Tally, *, warehouses: int, clients: int, mix: Mix = "deck") -> list[Check]:
    """All tests of one target's ``tally``; ``mix`` is ``"deck"`` or the weights of the kinds."""
    return [check_accounts(tally), *tests_of(dict(_fits(tally, warehouses, clients, mix)))]


def _fits(tally: Tally, warehouses: int, clients: int, mix: Mix) -> Iterator[tuple[str, Fit]]:
    drawn = tally["drawn"]
    others = warehouses > 1  # a single warehouse has no remote ones
    yield "mix", fit_deck(drawn, clients) if isinstance(mix, str) else fit_weights(drawn, mix)
    yield "rollback share", fit_share(tally["rollbacks_drawn"], drawn["new_order"], ROLLBACK_SHARE)
    yield (
        "remote order lines",
        fit_share(tally["order_lines_remote"], tally["order_lines"], REMOTE_LINE_SHARE if others else 0.0),
    )
    yield (
        "remote payments",
        fit_share(tally["payments_remote"], drawn["payment"], REMOTE_PAYMENT_SHARE if others else 0.0),
    )
    for kind in ("payment", "order_status"):
        yield f"{kind} by last name", fit_share(tally["by_name"][kind], drawn[kind], BY_NAME_SHARE)
    lines = LINES_MAX - LINES_MIN + 1
    yield "lines per order", fit_distribution(tally["lines_per_order"], np.full(lines, 1 / lines))
    c = tally["nurand_c"]
    yield "NURand of last names", fit_distribution(tally["c_last"], C_LAST.probability(c["c_last"]))
    yield (
        "NURand of customers",
        fit_distribution(tally["c_id"], _binned(C_ID.probability(c["c_id"]), C_ID_BIN)),
    )
    yield "NURand of items", fit_distribution(tally["item"], _binned(ITEM.probability(c["item"]), ITEM_BIN))


def _binned(probability: npt.NDArray[np.float64], width: int) -> npt.NDArray[np.float64]:
    return np.asarray(probability.reshape(-1, width).sum(axis=1))


def check_accounts(tally: Tally) -> Check:
    """The tally's counters must add up among themselves: a driver that miscounts cannot be judged by its
    counts."""
    drawn, by_name = tally["drawn"], tally["by_name"]
    named = sum(by_name.values())
    lines = range(LINES_MIN, LINES_MAX + 1)
    sums = {
        "orders by number of lines": (sum(tally["lines_per_order"]), drawn["new_order"]),
        "order lines": (
            sum(n * count for n, count in zip(lines, tally["lines_per_order"], strict=True)),
            tally["order_lines"],
        ),
        "last names": (sum(tally["c_last"]), named),
        "customers": (
            sum(tally["c_id"]),
            drawn["new_order"] + drawn["payment"] + drawn["order_status"] - named,
        ),
    }
    wrong = [f"{what}: {found} instead of {due}" for what, (found, due) in sums.items() if found != due]
    # The unused item of a rollback may be drawn in place of an item, or over one that was drawn and counted.
    items, unused = sum(tally["item"]), tally["rollbacks_drawn"]
    if not tally["order_lines"] - unused <= items <= tally["order_lines"]:
        wrong.append(f"items: {items} for {tally['order_lines']} lines with {unused} unused items")
    return Check(
        "driver's counters add up", not wrong, detail="; ".join(wrong) or f"{sum(drawn.values())} drawn"
    )


def check_constant(c_load: int, c_run: int) -> Check:
    """Clause 2.1.6.1: the run's constant of last names differs from the load's by 65..119, but not by 96 or
    112."""
    difference = abs(c_load - c_run)
    allowed = C_LAST_DIFFERENCE_MIN <= difference <= C_LAST_DIFFERENCE_MAX
    passed = allowed and difference not in C_LAST_DIFFERENCES_BARRED
    detail = f"C is {c_load} in the load and {c_run} in the run, {difference} apart"
    return Check("constant of last names", passed, statistic=float(difference), detail=detail)
