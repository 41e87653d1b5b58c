"""Scripts and variables of pgbench, as options name them: ``-b NAME@WEIGHT``, ``-f FILE@WEIGHT``, ``-D``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pgdyno.errors import UsageError
from pgdyno.study.pgbench import BUILTINS, Script

SCRIPT_BYTES_MAX = 1 << 20
"""It goes into the evidence, and to the engine with every block."""


WEIGHT_DIGITS_MAX = 10
"""Of one below 2**31; a number of thousands of digits is none that Python reads."""


def scripts_of(builtins: Iterable[str], files: Iterable[str]) -> tuple[Script, ...]:
    """Builtin ones first. Raises UsageError: no such builtin or file, no weight."""
    return (*map(_builtin, builtins), *map(_file, files))


def definitions(texts: Iterable[str]) -> dict[str, str]:
    """``NAME=VALUE``; of one name the last counts. Raises UsageError."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise UsageError(f"--define: {text!r} is no NAME=VALUE")
        found[name] = value
    return found


def _builtin(text: str) -> Script:
    prefix, weight = _weighted(text)
    found = [name for name in BUILTINS if name.startswith(prefix)]
    if len(found) != 1:
        how = "names several of pgbench's scripts" if found else "is none of pgbench's scripts"
        raise UsageError(f"--builtin: {prefix!r} {how}: {', '.join(BUILTINS)}")
    return Script(name=found[0], weight=weight)


def _file(text: str) -> Script:
    name, weight = _weighted(text)
    path = Path(name)
    try:
        with path.open("rb") as file:
            read = file.read(SCRIPT_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"--file: cannot read {name}: {error.strerror}") from None
    if len(read) > SCRIPT_BYTES_MAX:
        raise UsageError(f"--file: {name} is larger than a script may be (1 MiB)")
    try:
        return Script(name=name, weight=weight, text=read.decode())
    except UnicodeDecodeError as error:
        raise UsageError(f"--file: {name} is not UTF-8 (byte {error.start})") from None


def _weighted(text: str) -> tuple[str, int]:
    """As pgbench: what stands after the last @ is the weight."""
    name, at, weight = text.rpartition("@")
    if not at:
        return text, 1
    if not weight.isdecimal() or len(weight) > WEIGHT_DIGITS_MAX or int(weight) >= 2**31:
        raise UsageError(f"{weight!r} in {text!r} is no weight: give a whole number, such as {name}@2")
    return name, int(weight)
