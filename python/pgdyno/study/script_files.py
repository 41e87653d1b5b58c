"""Files of pgbench scripts with weights, and directories of them: ``--file FILE@WEIGHT``, ``--file DIR``.

``pgdyno workload`` writes the directories. Their list ``workload.toml`` has the weights, and the share of
each script in the recorded time. Only files in the list are replaced.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pgdyno.errors import PgdynoError, UsageError
from pgdyno.study.pgbench_parameters import Script
from pgdyno.study.workload_parameters import read_script

LIST = "workload.toml"
MARK = "# Written by pgdyno workload"
"""Beginning of a list that pgdyno wrote, and may replace."""

SCRIPTS_MAX = 128
"""Maximum number of scripts of a workload, as in pgbench."""

STUB = "-- stub:"
"""Beginning of a line that marks a value that the user has to edit."""

WEIGHT_DIGITS_MAX = 10
"""Digits of the largest weight, 2**31 - 1; Python refuses numbers with thousands of digits."""


def script_files(text: str) -> tuple[Script, ...]:
    """Return the script of ``FILE@WEIGHT``, or those of a directory. Raises UsageError."""
    if Path(text).is_dir():
        return read_directory(Path(text))
    name, weight = weighted(text)
    if Path(name).is_dir():
        raise UsageError(f"{text!r}: the directory has weights in its {LIST}: remove @{weight}")
    return (Script(name=name, weight=weight, text=_edited(Path(name))),)


def _edited(path: Path) -> str:
    """Return the text of a script. Raises UsageError if a value is still a stub."""
    text = read_script(path)
    stubs = [line for line in text.splitlines() if line.startswith(STUB)]
    if stubs:
        more = f" (and {len(stubs) - 1} more in this file)" if len(stubs) > 1 else ""
        raise UsageError(
            f"{path} contains an unedited stub{more}: {stubs[0].removeprefix(STUB).strip()}; or remove "
            f"the script from {LIST}"
        )
    return text


def weighted(text: str) -> tuple[str, int]:
    """Split at the last @, as pgbench does; the weight is 1 without one. Raises UsageError."""
    name, at, weight = text.rpartition("@")
    if not at:
        return text, 1
    if not weight.isdecimal() or len(weight) > WEIGHT_DIGITS_MAX or int(weight) >= 2**31:
        raise UsageError(
            f"invalid weight {weight!r} in {text!r}: give an integer from 0 to {2**31 - 1}, as in {name}@2"
        )
    return name, int(weight)


class _Listed(BaseModel):
    """A script in the list."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str = Field(pattern=r"^[A-Za-z0-9_.-]+\.sql$")
    weight: int = Field(default=1, ge=0, le=2**31 - 1)
    share: float | None = Field(default=None, ge=0, le=1)


class _List(BaseModel):
    """The list."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scripts: tuple[_Listed, ...] = Field(min_length=1, max_length=SCRIPTS_MAX)


def read_directory(directory: Path) -> tuple[Script, ...]:
    """Return the scripts of a directory, named as their files without suffix. Raises UsageError."""
    return tuple(
        Script(
            name=one.file.removesuffix(".sql"),
            weight=one.weight,
            text=_edited(directory / one.file),
            share=one.share,
        )
        for one in _listed(directory).scripts
    )


def require_directory(directory: Path, *, replace: bool) -> None:
    """Check that scripts can be written to a directory. Raises UsageError.

    It must be absent or empty, or with ``replace`` one that pgdyno wrote.
    """
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        raise UsageError(f"cannot write {directory}: it is not a directory; name another")
    if not directory.parent.is_dir():
        raise UsageError(f"cannot write {directory}: {directory.parent} is not a directory; create it first")
    if not directory.exists() or not any(directory.iterdir()):
        return
    try:
        is_ours = (directory / LIST).read_text(encoding="utf-8").startswith(MARK)
    except (OSError, UnicodeDecodeError):
        is_ours = False
    if not is_ours:
        raise UsageError(f"{directory} was not written by pgdyno: name another directory")
    if not replace:
        raise UsageError(
            f"{directory} exists: name another directory, or replace its scripts with --overwrite"
        )


def write_directory(directory: Path, scripts: Sequence[Script], remarks: Sequence[str]) -> None:
    """Write scripts and their list, in place of those that pgdyno wrote before.

    Raises PgdynoError, UsageError. ``remarks``: lines of comment at the beginning of the list.
    """
    require_directory(directory, replace=True)
    try:
        directory.mkdir(exist_ok=True)
        if (directory / LIST).exists():
            for old in _listed(directory).scripts:
                (directory / old.file).unlink(missing_ok=True)
        for script in scripts:
            (directory / f"{script.name}.sql").write_text(script.text or "", encoding="utf-8")
        lines = [MARK, *(f"# {remark}".rstrip() for remark in remarks)]
        for script in scripts:
            lines += ["", "[[scripts]]", f'file = "{script.name}.sql"', f"weight = {script.weight}"]
            if script.share is not None:
                lines.append(f"share = {script.share:.6f}")
        (directory / LIST).write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise PgdynoError(f"cannot write {error.filename or directory}: {error.strerror}") from error


def _listed(directory: Path) -> _List:
    path = directory / LIST
    try:
        with path.open("rb") as file:
            return _List.model_validate(tomllib.load(file))
    except FileNotFoundError:
        raise UsageError(
            f"{directory} has no {LIST}: name the script files, or a directory written by pgdyno workload"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UsageError(f"{path}: {place}: {first['msg']}") from None
