"""Arms: the parser of ARM on the command line, short names of arms, and settings files.

- ARM, ``[NAME=]SERVER[,@PROFILE|@FILE|SETTING=VALUE]…``, and short names.
- Settings files of an arm: postgresql.conf's syntax, or ALTER SYSTEM statements.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo
from pydantic import BaseModel, SerializerFunctionWrapHandler, model_serializer

from pgdyno.errors import UsageError

# ----------------------------------------------------------------------
# ARM, ``[NAME=]SERVER[,@PROFILE|@FILE|SETTING=VALUE]…``, and short names.
#
# Parts common to all arms are omitted from their names: ``17,fsync=off`` next to ``17`` is ``fsync=off``. A
# directory is named by as many of its last parts as distinguish it from the other arms (``…/15/bin``). A name
# is truncated at NAME_MAX. ``…`` marks an omitted part, which the report shows in full. ``parse_arms`` reads
# settings files. Nothing else is resolved here: ``server`` checks that the server exists and that settings
# are known.
# ----------------------------------------------------------------------

NAME_MAX = 32
"""Maximum number of characters: longer names do not fit next to the figures of a table with 80 columns."""

LEFT_OUT = "…"

PARTS_MIN = 2
"""Minimum number of parts of a directory: ``bin`` alone is meaningless."""


def short_tails(servers: Sequence[str]) -> dict[str, str]:
    """Return for each server that is a directory as many of its last parts as distinguish it from the
    others, and for each that is built from a commit its name.
    """
    commits = {server: _commit_name(server) for server in servers if server.startswith(GIT_PREFIX)}
    parts = {server: PurePath(server).parts for server in servers if "/" in server and server not in commits}
    distinct, kept = len(set(parts.values())), PARTS_MIN
    while len({of[-kept:] for of in parts.values()}) < distinct:
        kept += 1
    tails = {
        server: _cut_front(min(f"{LEFT_OUT}/{'/'.join(of[-kept:])}", server, key=len))
        for server, of in parts.items()
    }
    return {**tails, **commits}


def _commit_name(server: str) -> str:
    """Return ``git:REF`` without the path of the clone and the last digits of a commit."""
    ref = server.removeprefix(GIT_PREFIX)
    if ref.startswith(("/", ".", "~")):
        found = PATH_AT_REF.fullmatch(ref)
        ref = found[2] if found else PurePath(ref).name
    is_commit = re.fullmatch(r"[0-9a-f]{40}([0-9a-f]{24})?", ref)
    return GIT_PREFIX + (ref[:COMMIT_DIGITS] if is_commit else ref)


def _short(name: str) -> str:
    return name if len(name) <= NAME_MAX else f"{name[: NAME_MAX - len(LEFT_OUT)]}{LEFT_OUT}"


def _cut_front(tail: str) -> str:
    return tail if len(tail) <= NAME_MAX else f"{LEFT_OUT}{tail[len(LEFT_OUT) - NAME_MAX :]}"


_PROFILE = re.compile(r"@(?:[A-Za-z0-9][\w-]*|[^@\s].*)")
_NAMED = re.compile(r"([A-Za-z][\w.+-]*)=(.+)", re.DOTALL)
_SECRET = re.compile(r"postgres(ql)?://|password\s*=")
_SETTING = re.compile(r"([A-Za-z_][\w.]*)\s*=(.*)", re.DOTALL)
_URI = re.compile(r"postgres(ql)?://")
_CONNECTION_KEYWORD = re.compile(
    rf"({'|'.join(option.keyword.decode() for option in Conninfo.get_defaults())})\s*="
)
"""A connection string may begin with any of libpq's keywords."""

LOAD_PARAMETERS = ("dialect", "deviate", "data", "analyze", "age")
"""Parameters of the workload and its data that an arm can have, in the place of a setting."""

BUILD_OPTIONS = "build_options"
"""Options of the build from source of an arm, in the place of a setting."""

EXTENSION = "extension"
"""Sources of extensions that are built for an arm, in the place of a setting."""

WAL_DIR = "wal_dir"
"""Directory below which the WAL of an arm is, in the place of a setting."""

OF_ARM = (BUILD_OPTIONS, EXTENSION, WAL_DIR)
"""Parts of an arm that are neither settings nor of its load. Each is a field of ``ArmSpec``."""

