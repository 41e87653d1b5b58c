"""The mix of tpcc's transactions: TPC-C's deck of cards, or weights such as ``new-order=45,payment=43``."""

from __future__ import annotations

import re
from collections.abc import Mapping

DECK = "deck"
"""TPC-C's own mix: each client deals its transactions from a shuffled deck of 23 cards."""

KINDS = ("new-order", "payment", "order-status", "delivery", "stock-level")

SHARES_MIN: Mapping[str, float] = {
    "payment": 0.43,
    "order-status": 0.04,
    "delivery": 0.04,
    "stock-level": 0.04,
}
"""Of all transactions, by TPC-C's clause 5.2.3. New-Orders have no minimum of their own."""

_WEIGHT = re.compile(r"\d{1,9}(\.\d{1,9})?")


def canonical_mix(text: str) -> str:
    """Return the same mix in one spelling: each kind once, in TPC-C's order. Raises ValueError."""
    if text.strip() == DECK:
        return DECK
    given: dict[str, str] = {}
    for part in text.split(","):
        name, equals, weight = (piece.strip() for piece in part.partition("="))
        kind = name.replace("_", "-")
        if kind not in KINDS:
            raise ValueError(f"has an unknown transaction {name!r}: use {', '.join(KINDS)}, or {DECK} alone")
        if kind in given:
            raise ValueError(f"names {kind} twice")
        if not equals or not _WEIGHT.fullmatch(weight):
            raise ValueError(
                f"needs a weight from 0 to 999999999 for {kind} (got {weight!r}); for example: {kind}=45"
            )
        given[kind] = weight
    if not any(map(float, given.values())):
        raise ValueError("must have at least one weight greater than 0")
    return ",".join(f"{kind}={given[kind]}" for kind in KINDS if float(given.get(kind, 0)))


def weights_of(mix: str) -> Mapping[str, float] | None:
    """Return the weight of every kind, as the engine names it; None of the deck."""
    if mix == DECK:
        return None
    named = dict(part.split("=") for part in mix.split(","))
    return {kind.replace("-", "_"): float(named.get(kind, 0)) for kind in KINDS}


def has_new_orders(mix: str) -> bool:
    """Return whether New-Orders are in the mix, so that there is a rate of them."""
    weights = weights_of(mix)
    return weights is None or weights["new_order"] > 0


def is_tpcc_mix(mix: str) -> bool:
    """Return whether the mix is the deck, or its shares keep TPC-C's minima."""
    weights = weights_of(mix)
    if weights is None:
        return True
    total = sum(weights.values())
    return all(weights[kind.replace("-", "_")] >= share * total for kind, share in SHARES_MIN.items())
