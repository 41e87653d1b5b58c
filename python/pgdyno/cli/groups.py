"""Groups of options: each field of a dataclass parameter becomes an option of the command.

    @dataclass(frozen=True)
    class Sizes:
        warehouses: Annotated[int | None, typer.Option(help="…")] = None

    @expanded
    def load(dsn: str, sizes: Sizes) -> int: …          # pgdyno load DSN --warehouses N

Options shared by several commands are so defined once, with their help.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints


def expanded(command: Callable[..., int]) -> Callable[..., int]:
    """Return the command with the fields of its groups as parameters."""
    own = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        p.name: p.annotation for p in own.parameters.values() if is_dataclass(p.annotation)
    }
    flat = [
        one for p in own.parameters.values() for one in (_options(p.annotation) if p.name in groups else [p])
    ]
    keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in flat]

    @functools.wraps(command)
    def with_groups(*values: Any, **given: Any) -> int:
        given |= zip((p.name for p in flat), values, strict=False)
        made = {
            name: group(
                **{field.name: given.pop(field.name) for field in fields(group) if field.name in given}
            )
            for name, group in groups.items()
        }
        return command(**given, **made)

    with_groups.__signature__ = own.replace(parameters=keyword)  # type: ignore[attr-defined]
    with_groups.__annotations__ = {p.name: p.annotation for p in keyword} | {"return": int}
    return with_groups


def _options(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(group)
    ]