GIT_PREFIX = "git:"
"""Start of a server that is built from a commit: ``git:REF`` or ``git:/path/to/clone@REF``."""

PATH_AT_REF = re.compile(r"(.+)@(?!\{)(.*)")
"""Clone and REF; ``HEAD@{1}`` is a REF."""

COMMIT_DIGITS = 10
"""Digits of a commit in the name of an arm."""

SECRET_WORDS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
"""Keywords of a connection string that are never stored or shown."""


class ArmSpec(BaseModel, frozen=True, extra="forbid"):
    """One arm as asked for: a server (a build or a DSN), profiles and files, settings in their order.

    ``files``: what each settings file among the profiles contains, so that a stored study needs no file.
    """

    name: str
    is_named: bool = False  # by the user: NAME=ARM
    server: str
    is_dsn: bool = False
    profiles: tuple[str, ...] = ()  # and names of settings files
    files: dict[str, dict[str, str]] = {}
    settings: dict[str, str] = {}
    optional: tuple[str, ...] = ()  # of the settings: a version that lacks one goes without it
    load: dict[str, str] = {}  # parameters of the workload of this arm alone: LOAD_PARAMETERS
    build_options: str = ""  # of configure or meson, for a server built from a commit
    extension: str = ""  # directories and commits of extensions, separated by commas
    wal_dir: str = ""  # directory on another disk than the data

    @model_serializer(mode="wrap")
    def _without_usual_load(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit an empty load, empty files and empty parts, so that results files equal those of versions
        without them.
        """
        written: dict[str, Any] = serialize(self)
        later = ("load", "files", *OF_ARM)
        return {name: value for name, value in written.items() if value or name not in later}

    @property
    def is_git(self) -> bool:
        """True if the server is built from a commit of a clone."""
        return self.server.startswith(GIT_PREFIX)

    @property
    def build(self) -> str:
        """The server with its build options and extensions: what ``server.build_store`` resolves."""
        return ",".join([self.server, *map("=".join, self._given(BUILD_OPTIONS, EXTENSION).items())])

    def _given(self, *names: str) -> dict[str, str]:
        return {name: value for name in names if (value := getattr(self, name))}

    @property
    def parts(self) -> tuple[str, ...]:
        """Profiles, settings and parameters of the load, as on the command line."""
        own = {**self._given(*OF_ARM), **self.settings, **self.load}
        return (*(f"@{name}" for name in self.profiles), *(f"{k}={v}" for k, v in own.items()))

    @property
    def known_settings(self) -> dict[str, str]:
        """Its settings and those of its files, without those of profiles, which depend on the machine."""
        of_files = (self.files.get(name, {}) for name in self.profiles)
        return {name: value for given in (*of_files, self.settings) for name, value in given.items()}

    def with_files(self, files: Mapping[str, Mapping[str, str]]) -> ArmSpec:
        """Return the arm with the contents of its files."""
        own = {name: dict(files[name]) for name in self.profiles if name in files}
        return self.model_copy(update={"files": own}) if own else self

    @property
    def full_name(self) -> str:
        """The whole ARM, of which the name leaves something out."""
        return self.without_password().server if self.is_dsn else ",".join([self.server, *self.parts])

    def without_password(self) -> ArmSpec:
        """The arm as it may be stored and shown. A resumed study finds the password as libpq does."""
        return self.model_copy(update={"server": without_secrets(self.server)}) if self.is_dsn else self

    def is_same(self, other: ArmSpec) -> bool:
        """True if both ask for the same thing, however a connection string is spelled."""
        unnamed = {"name": "", "is_named": False}
        mine, others = (arm.without_password().model_copy(update=unnamed) for arm in (self, other))
        return mine == others


def parse_arm(text: str) -> ArmSpec:
    """Parses one ARM. Raises UsageError with the offending part and an example.

    A value means what it means in postgresql.conf: it may have quotes, and ``=`` may be missing. Another part
    without ``=`` and ``@`` continues the value before it, so that ``18,search_path=a,b`` keeps its comma.
    """
    spec = text.strip()
    if _URI.match(spec) or _CONNECTION_KEYWORD.match(spec):
        return _parse_dsn(spec)
    if named := _NAMED.fullmatch(spec):
        return _named(*named.groups())
    if _SECRET.search(spec):
        # Not quoted: it may contain a password.
        raise UsageError(
            "an arm contains a connection string in the middle; NAME=DSN needs a NAME of letters, digits and "
            "_.+- that begins with a letter"
        )
    first, *parts = split_at_commas(spec)
    if not (server := first.strip()):
        raise UsageError(f"the arm {text!r} names no server; for example: 18  or  18,@starter,work_mem=16MB")
    profiles, settings = _profiles_and_settings(text, server, parts)
    load = {name: settings.pop(name) for name in LOAD_PARAMETERS if name in settings}
    own: dict[str, Any] = {name: settings.pop(name) for name in OF_ARM if name in settings}
    if empty := [name for name, value in own.items() if not value]:
        raise UsageError(f"in the arm {text!r}, {empty[0]} has no value: add one, or remove {empty[0]}")
    values = {name: unquoted(value) for name, value in settings.items()}
    arm = ArmSpec(name=spec, server=server, profiles=tuple(profiles), settings=values, load=load, **own)
    if arm.build_options and not arm.is_git:
        raise UsageError(
            f"build_options requires a server that is built from a commit (got {arm.server}): name one as "
            "git:REF, or build a version with them (pgdyno servers build)"
        )
    return arm


def _profiles_and_settings(text: str, server: str, parts: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the profiles and the settings in the parts of an arm, values as given. Raises UsageError."""
    profiles: list[str] = []
    settings: dict[str, str] = {}
    last_name = ""
    for given in parts:
        part = given.strip()
        if _PROFILE.fullmatch(part):
            if settings:
                raise UsageError(
                    f"in the arm {text!r} the profile {part} comes after a setting; "
                    "profiles come first, because later parts override earlier ones"
                )
            profiles.append(part[1:])
        elif setting := _setting(part, follows=last_name):
            last_name, value = setting
            if last_name in settings:
                raise UsageError(f"the arm {text!r} sets {last_name} twice")
            if last_name == "config_file":
                raise UsageError(f"config_file cannot be set: {_remedy(server, unquoted(value))}")
            settings[last_name] = value
        elif is_settings_file(part) and PurePath(part).suffix in FILE_SUFFIXES:
            raise UsageError(f"in the arm {text!r}, {part!r} is no setting: {_remedy(server, part)}")
        elif settings:
            settings[last_name] += f",{given}"
        else:
            raise UsageError(
                f"in the arm {text!r}, {part!r} is neither @PROFILE, @FILE nor SETTING=VALUE; "
                "for example: 18,@starter,work_mem=16MB"
            )
    return profiles, settings


FILE_SUFFIXES = (".conf", ".sql", ".cnf", ".config", ".txt")
"""Ends of the names of settings files, in messages about an ARM that lacks the @ before one."""


def _remedy(server: str, file: str) -> str:
    name = file if is_settings_file(file) else f"./{file}"
    return f"for the settings of a file write {server},@{name}"


def _setting(part: str, *, follows: str) -> tuple[str, str] | None:
    """Return name and value of a part of an arm; None if it continues the value before it.

    Commands contain words and commas; elsewhere ``random_page_cost 1.1`` is a setting.
    """
    if found := _SETTING.fullmatch(part):
        return found[1].lower(), found[2].strip()
    return None if follows.endswith("_command") else name_and_value(part)


def extension_sources(text: str) -> list[str]:
    """Return the sources in the value of ``extension=``. Paths contain no comma."""
    return [source.strip() for source in text.split(",") if source.strip()]


def _named(name: str, text: str) -> ArmSpec:
    arm = parse_arm(text)
    if arm.is_named:
        raise UsageError(f"an arm has two names, {name} and {arm.name}: remove one of them")
    if len(name) > NAME_MAX:
        raise UsageError(f"the name {name!r} is longer than {NAME_MAX} characters")
    return arm.model_copy(update={"name": name, "is_named": True})


def parse_arms(texts: Sequence[str]) -> list[ArmSpec]:
    """Parses all arms, with short and distinct names: equal ones (an A/A comparison) get a number."""
    arms: list[ArmSpec] = []
    parsed = [with_own_files(parse_arm(text)) for text in texts]
    names = Counter(arm.name for arm in parsed if arm.is_named)
    if repeated := [name for name, n in names.items() if n > 1]:
        raise UsageError(f"two arms are named {repeated[0]!r}: give each its own name")
    for arm in _with_short_names(parsed):
        n = 1 if arm.is_named else 1 + sum(arm.is_same(other) for other in arms)
        name = f"{arm.name} (again {n})" if n > 1 else arm.name
        if any(name == other.name for other in arms):  # another way to one place, or cut to the same
            name = f"{arm.name} ({len(arms) + 1})"
        arms.append(arm.model_copy(update={"name": name}))
    return arms


def read_files(names: Sequence[str], directory: Path) -> dict[str, dict[str, str]]:
    """Return the settings of the files among the profiles, which are relative to a directory.

    Raises UsageError.
    """
    return {
        name: read_settings_file(directory / Path(name).expanduser())
        for name in names
        if is_settings_file(name)
    }


def with_own_files(arm: ArmSpec) -> ArmSpec:
    """Return the arm with the contents of its settings files. Raises UsageError."""
    return arm.with_files(read_files(arm.profiles, Path()))


def _with_short_names(arms: Sequence[ArmSpec]) -> list[ArmSpec]:
    """The arms with what tells them apart as names; without anything of its own an arm keeps its server."""
    builds = [arm for arm in arms if not arm.is_dsn]
    sources = {source for arm in builds for source in extension_sources(arm.extension)}
    tails = short_tails([*(arm.server for arm in builds), *sources])
    files = _short_files({name for arm in builds for name in arm.profiles if is_settings_file(name)})
    common = set.intersection(*(set(arm.parts) for arm in builds)) if len(builds) > 1 else set()
    is_one_server = len({arm.server for arm in builds}) == 1 < len(builds) == len(arms)

    def name_of(arm: ArmSpec) -> str:
        short = ",".join(tails.get(source, source) for source in extension_sources(arm.extension))
        profiles = tuple(files.get(name, name) for name in arm.profiles)
        named = arm.model_copy(update={EXTENSION: short, "profiles": profiles})
        own = [part for part, full in zip(named.parts, arm.parts, strict=True) if full not in common]
        return _short(",".join(own if own and is_one_server else [tails.get(arm.server, arm.server), *own]))

    return [
        arm if arm.is_named or arm.is_dsn else arm.model_copy(update={"name": name_of(arm)}) for arm in arms
    ]


def _short_files(names: Collection[str]) -> dict[str, str]:
    """Return for each settings file its last part, or as many as distinguish it from the others."""
    last = Counter(PurePath(name).name for name in names)
    tails = short_tails([name for name in names if "/" in name])
    return {
        name: tails.get(name, name) if last[short] > 1 else short
        for name in names
        if (short := PurePath(name).name)
    }


def _parse_dsn(spec: str) -> ArmSpec:
    # A comma is legal inside a DSN (several hosts); only a tail that looks like profiles or settings is
    # rejected.
    if re.search(r",\s*(@(\w[\w.-]*|(\.{1,2}|~)/.*)|[a-z_]+=[^&/?@]*)$", spec):
        raise UsageError(
            "settings cannot be given for a server that is running already: change them there, "
            "or name a build, such as 18,work_mem=16MB"
        )
    try:
        words = conninfo_to_dict(spec)
    except (ProgrammingError, UnicodeError) as error:
        # libpq quotes the text that it could not read, and that may be a password: we give none of it.
        message = "the arm that looks like a connection string is none; see pgdyno docs arms"
        raise UsageError(message) from error
    return ArmSpec(name=_short_name(words), server=spec, is_dsn=True)


def _short_name(words: Mapping[str, object]) -> str:
    """Return a short name of a running server for tables: ``db.example:5433/shop``. Omitted parts are libpq's
    defaults.
    """
    if "service" in words:
        return f"service {words['service']}"
    port = f":{words['port']}" if "port" in words else ""
    database = f"/{words['dbname']}" if "dbname" in words else ""
    return f"{words.get('host') or words.get('hostaddr') or 'local'}{port}{database}"


def has_secrets(conninfo: str) -> bool:
    """Return whether a connection string contains a password or the like. Raises ProgrammingError."""
    return bool(set(SECRET_WORDS) & conninfo_to_dict(conninfo).keys())


def without_secrets(conninfo: str) -> str:
    """Return the connection string in libpq's order of keywords, so that two spellings of one connection are
    equal.
    """
    words = conninfo_to_dict(conninfo)
    return make_conninfo("", **{word: value for word, value in words.items() if word not in SECRET_WORDS})


# ----------------------------------------------------------------------
# Settings files of an arm, ``18,@./tuned.conf``: postgresql.conf's syntax, or ALTER SYSTEM statements.
#
# The rules of postgresql.conf are those of PostgreSQL's ``guc-file.l``. A file with ALTER SYSTEM is SQL, as
# PGTune and others print it: SET, also with TO and lists, RESET, and pg_reload_conf().
# ----------------------------------------------------------------------

FILE_BYTES_MAX = 1 << 20
"""Maximum size of a settings file, a script or a study file: the results file stores them."""


def read_bytes(
    path: Path, kind: str, unreadable: str = "cannot read the {kind} {path}: {why}: check the name"
) -> bytes:
    """Return the content of a file of this kind. Raises UsageError: not readable, too large.

    ``unreadable``: the message for the first.
    """
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)  # a device may be endless
    except OSError as error:
        raise UsageError(unreadable.format(kind=kind, path=path, why=error.strerror)) from None
    if len(data) > FILE_BYTES_MAX:
        raise UsageError(f"{path} is larger than 1 MiB, the maximum size of a {kind}")
    return data


