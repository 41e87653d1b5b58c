"""Parser of ARM on the command line, ``[NAME=]SERVER[,@PROFILE|@FILE|SETTING=VALUE]…``, and short names.

Parts common to all arms are omitted from their names: ``17,fsync=off`` next to ``17`` is ``fsync=off``. A
directory is named by as many of its last parts as distinguish it from the other arms (``…/15/bin``). A name
is truncated at NAME_MAX. ``…`` marks an omitted part, which the report shows in full. ``parse_arms`` reads
settings files. Nothing else is resolved here: ``server`` checks that the server exists and that settings are
known.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo
from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

from pgdyno.errors import UsageError
from pgdyno.study.settings_file import (
    is_settings_file,
    name_and_value,
    read_settings_file,
    split_at_commas,
    unquoted,
)

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

GIT_PREFIX = "git:"
"""Start of a server that is built from a commit: ``git:REF`` or ``git:/path/to/clone@REF``."""

PATH_AT_REF = re.compile(r"(.+)@(?!\{)(.*)")
"""Clone and REF; ``HEAD@{1}`` is a REF."""

COMMIT_DIGITS = 10
"""Digits of a commit in the name of an arm."""

SECRET_WORDS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
"""Keywords of a connection string that are never stored or shown."""


class ArmSpec(BaseModel):
    """One arm as asked for: a server (a build or a DSN), profiles and files, settings in their order.

    ``files``: what each settings file among the profiles contains, so that a stored study needs no file.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

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

    @model_serializer(mode="wrap")
    def _without_usual_load(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit an empty load, empty files, build options and extensions, so that results files equal those of
        versions without them.
        """
        written: dict[str, Any] = serialize(self)
        later = ("load", "files", BUILD_OPTIONS, EXTENSION)
        return {name: value for name, value in written.items() if value or name not in later}

    @property
    def is_git(self) -> bool:
        """True if the server is built from a commit of a clone."""
        return self.server.startswith(GIT_PREFIX)

    @property
    def build(self) -> str:
        """The server with its build options and extensions: what ``server.build_store`` resolves."""
        return ",".join([self.server, *(f"{name}={value}" for name, value in self._of_build.items())])

    @property
    def _of_build(self) -> Mapping[str, str]:
        given = {BUILD_OPTIONS: self.build_options, EXTENSION: self.extension}
        return {name: value for name, value in given.items() if value}

    @property
    def parts(self) -> tuple[str, ...]:
        """Profiles, settings and parameters of the load, as on the command line."""
        own = {**self._of_build, **self.settings, **self.load}
        return (*(f"@{name}" for name in self.profiles), *(f"{k}={v}" for k, v in own.items()))

    @property
    def known_settings(self) -> dict[str, str]:
        """Its settings and those of its files, without those of profiles, which depend on the machine."""
        of_files = (self.files.get(name, {}) for name in self.profiles)
        return {name: value for given in (*of_files, self.settings) for name, value in given.items()}

    def with_files(self, files: Mapping[str, dict[str, str]]) -> ArmSpec:
        """Return the arm with the contents of its files."""
        own = {name: files[name] for name in self.profiles if name in files}
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
    server, *parts = split_at_commas(spec)
    if not server.strip():
        raise UsageError(f"the arm {text!r} names no server; for example: 18  or  18,@starter,work_mem=16MB")
    profiles, settings = _profiles_and_settings(text, server.strip(), parts)
    load = {name: settings.pop(name) for name in LOAD_PARAMETERS if name in settings}
    build_options, extension = settings.pop(BUILD_OPTIONS, ""), settings.pop(EXTENSION, "")
    arm = ArmSpec(
        name=spec,
        server=server.strip(),
        profiles=tuple(profiles),
        settings={name: unquoted(value) for name, value in settings.items()},
        load=load,
        extension=extension,
    )
    return with_build_options([arm], build_options)[0]


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


def with_build_options(arms: Sequence[ArmSpec], options: str) -> list[ArmSpec]:
    """Return the arms, with these options where an arm is built from a commit and has none of its own.

    Raises UsageError if no arm is built from a commit.
    """
    if not options:
        return list(arms)
    if not any(arm.is_git for arm in arms):
        servers = ", ".join(dict.fromkeys(arm.without_password().server for arm in arms))
        raise UsageError(
            f"--build-options, or build_options= of an arm, requires a server that is built from a commit "
            f"(got {servers}): name one as git:REF, or build a version with them (pgdyno servers build)"
        )
    update = {BUILD_OPTIONS: options}
    return [arm.model_copy(update=update) if arm.is_git and not arm.build_options else arm for arm in arms]


def with_extensions(arms: Sequence[ArmSpec], sources: Sequence[str]) -> list[ArmSpec]:
    """Return the arms, with these extensions where an arm has none of its own.

    Raises UsageError for a running server, on which pgdyno installs nothing.
    """
    if sources and (running := [arm.name for arm in arms if arm.is_dsn]):
        raise UsageError(
            f"--extension cannot be installed on a running server ({running[0]}): install it there yourself, "
            f"or name the arms that get it, such as 18,{EXTENSION}={sources[0]}"
        )
    update = {EXTENSION: ",".join(sources)}
    return [arm if arm.extension else arm.model_copy(update=update) for arm in arms]


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
        server = tails.get(arm.server, arm.server)
        return _short(",".join(own if own and is_one_server else [server, *own]))

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
