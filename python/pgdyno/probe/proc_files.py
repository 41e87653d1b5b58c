"""Files of /proc and /sys, of this machine or recorded ones."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path

GZIPPED_CHARACTERS_MAX = 4 * 2**20
"""Maximum length. A kernel configuration has about 250,000 characters."""


@dataclass(frozen=True)
class Tree:
    """A directory tree. Paths are absolute, as on the real machine."""

    root: Path = Path("/")

    def text(self, path: str) -> str | None:
        """Return the stripped text of a file; None if it is missing or not readable.

        Names of programs and options of the kernel are bytes, and the kernel cuts a name within a character.
        """
        try:
            return (self.root / path.lstrip("/")).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    def gzipped(self, path: str) -> str | None:
        """Return the text of a compressed file; None if it is missing, not readable or damaged."""
        try:
            with gzip.open(self.root / path.lstrip("/"), "rt", encoding="utf-8", errors="replace") as file:
                return file.read(GZIPPED_CHARACTERS_MAX)
        except (OSError, EOFError, zlib.error):
            return None

    def number(self, path: str) -> int | None:
        """Return the number in a file; None if it is missing or no number."""
        text = self.text(path)
        try:
            return None if text is None else int(text)
        except ValueError:
            return None

    def texts(self, pattern: str) -> list[str]:
        """Return the texts of all matching files, sorted by name."""
        found = sorted(self.root.glob(pattern.lstrip("/")))
        texts = (self.text(str(path.relative_to(self.root))) for path in found)
        return [text for text in texts if text is not None]

    def names(self, pattern: str) -> list[str]:
        """Return the names of all matching files and directories."""
        return sorted(path.name for path in self.root.glob(pattern.lstrip("/")))
