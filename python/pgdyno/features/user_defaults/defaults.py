"""Defaults of options in the file of the user, ``$XDG_CONFIG_HOME/pgdyno/config.toml``.

A table has the name of a command, and its keys are the long names of options. The parser of the command line
takes a value from there only if the option is absent, by the same conversion. The command line of a study, as
the results file stores it, has the values that were used.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgdyno.caveats import Caveat
from pgdyno.cli.features import commands
from pgdyno.errors import PgdynoError, UsageError, plain_message

if TYPE_CHECKING:  # a command without a study does not import what measures
    from pgdyno.measure.study_runner import EndOfExamination

CONFIG_BYTES_MAX = 1 << 20
"""Maximum size of the file."""

OF_ONE_CALL = frozenset({"evidence", "html", "resume", "seed", "sweep", "summary"})
"""Options that belong to a single call: files to write, a study to continue, what one comparison is about."""

EXCLUSIVE: Sequence[tuple[str, str]] = (
    ("transactions", "window"),
    ("transactions", "slice"),
    ("transactions", "quick"),
    ("capacity", "rate"),
    ("fit", "spread"),
    ("fleet", "drivers"),
    ("fleet", "cluster"),
)
"""Pairs of options that exclude each other. One on the command line takes the place of a default."""

WITHOUT = frozenset({"config", "docs"})
"""Commands that work with an invalid file, too."""

Path_ = tuple[str, ...]
"""Words of a command: ``("compare",)``, ``("study", "list")``."""


@dataclass(frozen=True)
class UserDefault:
    """A default in the file. ``words``: the option with its value, as on the command line."""

    command: Path_
    key: str
    parameter: Any
    words: Sequence[str]
    value: str | list[str]

    @property
    def text(self) -> str:
        """``--minutes 10``."""
        return " ".join(self.words)


used: list[UserDefault] = []
"""The defaults that the command of this process took from the file."""


def config_path() -> Path:
    """Return the path of the file, which need not exist."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path("~/.config").expanduser())
    return Path(home) / "pgdyno" / "config.toml"


def shown_path() -> str:
    """Return the path with ``~`` for the home directory, whose name no report shows."""
    home, path = str(Path("~").expanduser()), str(config_path())
    return f"~{path.removeprefix(home)}" if path.startswith(f"{home}/") else path


def read_config() -> dict[str, Any]:
    """Return the tables of the file; empty without a file. Raises UsageError."""
    path = config_path()
    try:
        if path.stat().st_size > CONFIG_BYTES_MAX:
            raise UsageError(f"{path} is larger than any file of defaults: check the name")
        found = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (NotADirectoryError, PermissionError, IsADirectoryError) as error:
        raise UsageError(f"cannot read {path}: {error.strerror}: correct it, or remove it") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}: correct it, or remove it") from error
    for name, table in found.items():
        if name not in commands() or not isinstance(table, dict):
            raise UsageError(
                f"{path}: {name} is not a table of a command{_near(name, commands())}: write for example "
                "[compare], and below it minutes = 10"
            )
    return found


