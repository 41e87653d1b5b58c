"""Dumps: what they contain, and what is removed while they are read.

- Facts in the text of a dump: roles, extensions, encoding and locale. Pure: lines in, facts out.
- Changes of a dump while it is read: nothing in it may contact another server or contain its passwords.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib import resources

# ----------------------------------------------------------------------
# Facts in the text of a dump: roles, extensions, encoding and locale. Pure: lines in, facts out.
# ----------------------------------------------------------------------

NAME = r'"(?:[^"]|"")+"|[\w$]+'
_NAMES = rf"(?:{NAME})(?:, (?:{NAME}))*"
_NAMED = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("roles", rf"ALTER .* OWNER TO ({NAME});"),
        ("roles", rf"(?:ALTER DEFAULT PRIVILEGES .*)?GRANT .* TO ({_NAMES})(?: WITH GRANT OPTION)?;"),
        ("roles", rf"(?:ALTER DEFAULT PRIVILEGES .*)?REVOKE .* FROM ({_NAMES});"),
        ("roles", rf"ALTER DEFAULT PRIVILEGES FOR ROLE ({NAME}) "),
        ("roles", rf"CREATE POLICY .* TO ({_NAMES})(?: USING| WITH CHECK|;)"),
        ("roles", rf"CREATE SCHEMA .*AUTHORIZATION ({NAME});"),
        ("roles", rf"SET SESSION AUTHORIZATION '?({NAME})'?;"),
        ("superusers", rf"ALTER EVENT TRIGGER .* OWNER TO ({NAME});"),  # it must be a superuser
        ("created_roles", rf"CREATE (?:ROLE|USER) ({NAME})"),
        ("extensions", rf"CREATE EXTENSION (?:IF NOT EXISTS )?({NAME})"),
    )
)
"""Fields of DumpFacts with patterns of lines that name one of them."""

_ENCODING = re.compile(r"SET client_encoding = '(\w+)';")
_DATABASE = re.compile(r"(?:-- )?CREATE DATABASE .*;")
"""As a comment in a dump of one database that pgdyno has read."""
_SEARCH_PATH = re.compile(rf"(?:-- )?ALTER DATABASE (?:{NAME}) SET search_path TO (.+);")
_OPTION = re.compile(
    r"(ENCODING|LC_COLLATE|LC_CTYPE|LOCALE_PROVIDER|ICU_LOCALE|BUILTIN_LOCALE|LOCALE) = ('[^']*'|\w+)"
)
_VERSION = re.compile(r"-- Dumped from database version (\d+)")
_POLICIES = re.compile(r"ALTER TABLE .* ENABLE ROW LEVEL SECURITY;")
ORIGIN = "-- Origin read by pgdyno: "
"""Start of a line with facts about the database that the dump was read from."""
_NO_ROLES = frozenset({"public", "current_user", "session_user", "current_role", "default"})
_WITH_FACTS = (b"ALTER ", b"GRANT ", b"REVOKE ", b"CREATE ", b"SET ", b"-- ")


@dataclass
class DumpFacts:
    """Facts of a dump. ``locale``: options of CREATE DATABASE, as keyword and value; empty if unknown.
    ``search_path``: that of the database, as SQL; empty if it has none.
    """

    roles: set[str] = field(default_factory=set)
    superusers: set[str] = field(default_factory=set)
    created_roles: set[str] = field(default_factory=set)
    extensions: set[str] = field(default_factory=set)
    encoding: str = ""
    locale: dict[str, str] = field(default_factory=dict)
    search_path: str = ""
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
    for blank, text, is_row in pieces_of(lines):
        for line in () if is_row else (blank + text).split(b"\n"):
            if line.startswith(_WITH_FACTS):
                _read(facts, line.decode(errors="replace"))
    return facts


def _read(facts: DumpFacts, line: str) -> None:
    for kind, pattern in _NAMED:
        if found := pattern.match(line):
            getattr(facts, kind).update(map(unquoted, re.findall(NAME, found[1])))
    if line.startswith(ORIGIN):
        facts.origin = line
    elif _POLICIES.match(line):
        facts.has_policies = True
    elif (found := _ENCODING.match(line)) and not facts.encoding:
        facts.encoding = found[1]
    elif (found := _VERSION.match(line)) and facts.major is None:
        facts.major = int(found[1])
    elif found := _SEARCH_PATH.match(line):
        facts.search_path = found[1]
    elif _DATABASE.match(line) and not facts.locale:
        facts.locale = {name: value.strip("'") for name, value in _OPTION.findall(line)}


def unquoted(name: str) -> str:
    """Return the name that an identifier in SQL means."""
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()


# ----------------------------------------------------------------------
# Changes of a dump while it is read: nothing in it may contact another server or contain its passwords.
#
# Servers, user mappings and subscriptions are left out, foreign tables become local tables, and dblink
# returns no row. Event triggers are created last, so that they do not fire for the rest. The text is split
# into statements as psql does it, so that the bodies of functions stay as they are.
# ----------------------------------------------------------------------

Relation = tuple[str, str]
"""Schema and name."""

DISABLE_DBLINK = resources.files(__package__).joinpath("sql", "disable_dblink.sql").read_bytes()
"""Replaces the functions of dblink by functions without a result."""

_MARK = re.compile(
    rb"""(?<![\w$\x80-\xff])(?:[eE]'|\$(?:[A-Za-z_\x80-\xff][\w\x80-\xff]*)?\$)|['";]|--|/\*|\\.*\s*"""
)
"""Begins a string, a name, a comment or a command of psql, or ends a statement."""
_ESCAPED = re.compile(rb"(?:[^'\\]|\\[\s\S]|'')*'(?!')")
_COMMENT = re.compile(rb"[\s\S]*?(?:/\*|\*/)")
_ENDS = {
    **{b"'": re.compile(rb"[^']*'"), b'"': re.compile(rb'[^"]*"'), b"/*": _COMMENT},
    **{b"e'": _ESCAPED, b"E'": _ESCAPED},
}
"""Strings, names and comments up to their end, or to a nested comment, by their first characters."""
_BLANK = re.compile(rb"(?:\s|--[^\n]*(?:\n|$))*")

