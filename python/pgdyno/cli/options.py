"""Options shared by several commands, and groups of options: fields of a dataclass become options.

    @dataclass(frozen=True)
    class Sizes:
        warehouses: Annotated[int | None, typer.Option(help="…")] = None

    @expanded
    def load(dsn: str, sizes: Sizes) -> int: …          # pgdyno load DSN --warehouses N

Options shared by several commands are so defined once, with their help.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import psutil
import typer
from psycopg import ProgrammingError

from pgdyno.errors import UsageError
from pgdyno.probe.machine_facts import read_limits
from pgdyno.probe.proc_files import Tree
from pgdyno.study.arm_spec import has_secrets
from pgdyno.study.sizing import MachineSize
from pgdyno.units import S_PER_MIN, parse_duration_s


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
        made = {name: _made(group, given) for name, group in groups.items()}
        return command(**given, **made)

    with_groups.__signature__ = own.replace(parameters=keyword)  # type: ignore[attr-defined]
    with_groups.__annotations__ = {p.name: p.annotation for p in keyword} | {"return": int}
    return with_groups


def _options(group: Any) -> list[inspect.Parameter]:
    """Return the parameters of a group; a field that is a group itself gives all of its own."""
    hints = get_type_hints(group, include_extras=True)
    found = []
    for field in fields(group):
        hint = hints[field.name]
        if is_dataclass(hint):
            found += _options(hint)
        else:
            kind = inspect.Parameter.KEYWORD_ONLY
            found.append(inspect.Parameter(field.name, kind, default=field.default, annotation=hint))
    return found


def _made(group: Any, given: dict[str, Any]) -> Any:
    """Return the group with its values, which leave ``given``; absent ones have their defaults."""
    hints = get_type_hints(group)
    values = {
        field.name: _made(hints[field.name], given)
        if is_dataclass(hints[field.name])
        else given.pop(field.name)
        for field in fields(group)
        if is_dataclass(hints[field.name]) or field.name in given
    }
    return group(**values)


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Suppress progress messages.")]
Full = Annotated[
    bool, typer.Option("--full", help="Print all tables, not only the summary that fits one screen.")
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Overwrite the --html file even if pgdyno did not write it."),
]
NoAa = Annotated[
    bool,
    typer.Option(
        "--no-aa",
        help="Disable A/A control blocks: one per ten blocks after the tenth, to measure noise.",
    ),
]
IntoExisting = Annotated[
    bool,
    typer.Option(
        "--into-existing",
        help="Use the database named in the DSN even if pgdyno did not create it.",
    ),
]
BUILD_OPTIONS = typer.Option(
    "--build-options",
    metavar="OPTIONS",
    help="Options of configure (--with-lz4) or of meson (-Dlz4=enabled), and variables (CFLAGS=-O3), for "
    "servers built from source. Quoted as in a shell.",
)
EXTENSION = typer.Option(
    "--extension",
    metavar="DIR",
    help="Extension to build for the server of each arm and to create in its database: a directory with a "
    "PGXS Makefile, or git:DIR@REF. May be repeated.",
)
Replace = Annotated[
    bool,
    typer.Option(
        "--replace",
        help="pgbench: with --into-existing, overwrite pgbench_* tables that pgdyno did not load. Deletes "
        "their rows.",
    ),
]


def require_no_password(conninfo: str | None) -> str | None:
    """Return a connection string of the command line. Raises UsageError if it has a password: ps shows it."""
    with contextlib.suppress(ProgrammingError):  # malformed: Dsn says so
        if conninfo is not None and has_secrets(conninfo):
            raise UsageError(
                "a connection string on the command line must not contain a password, which ps shows: put it "
                "in ~/.pgpass, in the file that PGPASSFILE names, or in PGPASSWORD"
            )
    return conninfo


Dsn = Annotated[
    str,
    typer.Argument(
        metavar="DSN",
        callback=require_no_password,
        help="Database, as a libpq connection string or URI. "
        "The password is read from ~/.pgpass, PGPASSFILE or PGPASSWORD.",
    ),
]


MINUTES_MAX = 60 * 24 * 366.0
"""A year. Longer values are typing errors."""

SEED_MAX = 2**53 - 1
"""Largest integer that JSON numbers hold exactly."""


def machine_size() -> MachineSize:
    """Return the cores available to this process, and the memory up to the limit of its control group."""
    physical_bytes = psutil.virtual_memory().total
    limit_bytes = read_limits(Tree()).memory_bytes
    return MachineSize(
        len(psutil.Process().cpu_affinity()), min(physical_bytes, limit_bytes or physical_bytes)
    )


def parse_percent(text: str) -> float:
    """``2%`` or ``2`` → 0.02. Raises UsageError."""
    try:
        share = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        raise UsageError(f"{text!r} is not a percentage; for example: 2%") from None
    if not 0 < share < 1:
        raise UsageError(f"a percentage must be greater than 0 and less than 100 (got {text!r})")
    return share


@dataclass(frozen=True)
class Output:
    """Options of the report of a study."""

    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="HTML report to write. [default: name of the results file with .html]"
        ),
    ] = None
    force: Force = False
    full: Full = False
    json: Json = False
    quiet: Quiet = False


def parse_minutes(text: str) -> float:
    """Convert ``5`` (minutes), ``5m`` or ``300s`` to minutes. Raises UsageError."""
    try:
        return float(text)
    except ValueError:
        return parse_duration_s(text) / S_PER_MIN


def require_minutes(minutes: float | None) -> None:
    """Raise UsageError for a value of --minutes out of range; it may be nan."""
    if minutes is not None and not 0 < minutes <= MINUTES_MAX:
        raise UsageError(f"--minutes must be greater than 0 and at most {MINUTES_MAX:.0f} (got {minutes:g})")
