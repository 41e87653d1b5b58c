"""PostgreSQL versions: order, text, and version specifications."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Self

import psycopg

from pgdyno.errors import FetchError, UsageError

OLDEST_MAJOR = 10
NEWEST_MAJOR = 18
"""The newest version that pgdyno is tested with. Newer servers are allowed, with a caveat."""

_STAGE = r"devel|alpha\d{1,3}|beta\d{1,3}|rc\d{1,3}"
_VERSION = re.compile(rf"(\d{{1,9}})(?:\.(\d{{1,9}})|({_STAGE}))?")
_REPORTED = re.compile(rf"\(PostgreSQL\) (\d{{1,9}})(?:\.(\d{{1,9}})|({_STAGE}))?")
_STAGE_REPORTED = re.compile(rf"\d{{1,9}}({_STAGE})")


@dataclass(frozen=True, order=True)
class Version:
    """``18.4`` as (18, 4), ``19devel`` and ``19beta1`` as (19, 0) with that stage, which has no order."""

    major: int
    minor: int
    stage: str = field(default="", compare=False)

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
    """A version specification: a major version, or exactly one version (``17.5``, ``19beta1``)."""

    major: int
    minor: int | None
    stage: str = ""

    def matches(self, version: Version) -> bool:
        """Return whether the version satisfies the specification."""
        same_stage = not self.stage or self.stage == version.stage
        return version.major == self.major and self.minor in (None, version.minor) and same_stage

    def require_fetchable(self) -> None:
        """Raise FetchError for a version that no source of embedded builds has."""
        if self.major > NEWEST_MAJOR or self.stage:
            raise FetchError(
                f"PostgreSQL {self} is not installed and cannot be downloaded (only {OLDEST_MAJOR} to "
                f"{NEWEST_MAJOR}): name the directory of its binaries"
            )

    def __str__(self) -> str:
        return f"{self.major}{self.stage}" if self.minor is None else f"{self.major}.{self.minor}"


def parse_version_spec(text: str) -> VersionSpec:
    """Parse ``18``, ``17.5`` or ``19beta1``. Raises UsageError if it is no version, or too old for pgdyno."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text!r} is not a server: use a version (18, 17.5), 'system', a directory of binaries, or a DSN"
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
    return _VERSION.fullmatch(spec) is not None
