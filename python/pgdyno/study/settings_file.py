"""Settings files of an arm, ``18,@./tuned.conf``: postgresql.conf's syntax, or ALTER SYSTEM statements.

The rules of postgresql.conf are those of PostgreSQL's ``guc-file.l``. A file with ALTER SYSTEM is SQL, as
PGTune and others print it: SET, also with TO and lists, RESET, and pg_reload_conf().
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pgdyno.errors import UsageError

FILE_BYTES_MAX = 1 << 20
"""Maximum size of a settings file, whose settings are stored in the results file. A device may be endless."""

INCLUDE_DEPTH_MAX = 10
"""Maximum depth of files that include each other, as in PostgreSQL."""

_OTHERS = "it can reach other systems or files of another machine"
_CLIENT = "every client sets it"
_WAITS = "commits would wait for a standby"
_ARCHIVE = "neither archive_command nor archive_library is named on the command line"
_PLACES = "it names locales or directories of another machine"

SECRET = "(not stored)"
"""In the place of connection strings and commands, which may have a password."""

ARCHIVE_MODE = "archive_mode"
ARCHIVE_TARGETS = ("archive_command", "archive_library")

_NOT_FROM_FILES: Mapping[str, str] = {
    **dict.fromkeys(("archive_command", "archive_library", "archive_cleanup_command"), _OTHERS),
    **dict.fromkeys(("restore_command", "recovery_end_command", "primary_conninfo"), _OTHERS),
    **dict.fromkeys(("primary_slot_name", "promote_trigger_file", "trigger_file"), _OTHERS),
    **dict.fromkeys(("ssl", "ssl_passphrase_command", "krb_server_keyfile"), _OTHERS),
    **dict.fromkeys(("bonjour", "bonjour_name", "oauth_validator_libraries"), _OTHERS),
    **dict.fromkeys(("synchronous_standby_names", "synchronized_standby_slots"), _WAITS),
    "standby_slot_names": _WAITS,
    **dict.fromkeys(("client_encoding", "application_name"), _CLIENT),
    **dict.fromkeys(("lc_messages", "lc_monetary", "lc_numeric", "lc_time"), _PLACES),
    **dict.fromkeys(
        ("stats_temp_directory", "temp_tablespaces", "default_tablespace", "dynamic_library_path"), _PLACES
    ),
}
"""Settings that an arm has from the command line only, with the reason. A settings file was made for another
machine, whose archive, standbys and directories a measurement must not reach."""


def reason_to_skip(name: str) -> str:
    """Return why an arm does not have a setting of a file; empty if it has it.

    The command line can name an archive; then it has archive_mode.
    """
    if name == ARCHIVE_MODE:
        return _ARCHIVE
    if name.startswith("ssl_") and name.endswith(("_file", "_dir")):
        return _OTHERS
    return _NOT_FROM_FILES.get(name, "")


_NUMBER = r"[-+]?(?:\d*\.\d*(?:[Ee][-+]?\d+)?|0x[0-9a-fA-F]+[A-Za-z]*|\d+[A-Za-z]*)"
_WORD = r"[A-Za-z_\x80-\U0010ffff][\w.:/\x80-\U0010ffff-]*"
_QUOTED = r"'(?:[^'\\\n]|\\.|'')*'"
_VALUE = rf"(?P<value>{_NUMBER}|{_WORD}|{_QUOTED})"
_NAME = r"(?P<name>[A-Za-z_\x80-\U0010ffff]\w*(?:\.[A-Za-z_\x80-\U0010ffff]\w*)?)"
# Compiled when first used, by the cache of re: most studies have no settings files.
_LINE = rf"[ \t\r]*(?:{_NAME}(?:[ \t\r]*=[ \t\r]*|[ \t\r]+|(?=')){_VALUE})?[ \t\r]*(?:#.*)?"
_ONE_VALUE = rf"(?s){_VALUE}(?:\s+#.*)?"
_ESCAPE = r"''|\\([0-7]{1,3}|.)"
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}

_IS_SQL = r"(?im)^\s*ALTER\s+SYSTEM\b"
_SQL_TOKEN = r"""(?xms)\s+ | --[^\n]* | ^\#[^\n]* | /\*.*?\*/
    | (?P<string>'(?:[^']|'')*') | (?P<quoted>"(?:[^"]|"")*")
    | (?P<word>[A-Za-z_\x80-\U0010ffff][\w$]*) | (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[Ee][-+]?\d+)?(?!\w))
    | (?P<sign>[=,.;()])"""


def is_settings_file(name: str) -> bool:
    """Return whether ``@NAME`` is a file: it has a dot or a slash. Names of profiles have neither."""
    return "." in name or "/" in name


def unquoted(text: str) -> str:
    """Return a value as postgresql.conf means it: ``'20971kB'`` is 20971kB, ``1GB  # 25%`` is 1GB.

    The items of a list may be quoted one by one, as in ALTER SYSTEM. Other texts stay as they are.
    """
    if one := re.fullmatch(_ONE_VALUE, text.strip()):
        return _meaning(one["value"])
    items = [item.strip() for item in split_at_commas(text)]
    is_list = all(re.fullmatch(_QUOTED, item) for item in items)
    return ",".join(map(_meaning, items)) if is_list else text


def split_at_commas(text: str) -> list[str]:
    """Return the parts of a text between commas that are not in single quotes.

    A quote counts at the start of a value only: an apostrophe within a word is a character.
    """
    parts: list[str] = []
    for part in text.split(","):
        if parts and _is_open(parts[-1]):
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return parts


def _is_open(part: str) -> bool:
    """Return whether a part ends within the quotes of its value."""
    value = re.match(rf"\s*(?:{_NAME}\s*(?:=\s*|(?<=\s)))?(?P<rest>'.*)", part, re.DOTALL)
    return value is not None and re.match(_QUOTED, value["rest"]) is None


def name_and_value(text: str) -> tuple[str, str] | None:
    """Return the setting of a line of postgresql.conf without ``=``, ``random_page_cost 1.1``, or None."""
    found = re.fullmatch(_LINE, text)
    return (found["name"].lower(), _meaning(found["value"])) if found and found["name"] else None


def read_settings_file(path: Path) -> dict[str, str]:
    """Return the settings of a file by lower-case name; the last value of a name applies.

    Includes files that it includes. Raises UsageError with the file, the line and the remedy.
    """
    settings = dict(_read(path, ()))
    for name in [name for name in settings if reason_to_skip(name)]:
        if settings[name].lower() in ("", "off"):
            del settings[name]
        elif name != ARCHIVE_MODE:
            settings[name] = SECRET  # no value of these is used
    for name, value in settings.items():
        if re.search("[\udc80-\udcff]", name + value):  # bytes that are not UTF-8
            raise UsageError(f"{path}: {_shown(name)} is not UTF-8: convert the file")
    return settings


def _read(path: Path, including: Sequence[Path]) -> Iterator[tuple[str, str]]:
    if len(including) > INCLUDE_DEPTH_MAX:
        raise UsageError(
            f"{including[-1]} includes {path} more than {INCLUDE_DEPTH_MAX} levels deep: does a file "
            "include itself?"
        )
    text = _text_of(path)
    if re.search(_IS_SQL, text):
        yield from _altered(text, path).items()
        return
    for number, line in enumerate(text.split("\n"), 1):
        found = re.fullmatch(_LINE, line)
        if found is None:
            raise UsageError(
                f"{path}:{number}: is not a setting: {_shown(line)}; write NAME = VALUE, and quote a value "
                "with other characters than letters, digits and _.:/-"
            )
        if not found["name"]:
            continue
        name, value = found["name"].lower(), _meaning(found["value"])
        if name in ("include", "include_if_exists", "include_dir"):
            for other in _included(name, path.parent / value, f"{path}:{number}"):
                yield from _read(other, (*including, path))
        else:
            yield name, value


def _included(directive: str, place: Path, where: str) -> list[Path]:
    """Return the files of a directive, in the order of their names. Raises UsageError."""
    if directive == "include_if_exists":
        return [place] if place.exists() else []
    if directive == "include":
        if not place.exists():
            raise UsageError(
                f"{where}: includes {place}, which does not exist: provide it or remove the line"
            )
        return [place]
    try:
        return sorted(
            one for one in place.iterdir() if one.name.endswith(".conf") and not one.name.startswith(".")
        )
    except OSError as error:
        raise UsageError(
            f"{where}: includes the directory {place}: {error.strerror}: provide it or remove the line"
        ) from None


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"cannot read the settings file {path}: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise UsageError(f"{path} is larger than 1 MiB, the maximum size of a settings file")
    if b"\0" in data:
        raise UsageError(f"{path} is no settings file: it contains a zero byte")
    # Comments may have any encoding.
    return data.decode("utf-8-sig", errors="surrogateescape")


def _meaning(value: str) -> str:
    if not value.startswith("'"):
        return value

    def character(escape: re.Match[str]) -> str:
        code = escape[1]
        if code is None:
            return "'"
        return chr(int(code, 8) & 255) if "0" <= code < "8" else _ESCAPED.get(code, code)

    return re.sub(_ESCAPE, character, value[1:-1])


def _shown(line: str) -> str:
    return line.strip().encode("utf-8", errors="replace").decode()[:80]


def _altered(text: str, path: Path) -> dict[str, str]:
    """Return what the statements of a file leave in postgresql.auto.conf. Raises UsageError."""
    settings: dict[str, str] = {}
    for line, words in _statements(text, path):
        kinds = [word.upper() for kind, word in words if kind == "word"]
        if kinds[:2] == ["SELECT", "PG_RELOAD_CONF"] and len(words) == 4:
            continue
        found = _setting_of(words)
        if found is None:
            shown = " ".join(word for _, word in words)
            raise UsageError(
                f"{path}:{line}: is neither ALTER SYSTEM SET NAME = VALUE nor RESET NAME: {_shown(shown)}: "
                "remove it"
            )
        name, value = found
        if value is not None:
            settings[name] = value
        elif name == "all":
            settings.clear()
        else:
            settings.pop(name, None)
    return settings


Token = tuple[str, str]


def _statements(text: str, path: Path) -> Iterator[tuple[int, list[Token]]]:
    """Yield the line and the tokens of each statement. Raises UsageError."""
    words: list[Token] = []
    token, start, at = re.compile(_SQL_TOKEN), 0, 0
    while at < len(text):
        found = token.match(text, at)
        if found is None:
            line = text[at:].split("\n", maxsplit=1)[0]
            raise UsageError(f"{path}:{text.count(chr(10), 0, at) + 1}: is not SQL: {_shown(line)}")
        kind = found.lastgroup
        if kind == "sign" and found[0] == ";":
            if words:
                yield text.count("\n", 0, start) + 1, words
            words = []
        elif kind is not None:
            start = start if words else at
            words.append((kind, found[0]))
        at = found.end()
    if words:
        yield text.count("\n", 0, start) + 1, words


def _setting_of(words: Sequence[Token]) -> tuple[str, str | None] | None:
    """Return name and value of ALTER SYSTEM; None as value resets it. None if it is another statement."""
    rest = list(words)

    def takes(*expected: str) -> bool:
        if rest and rest[0][1].upper() in expected and rest[0][0] in ("word", "sign"):
            rest.pop(0)
            return True
        return False

    if not (takes("ALTER") and takes("SYSTEM")):
        return None
    resets = takes("RESET")
    if not resets and not takes("SET"):
        return None
    name = ""
    while rest and rest[0][0] in ("word", "quoted"):
        name += _sql_meaning(*rest.pop(0)).lower()
        if not takes("."):
            break
        name += "."
    if not name or name.endswith("."):
        return None
    if resets:
        return None if rest else (name, None)
    if not takes("=", "TO"):
        return None
    if takes("DEFAULT"):
        return None if rest else (name, None)
    values: list[str] = []
    while rest and rest[0][0] != "sign":
        values.append(_sql_meaning(*rest.pop(0)))
        if not takes(","):
            return None if rest else (name, ", ".join(values))
    return None


def _sql_meaning(kind: str, text: str) -> str:
    match kind:
        case "string":
            return text[1:-1].replace("''", "'")
        case "quoted":
            return text[1:-1].replace('""', '"')
        case "word":
            return text.lower()
        case _:
            return text
