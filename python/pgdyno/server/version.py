"""A PostgreSQL version: its order, its text, and what text may ask for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pgdyno.errors import UsageError

OLDEST_MAJOR = 10
NEWEST_MAJOR = 18

_VERSION = re.compile(r"(\d{1,9})(?:\.(\d{1,9}))?")
_REPORTED = re.compile(r"\(PostgreSQL\) (\d+)(?:\.(\d+))?")


@dataclass(frozen=True, order=True)
class Version:
    """``18.4`` as (18, 4). A development version (``19devel``) has the minor number 0."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    @property
    def number(self) -> int:
        """As ``server_version_num`` has it: 180004."""
        return self.major * 10000 + self.minor


@dataclass(frozen=True)
class Wanted:
    """What a specification asks for: a major version, or exactly one version."""

    major: int
    minor: int | None

    def matches(self, version: Version) -> bool:
        """Whether that version is one of those asked for."""
        return version.major == self.major and self.minor in (None, version.minor)

    def __str__(self) -> str:
        return str(self.major) if self.minor is None else f"{self.major}.{self.minor}"


def parse_wanted(text: str) -> Wanted:
    """``18`` or ``17.5``. Raises UsageError: not a version, or one that pgdyno does not support."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text!r} is no server: give a version (18, 17.5), 'system', a directory of binaries, or a DSN"
        )
    check_major(int(match[1]), text)
    return Wanted(int(match[1]), None if match[2] is None else int(match[2]))


def check_major(major: int, text: str) -> None:
    """Raises UsageError outside the versions that pgdyno supports."""
    if not OLDEST_MAJOR <= major <= NEWEST_MAJOR:
        raise UsageError(f"PostgreSQL {text}: pgdyno works with versions {OLDEST_MAJOR} to {NEWEST_MAJOR}")


def reported_version(text: str) -> Version | None:
    """The version in what ``postgres --version`` prints, None if it is something else."""
    match = _REPORTED.search(text)
    return Version(int(match[1]), int(match[2] or 0)) if match else None


def is_version(spec: str) -> bool:
    """Whether a specification is a version, supported or not: ``18``, ``17.5``."""
    return _VERSION.fullmatch(spec) is not None