_COPY = re.compile(
    rf"COPY\s+(?:ONLY\s+)?((?:{NAME})(?:\.(?:{NAME}))?)\s[\s\S]*\bFROM\s+STDIN\b", re.IGNORECASE
)
_INSERT = re.compile(rf"INSERT\s+INTO\s+((?:{NAME})(?:\.(?:{NAME}))?)", re.IGNORECASE)
_SET = re.compile(r"SET\s+(\w+)\s*(?:=|TO\b)", re.IGNORECASE)
_REMOTE = re.compile(
    r"(?:(?:CREATE|ALTER|DROP|COMMENT\s+ON|SECURITY\s+LABEL\s+(?:FOR\s+\S+\s+)?ON)\s+"
    r"(?:SERVER|USER\s+MAPPING|SUBSCRIPTION|PUBLICATION|FOREIGN\s+DATA\s+WRAPPER)"
    r"|(?:GRANT|REVOKE)\b.*?\bON\s+FOREIGN\s+(?:SERVER|DATA\s+WRAPPER)"
    r"|IMPORT\s+FOREIGN\s+SCHEMA"
    r"|ALTER\s+FOREIGN\s+TABLE\b.*\bOPTIONS\s*\()",
    re.IGNORECASE | re.DOTALL,
)
_FOREIGN_TABLE = re.compile(
    r"((?:CREATE|ALTER|DROP|COMMENT\s+ON|SECURITY\s+LABEL\s+(?:FOR\s+\S+\s+)?ON)\s+)FOREIGN\s+(TABLE\b)",
    re.IGNORECASE,
)
_CREATED = re.compile(
    rf"CREATE\s+(?:(?:UNLOGGED|FOREIGN|MATERIALIZED|RECURSIVE|OR\s+REPLACE)\s+)*(?:TABLE|VIEW)\s+"
    rf"(?:IF\s+NOT\s+EXISTS\s+)?((?:{NAME})(?:\.(?:{NAME}))?)",
    re.IGNORECASE,
)
_EVENT_TRIGGER = re.compile(r"(?:CREATE|ALTER|COMMENT\s+ON)\s+EVENT\s+TRIGGER\b", re.IGNORECASE)
_DBLINK = re.compile(r'CREATE\s+EXTENSION\s+(?:IF\s+NOT\s+EXISTS\s+)?"?dblink"?\b', re.IGNORECASE)
_KEY = re.compile(
    rf"ALTER\s+TABLE\s+(?:ONLY\s+)?((?:{NAME})\.(?:{NAME}))\s+ADD\s+CONSTRAINT\s+({NAME})\s+FOREIGN\s+KEY\b.*?"
    rf"\bREFERENCES\s+((?:{NAME})\.(?:{NAME}))",
    re.IGNORECASE | re.DOTALL,
)
_OPTIONS = re.compile(
    rf"""('(?:[^']|'')*'|"(?:[^"]|"")*")|\bOPTIONS\s*\((?:\s*(?:{NAME})\s+E?'(?:[^']|'')*'\s*,?)*\s*\)""",
    re.IGNORECASE,
)
"""Options of a foreign table or column; or a string or name, which can contain the same text."""
_SERVER = re.compile(rf"\bSERVER\s+(?:{NAME})(?=\s*;?$)", re.IGNORECASE)

JOBS = frozenset({("cron", "job"), ("cron", "job_run_details")})
"""Tables whose rows are statements that a server executes by itself (pg_cron)."""


