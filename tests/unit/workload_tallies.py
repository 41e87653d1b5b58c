"""Tallies of correct and incorrect drivers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pgdyno.workloads.tpcc.checks import C_ID, C_LAST, DECK, ITEM, NURand

WEIGHTS = {"new_order": 45, "payment": 43, "order_status": 4, "delivery": 4, "stock_level": 4}
KINDS = list(DECK)
CONSTANTS = {"c_last": 200, "c_id": 259, "item": 7911}


def deal(rng: np.random.Generator, transactions: int, clients: int) -> dict[str, int]:
    """Draw from decks, one per client, each stopped at a random position."""
    deck = np.repeat(np.arange(len(KINDS)), list(DECK.values()))
    drawn = np.zeros(len(KINDS), dtype=int)
    for _ in range(clients):
        whole, rest = divmod(int(rng.poisson(transactions / clients)), deck.size)
        drawn += whole * np.array(list(DECK.values()))
        drawn += np.bincount(rng.permutation(deck)[:rest], minlength=len(KINDS))
    return dict(zip(KINDS, map(int, drawn), strict=True))


def draw_by_weights(rng: np.random.Generator, transactions: int) -> dict[str, int]:
    weights = np.array(list(WEIGHTS.values())) / 100
    return dict(zip(WEIGHTS, map(int, rng.multinomial(transactions, weights)), strict=True))


def nurand_bins(
    rng: np.random.Generator, field: NURand, c: int | npt.NDArray[np.int64], n: int, width: int
) -> npt.NDArray[np.int64]:
    """Draw with the formula of the specification, not from the distribution used by the checks."""
    values = field.high - field.low + 1
    either = rng.integers(0, field.a, n, endpoint=True) | rng.integers(
        field.low, field.high, n, endpoint=True
    )
    return np.bincount(((either + c) % values) // width, minlength=values // width)


def simulate(
    seed: int = 1,
    *,
    transactions: int = 40_000,
    clients: int = 8,
    warehouses: int = 4,
    drawn: dict[str, int] | None = None,
    rollback: float = 0.01,
    remote_line: float = 0.01,
    remote_payment: float = 0.15,
    by_name: float = 0.6,
    lines: tuple[int, int] = (5, 15),
) -> dict[str, Any]:
    """Return the tally of a driver with these parameters; the defaults are those of TPC-C."""
    rng = np.random.default_rng(seed)
    drawn = drawn or deal(rng, transactions, clients)
    lines_per_order = np.bincount(rng.integers(*lines, drawn["new_order"], endpoint=True) - 5, minlength=11)
    order_lines = int(lines_per_order @ np.arange(5, 16))
    rollbacks = int(rng.binomial(drawn["new_order"], rollback))
    named = {kind: int(rng.binomial(drawn[kind], by_name)) for kind in ("payment", "order_status")}
    names = sum(named.values())
    ids = drawn["new_order"] + drawn["payment"] + drawn["order_status"] - names
    others = warehouses > 1
    return {
        "drawn": drawn,
        "order_lines": order_lines,
        "order_lines_remote": int(rng.binomial(order_lines, remote_line if others else 0)),
        "rollbacks_drawn": rollbacks,
        "payments_remote": int(rng.binomial(drawn["payment"], remote_payment if others else 0)),
        "by_name": named,
        "lines_per_order": lines_per_order.tolist(),
        "c_last": nurand_bins(rng, C_LAST, CONSTANTS["c_last"], names, 1).tolist(),
        "c_id": nurand_bins(rng, C_ID, CONSTANTS["c_id"], ids, 3).tolist(),
        "item": nurand_bins(rng, ITEM, CONSTANTS["item"], order_lines - rollbacks, 100).tolist(),
        "nurand_c": dict(CONSTANTS),
    }


def uniform(seed: int, bins: int, n: int) -> list[int]:
    return np.random.default_rng(seed).multinomial(n, np.full(bins, 1 / bins)).tolist()  # type: ignore[no-any-return]
