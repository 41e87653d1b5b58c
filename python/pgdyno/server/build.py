"""Build: a directory of PostgreSQL binaries, and its properties that need no running server."""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from pgdyno.errors import ServerError
from pgdyno.server.version import Version, reported_version

Provider = Literal["system", "embedded", "source", "directory"]
"""Installed on this machine, downloaded, built from source, or in a directory that the user named: its
builder is unknown."""

# A working binary answers at once. The limit is for a broken one (a wrapper with a prompt, a dead mount).
PROBE_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Extension:
    """An extension that was built for one arm. ``name`` and ``version`` of its control file are empty if it
    is only a library. ``libraries``: those that must be in shared_preload_libraries.
    """

    name: str
    version: str
    source: str
    libraries: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Name and version, or the source of a library."""
        return f"{self.name} {self.version}".strip() or self.source


MARK = "build.json"
"""File with facts about a build, in its directory in the cache. Its time is that of the last use."""


@dataclass(frozen=True)
class Build:
    """A PostgreSQL build. ``text`` is the output of ``postgres --version``; ``origin`` its source.

    ``extensions``: those that pgdyno added to a copy of it, identified by ``extensions_digest``.
    """

    provider: Provider
    version: Version
    bin_dir: Path
    text: str
    origin: str
    extensions: tuple[Extension, ...] = ()
    extensions_digest: str = ""

    @cached_property
    def build_id(self) -> str:
        """Stable identity: equal texts mean equal binaries, byte for byte, and equal extensions."""
        with self.program("postgres").open("rb") as binary:
            digest = hashlib.file_digest(binary, "sha256").hexdigest()
        return "-".join(filter(None, (self.provider, str(self.version), digest[:12], self.extensions_digest)))

    @property
    def label(self) -> str:
        """Text for output: ``18.4 (embedded)``."""
        added = f" with {', '.join(one.label for one in self.extensions)}" if self.extensions else ""
        return f"{self.version} ({self.provider}){added}"

    @property
    def libraries(self) -> tuple[str, ...]:
        """The libraries of its extensions that must be in shared_preload_libraries."""
        return tuple(library for one in self.extensions for library in one.libraries)

    def program(self, name: str) -> Path:
        """Return the path of a program of the build; see ``has``."""
        return self.bin_dir / name

    def has(self, name: str) -> bool:
        """Return whether the build has that program (embedded builds have no psql, pgbench, pg_config)."""
        return self.program(name).is_file()

    @cached_property
    def configure(self) -> str | None:
        """Configure options according to pg_config; None without it.

        ``build_catalogue`` reads the same from the running server, for every build.
        """
        if not self.has("pg_config"):
            return None
        return _output([str(self.program("pg_config")), "--configure"]) or None


def read_build(bin_dir: Path, provider: Provider, origin: str) -> Build:
    """Return the build in that directory. Raises ServerError if programs are missing or do not run."""
    bin_dir = bin_dir.resolve()
    for name in ("postgres", "initdb"):
        if not (bin_dir / name).is_file():
            raise ServerError(f"{bin_dir} contains no PostgreSQL server: it has no program {name!r}")
    text = _output([str(bin_dir / "postgres"), "--version"])
    version = reported_version(text or "")
    if text is None or version is None:
        raise ServerError(f"{bin_dir / 'postgres'} does not run: 'postgres --version' printed no version")
    return Build(provider, version, bin_dir, text, origin)


def read_tool_major(program: Path) -> int:
    """Return the major version of psql, pg_dump or pg_restore; 0 if it does not run."""
    version = reported_version(_output([str(program), "--version"]) or "")
    return version.major if version else 0


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
