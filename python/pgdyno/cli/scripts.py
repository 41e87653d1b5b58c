"""pgbench scripts and variables from the options ``-b NAME@WEIGHT``, ``-f FILE@WEIGHT`` and ``-D``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pgdyno.errors import UsageError
from pgdyno.study.pgbench_parameters import BUILTINS, Script

SCRIPT_BYTES_MAX = 1 << 20
"""Maximum size: the script is stored in the evidence and sent to the engine with every block."""


WEIGHT_DIGITS_MAX = 10
"""Digits of the largest weight, 2**31 - 1; Python refuses numbers with thousands of digits."""


def scripts_of(builtins: Iterable[str], files: Iterable[str]) -> tuple[Script, ...]:
    """Return the scripts, built-in ones first. Raises UsageError: unknown name or file, invalid weight."""
    return (*map(_builtin, builtins), *map(_file, files))


def definitions(texts: Iterable[str]) -> dict[str, str]:
    """Parse ``NAME=VALUE``; the last value of a name applies. Raises UsageError."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise UsageError(f"--define must have the form NAME=VALUE (got {text!r})")
        found[name] = value
    return found


def _builtin(text: str) -> Script:
    prefix, weight = _weighted(text)
    found = [name for name in BUILTINS if name.startswith(prefix)]
    if len(found) != 1:
        how = "is ambiguous" if found else "is unknown"
        raise UsageError(f"--builtin: the script {prefix!r} {how}; available: {', '.join(BUILTINS)}")
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
        raise UsageError(f"--file: {name} is larger than 1 MiB, the maximum size of a script")
    try:
        return Script(name=name, weight=weight, text=read.decode())
    except UnicodeDecodeError as error:
        raise UsageError(f"--file: {name} is not UTF-8 (byte {error.start})") from None


def _weighted(text: str) -> tuple[str, int]:
    """Split at the last @, as pgbench does; the weight is 1 without one."""
    name, at, weight = text.rpartition("@")
    if not at:
        return text, 1
    if not weight.isdecimal() or len(weight) > WEIGHT_DIGITS_MAX or int(weight) >= 2**31:
        raise UsageError(
            f"invalid weight {weight!r} in {text!r}: give an integer from 0 to {2**31 - 1}, as in {name}@2"
        )
    return name, int(weight)
