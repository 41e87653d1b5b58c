"""Conformance of the driver's transactions to TPC-C: mix, NURand, shares.

A client that has drawn n cards has used n div 23 complete decks, exact by construction, and r = n mod 23
cards of another, with a hypergeometric number of each kind. So the deviation of a kind's count from its share
is a sum over clients of independent X - r·m/23, X ~ Hypergeometric(23, m, r). The r are unknown (the tally
has only totals), but Chernoff's bound with the worst r for each client,

    P(|count - share · n| >= t) <= 2 · min over s of exp(-s·t) · M(s)^clients,
    M(s) = max over r of E exp(s·(X - r·m/23)),

is valid for any r. It does not grow with n: decks are nearly deterministic, and a draw by weights soon fails
the test.

    NURand(A, x, y) = (((random(0, A) | random(x, y)) + C) mod (y - x + 1)) + x

Let a(v) and b(v) be the numbers of ways in which the two uniform integers are v. The OR of a pair is a subset
of the bits of v if and only if both integers are. So with F the sum over subsets (the zeta transform of the
lattice of bit sets) F[OR](v) = F[a](v) · F[b](v), and the Möbius transform inverts F. That takes bits ·
2^bits integer additions, 17 · 131 072 for the items, instead of A · (y - x + 1) = 8e8 pairs.

docs/reference/engine-protocol.md ("The tally of tpcc") describes the tally. It counts the transactions when
they are drawn, so retries and failures do not bias it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy  # its parts load when first used: stats alone takes a second

from pgdyno.study.tpcc_dialects import TpccDeviation
from pgdyno.workload.goodness_of_fit import GoodnessOfFit, fit_distribution, fit_share, fit_weights, tests_of
from pgdyno.workload.interface import Check

DECK: Mapping[str, int] = {"new_order": 10, "payment": 10, "order_status": 1, "delivery": 1, "stock_level": 1}
DECK_CARDS = sum(DECK.values())

_SLOPES = np.geomspace(1e-4, 40.0, 400)


def fit_deck(drawn: Mapping[str, int], clients: int) -> GoodnessOfFit:
    """Return the test of the number ``drawn`` of each kind by ``clients`` decks. The p-value is an upper
    bound (Bonferroni)."""
    n = sum(drawn.get(kind, 0) for kind in DECK)
    strays = {kind: abs(drawn.get(kind, 0) - n * cards / DECK_CARDS) for kind, cards in DECK.items()}
    bounds = {kind: deviation_probability_max(strays[kind], DECK[kind], clients) for kind in DECK}
    worst = min(bounds, key=lambda kind: (bounds[kind], -strays[kind]))
    p_value = min(1.0, len(DECK) * bounds[worst])
    count = drawn.get(worst, 0)
    detail = f"{worst} drawn {count} times of {n}, {strays[worst]:.1f} off its share, {clients} decks"
    return GoodnessOfFit(strays[worst], p_value, detail)


def deviation_probability_max(stray: float, cards: int, clients: int) -> float:
    """Return Chernoff's bound of the module docstring for a kind with ``cards`` cards in the deck; at most
    1."""
    return min(1.0, 2.0 * float(np.exp(np.min(clients * _log_moments_max(cards) - _SLOPES * stray))))


@cache
def _log_moments_max(cards: int) -> npt.NDArray[np.float64]:
    """Return ln M(s) of the module docstring for every slope s."""
    return np.asarray(np.max([_log_moments(cards, dealt) for dealt in range(DECK_CARDS)], axis=0))


def _log_moments(cards: int, dealt: int) -> npt.NDArray[np.float64]:
    """Return ln E exp(s·|side|·(X - mean)) for every slope s, the larger of the two sides."""
    count = np.arange(0, min(cards, dealt) + 1)
    weight = scipy.stats.hypergeom.pmf(count, DECK_CARDS, cards, dealt)
    from_mean = count - dealt * cards / DECK_CARDS
    sides = [np.log(np.exp(sign * np.outer(_SLOPES, from_mean)) @ weight) for sign in (1, -1)]
    larger: npt.NDArray[np.float64] = np.maximum(*sides)
    return larger


Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NURand:
    """Parameters of one field: A and the range x..y of the specification."""

    a: int
    low: int
    high: int

    def probability(self, c: int) -> npt.NDArray[np.float64]:
        """Return the probabilities of low, low + 1, …, high, for the constant C = ``c``."""
        values = self.high - self.low + 1
        either = or_of_uniforms(self.a, self.low, self.high)
        folded = np.bincount((np.arange(either.size) + c) % values, weights=either, minlength=values)
        return np.asarray(folded / ((self.a + 1) * values))

    def probability_with_drawn_c(self) -> npt.NDArray[np.float64]:
        """Return the probabilities if C is drawn from 0..A for each number: the mean over all constants."""
        fixed = self.probability(0)
        sums = np.cumsum(np.concatenate([[0.0], fixed[-self.a :], fixed]))
        return np.asarray((sums[self.a + 1 :] - sums[: fixed.size]) / (self.a + 1))

    def uniform(self) -> npt.NDArray[np.float64]:
        """Return the probabilities of a uniform distribution over the range."""
        values = self.high - self.low + 1
        return np.full(values, 1 / values)


C_LAST = NURand(255, 0, 999)
C_ID = NURand(1023, 1, 3000)
ITEM = NURand(8191, 1, 100_000)


def or_of_uniforms(a: int, low: int, high: int) -> Counts:
    """Return for each value the number of pairs i of 0..a, j of low..high with i | j equal to it.

    The total is (a + 1)(high - low + 1). Shape: (2^bits,).
    """
    bits = max(a, high).bit_length()
    first = np.zeros(1 << bits, dtype=np.int64)
    first[: a + 1] = 1
    second = np.zeros(1 << bits, dtype=np.int64)
    second[low : high + 1] = 1
    return _over_subsets(_over_subsets(first, bits, 1) * _over_subsets(second, bits, 1), bits, -1)


def _over_subsets(counts: Counts, bits: int, sign: int) -> Counts:
    """Return the zeta transform (``sign`` 1) or its inverse (-1): one pass for each bit, from values without
    it to values with it."""
    result = counts.copy()
    for bit in range(bits):
        halves = result.reshape(-1, 2, 1 << bit)
        halves[:, 1, :] += sign * halves[:, 0, :]
    return result


ROLLBACK_SHARE = 0.01
REMOTE_LINE_SHARE = 0.01
REMOTE_PAYMENT_SHARE = 0.15
BY_NAME_SHARE = 0.60
LINES_MIN, LINES_MAX = 5, 15
C_ID_BIN, ITEM_BIN = 3, 100
C_LAST_DIFFERENCE_MIN, C_LAST_DIFFERENCE_MAX = 65, 119
C_LAST_DIFFERENCES_BARRED = (96, 112)

LAST_NAME_CONSTANT = "constant of last names"
"""Name of the check of clause 2.1.6.1."""

Mix = str | Mapping[str, float]
Tally = Mapping[str, Any]


def check_conformance(
    tally: Tally,
    *,
    warehouses: int,
    clients: int,
    mix: Mix = "deck",
    deviations: Collection[TpccDeviation] = (),
) -> list[Check]:
    """Return all tests of a target's ``tally``; ``mix`` is ``"deck"`` or the weights of the kinds.

    Under deviations the shares and distributions are tested that these prescribe.
    """
    names = {one.name for one in deviations}
    return [check_accounts(tally), *tests_of(dict(_fits(tally, warehouses, clients, mix, names)))]


def _fits(
    tally: Tally, warehouses: int, clients: int, mix: Mix, deviations: Collection[str]
) -> Iterator[tuple[str, GoodnessOfFit]]:
    drawn = tally["drawn"]
    others = warehouses > 1 and "no-remote-warehouse" not in deviations  # a single one has no remote ones
    rollback_share = 0.0 if "no-rollback" in deviations else ROLLBACK_SHARE
    yield "mix", fit_deck(drawn, clients) if isinstance(mix, str) else fit_weights(drawn, mix)
    yield "rollback share", fit_share(tally["rollbacks_drawn"], drawn["new_order"], rollback_share)
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

    def expected(field: NURand, constant: int, *, is_uniform: bool) -> npt.NDArray[np.float64]:
        if is_uniform:
            return field.uniform()
        return field.probability_with_drawn_c() if "c-redrawn" in deviations else field.probability(constant)

    last_names = expected(C_LAST, c["c_last"], is_uniform=False)
    customers = expected(C_ID, c["c_id"], is_uniform="uniform-customers" in deviations)
    items = expected(ITEM, c["item"], is_uniform="uniform-items" in deviations)
    yield "NURand of last names", fit_distribution(tally["c_last"], last_names)
    yield "NURand of customers", fit_distribution(tally["c_id"], _binned(customers, C_ID_BIN))
    yield "NURand of items", fit_distribution(tally["item"], _binned(items, ITEM_BIN))


def _binned(probability: npt.NDArray[np.float64], width: int) -> npt.NDArray[np.float64]:
    return np.asarray(probability.reshape(-1, width).sum(axis=1))


def check_accounts(tally: Tally) -> Check:
    """Check that the counters of the tally are consistent. Otherwise the other tests have no meaning."""
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
    # The unused item of a rollback can be drawn instead of an item, or replace one that was drawn and
    # counted.
    items, unused = sum(tally["item"]), tally["rollbacks_drawn"]
    if not tally["order_lines"] - unused <= items <= tally["order_lines"]:
        wrong.append(f"items: {items} for {tally['order_lines']} lines with {unused} unused items")
    return Check(
        "driver's counters add up", not wrong, detail="; ".join(wrong) or f"{sum(drawn.values())} drawn"
    )


def check_constant(c_load: int, c_run: int) -> Check:
    """Check clause 2.1.6.1: the constants of last names of run and load differ by 65..119, but not by 96 or
    112."""
    difference = abs(c_load - c_run)
    allowed = C_LAST_DIFFERENCE_MIN <= difference <= C_LAST_DIFFERENCE_MAX
    passed = allowed and difference not in C_LAST_DIFFERENCES_BARRED
    detail = f"C is {c_load} in the load and {c_run} in the run, {difference} apart"
    return Check(LAST_NAME_CONSTANT, passed, statistic=float(difference), detail=detail)
