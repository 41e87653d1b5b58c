"""The parameters of the workload ``tpcc``. docs/reference/workload-tpcc.md explains each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from pgdyno.estimate import counted
from pgdyno.study.mix import DECK, canonical_mix, has_new_orders, weights_of
from pgdyno.study.workload import Pace, WorkloadParameters


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
