"""Parameters of a statement: their roles, and the operands that are parameters. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from pgdyno.workload.statements.column_scopes import ColumnName
from pgdyno.workload.statements.statement_parser import names, parts


class Role(StrEnum):
    """Role of a parameter in its statement."""

    VALUE = "value"  # compared for equality
    BOUND = "bound"  # compared by order
    RANGE_END = "range end"  # the upper bound of a column that has a lower one, too
    PATTERN = "pattern"
    LIST = "list"
    ASSIGNED = "assigned"
    ROW_COUNT = "row count"
    OFFSET = "offset"
    FIXED = "fixed"  # an argument with one sensible value: fields, formats, lengths
    CONSTANT = "constant"  # outside of filters
    ARGUMENT = "argument"  # of a function, or an operand of a filter without a column


@dataclass(frozen=True)
class Use:
    """One occurrence of a parameter, at these bytes of the text.

    ``wrapper``: function around the column, which the value needs, too. ``cast``: type name in front of it.
    ``is_item``: an item of VALUES, which can be DEFAULT. ``start_number``: the lower bound of a range.
    """

    number: int
    start: int
    end: int
    role: Role
    column: ColumnName | None = None
    wrapper: str = ""
    cast: str = ""
    fixed: str = ""  # the value of Role.FIXED
    place: str = ""  # of Role.ARGUMENT
    is_item: bool = False
    is_inserted: bool = False
    on_conflict: bool = False
    start_number: int = 0
    group: int = 0
    order: str = ""


FIXED: Mapping[tuple[str, int], str] = {
    **dict.fromkeys((("extract", 0), ("date_part", 0), ("date_trunc", 0)), "'day'"),
    ("to_char", 1): "'YYYY-MM-DD'",
    **dict.fromkeys((("substring", 1), ("substring", 2), ("substr", 1), ("substr", 2)), "1"),
    **dict.fromkeys((("left", 1), ("right", 1), ("lpad", 1), ("rpad", 1), ("round", 1), ("trunc", 1)), "1"),
}
"""Arguments of functions that name a field, a format or a length, and their value in scripts. Without a value
the server could not know their type."""

# fmt: off
WITHOUT_EFFECT = frozenset((
    "abs", "array_agg", "avg", "bool_and", "bool_or", "btrim", "ceil", "char_length", "concat",
    "concat_ws", "count", "date_part", "date_trunc", "dense_rank", "extract", "first_value", "floor",
    "format", "json_agg", "json_build_object", "jsonb_agg", "jsonb_build_object", "lag", "last_value",
    "lead", "left", "length", "lower", "lpad", "ltrim", "max", "min", "mod", "nth_value", "ntile",
    "power", "rank", "replace", "right", "round", "row_number", "rpad", "rtrim",
    "split_part", "string_agg", "substr", "substring", "sum", "to_char", "to_json", "to_jsonb",
    "translate", "trim", "trunc", "upper",
))
# fmt: on
"""Built-in functions whose cost depends little on constant arguments, outside of filters."""

WRAPPERS = frozenset(("lower", "upper", "btrim"))
"""Functions around a column whose value needs the same function."""


def parameter_of(node: Any, text: bytes) -> Use | None:
    """Return the parameter that an operand is, within casts, COLLATE, lower and the like; else None."""
    tag, body = parts(node) if isinstance(node, dict) else ("", {})
    if tag == "ParamRef" and "number" in body:
        start = int(body["location"])
        end = start + len(f"${body['number']}")
        return Use(int(body["number"]), start, end, Role.CONSTANT)
    if tag == "TypeCast":
        found = parameter_of(body["arg"], text)
        start = int(body["typeName"].get("location", -1))
        if found is not None and 0 <= start < found.start:  # interval $1, which servers do not accept
            name = text[start : found.start].decode(errors="replace").strip()
            return replace(found, start=start, cast=name)
        return found
    if tag == "CollateClause":
        return parameter_of(body["arg"], text)
    if tag == "FuncCall" and len(body.get("args", ())) == 1 and names(body["funcname"])[-1] in WRAPPERS:
        found = parameter_of(body["args"][0], text)
        return replace(found, wrapper="-") if found else None
    return None
