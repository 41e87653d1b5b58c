"""Tags of results files: lines of a file beside each, so that a results file is never changed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from pgdyno.errors import UsageError

TAGS_MAX, LENGTH_MAX = 20, 40

BYTES_MAX = 4 * TAGS_MAX * (LENGTH_MAX + 1)


def _file_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.tags")


def tags_of(path: Path) -> Sequence[str]:
    """Return the tags of a results file."""
    try:
        with _file_of(path).open("rb") as file:
            lines = file.read(BYTES_MAX).decode(errors="replace").splitlines()
    except OSError:
        return ()
    return [line.strip() for line in lines if line.strip()][:TAGS_MAX]


def parsed_tags(text: str) -> list[str]:
    """Return the tags of a form, which commas separate. Raises UsageError."""
    found = list(dict.fromkeys(tag for part in text.split(",") if (tag := " ".join(part.split()))))
    if len(found) > TAGS_MAX:
        raise UsageError(f"a file has at most {TAGS_MAX} tags (got {len(found)})")
    for tag in found:
        if len(tag) > LENGTH_MAX or not tag.isprintable():
            raise UsageError(f"a tag has at most {LENGTH_MAX} characters, all of them visible (got {tag!r})")
    return found


def store_tags(path: Path, tags: Sequence[str]) -> None:
    """Replace the tags of a results file; without any, there is no file. Raises OSError."""
    file = _file_of(path)
    if not tags:
        file.unlink(missing_ok=True)
        return
    new = file.with_name(f"{file.name}.{secrets.token_hex(8)}.new")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "w") as written:
            written.write("".join(f"{tag}\n" for tag in tags))
        new.replace(file)
    finally:
        new.unlink(missing_ok=True)