def utf8_text(path: Path, data: bytes) -> str:
    """Return the text of a file. Raises UsageError if it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 (byte {error.start})") from None


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
    **dict.fromkeys(("stats_temp_directory", "temp_tablespaces", "default_tablespace"), _PLACES),
    **dict.fromkeys(("dynamic_library_path", "extension_control_path"), _PLACES),
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
        if settings[name].lower() in ("", "off", "c", "posix"):  # without effect
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
    data = read_bytes(path, "settings file")
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
    """Return the settings that ALTER SYSTEM of a file leaves. Raises UsageError for any other statement."""
    import pgparse  # noqa: PLC0415  # a library of 11 MB; few settings files are SQL

    # Lines that begin with # are comments of tools. Comments may have any encoding.
    sql = re.sub("[\udc80-\udcff]", "\ufffd", re.sub("(?m)^#.*", "", text))
    try:
        statements = pgparse.parse(sql)
    except pgparse.PGQueryError as error:
        message, position = error.args
        line = sql.count("\n", 0, position) + 1
        raise UsageError(f"{path}:{line}: is not SQL: {message}: correct it") from None
    settings: dict[str, str] = {}
    for one in statements:
        match one["stmt"]:
            case {"AlterSystemStmt": {"setstmt": {"kind": "VAR_SET_VALUE", "name": name, "args": values}}}:
                texts = ", ".join(map(_constant, values))
                settings[name.lower()] = texts.replace("\ufffd", "\udc80")  # is not UTF-8
            case {"AlterSystemStmt": {"setstmt": {"kind": "VAR_RESET_ALL"}}}:
                settings.clear()
            case {"AlterSystemStmt": {"setstmt": {"name": name}}}:  # RESET, or SET … TO DEFAULT
                settings.pop(name.lower(), None)
            case _:
                start, length = one.get("stmt_location", 0), one.get("stmt_len")
                whole = sql.encode()[start : start + length if length else None].decode()
                if re.search(r"(?i)\bselect\s+pg_reload_conf\s*\(\s*\)\s*$", whole):
                    continue
                line = sql.encode()[: start + len(whole) - len(whole.lstrip())].count(b"\n") + 1
                raise UsageError(
                    f"{path}:{line}: is neither ALTER SYSTEM SET NAME = VALUE nor RESET NAME: "
                    f"{_shown(' '.join(whole.split()))}: remove it"
                )
    return settings


def _constant(value: Mapping[str, Any]) -> str:
    """Return the text of a constant. Zero and the empty text are absent from the tree."""
    ((kind, of),) = ((kind, of) for kind, of in value["A_Const"].items() if kind != "location")
    return str(of.get(kind, 0 if kind == "ival" else ""))
