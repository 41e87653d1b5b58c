"""PostgreSQL versions: order, text, and version specifications."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import total_ordering
from typing import Any, Self

import psycopg

from pgdyno.errors import FetchError, UsageError

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
