"""Columns of a database that rules mask, checked against types and keys before any row is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any

import psycopg

from pgdyno.errors import UsageError
from pgdyno.study.mask_rules import MaskRule

_SQL = resources.files(__package__).joinpath("sql")
COLUMNS = _SQL.joinpath("columns_to_mask.sql").read_bytes()
KEYS = _SQL.joinpath("keys_to_mask.sql").read_bytes()

TEXTS = frozenset({"text", "varchar", "bpchar", "citext"})
INTEGERS = frozenset({"int2", "int4", "int8"})
HASHED = TEXTS | INTEGERS | {"uuid"}
"""Types with a hash. Integers of any width have the same hash, and so have texts of any length."""

HASH_CHARACTERS_MIN = 16
"""Minimum length of a hashed text: 80 bits, so that unique values stay unique."""

Table = tuple[str, str]
"""Schema and name."""


@dataclass(frozen=True)
class Mask:
    """How one column is masked."""

    rule: MaskRule
    type: str

    @property
    def action(self) -> str:
        """The action of the rule."""
        return self.rule.action


@dataclass(frozen=True)
class Column:
    """A column. ``length_max``: of varchar(n) and char(n). ``tables``: its table, and those that are
    partitioned into it.
    """

    schema: str
    table: str
    name: str
    has_rows: bool
    type: str
    length_max: int | None
    not_null: bool
    is_generated: bool
    is_partition_key: bool
    tables: Sequence[Table] = field(default=())

    @property
    def label(self) -> str:
        """Schema, table and column."""
        return f"{self.schema}.{self.table}.{self.name}"


@dataclass(frozen=True)
class Key:
    """A foreign key, or a unique or exclusion index. None: an expression."""

    name: str
    columns: Sequence[Column | None]
    references: Sequence[Column | None]


def read_keys(connection: psycopg.Connection[Any]) -> tuple[Sequence[Column], Sequence[Key]]:
    """Return all columns of tables, and all keys."""
    columns: dict[tuple[int, int], Column] = {}
    for relid, number, *facts, ancestors in connection.execute(COLUMNS).fetchall():
        column = Column(*facts)
        tables = [(column.schema, column.table), *(tuple(one.split(".", 1)) for one in ancestors)]
        columns[relid, number] = replace(column, tables=tables)
    keys = [
        Key(
            name,
            [columns.get((relid, number)) for number in numbers],
            [columns.get((target, number)) for number in references],
        )
        for relid, numbers, target, references, name in connection.execute(KEYS).fetchall()
        if any((relid, number) in columns for number in numbers)
    ]
    return list(columns.values()), keys


def masks_of(
    columns: Sequence[Column], keys: Sequence[Key], rules: Sequence[MaskRule]
) -> Mapping[Table, Mapping[str, Mask]]:
    """Return by table the masks of its columns. Raises UsageError for a rule that matches no column, or that
    type or keys of a column do not allow.
    """
    chosen: dict[str, Mask] = {}
    for rule in rules:
        matched = [
            column for column in columns if any(rule.matches(*table, column.name) for table in column.tables)
        ]
        if not matched:
            raise UsageError(f"--mask: {rule} matches no column: correct it, or remove it")
        for column in matched:
            chosen[column.label] = Mask(rule, column.type)
    chosen = {label: mask for label, mask in chosen.items() if mask.action != "keep"}
    for column in columns:
        if (mask := chosen.get(column.label)) and (reason := _refusal(column, mask)):
            raise UsageError(f"--mask: {mask.rule} cannot mask {column.label}: {reason}")
    for key in keys:
        for reason in _key_refusals(key, chosen):
            raise UsageError(f"--mask: {reason}")
    found: dict[Table, dict[str, Mask]] = {}
    for column in columns:
        if column.has_rows and column.label in chosen:
            found.setdefault((column.schema, column.table), {})[column.name] = chosen[column.label]
    return found


def _refusal(column: Column, mask: Mask) -> str:
    """Return why the column cannot be masked so; empty if it can."""
    action = mask.action
    if column.is_generated:
        return "it is generated: mask the columns that it is computed from"
    if action == "null" and column.not_null:
        return "it is NOT NULL: use hash or shuffle"
    if action != "shuffle" and column.is_partition_key:
        return "it is a partition key: use shuffle, which keeps values in their partition, or keep"
    if action == "replace" and column.type not in TEXTS:
        return f"its type is {column.type}, and s/REGEX/TEXT/ is for texts: use shuffle or null"
    if action == "hash" and column.type not in HASHED:
        return f"its type is {column.type}, and hash is for texts, integers and uuid: use shuffle or null"
    if action == "hash" and column.length_max is not None and column.length_max < HASH_CHARACTERS_MIN:
        return f"it has {column.length_max} characters, and a hash needs {HASH_CHARACTERS_MIN}: use shuffle"
    return ""


def _key_refusals(key: Key, chosen: Mapping[str, Mask]) -> Iterator[str]:
    """Yield why masked columns would break a key."""
    for side in (key.columns, key.references):
        for column in filter(None, side):
            mask = chosen.get(column.label)
            if mask is None or mask.action in ("hash", "null"):
                continue
            if mask.action == "replace":
                yield f"{mask.rule} would break the key {key.name}: use hash for {column.label}"
            if mask.action == "shuffle" and len(side) > 1:
                yield (
                    f"{mask.rule} would break the key {key.name}, which has several columns: use hash or "
                    f"keep for {column.label}"
                )
    for mine, theirs in zip(key.columns, key.references, strict=False):
        if mine is None or theirs is None:
            continue
        a, b = chosen.get(mine.label), chosen.get(theirs.label)
        if b is not None and b.action == "null":
            yield f"{b.rule} would break the foreign key {key.name}: use hash or keep for {theirs.label}"
        hashed = [mask is not None and mask.action == "hash" for mask in (a, b)]
        if any(hashed) and not all(hashed) and not (a is not None and a.action == "null"):
            yield (
                f"{mine.label} references {theirs.label} (foreign key {key.name}): use hash for both or for "
                "neither"
            )
        if all(hashed) and _class(mine.type) != _class(theirs.type):
            yield f"{mine.label} and {theirs.label} have different types: hash cannot keep {key.name}"


def _class(name: str) -> str:
    return "integer" if name in INTEGERS else "text" if name in TEXTS - {"citext"} else name
