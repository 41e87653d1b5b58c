"""Messages and output files.

- Output streams: data on standard output, progress and messages on standard error.
- Output files: checks before a long measurement, and their atomic replacement. Only files of pgdyno are
  replaced, or with ``--force`` others; never results files, links, devices or pipes.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import secrets
import stat
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from pgdyno.cli.streams import writing
from pgdyno.errors import PgdynoError, UsageError, shortened
from pgdyno.report.visible_text import json_text, visible

# ----------------------------------------------------------------------
# Output streams: data on standard output, progress and messages on standard error.
# ----------------------------------------------------------------------


class VisibleConsole(Console):
    """Console that escapes control characters and interprets no markup or emoji codes.

    It filters rendered segments, which covers tables and the live view.
    """

    def __init__(self, *, stderr: bool = False, **of_rich: Any) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False, **of_rich)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render with hidden characters escaped, except the control codes of rich."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


class _Output(VisibleConsole):
    def print(self, *values: Any, **how: Any) -> None:
        """Print, converting errors of standard output to PgdynoError."""
        with writing():
            super().print(*values, **how)


out = _Output()
err = VisibleConsole(stderr=True)

MESSAGE_CHARS_MAX = 20_000
"""Maximum length of a message; the help of a command is the longest one."""


def say(text: str, *, wrap: bool = False) -> None:
    """Print a message on standard error, without interpreting markup.

    ``wrap``: on a terminal, break lines between words. Commands to copy must not have line breaks. A
    message that cannot be written is dropped; the exit status still reports the outcome.
    """
    with contextlib.suppress(OSError):
        err.print(shortened(text, MESSAGE_CHARS_MAX), soft_wrap=not (wrap and err.is_terminal))


def print_json(value: Any) -> None:
    """Print one JSON document on standard output, in UTF-8 as reports. NaN and infinity become null."""
    write_out(json_text(value))


def write_out(text: str) -> None:
    """Write UTF-8 in every locale, so that names keep their characters."""
    with writing():
        sys.stdout.flush()
        sys.stdout.buffer.write((text if text.endswith("\n") else f"{text}\n").encode())
        sys.stdout.buffer.flush()


# ----------------------------------------------------------------------
# Output files: checks before a long measurement, and their atomic replacement.
# ----------------------------------------------------------------------

MARK = '<meta name="generator" content="pgdyno">'
"""Mark in the head of every HTML page of pgdyno."""

_SQLITE = b"SQLite format 3\0"
_COMPANIONS = ("-wal", "-shm", "-journal")
"""Suffixes of files that SQLite treats as part of a database, even if other programs wrote them."""

_MARK_WITHIN = 4096
"""Bytes at the start of a page that contain the mark."""

_PART = re.compile(r"\.([0-9]{1,9})\.[0-9a-f]{16}\.part")
"""Suffix of a page being written: the process ID and a random token."""

_STANDARD = {"/dev/stdout": 1, "/dev/stderr": 2}


def require_writable(path: Path) -> None:
    """Check that a new results file can be written. Raises UsageError."""
    _require_directory(path)
    if _mode_of_regular(path, "name another") is None:
        for end in _COMPANIONS:
            left = path.with_name(path.name + end)
            if os.path.lexists(left):
                raise UsageError(
                    f"cannot write {path}: SQLite would read {left} as part of it: remove {left}, or name "
                    "another file"
                )


def require_writable_page(path: Path, evidence: Path | None = None, *, force: bool = False) -> None:
    """Check that a page can be written without replacing files of others. Raises UsageError.

    ``evidence`` is a file about to be created, whose name is taken. ``force`` allows replacing regular files.
    """
    if descriptor_of(path) is not None:
        return
    require_regular(path, evidence)
    if not force and not _may_be_replaced(path):
        raise UsageError(f"{path} exists and was not written by pgdyno: name another file, or add --force")


def require_regular(path: Path, evidence: Path | None) -> None:
    """Check that a file is absent, or a regular one that may be written. Raises UsageError."""
    _require_directory(path)
    # Never read from a pipe or a device: that may block forever, or change it.
    is_results = path.is_file() and _beginning(path).startswith(_SQLITE)
    if is_results or (evidence is not None and path.resolve() == evidence.resolve()):
        raise UsageError(f"{path} is a results file, which is never overwritten: name another file")
    mode = _mode_of_regular(path, "name another, or /dev/stdout")
    # Respect the write protection even as root.
    if mode is not None and (not mode & 0o222 or not os.access(path, os.W_OK)):
        raise UsageError(f"cannot write {path}: it is write-protected; chmod u+w it, or name another file")


def _mode_of_regular(path: Path, remedy: str) -> int | None:
    """Return the mode of a regular file; None if nothing is there. Raises UsageError for anything else."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(mode):
        raise UsageError(f"cannot write {path}: it is a symbolic link; name the file itself")
    if stat.S_ISDIR(mode):
        raise UsageError(f"cannot write {path}: it is a directory")
    if not stat.S_ISREG(mode):
        raise UsageError(f"cannot write {path}: it is not a regular file; {remedy}")
    return mode


def _require_directory(path: Path) -> None:
    try:
        # Ask the file system: root passes every permission check, but not a read-only file system.
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}: name another file, or make the directory writable"
        ) from None


def descriptor_of(path: Path) -> int | None:
    """Return the descriptor behind ``/dev/stdout``, ``/dev/fd/3`` and the like; None for a file."""
    text = str(path)
    numbered = re.fullmatch(r"/(?:dev|proc/self)/fd/([0-9]{1,9})", text)
    number = int(numbered[1]) if numbered else _STANDARD.get(text)
    if number is not None:
        try:
            os.fstat(number)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}: name a file") from None
    return number


def _may_be_replaced(path: Path) -> bool:
    """Return True if the file is absent, empty or a page of pgdyno."""
    return not path.exists() or path.stat().st_size == 0 or MARK.encode() in _beginning(path)


def _beginning(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MARK_WITHIN)
    except OSError:
        return b""


def _remove_parts_of_the_dead(path: Path) -> None:
    """Remove the partial files that killed writers of this file left behind."""
    import psutil  # noqa: PLC0415

    for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        ours = _PART.fullmatch(part.name.removeprefix(f".{path.name}"))
        if ours and not psutil.pid_exists(int(ours[1])):
            part.unlink(missing_ok=True)


def write_text(path: Path, text: str, *, force: bool = False) -> None:
    """Write a page atomically: if the disk is full, the old file remains.

    Repeats the checks, because minutes may have passed since the first ones. Raises PgdynoError.
    """
    try:
        if (number := descriptor_of(path)) is not None:
            write_through(number, text)
            return
        require_writable_page(path, force=force)
        _remove_parts_of_the_dead(path)
        # An unpredictable name, so that no other user can place a link there; "x" opens new files only.
        part = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(8)}.part")
        try:
            with part.open("x", encoding="utf-8") as file:
                file.write(text)
            _put(part, path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise PgdynoError(f"cannot write {path}: {error.strerror}") from error


def _put(part: Path, path: Path) -> None:
    """Replace the file, keeping mode and owner of the old one."""
    with contextlib.suppress(FileNotFoundError):
        before = path.lstat()
        part.chmod(stat.S_IMODE(before.st_mode))
        with contextlib.suppress(PermissionError):  # users cannot change the owner
            os.chown(part, before.st_uid, before.st_gid)
    part.replace(path)


def write_through(number: int, text: str) -> None:
    """Write to an open descriptor at its position; opening the path again would truncate the file."""
    with os.fdopen(os.dup(number), "w", encoding="utf-8") as file:
        file.write(text)
