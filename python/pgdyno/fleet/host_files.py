"""Files of a fleet study on one of its hosts: a directory per work, in ``fleet`` of its cache."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pgdyno.errors import UsageError
from pgdyno.server.cache_directory import FLEET_LOCK, Cache
from pgdyno.server.file_system import locked
from pgdyno.server.live_directories import OWNER

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True)
class HostFiles:
    """Files of one work. They stay on the host until the coordinator has the results file.

    ``held`` creates their directory.
    """

    folder: Path
    name: str

    @classmethod
    def of(cls, name: str) -> Self:
        """Return the files of a work. Raises UsageError: invalid name, no cache."""
        if not NAME.fullmatch(name):
            raise UsageError(f"{name!r} cannot be the name of a results file: use letters, digits, - and _")
        return cls(Cache.open().fleet / name, name)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Create the directory, and keep it from ``pgdyno cache prune``.

        The agent and the process of the study hold it both, because each can outlive the other. Raises
        OSError.
        """
        with contextlib.ExitStack() as holding:
            with locked(self.folder.parent / FLEET_LOCK, shared=True):  # no pruning in between
                self.folder.mkdir(mode=0o700, exist_ok=True)
                holding.enter_context(locked(self.folder / OWNER, shared=True))
            yield

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
        shutil.rmtree(self.folder, ignore_errors=True)
