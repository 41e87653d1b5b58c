"""Facts in the text of a dump: roles, extensions, encoding and locale. Pure: lines in, facts out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

NAME = r'"(?:[^"]|"")+"|[\w$]+'
_NAMES = rf"(?:{NAME})(?:, (?:{NAME}))*"
_ROLES = tuple(
    re.compile(pattern)
    for pattern in (
        rf"ALTER .* OWNER TO ({NAME});",
        rf"(?:ALTER DEFAULT PRIVILEGES .*)?GRANT .* TO ({_NAMES})(?: WITH GRANT OPTION)?;",
        rf"(?:ALTER DEFAULT PRIVILEGES .*)?REVOKE .* FROM ({_NAMES});",
        rf"ALTER DEFAULT PRIVILEGES FOR ROLE ({NAME}) ",
        rf"CREATE POLICY .* TO ({_NAMES})(?: USING| WITH CHECK|;)",
        rf"CREATE SCHEMA .*AUTHORIZATION ({NAME});",
        rf"SET SESSION AUTHORIZATION '?({NAME})'?;",
    )
)
_CREATED_ROLE = re.compile(rf"CREATE (?:ROLE|USER) ({NAME})")
_EXTENSION = re.compile(rf"CREATE EXTENSION (?:IF NOT EXISTS )?({NAME})")
_ENCODING = re.compile(r"SET client_encoding = '(\w+)';")
_DATABASE = re.compile(r"(?:-- )?CREATE DATABASE .*;")
"""As a comment in a dump of one database that pgdyno has read."""
_OPTION = re.compile(
    r"(ENCODING|LC_COLLATE|LC_CTYPE|LOCALE_PROVIDER|ICU_LOCALE|BUILTIN_LOCALE|LOCALE) = ('[^']*'|\w+)"
)
_VERSION = re.compile(r"-- Dumped from database version (\d+)")
_EVENT_TRIGGER = re.compile(rf"ALTER EVENT TRIGGER .* OWNER TO ({NAME});")
"""Its owner must be a superuser."""
_POLICIES = re.compile(r"ALTER TABLE .* ENABLE ROW LEVEL SECURITY;")
ORIGIN = "-- Origin read by pgdyno: "
"""Start of a line with facts about the database that the dump was read from."""
_NO_ROLES = frozenset({"public", "current_user", "session_user", "current_role", "default"})

_COPY_BEGIN, _COPY_END = re.compile(rb"COPY .* FROM stdin;\s*$", re.IGNORECASE), b"\\."


@dataclass
class DumpFacts:
    """Facts of a dump. ``locale``: options of CREATE DATABASE, as keyword and value; empty if unknown."""

    roles: set[str] = field(default_factory=set)
    superusers: set[str] = field(default_factory=set)
    created_roles: set[str] = field(default_factory=set)
    extensions: set[str] = field(default_factory=set)
    encoding: str = ""
    locale: dict[str, str] = field(default_factory=dict)
    major: int | None = None
    has_policies: bool = False
    origin: str = ""

    @property
    def missing_roles(self) -> list[str]:
        """Roles that the dump names and does not create."""
        return sorted(self.roles - self.created_roles - _NO_ROLES)


def scan(lines: Iterable[bytes]) -> DumpFacts:
    """Return the facts of a dump. Rows of COPY are not read."""
    facts = DumpFacts()
    for line in outside_of_rows(lines):
        if line[:4] in (b"ALTE", b"GRAN", b"REVO", b"CREA", b"SET ", b"-- D", b"-- C", b"-- O"):
            _read(facts, line.decode(errors="replace"))
    return facts


def outside_of_rows(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines outside the rows of COPY."""
    in_rows = False
    for line in lines:
        if in_rows:
            in_rows = not line.startswith(_COPY_END)
            continue
        yield line
        in_rows = line[:4].upper() == b"COPY" and _COPY_BEGIN.match(line) is not None


def _read(facts: DumpFacts, line: str) -> None:
    for pattern in _ROLES:
        if found := pattern.match(line):
            facts.roles |= {unquoted(name) for name in re.findall(NAME, found[1])}
    if found := _EVENT_TRIGGER.match(line):
        facts.superusers.add(unquoted(found[1]))
    if line.startswith(ORIGIN):
        facts.origin = line
    elif _POLICIES.match(line):
        facts.has_policies = True
    elif found := _CREATED_ROLE.match(line):
        facts.created_roles.add(unquoted(found[1]))
    elif found := _EXTENSION.match(line):
        facts.extensions.add(unquoted(found[1]))
    elif (found := _ENCODING.match(line)) and not facts.encoding:
        facts.encoding = found[1]
    elif (found := _VERSION.match(line)) and facts.major is None:
        facts.major = int(found[1])
    elif _DATABASE.match(line) and not facts.locale:
        facts.locale = {name: value.strip("'") for name, value in _OPTION.findall(line)}


def unquoted(name: str) -> str:
    """Return the name that an identifier in SQL means."""
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()