@dataclass
class DumpFilter:
    """Changes one dump, and records what it changed. ``unknown``: settings that the server lacks, because a
    pg_dump of a newer version wrote them. ``is_part``: foreign keys to tables that are not in the dump are
    left out.
    """

    unknown: frozenset[str] = frozenset()
    is_part: bool = False
    created: set[Relation] = field(default_factory=set)
    emptied: list[str] = field(default_factory=list)
    """Foreign tables, which are empty local tables now, and tables of jobs."""
    left_out: list[str] = field(default_factory=list)
    """Foreign keys that were left out."""
    last: list[bytes] = field(default_factory=list)
    """Statements about event triggers."""

    def changed(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the dump with its changes. Empty lines replace what is left out: line numbers stay."""
        is_left_out = False
        for blank, text, is_row in pieces_of(lines):
            changed = text if is_row else self._changed(text)
            is_left_out = changed is None or (is_row and is_left_out)
            yield blank + (b"\n" * text.count(b"\n") if is_left_out else changed or b"")
        for piece in self.last:
            yield piece + b"\n"

    def _changed(self, piece: bytes) -> bytes | None:
        """Return the statement with its changes; None without it."""
        if piece[:3].upper() not in _FIRST:
            return piece
        text = piece.decode(errors="surrogateescape")
        if _REMOTE.match(text) or ((found := _SET.match(text)) and found[1].lower() in self.unknown):
            return None
        if (found := _COPY.match(text) or _INSERT.match(text)) and (of := _relation(found[1])) in JOBS:
            if (name := ".".join(of)) not in self.emptied:
                self.emptied.append(name)
            return None
        if self.is_part and (found := _KEY.match(text)) and _relation(found[3]) not in self.created:
            self.left_out.append(f"{unquoted(found[2])} of {'.'.join(_relation(found[1]))}")
            return None
        if _EVENT_TRIGGER.match(text):
            self.last.append(piece)
            return None
        if _DBLINK.match(text):
            return piece + b" " + DISABLE_DBLINK.replace(b"\n", b" ").strip()
        if created := _CREATED.match(text):
            self.created.add(_relation(created[1]))
        if found := _FOREIGN_TABLE.match(text):
            if created:
                self.emptied.append(".".join(filter(None, _relation(created[1]))))
                text = _without_options(text)
            local = _FOREIGN_TABLE.sub(r"\1\2", text, count=1)
            return local.encode(errors="surrogateescape")
        return piece


_FIRST = frozenset({b"CRE", b"ALT", b"DRO", b"COM", b"SEC", b"GRA", b"REV", b"IMP", b"SET", b"COP", b"INS"})
"""First letters of the statements that may change."""


def _relation(name: str) -> Relation:
    """Return schema and name; the schema is empty if it is not given."""
    parts = [unquoted(part) for part in re.findall(NAME, name)]
    return (parts[0], parts[1]) if len(parts) > 1 else ("", parts[0])


def _without_options(text: str) -> str:
    """Return CREATE FOREIGN TABLE without SERVER and OPTIONS, with the same line breaks."""

    def kept(found: re.Match[str]) -> str:
        return found[1] or "\n" * found[0].count("\n")

    return _SERVER.sub("", _OPTIONS.sub(kept, text))


def pieces_of(lines: Iterable[bytes]) -> Iterator[tuple[bytes, bytes, bool]]:
    """Yield the statements, the comments in front of them, and the rows of COPY: blanks before it, the text,
    and whether it is a row. Their concatenation is the dump.
    """
    pending: list[bytes] = []
    until: re.Pattern[bytes] | None = None  # the end of the string, name or comment that is open
    depth = 0  # of nested comments
    in_rows = False
    for line in lines:
        if in_rows:
            in_rows = not line.startswith(b"\\.")
            yield b"", line, True
            continue
        begin = place = 0
        while found := until.match(line, place) if until else _MARK.search(line, place):
            mark, place, is_end = found[0], found.end(), False
            if until is _COMMENT and (depth or mark.endswith(b"/*")):
                depth += 1 if mark.endswith(b"/*") else -1
            elif until:
                is_end = until is _COMMENT and _divided([*pending, line[begin:place]])[1].startswith(b"/*")
                until = None
            elif mark == b"--":
                break
            elif mark[:1] in b";\\":
                is_end = True
            else:
                until = _ENDS.get(mark) or re.compile(rb"[\s\S]*?" + re.escape(mark))
            if is_end:
                blank, text = _divided([*pending, line[begin:place]])
                pending.clear()
                begin = place
                yield blank, text, False
                if text[:4].upper() == b"COPY" and _COPY.match(text.decode(errors="replace")):
                    in_rows = True
                    yield b"", line[begin:], True
                    begin = len(line)
                    break
        if begin < len(line):
            pending.append(line[begin:])
    if pending:
        yield *_divided(pending), False


def _divided(parts: Iterable[bytes]) -> tuple[bytes, bytes]:
    """Return the blanks and comments of one line before a statement, and the statement."""
    piece = b"".join(parts)
    found = _BLANK.match(piece)
    place = found.end() if found else 0
    return piece[:place], piece[place:]
