"""Parameters of the workload ``tpcc`` and its transaction mix (docs/reference/workload-tpcc.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from pgdyno.estimate import counted
from pgdyno.study.workload_parameters import Pace, WorkloadParameters

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


class TpccParameters(WorkloadParameters):
    """Derived from TPC-C."""

    PACE: ClassVar[Pace] = Pace("NOPM", "new_order", 60.0)
    SMALLER: ClassVar[str] = "take fewer warehouses"
    HAS_PACING: ClassVar[bool] = True

    kind: Literal["tpcc"] = "tpcc"
    warehouses: int = Field(ge=1, le=100_000, description="Size of the data, about 100 MB each.")
    calls: Literal["procedures", "statements"] = Field(
        default="procedures",
        description="Server-side functions, one round trip a transaction, or one round trip a statement.",
    )
    pipeline: bool = Field(
        default=False, description="With calls = statements: what needs no answer first is sent together."
    )
    isolation: Literal["read committed", "repeatable read", "serializable"] = Field(
        default="read committed", description="Of every transaction."
    )
    mix: Annotated[str, AfterValidator(canonical_mix)] = Field(
        default=DECK,
        description="Weights of the transactions, such as new-order=45,payment=43; those not named do not "
        "run. deck: TPC-C's mix, dealt from a deck of 23 cards.",
    )

    @model_validator(mode="after")
    def _pipeline_needs_statements(self) -> Self:
        if self.pipeline and self.calls != "statements":
            raise ValueError("pipeline requires calls = statements: a procedure call is a single round trip")
        return self

    @model_serializer(mode="wrap")
    def _without_the_usual_mix(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave TPC-C's mix out, so that evidence equals that of a pgdyno that had no other."""
        written: dict[str, Any] = serialize(self)
        return {name: value for name, value in written.items() if (name, value) != ("mix", DECK)}

    @property
    def pace(self) -> Pace:
        """New orders per minute; transactions per minute of a mix without new orders."""
        return self.PACE if has_new_orders(self.mix) else Pace("TPM", None, 60.0)

    @property
    def name(self) -> str:
        """With its size, and its mix if that is not TPC-C's deck."""
        return self.data_name if self.mix == DECK else f"{self.data_name}, mix {self.mix}"

    @property
    def size(self) -> str:
        """In words."""
        return counted(self.warehouses, "warehouse")

    @property
    def label(self) -> str:
        """For names."""
        return f"warehouses{self.warehouses}"

    def shape(self) -> Mapping[str, int | str]:
        """How the transactions are called changes nothing in the data."""
        return {"warehouses": self.warehouses}

    def to_load(self) -> dict[str, Any]:
        """Its size."""
        return {"kind": self.kind, **self.shape()}

    def to_drive(self) -> dict[str, Any]:
        """How the transactions are called; the scale is the data's own."""
        return {
            "kind": self.kind,
            "calls": self.calls,
            "pipeline": self.pipeline,
            "isolation": self.isolation,
            "mix": weights_of(self.mix) or DECK,
        }
