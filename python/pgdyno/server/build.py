"""A build: one directory of PostgreSQL binaries, and what is known of it without starting it."""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from pgdyno.errors import ServerError
from pgdyno.server.version import Version, reported_version

Provider = Literal["system", "embedded"]

# A healthy binary answers at once; this only bounds a broken one (a wrapper that asks something, a dead
# mount).
PROBE_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Build:
    """A PostgreSQL build. ``text`` is what its ``postgres --version`` says; ``origin`` says where it came
    from.
    """

    provider: Provider
    version: Version
    bin_dir: Path
    text: str
    origin: str

    @cached_property
    def build_id(self) -> str:
        """A stable identity: the same text means the same binary, byte for byte."""
        with self.program("postgres").open("rb") as binary:
            digest = hashlib.file_digest(binary, "sha256").hexdigest()
        return f"{self.provider}-{self.version}-{digest[:12]}"

    @property
    def label(self) -> str:
        """For people: ``18.4 (embedded)``."""
        return f"{self.version} ({self.provider})"

    def program(self, name: str) -> Path:
        """The path of one of its programs; see ``has``."""
        return self.bin_dir / name

    def has(self, name: str) -> bool:
        """Whether the build holds that program (embedded builds have no psql, pgbench, pg_config)."""
        return self.program(name).is_file()

    @cached_property
    def configure(self) -> str | None:
        """The options it was configured with, from its own pg_config; None if it has none.

        ``pgdyno.server.settings.catalogue`` learns the same from the running server, for every build.
        """
        if not self.has("pg_config"):
            return None
        return _output([str(self.program("pg_config")), "--configure"]) or None


def read_build(bin_dir: Path, provider: Provider, origin: str) -> Build:
    """The build in that directory. Raises ServerError: programs are missing or do not run."""
    bin_dir = bin_dir.resolve()
    for name in ("postgres", "initdb"):
        if not (bin_dir / name).is_file():
            raise ServerError(f"{bin_dir} holds no PostgreSQL server: there is no program {name!r} in it")
    text = _output([str(bin_dir / "postgres"), "--version"])
    version = reported_version(text or "")
    if text is None or version is None:
        raise ServerError(f"{bin_dir / 'postgres'} does not run: 'postgres --version' gave no version")
    return Build(provider, version, bin_dir, text, origin)


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
