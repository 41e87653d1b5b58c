"""How far the mix may stray from its shares when each client deals from a shuffled deck of its own.

A client that has drawn n cards has dealt n div 23 whole decks, exact by construction, and r = n mod 23 cards
of another, which hold a hypergeometric number of each kind. So the count of a kind strays from its share by a
sum over clients of independent X - r·m/23, X ~ Hypergeometric(23, m, r). The r are unknown (only totals are
tallied), but Chernoff's bound with the worst r for each client,

    P(|count - share · n| >= t) <= 2 · min over s of exp(-s·t) · M(s)^clients,
    M(s) = max over r of E exp(s·(X - r·m/23)),

holds whatever they are. It does not grow with n: decks are nearly deterministic, and a draw by weights fails
it soon.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import numpy.typing as npt
import scipy  # its parts load when first used: stats alone takes a second

from pgdyno.workload.goodness import Fit

DECK: Mapping[str, int] = {"new_order": 10, "payment": 10, "order_status": 1, "delivery": 1, "stock_level": 1}
DECK_CARDS = sum(DECK.values())

_SLOPES = np.geomspace(1e-4, 40.0, 400)


def fit_deck(drawn: Mapping[str, int], clients: int) -> Fit:
    """The test of the number ``drawn`` of each kind by ``clients`` decks. The p-value is an upper bound
    (Bonferroni)."""
    n = sum(drawn.get(kind, 0) for kind in DECK)
    strays = {kind: abs(drawn.get(kind, 0) - n * cards / DECK_CARDS) for kind, cards in DECK.items()}
    bounds = {kind: stray_probability_max(strays[kind], DECK[kind], clients) for kind in DECK}
    worst = min(bounds, key=lambda kind: (bounds[kind], -strays[kind]))
    p_value = min(1.0, len(DECK) * bounds[worst])
    count = drawn.get(worst, 0)
    detail = f"{worst} drawn {count} times of {n}, {strays[worst]:.1f} off its share, {clients} decks"
    return Fit(strays[worst], p_value, detail)


def stray_probability_max(stray: float, cards: int, clients: int) -> float:
    """Chernoff's bound of the module's docstring for a kind with ``cards`` cards in the deck; at most 1."""
    return min(1.0, 2.0 * float(np.exp(np.min(clients * _log_moments_max(cards) - _SLOPES * stray))))


@cache
def _log_moments_max(cards: int) -> npt.NDArray[np.float64]:
    """ln M(s) of the module's docstring for every slope s."""
    return np.asarray(np.max([_log_moments(cards, dealt) for dealt in range(DECK_CARDS)], axis=0))


def _log_moments(cards: int, dealt: int) -> npt.NDArray[np.float64]:
    """ln E exp(s·|side|·(X - mean)) for every slope s, the larger of the two sides."""
    count = np.arange(0, min(cards, dealt) + 1)
    weight = scipy.stats.hypergeom.pmf(count, DECK_CARDS, cards, dealt)
    from_mean = count - dealt * cards / DECK_CARDS
    sides = [np.log(np.exp(sign * np.outer(_SLOPES, from_mean)) @ weight) for sign in (1, -1)]
    larger: npt.NDArray[np.float64] = np.maximum(*sides)
    return larger