def _near(name: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    found = difflib.get_close_matches(name, list(known), 1)
    return f" (did you mean {found[0]}?)" if found else ""


def command_at(path: Path_) -> Any:
    """Return the command with these words. Raises KeyError."""
    import typer  # noqa: PLC0415

    from pgdyno.cli.main import app  # noqa: PLC0415

    program: Any = typer.main.get_command(app)
    return reduce(lambda of, name: of.commands[name], path, program)


def settable(command: Any) -> dict[str, Any]:
    """Return the options of a command that may have a default in the file, by key."""
    found = {}
    for one in command.params:
        key = max(one.opts, key=len).removeprefix("--")
        if one.opts[0].startswith("-") and not one.is_flag and key not in OF_ONE_CALL:
            found[key] = one
    return found


def defaults_in(table: Mapping[str, Any], path: Path_) -> Iterator[UserDefault]:
    """Yield the defaults in the table of a command, and in those of its subcommands. Raises UsageError."""
    command = command_at(path)
    known, within = settable(command), getattr(command, "commands", {})
    for key, value in table.items():
        name = key.replace("_", "-")
        place = f"{config_path()}: {key} below [{'.'.join(path)}]"
        if isinstance(value, dict) and key in within:
            yield from defaults_in(value, (*path, key))
        elif name not in known:
            raise UsageError(f"{place} {_why_not(command, name, known)}")
        else:
            yield _default(path, name, known[name], value, place)


def _why_not(command: Any, name: str, known: Mapping[str, Any]) -> str:
    """Return why a key cannot have a default, and what to do."""
    moved = getattr(command, "moved", {})
    if f"--{name}" in moved:
        return str(moved[f"--{name}"].remedy)
    every = {max(one.opts, key=len).removeprefix("--"): one for one in command.params}
    if name in OF_ONE_CALL & every.keys():
        return f"belongs to a single call: remove it, and use --{name}"
    if name in every and every[name].is_flag:
        return f"is a switch, which the command line could not turn off: remove it, and use --{name}"
    return f"is not an option{_near(name, known)}: remove it; pgdyno config lists the keys"


def _default(path: Path_, name: str, parameter: Any, value: object, place: str) -> UserDefault:
    """Return a default, converted by the command line's parser once. Raises UsageError."""
    from typer.exceptions import TyperException  # noqa: PLC0415

    is_list = isinstance(value, list)
    parts = value if isinstance(value, list) else [value]
    if (is_list and not parameter.multiple) or not all(type(one) in (str, int, float) for one in parts):
        kind = "a list of texts or numbers" if parameter.multiple else "a text or a number"
        raise UsageError(f"{place} must be {kind} (got {value!r}): correct it, or remove it")
    texts = [str(one) for one in parts]
    given: str | list[str] = texts if parameter.multiple else texts[0]
    try:
        parameter.process_value(_context(path), given)
    except TyperException as error:
        message = plain_message(getattr(error, "message", "") or error.format_message()).rstrip(".")
        raise UsageError(f"{place} is invalid: {message}: correct it, or remove it") from error
    except (PgdynoError, ValueError) as error:
        raise UsageError(f"{place} is invalid: {error}: correct it, or remove it") from error
    words = [word for text in texts for word in (f"--{name}", text)]
    return UserDefault(path, name, parameter, words, given)


def _context(path: Path_) -> Any:
    command = command_at(path)
    return command.context_class(command, info_name=path[-1], resilient_parsing=True)


@contextmanager
def defaults_of(arguments: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Context with the defaults of a command line, as the parser takes them: command → option → function.

    An error about an option with a value from the file names the file.
    """
    used.clear()
    own = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    if (
        not own
        or own[0] in WITHOUT
        or {"-h", "--help", "--help-all"} & {*own}
        or "_PGDYNO_COMPLETE" in os.environ
    ):
        yield {}
        return
    found: dict[str, Any] = {}
    table = read_config().get(own[0])
    if table:
        chosen = list(defaults_in(table, (own[0],)))
        for one in _applicable(chosen, own):
            of = reduce(lambda found, name: found.setdefault(name, {}), one.command, found)
            of[one.parameter.name] = partial(_use, one, list(arguments))
    try:
        yield found
    except Exception as error:
        named = [one for one in used if re.search(rf"--{one.key}(?![\w-])", str(_message(error)))]
        if not named:
            raise
        told = ", ".join(one.text for one in named)
        raise UsageError(f"{_message(error)} ({told} is from {config_path()}: change it there)") from error


def _message(error: Exception) -> str:
    """Return the line that the program prints for an error of the command line."""
    from typer.exceptions import TyperException  # noqa: PLC0415

    from pgdyno.cli.error_reporting import as_pgdyno_error  # noqa: PLC0415

    if isinstance(error, TyperException):
        return plain_message(error.format_message()).rstrip(".")
    known = error if isinstance(error, UsageError) else as_pgdyno_error(error)
    return str(known) if isinstance(known, UsageError) else ""


def _applicable(chosen: Sequence[UserDefault], arguments: Sequence[str]) -> list[UserDefault]:
    """Return the defaults that suit the arguments.

    A resumed study has its own values, except those that judge its report. Options of another workload than
    the chosen one have no effect, nor have those that an option of the command line excludes.
    """
    if any(one.partition("=")[0] == "--resume" for one in arguments):
        from pgdyno.cli.options import added_to  # noqa: PLC0415

        read = {f.name for kind in added_to(arguments[0]) if kind.READ_ON_RESUME for f in fields(kind)}
        return [one for one in chosen if one.parameter.name in read]
    excluded = _excluded(arguments)
    chosen = [one for one in chosen if not _kinds(one.key, one.value) & excluded]
    workload = _workload(chosen, arguments)
    return [one for one in chosen if _workload_of(one.parameter) in ("", workload)]


def _excluded(arguments: Sequence[str]) -> set[str]:
    """Return the keys that options of the command line exclude."""
    spelled = {one.partition("=")[0] if one.startswith("--") else one[:2] for one in arguments}
    given = {
        max(one.opts, key=len).removeprefix("--")
        for one in command_at((arguments[0],)).params
        if spelled & {*one.opts}
    }
    given |= {kind for one in arguments for kind in _kinds("", one.removeprefix("--window="))}
    return {b if a in given else a for a, b in EXCLUSIVE if {a, b} & given}


def _kinds(key: str, value: str | list[str]) -> set[str]:
    """Return the key, and transactions for checkpoint cycles, which are not divided into slices, either."""
    from pgdyno.study.values import CHECKPOINTS  # noqa: PLC0415

    return {key, "transactions"} if str(value).startswith(CHECKPOINTS) else {key}


def _workload(chosen: Sequence[UserDefault], arguments: Sequence[str]) -> str:
    """Return the workload that the command line chooses, else the file, else the default."""
    from pgdyno.cli.workload_options import DEFAULT_WORKLOAD  # noqa: PLC0415

    # Arguments contain no NUL.
    named = re.findall(r"(?:^|\0)--workload[\0=]([^\0]*)", "\0".join(arguments))
    if named:
        return str(named[-1])
    if own := [one.value for one in chosen if one.key == "workload"]:
        return str(own[0])
    has_data = any(one.partition("=")[0] == "--data" for one in arguments)
    return "pgbench" if has_data or any(one.key == "data" for one in chosen) else DEFAULT_WORKLOAD


def _workload_of(parameter: Any) -> str:
    """Return the workload with which the help of an option begins; empty for options of all workloads."""
    from pgdyno.study.workload_parameters import parameters_by_kind  # noqa: PLC0415

    kind = (parameter.help or "").partition(": ")[0]
    return kind if kind in parameters_by_kind() else ""


def _use(one: UserDefault, arguments: Sequence[str]) -> str | list[str]:
    """Return the value, and add the option to the command line that a study stores."""
    used.append(one)
    at = 1 + len(one.command)
    before = sum(len(other.words) for other in used[:-1])
    if len(sys.argv) == 1 + len(arguments) + before:
        sys.argv[at + before : at + before] = one.words
    return one.value


def record_defaults(writer: Any, ready: Sequence[Any], _watch: object, known: object) -> EndOfExamination:
    """Store a caveat with the defaults that a new study took from the file."""
    if used and known is None:
        told = ", ".join(one.text for one in used)
        for case in range(len(ready)):
            writer.add_caveat(Caveat.of("user-defaults", file=shown_path(), defaults=told), case)
    return lambda _: None
