"""Parameters of the workload ``pgbench`` (docs/reference/workload-pgbench.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from pgdyno.study.workload_parameters import Pace, WorkloadParameters

Effect = Literal["all", "accounts", "none", "unknown"]
"""What a script's transaction changes: an account, a teller, a branch and the history by one amount; an
account and the history; nothing; or who knows what."""

BUILTINS: Mapping[str, Effect] = {"tpcb-like": "all", "simple-update": "accounts", "select-only": "none"}

COPY = "pgbench_accounts_copy"
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "pgbench_accounts": ("aid", "bid", "abalance", "filler"),
    "pgbench_branches": ("bid", "bbalance", "filler"),
    "pgbench_tellers": ("tid", "bid", "tbalance", "filler"),
    "pgbench_history": ("tid", "bid", "aid", "delta", "mtime", "filler"),
    COPY: ("aid", "bid", "abalance", "filler"),
}


def index_parts(text: str) -> tuple[str, tuple[str, ...]]:
    """``pgbench_accounts (bid, abalance)`` → the table and its columns. Raises ValueError."""
    found = re.fullmatch(r"\s*(\w+)\s*\(([\w\s,]+)\)\s*", text.lower())
    if not found:
        raise ValueError(f"{text!r} is no TABLE (COLUMN, …); for example: pgbench_accounts (bid, abalance)")
    table, columns = found[1], tuple(column.strip() for column in found[2].split(","))
    if table not in COLUMNS:
        raise ValueError(f"there is no table {table}: the tables are {', '.join(COLUMNS)}")
    for column in columns:
        if column not in COLUMNS[table]:
            raise ValueError(f"{table} has no column {column!r}: it has {', '.join(COLUMNS[table])}")
    if len(set(columns)) < len(columns):
        raise ValueError(f"{text!r} names a column twice")
    return table, columns


def _canonical(text: str) -> str:
    table, columns = index_parts(text)
    return f"{table} ({', '.join(columns)})"


Index = Annotated[str, AfterValidator(_canonical)]


class Script(BaseModel):
    """One kind of transaction. Without a text it is pgbench's own of that name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, description="Its name; one of pgbench's own if there is no text.")
    weight: int = Field(default=1, ge=0, le=2**31 - 1, description="How often, beside the others.")
    text: str | None = Field(default=None, description="In pgbench's language.")
    effect: Effect = Field(default="unknown", description="What its transaction changes.")

    @model_validator(mode="before")
    @classmethod
    def _builtin_is_known(cls, given: Any) -> Any:
        """The effect of one of pgbench's own is known."""
        if not isinstance(given, dict) or given.get("text") is not None:
            return given
        name = str(given.get("name"))
        if name not in BUILTINS:
            raise ValueError(f"pgbench has no script {name}: it has {', '.join(BUILTINS)}")
        return {**given, "effect": BUILTINS[name]}

    def to_drive(self) -> dict[str, Any]:
        """As the engine reads it."""
        named = {"builtin": self.name} if self.text is None else {"name": self.name, "text": self.text}
        return {**named, "weight": self.weight}


