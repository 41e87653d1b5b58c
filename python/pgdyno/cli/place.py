"""Where a file is going to be written: whether that will do is known before minutes go into making it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from pgdyno.errors import PgdynoError, UsageError


def require_place(path: Path) -> None:
    """Before minutes go into loading data. Raises UsageError where a file could not be written."""
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


def write_text(path: Path, text: str) -> None:
    """Raises PgdynoError."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PgdynoError(f"cannot write the report to {path}: {error.strerror}") from error
