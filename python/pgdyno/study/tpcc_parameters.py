"""Parameters of the workload ``tpcc`` and its transaction mix (docs/reference/workload-tpcc.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from pgdyno.estimate import counted
from pgdyno.study.workload_parameters import Pace, WorkloadParameters

DECK = "deck"
"""The mix of TPC-C: each client draws its transactions from a shuffled deck of 23 cards."""

KINDS = ("new-order", "payment", "order-status", "delivery", "stock-level")

SHARES_MIN: Mapping[str, float] = {
    "payment": 0.43,
    "order-status": 0.04,
    "delivery": 0.04,
    "stock-level": 0.04,
}
"""Minimum shares of all transactions, by TPC-C clause 5.2.3. New-Order has no minimum."""

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
    """Return the weight of every kind by its name in the engine; None for the deck."""
    if mix == DECK:
        return None
    named = dict(part.split("=") for part in mix.split(","))
    return {kind.replace("-", "_"): float(named.get(kind, 0)) for kind in KINDS}


def has_new_orders(mix: str) -> bool:
    """Return True if the mix has New-Order transactions, and therefore a rate of them."""
    weights = weights_of(mix)
    return weights is None or weights["new_order"] > 0


def is_tpcc_mix(mix: str) -> bool:
    """Return True if the mix is the deck, or its shares meet the minima of TPC-C."""
    weights = weights_of(mix)
    if weights is None:
        return True
    total = sum(weights.values())
    return all(weights[kind.replace("-", "_")] >= share * total for kind, share in SHARES_MIN.items())


class TpccParameters(WorkloadParameters):
    """Parameters of the workload derived from TPC-C."""

    PACE: ClassVar[Pace] = Pace("NOPM", "new_order", 60.0)
    SMALLER: ClassVar[str] = "use fewer warehouses"
    HAS_PACING: ClassVar[bool] = True

    kind: Literal["tpcc"] = "tpcc"
    warehouses: int = Field(ge=1, le=100_000, description="Size of the data, about 100 MB each.")
    calls: Literal["procedures", "statements"] = Field(
        default="procedures",
        description="procedures: server-side functions, one round trip per transaction. statements: one "
        "round trip per statement.",
    )
    pipeline: bool = Field(
        default=False, description="With calls = statements: send independent statements together."
    )
    isolation: Literal["read committed", "repeatable read", "serializable"] = Field(
        default="read committed", description="Isolation level of all transactions."
    )
    mix: Annotated[str, AfterValidator(canonical_mix)] = Field(
        default=DECK,
        description="Weights of the transactions, such as new-order=45,payment=43; transactions not named do "
        "not run. deck: the mix of TPC-C, drawn from a deck of 23 cards.",
    )

    @model_validator(mode="after")
    def _pipeline_needs_statements(self) -> Self:
        if self.pipeline and self.calls != "statements":
            raise ValueError("pipeline requires calls = statements: a procedure call is a single round trip")
        return self

    @model_serializer(mode="wrap")
    def _without_the_usual_mix(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit the default mix, so that results files equal those of versions without the parameter."""
        written: dict[str, Any] = serialize(self)
        return {name: value for name, value in written.items() if (name, value) != ("mix", DECK)}

    @property
    def pace(self) -> Pace:
        """New orders per minute; for a mix without them, transactions per minute."""
        return self.PACE if has_new_orders(self.mix) else Pace("TPM", None, 60.0)

    @property
    def name(self) -> str:
        """The name with the size, and the mix unless it is the deck."""
        return self.data_name if self.mix == DECK else f"{self.data_name}, mix {self.mix}"

    @property
    def size(self) -> str:
        """The size of the data as text."""
        return counted(self.warehouses, "warehouse")

    @property
    def label(self) -> str:
        """A label for file names."""
        return f"warehouses{self.warehouses}"

    def shape(self) -> Mapping[str, int | str]:
        """Return the parameters of the data; calls, mix and isolation do not change it."""
        return {"warehouses": self.warehouses}

    def work(self) -> str:
        """Return the mix of the transactions."""
        return self.mix

    def to_load(self) -> dict[str, Any]:
        """Return the parameters of the load of the data."""
        return {"kind": self.kind, **self.shape()}

    def to_drive(self) -> dict[str, Any]:
        """Return the parameters of the transactions; the engine reads the scale from the data."""
        return {
            "kind": self.kind,
            "calls": self.calls,
            "pipeline": self.pipeline,
            "isolation": self.isolation,
            "mix": weights_of(self.mix) or DECK,
        }
