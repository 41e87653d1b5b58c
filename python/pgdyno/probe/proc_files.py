"""Files of /proc and /sys, of this machine or of a recorded one."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path

GZIPPED_CHARACTERS_MAX = 4 * 2**20
"""A kernel's configuration has a quarter of a million characters."""


@dataclass(frozen=True)
class Tree:
    """Paths are those of the real files, from the root on."""

    root: Path = Path("/")

    def text(self, path: str) -> str | None:
        """A file's text without the blanks around it; None where it is not there or not for us."""
        try:
            return (self.root / path.lstrip("/")).read_text().strip()
        except (OSError, UnicodeDecodeError):
            return None

    def gzipped(self, path: str) -> str | None:
        """A compressed file's text; None where it is not there, not for us, or damaged."""
        try:
            with gzip.open(self.root / path.lstrip("/"), "rt") as file:
                return file.read(GZIPPED_CHARACTERS_MAX)
        except (OSError, EOFError, UnicodeDecodeError, zlib.error):
            return None

    def number(self, path: str) -> int | None:
        """A file of one number; None where it is none."""
        text = self.text(path)
        try:
            return None if text is None else int(text)
        except ValueError:
            return None

    def texts(self, pattern: str) -> list[str]:
        """Of all files that match, in the order of their names."""
        found = sorted(self.root.glob(pattern.lstrip("/")))
        texts = (self.text(str(path.relative_to(self.root))) for path in found)
        return [text for text in texts if text is not None]

    def names(self, pattern: str) -> list[str]:
        """Of all files and directories that match."""
        return sorted(path.name for path in self.root.glob(pattern.lstrip("/")))
