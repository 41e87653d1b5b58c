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
_EVENT_TRIGGER_OWNER = re.compile(rf"ALTER EVENT TRIGGER .* OWNER TO ({NAME});")
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
    if found := _EVENT_TRIGGER_OWNER.match(line):
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

_MARK = re.compile(rb"""'|"|;|--|/\*|\\|\$(?:[A-Za-z_\x80-\xff][\w\x80-\xff]*)?\$""")
_STRING, _ESCAPED = re.compile(rb"[^']*'"), re.compile(rb"(?:[^'\\]|\\[\s\S]|'')*'(?!')")
_QUOTED = re.compile(rb'[^"]*"')
_COMMENT = re.compile(rb"/\*|\*/")
_IN_NAME = re.compile(rb"[\w$\x80-\xff]")
_BLANK = re.compile(rb"(?:\s+|--[^\n]*(?:\n|$))*")

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
_TOKEN = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|[^\W\d][\w$]*|\s+|.""", re.DOTALL)

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
    """Foreign tables, which are empty local tables now."""
    left_out: list[str] = field(default_factory=list)
    """Foreign keys that were left out."""
    last: list[bytes] = field(default_factory=list)
    """Statements about event triggers."""

    def changed(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the dump with its changes. Empty lines replace what is left out: line numbers stay."""
        are_left_out = False
        for piece, is_row in _pieces(lines):
            if is_row:
                yield b"\n" if are_left_out else piece
                continue
            begin = _blank_end(piece)
            changed = self._changed(piece[begin:])
            are_left_out = changed is None
            yield piece[:begin] + (b"\n" * piece.count(b"\n", begin) if changed is None else changed)
        for piece in self.last:
            yield piece + b"\n"

    def _changed(self, piece: bytes) -> bytes | None:
        """Return the statement with its changes; None without it."""
        if piece[:3].upper() not in _FIRST:
            return piece
        text = piece.decode(errors="surrogateescape")
        if _REMOTE.match(text) or ((found := _SET.match(text)) and found[1].lower() in self.unknown):
            return None
        if (found := _COPY.match(text) or _INSERT.match(text)) and _relation(found[1]) in JOBS:
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
    kept: list[str] = []
    tokens = _TOKEN.findall(text)
    place, depth, before = 0, 0, ""
    while place < len(tokens):
        token = tokens[place]
        word, end = token.upper(), place + 1
        if word == "OPTIONS" and before not in ("(", ",", "."):
            end = _end_of_group(tokens, place + 1)
        elif word == "SERVER" and depth == 0 and before in (")", "DEFAULT"):
            end = next((n + 1 for n in range(place + 1, len(tokens)) if not tokens[n].isspace()), end)
        if end > place + 1:
            kept.append("\n" * "".join(tokens[place:end]).count("\n"))
        else:
            kept.append(token)
            depth += (token == "(") - (token == ")")
            before = before if token.isspace() else word
        place = end
    return "".join(kept)


def _end_of_group(tokens: list[str], place: int) -> int:
    """Return the place after the parentheses that begin there; the same place if none begin."""
    depth = 0
    for n in range(place, len(tokens)):
        if not depth and tokens[n].isspace():
            continue
        depth += (tokens[n] == "(") - (tokens[n] == ")")
        if not depth:
            return n + 1 if tokens[n] == ")" else place
    return place


def _blank_end(piece: bytes) -> int:
    """Return the place after the blanks and comments in front of a statement."""
    place, depth = 0, 0
    while True:
        if not depth:
            found = _BLANK.match(piece, place)
            place = found.end() if found else place
            if not piece.startswith(b"/*", place):
                return place
        mark = _COMMENT.search(piece, place)
        if mark is None:
            return len(piece)
        depth += 1 if mark[0] == b"/*" else -1
        place = mark.end()


def _pieces(lines: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yield the statements with the blanks before them, and the rows of COPY, each with whether it is a row.
    Their concatenation is the dump.
    """
    ends = _StatementEnds()
    pending: list[bytes] = []
    in_rows = False
    for line in lines:
        if in_rows:
            in_rows = not line.startswith(b"\\.")
            yield line, True
            continue
        begin = 0
        for end in ends.of(line):
            piece = b"".join([*pending, line[begin:end]])
            pending.clear()
            begin = end
            yield piece, False
            head = piece[_blank_end(piece) :]
            if head[:4].upper() == b"COPY" and _COPY.match(head.decode(errors="replace")):
                in_rows = True
                yield line[begin:], True
                break
        else:
            if begin < len(line):
                pending.append(line[begin:])
    if pending:
        yield b"".join(pending), False


class _StatementEnds:
    """Finds the ends of statements, line by line. Strings and comments may span lines."""

    def __init__(self) -> None:
        self._until: re.Pattern[bytes] | None = None  # of the string or name that is open
        self._depth = 0  # of comments

    def _open(self, line: bytes, found: re.Match[bytes]) -> int:
        """Begin a string, name or comment. Return the place after its first characters."""
        mark, place = found[0], found.start()
        if mark == b"/*":
            self._depth = 1
        elif mark == b'"':
            self._until = _QUOTED
        elif mark == b"'":
            self._until = _ESCAPED if _is_escaped(line, place) else _STRING
        elif _is_in_name(line, place):
            return place + 1  # a dollar sign in a name
        else:
            self._until = re.compile(rb"[\s\S]*?" + re.escape(mark))
        return found.end()

    def of(self, line: bytes) -> Iterator[int]:
        """Yield the places after statements; a command of psql ends with its line."""
        place = 0
        while place < len(line):
            if self._depth:
                found = _COMMENT.search(line, place)
                if found is None:
                    return
                self._depth += 1 if found[0] == b"/*" else -1
                place = found.end()
            elif self._until is not None:
                found = self._until.match(line, place)
                if found is None:
                    return
                self._until, place = None, found.end()
            else:
                found = _MARK.search(line, place)
                if found is None or found[0] == b"--":
                    return
                if found[0] == b"\\":
                    yield len(line)
                    return
                if found[0] == b";":
                    place = found.end()
                    yield place
                else:
                    place = self._open(line, found)


def _is_in_name(line: bytes, place: int) -> bool:
    return place > 0 and _IN_NAME.match(line, place - 1) is not None


def _is_escaped(line: bytes, place: int) -> bool:
    return line[place - 1 : place] in (b"e", b"E") and not _is_in_name(line, place - 1)
