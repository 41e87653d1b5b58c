"""Where a file is going to be written: whether that will do is known before minutes go into making it."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from pathlib import Path

import psutil

from pgdyno.errors import PgdynoError, UsageError

_SQLITE = b"SQLite format 3\0"


def require_place(path: Path) -> None:
    """Before minutes go into loading data. Raises UsageError where a file could not be written."""
    if _is_stream(path):
        return
    try:
        # The answer that counts is the file system's: root may write everywhere, but not on a read-only disk.
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}: name another file, or make the directory writable"
        ) from None
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a directory")


def require_place_of_text(path: Path, evidence: Path | None = None) -> None:
    """The same for a page or a summary, which never take the place of evidence, be it there already or about
    to be made (``evidence``). Raises UsageError.
    """
    require_place(path)
    if (evidence is not None and path.resolve() == evidence.resolve()) or _is_sqlite(path):
        raise UsageError(f"{path} is evidence, which is never overwritten: name another file for the report")


def _is_stream(path: Path) -> bool:
    """``/dev/stdout``, a pipe, a terminal: what is written to, and not replaced."""
    return path.exists() and not path.is_dir() and (path.is_relative_to("/dev") or not path.is_file())


def _is_sqlite(path: Path) -> bool:
    # Nothing is read from a pipe or a terminal, which a page may well be written to.
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


def _remove_parts_of_the_dead(target: Path) -> None:
    """What processes that were killed while they wrote this very file have left beside it."""
    for part in target.parent.glob(f".{glob.escape(target.name)}.*.part"):
        writer = part.name.removeprefix(f".{target.name}.").removesuffix(".part")
        if writer.isdigit() and not psutil.pid_exists(int(writer)):
            part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """At once, if it is a file: where the disk is full, what stood there still does. Raises PgdynoError."""
    try:
        if _is_stream(path):
            path.write_text(text, encoding="utf-8")
            return
        target = path.resolve()
        _remove_parts_of_the_dead(target)
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            part.write_text(text, encoding="utf-8")
            if target.exists():
                shutil.copymode(target, part)  # who may read it stays the user's choice
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise PgdynoError(f"cannot write the report to {path}: {error.strerror}") from error
