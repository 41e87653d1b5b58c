"""Parameters of the workload ``insert`` (README.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from pgdyno.errors import UsageError
from pgdyno.study.values import Rare
from pgdyno.study.workload_parameters import Pace, RequiredRate, WorkloadParameters
from pgdyno.units import counted, group_digits


@dataclass(frozen=True)
class Phase:
    """Tasks of the clients of a table. ``begins_after``: the last step before the snapshot.

    ``rows_per_s``: rate of inserted and of deleted rows per table; None: as fast as possible.
    """

    begins_after: str
    batch: int
    deletes: bool = True
    indexes: bool = False
    query: Literal["range", "point"] | None = None
    rows_per_s: int | None = None

    @property
    def clients(self) -> int:
        """Clients of a table: one inserts, one deletes, one sends queries."""
        return CLIENTS_PER_TABLE if self.query else 1 + self.deletes

    @property
    def pace(self) -> Pace:
        """Queries per second, or inserted rows per second."""
        return Pace("queries/s", self.query, 1.0) if self.query else Pace("inserts/s", "insert", self.batch)


PHASES: Mapping[str, Phase] = {
    "l.i0": Phase("none", 100, deletes=False),
    "l.x": Phase("l.i0", 1, deletes=False, indexes=True),
    "l.i1": Phase("l.x", 50),
    "l.i2": Phase("l.i1", 5),
    "qr100": Phase("l.i2", 50, query="range", rows_per_s=100),
    "qp100": Phase("l.i2", 50, query="point", rows_per_s=100),
    "qr500": Phase("l.i2", 50, query="range", rows_per_s=500),
    "qp500": Phase("l.i2", 50, query="point", rows_per_s=500),
    "qr1000": Phase("l.i2", 50, query="range", rows_per_s=1000),
    "qp1000": Phase("l.i2", 50, query="point", rows_per_s=1000),
}
"""Phases that can be measured, in their order."""

CLIENTS_PER_TABLE = 3
"""Clients of a table in every phase, so that a study can have several. Those without a task are idle."""

ROWS, INSERTS = 1_000_000, 1_000_000
"""Default numbers of loaded and of then inserted rows of a table."""

INDEXES = 3
"""Number of secondary indexes."""

SHARE_KEPT = 0.95
"""Least share of the insert rate that an arm must keep beside queries, as its author defines it."""

SHARE_OF_I1 = 0.8
"""Share of the inserted rows that l.i1 inserts. l.i2 inserts the others."""


class InsertParameters(WorkloadParameters):
    """Phase, and size of the data."""

    PACE: ClassVar[Pace] = PHASES["l.i1"].pace
    SMALLER: ClassVar[str] = "use fewer rows or queues"
    SIZE: ClassVar[str] = "rows"
    UNIT_BYTES: ClassVar[float] = 210.0  # a row with its four index entries
    HAS_PACING: ClassVar[bool] = False
    HAS_RATES: ClassVar[bool] = True

    kind: Literal["insert"] = "insert"
    phase: Annotated[
        Literal["l.i0", "l.x", "l.i1", "l.i2", "qr100", "qp100", "qr500", "qp500", "qr1000", "qp1000"], Rare()
    ] = Field(
        default="qr100",
        description="Phase to measure. l.i0, l.i1, l.i2: inserts of 100, 50 or 5 rows per commit; l.x: index "
        "creation; qr, qp: range or point queries beside so many inserted rows per second.",
    )
    rows: Annotated[int, Rare("N", default=f"{ROWS:,}")] = Field(
        default=ROWS, ge=10_000, le=10**10, description="Number of rows of each table that l.i0 loads."
    )
    queues: Annotated[int, Rare("N", default="1")] = Field(
        default=1, ge=1, le=1000, description="Number of queues: each is a table with 3 clients."
    )
    inserts: Annotated[int, Rare("N", default=f"{INSERTS:,}")] = Field(
        default=INSERTS,
        ge=1000,
        le=10**10,
        description="Number of rows of each table that l.i1 (80%) and l.i2 (20%) insert, and as many delete, "
        "before a later phase.",
    )

    @model_validator(mode="after")
    def _phases_age_the_data(self) -> Self:
        if self.age:
            raise ValueError("age: the phases of insert age its data: set inserts")
        return self

    @property
    def does(self) -> Phase:
        """The tasks of the clients in the phase."""
        return PHASES[self.phase]

    @property
    def pace(self) -> Pace:
        """The rate of the phase. An index is a third of the work on each row of its table."""
        if self.does.indexes:
            return Pace("indexed rows/s", "index", self.rows / INDEXES)
        return self.does.pace

    @property
    def required_rate(self) -> RequiredRate | None:
        """The rate of inserted rows beside queries; None without queries."""
        of = self.does
        pace = Pace("rows/s", "insert", of.batch)
        return RequiredRate(pace, of.rows_per_s * self.queues, SHARE_KEPT) if of.rows_per_s else None

    @property
    def begins_after(self) -> str:
        """The last step before the snapshot: none, l.i0, l.x, l.i1 or l.i2."""
        return self.does.begins_after

    @property
    def rows_before(self) -> int:
        """Rows of a table in the snapshot."""
        return 0 if self.begins_after == "none" else self.rows

    @property
    def size(self) -> str:
        """The number of rows as text."""
        of_tables = f" in each of {self.queues} tables" if self.queues > 1 else ""
        return f"{group_digits(self.rows_before, 0)} rows{of_tables}"

    @property
    def label(self) -> str:
        """A label of the data for file names."""
        return f"rows{self.rows_before}"

    @property
    def data_name(self) -> str:
        """The name of the data with the last step before the snapshot."""
        after = "" if self.begins_after == "none" else f" after {self.begins_after}"
        return f"{self.kind}, {self.size}{after}{self.aging_text}"

    @property
    def name(self) -> str:
        """The name with phase and size."""
        return f"{self.kind} {self.phase}, {self.size}{self.aging_text}"

    @property
    def unit_bytes(self) -> float:
        """The size of a row of every table, with those that were deleted at most until then; at least 1."""
        written = self.rows_before + self.inserted_before
        return max(1.0, self.UNIT_BYTES * self.queues * written / self.rows)

    @property
    def inserted_before(self) -> int:
        """Rows of a table that l.i1 and l.i2 insert before the snapshot."""
        steps = {"l.i1": 1, "l.i2": 2}.get(self.begins_after, 0)
        return sum(self.statements_of(name) * PHASES[name].batch for name in ("l.i1", "l.i2")[:steps])

    def statements_of(self, phase: str) -> int:
        """Return the number of statements of each client of l.i1 or l.i2 as a step."""
        share = SHARE_OF_I1 if phase == "l.i1" else 1 - SHARE_OF_I1
        return max(1, round(self.inserts * share / PHASES[phase].batch))

    def shape(self) -> Mapping[str, int | str]:
        """Return the parameters of the data, which include the steps before the snapshot."""
        after = self.begins_after
        if after == "none":
            return {"queues": self.queues, "done": after}
        churned = {"inserts": self.inserts} if after in ("l.i1", "l.i2") else {}
        return {"rows": self.rows, "queues": self.queues, "done": after, **churned}

    def require_clients(self, clients: int) -> None:
        """Raise ValueError unless every table has as many clients as the phase needs, at most 3."""
        each, rest = divmod(clients, self.queues)
        if rest or not self.does.clients <= each <= CLIENTS_PER_TABLE:
            raise ValueError(
                f"--workload insert needs {CLIENTS_PER_TABLE} clients for each of "
                f"{counted(self.queues, 'table')} (got {clients}): use --clients "
                f"{CLIENTS_PER_TABLE * self.queues}"
            )

    def busy_clients(self, clients: int) -> int:
        """Return the clients with a task and without a rate."""
        del clients
        return self.queues * (1 if self.does.query else self.does.clients)

    def work(self) -> str:
        """Return the phase: it determines the operations."""
        return json.dumps([self.phase])

    def kinds(self) -> Sequence[str]:
        """Return the operations, those of the pace first."""
        return ("range", "point", "index", "insert", "delete")

    @property
    def why_no_load(self) -> str:
        """Why a load does not make the data, with the remedy; empty if it does."""
        if self.begins_after not in ("l.i1", "l.i2"):
            return ""
        return (
            f"phase {self.phase} begins after {self.begins_after}, and a load ends before: use phase l.i1, "
            "or a server that pgdyno starts (a version or a directory)"
        )

    def to_load(self) -> dict[str, Any]:
        """Return the data of l.i0 and l.x. Raises UsageError if other steps must follow."""
        if self.why_no_load:
            raise UsageError(self.why_no_load)
        has_indexes = self.begins_after == "l.x"
        return {"kind": self.kind, "rows": self.rows_before, "tables": self.queues, "indexes": has_indexes}

    def to_drive(self) -> dict[str, Any]:
        """Return the operations, and the last step that the data must have."""
        of = self.does
        writes = {"tables": self.queues, "batch": of.batch, "indexes": of.indexes, "deletes": of.deletes}
        queries = {"query": of.query, "rows_per_s": of.rows_per_s}
        return {"kind": self.kind, **writes, **queries, "done": self.begins_after}
