"""Files of a fleet study on one of its hosts, in the directory ``fleet`` of its cache."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pgdyno.errors import UsageError
from pgdyno.server.cache_directory import Cache

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True)
class HostFiles:
    """Files of one work. They stay on the host until the coordinator has the results file."""

    folder: Path
    name: str

    @classmethod
    def of(cls, name: str) -> Self:
        """Return the files of a work; create their directory. Raises UsageError: invalid name, no cache."""
        if not NAME.fullmatch(name):
            raise UsageError(f"{name!r} cannot be the name of a results file: use letters, digits, - and _")
        folder = Cache.open().root / "fleet"
        folder.mkdir(mode=0o700, exist_ok=True)
        return cls(folder, name)

    @property
    def evidence(self) -> Path:
        """The results file."""
        return self.folder / f"{self.name}.sqlite"

    @property
    def snapshot(self) -> Path:
        """The last snapshot of the results file."""
        return self.folder / f"{self.name}.snapshot"

    @property
    def study(self) -> Path:
        """The study file."""
        return self.folder / f"{self.name}.toml"

    @property
    def log(self) -> Path:
        """Messages of the process of the study, for unexpected errors."""
        return self.folder / f"{self.name}.log"

    def remove(self) -> None:
        """Remove all files."""
        for path in self.folder.glob(f"{self.name}.*"):
            path.unlink(missing_ok=True)
