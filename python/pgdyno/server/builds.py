"""Builds of PostgreSQL: versions, and properties of binaries.

- PostgreSQL versions: order, text, and version specifications.
- Build: a directory of PostgreSQL binaries, and its properties that need no running server.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, total_ordering
from pathlib import Path
from typing import Any, Literal, Self

import psycopg
from psycopg import sql

from pgdyno.errors import FetchError, ServerError, UsageError, in_one_line

# ----------------------------------------------------------------------
# PostgreSQL versions: order, text, and version specifications.
# ----------------------------------------------------------------------

OLDEST_MAJOR = 10
NEWEST_MAJOR = 18
"""The newest version that pgdyno is tested with. Newer servers are allowed, with a caveat."""

_STAGES = ("devel", "alpha", "beta", "rc", "")
"""Kinds of pre-releases in their order; the last one is the release."""
DEVELOPMENT = "devel"

_STAGE = r"devel|alpha\d{1,3}|beta\d{1,3}|rc\d{1,3}"
_VERSION = re.compile(rf"(\d{{1,9}})(?:\.(\d{{1,9}})|({_STAGE}))?")
_REPORTED = re.compile(rf"\(PostgreSQL\) (\d{{1,9}})(?:\.(\d{{1,9}})|({_STAGE}))?")
_STAGE_REPORTED = re.compile(rf"\d{{1,9}}({_STAGE})")


@total_ordering
@dataclass(frozen=True)
class Version:
    """``18.4`` as (18, 4), ``19devel`` and ``19beta1`` as (19, 0) with that stage.

    Order: 18.4 < 19devel < 19beta1 < 19beta2 < 19rc1 < 19.0.
    """

    major: int
    minor: int
    stage: str = ""

    def __lt__(self, other: Self) -> bool:
        return self._rank < other._rank

    @property
    def _rank(self) -> tuple[int, int, int, int]:
        kind = self.stage.rstrip("0123456789")
        return self.major, self.minor, _STAGES.index(kind), int(self.stage.removeprefix(kind) or 0)

    def __str__(self) -> str:
        return f"{self.major}{self.stage}" if self.stage else f"{self.major}.{self.minor}"

    @classmethod
    def of_server(cls, number: int, reported: str | None) -> Self:
        """Return the version of a running server from its ``server_version_num`` and ``server_version``."""
        match = _STAGE_REPORTED.match(reported or "")
        return cls(*divmod(number, 10000), stage=match[1] if match else "")

    @property
    def is_untested(self) -> bool:
        """Return whether it is newer than every version that pgdyno is tested with."""
        return self.major > NEWEST_MAJOR

    @property
    def number(self) -> int:
        """Number in the form of ``server_version_num``: 180004."""
        return self.major * 10000 + self.minor


@dataclass(frozen=True)
class VersionSpec:
    """A version specification: a major version, exactly one version (``17.5``, ``19beta1``), or ``devel``,
    a development version of any major version (None).
    """

    major: int | None
    minor: int | None
    stage: str = ""

    def matches(self, version: Version) -> bool:
        """Return whether the version satisfies the specification. ``19`` includes pre-releases."""
        is_any_stage = self.minor is None and not self.stage
        return (
            self.major in (None, version.major)
            and self.minor in (None, version.minor)
            and (is_any_stage or self.stage == version.stage)
        )

    def require_fetchable(self) -> None:
        """Raise FetchError for a version that no source of embedded builds has."""
        if self.stage:
            raise FetchError(
                f"PostgreSQL {self} is not installed, and pre-releases cannot be downloaded: {self.remedy}"
            )

    @property
    def remedy(self) -> str:
        """Remedy for a version that is neither installed nor available for download, for error messages."""
        return f"build it (`pgdyno servers build {self} --source …`) or name the directory of its programs"

    def __str__(self) -> str:
        major = "" if self.major is None else self.major
        return f"{major}{self.stage}" if self.minor is None else f"{major}.{self.minor}"


def parse_version_spec(text: str) -> VersionSpec:
    """Parse ``18``, ``17.5``, ``19beta1`` or ``devel``. Raises UsageError if it is no version, or too old for
    pgdyno.
    """
    if text == DEVELOPMENT:
        return VersionSpec(None, None, DEVELOPMENT)
    match = _VERSION.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text!r} is not a server: use a version (18, 17.5, devel), 'system', a directory of binaries, "
            "git:REF, or a DSN"
        )
    check_major(int(match[1]), text)
    return VersionSpec(int(match[1]), None if match[2] is None else int(match[2]), match[3] or "")


def check_major(major: int, text: str) -> None:
    """Raise UsageError for a version that is too old for pgdyno."""
    if major < OLDEST_MAJOR:
        raise UsageError(f"PostgreSQL {text} is not supported: use {OLDEST_MAJOR} or newer")


def version_of(connection: psycopg.Connection[Any]) -> Version:
    """Return the version of the connected server."""
    info = connection.info
    return Version.of_server(info.server_version, info.parameter_status("server_version"))


def reported_version(text: str) -> Version | None:
    """Return the version in the output of ``postgres --version``; None for other text."""
    match = _REPORTED.search(text)
    return Version(int(match[1]), int(match[2] or 0), match[3] or "") if match else None


def is_version(spec: str) -> bool:
    """Return whether a specification is a version, supported or not: ``18``, ``17.5``, ``19devel``."""
    return spec == DEVELOPMENT or _VERSION.fullmatch(spec) is not None


# ----------------------------------------------------------------------
# Build: a directory of PostgreSQL binaries, and its properties that need no running server.
# ----------------------------------------------------------------------

Provider = Literal["system", "embedded", "source", "directory"]
"""Installed on this machine, downloaded, built from source, or in a directory that the user named: its
builder is unknown."""

# A working binary answers at once. The limit is for a broken one (a wrapper with a prompt, a dead mount).
PROBE_TIMEOUT_S = 20.0


PRELOAD_SETTING = "shared_preload_libraries"


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


def read_build(bin_dir: Path, provider: Provider, origin: str) -> Build:
    """Return the build in that directory. Raises ServerError if programs are missing or do not run."""
    bin_dir = bin_dir.resolve()
    for name in ("postgres", "initdb"):
        if not (bin_dir / name).is_file():
            why = f"it has no program {name!r}" if bin_dir.is_dir() else "the directory does not exist"
            raise ServerError(
                f"{bin_dir} contains no PostgreSQL server: {why}; name the directory of postgres and initdb"
            )
    text = output_of([str(bin_dir / "postgres"), "--version"])
    version = reported_version(text or "")
    if text is None or version is None:
        raise ServerError(f"{bin_dir / 'postgres'} does not run: 'postgres --version' printed no version")
    return Build(provider, version, bin_dir, text, origin)


def output_of(command: Sequence[str]) -> str | None:
    """Return what a program prints, without white space at its ends; None if it does not work."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def create_extensions(connection: psycopg.Connection[tuple[Any, ...]], build: Build) -> None:
    """Create the extensions that were built for this server in the connected database, with those that they
    require. Raises ServerError.
    """
    for one in build.extensions:
        if not one.name:
            continue
        statement = sql.SQL("CREATE EXTENSION IF NOT EXISTS {} CASCADE").format(sql.Identifier(one.name))
        try:
            connection.execute(statement)
        except psycopg.Error as error:
            raise ServerError(
                f"CREATE EXTENSION {one.name} failed on {build.label}: {in_one_line(str(error))}: correct "
                f"the extension in {one.source}"
            ) from error