class PgbenchParameters(WorkloadParameters):
    """pgbench's tables and scripts. The defaults are pgbench's."""

    PACE: ClassVar[Pace] = Pace("tx/s", None, 1.0)
    SMALLER: ClassVar[str] = "take a smaller --scale"
    HAS_PACING: ClassVar[bool] = False

    kind: Literal["pgbench"] = "pgbench"
    scale: int = Field(ge=1, le=214_748_364, description="Size of the data: 100 000 accounts or 16 MB each.")
    partitions: int = Field(default=0, ge=0, le=100_000, description="Of the accounts.")
    partition_method: Literal["range", "hash"] | None = Field(
        default=None, description="With partitions. [default: range]"
    )
    fillfactor: int = Field(default=100, ge=10, le=100, description="Of the tables' pages, in percent.")
    unlogged: bool = Field(default=False, description="Tables that no crash leaves, without WAL.")
    foreign_keys: bool = Field(default=False, description="Between the tables.")
    indexes: tuple[Index, ...] = Field(
        default=(), description="Further ones, such as pgbench_accounts (bid, abalance)."
    )
    accounts_copy: bool = Field(default=False, description="A copy of the accounts, pgbench_accounts_copy.")
    scripts: tuple[Script, ...] = Field(
        default=(Script(name="tpcb-like"),),
        min_length=1,
        max_length=128,
        description="What the clients run, by their weights. [default: tpcb-like]",
    )
    protocol: Literal["simple", "extended", "prepared"] = Field(
        default="simple", description="How statements are sent."
    )
    define: dict[str, str] = Field(default_factory=dict, description="Variables of the scripts.")

    @model_validator(mode="before")
    @classmethod
    def _partitions_have_a_method(cls, given: Any) -> Any:
        """By range, unless it is said, so that equal data have equal parameters."""
        if isinstance(given, dict) and given.get("partitions") and given.get("partition_method") is None:
            return {**given, "partition_method": "range"}
        return given

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        if self.partition_method is not None and self.partitions == 0:
            raise ValueError("--partition-method needs --partitions")
        if len(set(self.indexes)) < len(self.indexes):
            raise ValueError("an index is asked for twice")
        if not self.accounts_copy and any(index_parts(text)[0] == COPY for text in self.indexes):
            raise ValueError(f"an index of {COPY} needs --accounts-copy")
        names = [script.name for script in self.scripts]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"the script {twice.pop()} is there twice: give it once, with both weights")
        if not any(script.weight for script in self.scripts):
            raise ValueError("every script has the weight 0: none would ever run")
        return self

    @property
    def size(self) -> str:
        """In words."""
        return f"scale {self.scale}"

    @property
    def label(self) -> str:
        """Of what is not as pgbench makes it by itself, too."""
        parts = {
            f"scale{self.scale}": True,
            f"{self.partition_method}{self.partitions}": self.partitions,
            f"fillfactor{self.fillfactor}": self.fillfactor != 100,
            "unlogged": self.unlogged,
            "foreignkeys": self.foreign_keys,
            f"indexes{len(self.indexes)}": self.indexes,
            "copy": self.accounts_copy,
        }
        return "-".join(part for part, is_there in parts.items() if is_there)

    @property
    def name(self) -> str:
        """With its scripts, which say more than its name."""
        return f"{self.kind} {' + '.join(script.name for script in self.scripts)}, {self.size}"

    @property
    def major_min(self) -> int:
        """A partitioned table can have a primary key since 11, and be referred to since 12."""
        if self.partitions == 0:
            return super().major_min
        return 12 if self.foreign_keys else 11

    @property
    def effects(self) -> frozenset[Effect]:
        """Of all scripts that ever run."""
        return frozenset(script.effect for script in self.scripts if script.weight)

    def shape(self) -> Mapping[str, int | str]:
        """Everything but the scripts and how they are sent. The order of indexes is no difference."""
        return {
            "scale": self.scale,
            "partitions": self.partitions,
            "partition_method": self.partition_method or "",
            "fillfactor": self.fillfactor,
            "unlogged": int(self.unlogged),
            "foreign_keys": int(self.foreign_keys),
            "indexes": "; ".join(sorted(self.indexes)),
            "accounts_copy": int(self.accounts_copy),
        }

    def to_load(self) -> dict[str, Any]:
        """pgbench's own tables; indexes and copy come after them."""
        of_engine = (
            "kind",
            "scale",
            "partitions",
            "partition_method",
            "fillfactor",
            "unlogged",
            "foreign_keys",
        )
        return {name: getattr(self, name) for name in of_engine}

    def to_drive(self) -> dict[str, Any]:
        """With the scale of the data, also where pgbench would take 1."""
        return {
            "kind": self.kind,
            "scripts": [script.to_drive() for script in self.scripts],
            "scale": self.scale,
            "protocol": self.protocol,
            "define": self.define,
        }
