"""Parameters of the workload ``tpcc`` and its transaction mix (docs/reference/workload-tpcc.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from pgdyno.caveats import Caveat
from pgdyno.study.values import Option, Rare
from pgdyno.study.workload_parameters import SIZE_DEFAULT, DefaultSize, Pace, WorkloadParameters
from pgdyno.units import counted
from pgdyno.workloads.tpcc.dialects import (
    DIALECTS,
    SPEC,
    TpccDeviation,
    canonical_deviations,
    deviations_of,
    require_compatible,
)

DECK = "deck"
"""The mix of TPC-C: each client draws its transactions from a shuffled deck of 23 cards."""

KINDS = ("new-order", "payment", "order-status", "delivery", "stock-level")

SHARES_MIN: Mapping[str, float] = {
    "payment": 0.43,
    **dict.fromkeys(("order-status", "delivery", "stock-level"), 0.04),
}
"""Minimum shares of all transactions, by TPC-C clause 5.2.3. New-Order has no minimum."""

SYSBENCH_WAREHOUSES_MAX = 32_767
"""Maximum number of warehouses in a set of tables of sysbench-tpcc: their numbers are smallint."""

TABLE_SETS_MAX = 100
"""Maximum number of sets of tables: one statement that drops them all has about 25 locks for each."""

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
    SIZE: ClassVar[str] = "warehouses"
    UNIT_BYTES: ClassVar[float] = 110e6
    """Heap and indexes of one warehouse, rounded up. The engine's forecast before a load is exact."""
    HAS_PACING: ClassVar[bool] = True
    OMITTED: ClassVar[frozenset[str]] = frozenset({"mix", "dialect", "deviate", "table_sets"})

    kind: Literal["tpcc"] = "tpcc"
    warehouses: Annotated[int, Option("N", default=SIZE_DEFAULT)] = Field(
        ge=1, le=100_000, description="Number of warehouses, about 100 MB each."
    )
    calls: Annotated[Literal["procedures", "statements"], Rare()] = Field(
        default="procedures",
        description="Call server-side functions (one round trip per transaction), or send single statements.",
    )
    pipeline: Annotated[bool, Rare()] = Field(
        default=False,
        description="With --calls=statements, send statements in pipeline mode where they do not depend on "
        "each other.",
    )
    isolation: Annotated[Literal["read committed", "repeatable read", "serializable"], Rare()] = Field(
        default="read committed", description="Transaction isolation level."
    )
    mix: Annotated[
        str, AfterValidator(canonical_mix), Rare("KIND=WEIGHT,…", default="deck, the mix of TPC-C")
    ] = Field(
        default=DECK,
        description="Weights of new-order, payment, order-status, delivery and stock-level. Transactions "
        "that are not listed do not run.",
    )
    dialect: Annotated[Literal["spec", "hammerdb", "hammerdb-5", "hammerdb-4", "sysbench"], Rare()] = Field(
        default="spec",
        description="Driver whose data and transactions are reproduced, with its deviations from TPC-C.",
    )
    deviate: Annotated[str, AfterValidator(canonical_deviations), Rare("NAME,…", default="none")] = Field(
        default="",
        description="Single deviations from TPC-C, such as no-rollback,uniform-items; -NAME removes one of "
        "the dialect (pgdyno docs workload-tpcc).",
    )
    table_sets: Annotated[int, Rare("N", of="tpcc with --dialect sysbench", has_range=True)] = Field(
        default=1,
        ge=1,
        le=TABLE_SETS_MAX,
        description="Sets of tables that share the warehouses, at most one per warehouse.",
    )

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_dialect(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or given.get("dialect") not in tuple(DIALECTS):
            return given
        return {**DIALECTS[given["dialect"]].parameters(), **given}

    @model_validator(mode="after")
    def _deviations_fit(self) -> Self:
        require_compatible(self.deviations, self.calls, pipeline=self.pipeline)
        if self.table_sets > 1 and not self.has_own_tables:
            raise ValueError(f"--table-sets={self.table_sets} requires --dialect=sysbench")
        if self.has_own_tables and self.warehouses > SYSBENCH_WAREHOUSES_MAX * self.sets:
            raise ValueError(
                f"warehouses = {self.warehouses} is too many for {counted(self.sets, 'table set')}: use "
                f"more table_sets, since each has at most {SYSBENCH_WAREHOUSES_MAX} in sysbench-tpcc"
            )
        return self

    @model_validator(mode="after")
    def _pipeline_needs_statements(self) -> Self:
        if self.pipeline and self.calls != "statements":
            raise ValueError(
                "--pipeline requires --calls=statements: a procedure call is a single round trip"
            )
        return self

    @property
    def deviations(self) -> Sequence[TpccDeviation]:
        """All deviations from TPC-C, in the order of the table."""
        return deviations_of(self.dialect, self.deviate)

    @property
    def has_own_tables(self) -> bool:
        """True if the tables are those of sysbench-tpcc, in sets with a number as suffix."""
        return any(one.name == "sysbench-sql" for one in self.deviations)

    @property
    def sets(self) -> int:
        """Number of sets of tables: at most one per warehouse, also after a fit to fewer warehouses."""
        return min(self.table_sets, self.warehouses)

    @property
    def suffixed_sets(self) -> int:
        """Number of sets of tables with a number as suffix; 0 for tables without suffix."""
        return self.sets if self.has_own_tables else 0

    @property
    def drawn_mix(self) -> str:
        """The mix as the clients draw it: that of the dialect unless another one is given."""
        return (self.mix == DECK and DIALECTS[self.dialect].mix) or self.mix

    @property
    def pace(self) -> Pace:
        """New orders per minute; for a mix without them, transactions per minute."""
        return self.PACE if has_new_orders(self.mix) else Pace("TPM", None, 60.0)

    @property
    def name(self) -> str:
        """The name with the size, and the mix, dialect and deviations unless they are the default."""
        own = [
            f"mix {self.mix}" if self.mix != DECK else "",
            f"dialect {self.dialect}" if self.dialect != SPEC else "",
            f"deviations {self.deviate}" if self.deviate else "",
            counted(self.sets, "table set") if self.sets > 1 else "",
        ]
        return ", ".join([self.data_name, *(part for part in own if part)])

    @property
    def size(self) -> str:
        """The size of the data as text."""
        return counted(self.warehouses, "warehouse")

    @property
    def label(self) -> str:
        """A label for file names."""
        return f"warehouses{self.warehouses}" + ("-deviating" if self._data_deviations() else "")

    def shape(self) -> Mapping[str, int | str]:
        """Return the parameters of the data; calls, mix and isolation do not change it."""
        own = self._data_deviations()
        deviations = {"deviations": ",".join(own)} if own else {}
        return {"warehouses": self.warehouses, **deviations, **self._table_sets()}

    def _table_sets(self) -> dict[str, int]:
        return {"table_sets": self.sets} if self.sets > 1 else {}

    def _data_deviations(self) -> list[str]:
        return [one.name for one in self.deviations if one.data]

    def work(self) -> str:
        """Return the mix of the transactions."""
        return self.mix

    @classmethod
    def from_options(cls, given: dict[str, Any], default_size: DefaultSize) -> dict[str, Any]:
        """Return the parameters that options give."""
        return {"warehouses": default_size(cls), **given}

    def specification_caveats(self) -> list[Caveat]:
        """Return a caveat if the mix does not meet the minima of TPC-C."""
        return [] if is_tpcc_mix(self.mix) else [Caveat.of("not-tpcc-mix", mix=self.mix)]

    def kinds(self) -> Sequence[str]:
        """Return the transactions in TPC-C's order."""
        return ("new_order", "payment", "order_status", "delivery", "stock_level")

    def to_load(self) -> dict[str, Any]:
        """Return the parameters of the load of the data."""
        own = self._data_deviations()
        deviations = {"deviations": own} if own else {}
        return {"kind": self.kind, "warehouses": self.warehouses, **deviations, **self._table_sets()}

    def to_drive(self) -> dict[str, Any]:
        """Return the parameters of the transactions; the engine reads the scale from the data."""
        own = [one.name for one in self.deviations]
        return {
            "kind": self.kind,
            "calls": self.calls,
            "pipeline": self.pipeline,
            "isolation": self.isolation,
            "mix": weights_of(self.drawn_mix) or DECK,
            **({"deviations": own} if own else {}),
            **self._table_sets(),
        }


PARAMETERS = TpccParameters
