"""Settings of servers: definitions, profiles, reserved settings, and what they depend on.

- Resources of this machine that determine settings: memory, cores, disk.
- Settings reserved for pgdyno, and base settings of every arm, which give all servers the same log format.
- Definition of a setting in the catalogue of a server, validation of values, check after the start.
- Settings profiles: named sets of settings with their source, and all settings requested by an arm.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psycopg

from pgdyno.errors import StartError, UsageError
from pgdyno.results.password_masking import mask_passwords
from pgdyno.server.builds import Version, version_of
from pgdyno.study.arm_spec import ARCHIVE_MODE, ARCHIVE_TARGETS, reason_to_skip
from pgdyno.study.defaults import Core
from pgdyno.units import (
    DURATION_UNITS_S,
    SIZE_UNITS_BYTES,
    format_duration,
    format_setting_size,
    format_size,
    split_quantity,
)

# ----------------------------------------------------------------------
# Resources of this machine that determine settings: memory, cores, disk.
# ----------------------------------------------------------------------

SYS = Path("/sys/devices/system/cpu")


def usable_cores(sys: Path = SYS) -> list[Core]:
    """Return the cores in the affinity mask of this process. If the kernel does not report the topology, each
    is a physical core.
    """
    return [
        Core(
            package=_number(sys / f"cpu{number}" / "topology" / "physical_package_id", 0),
            core=_number(sys / f"cpu{number}" / "topology" / "core_id", number),
            number=number,
        )
        for number in sorted(os.sched_getaffinity(0))
    ]


def _number(path: Path, otherwise: int) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return otherwise


# Virtual disks report that they rotate unless configured otherwise; today they are usually on an SSD.
VIRTUAL = ("vd", "xvd")

Disk = Literal["nvme", "ssd", "rotational"]


@dataclass(frozen=True)
class MachineResources:
    """Memory and cores available to this process, and the type of the data disk."""

    memory_bytes: int
    cores: int
    disk: Disk


def disk_kind(data_path: Path, sys: Path = Path("/sys")) -> Disk:
    """Return the type that the kernel reports for the block device of that path; an SSD if it reports
    none."""
    while not data_path.exists():
        data_path = data_path.parent
    device = data_path.stat().st_dev
    found = (sys / "dev" / "block" / f"{os.major(device)}:{os.minor(device)}").resolve()
    for place in (found, found.parent):  # a partition has its queue one level up
        try:
            rotational = (place / "queue" / "rotational").read_text().strip()
        except OSError:
            continue
        if rotational == "1" and not place.name.startswith(VIRTUAL):
            return "rotational"
        return "nvme" if place.name.startswith("nvme") else "ssd"
    return "ssd"


# ----------------------------------------------------------------------
# Settings reserved for pgdyno, and base settings of every arm, which give all servers the same log format.
# ----------------------------------------------------------------------

RESERVED: Mapping[str, str] = {
    name: reason
    for reason, names in {
        "servers listen on a private Unix socket only": (
            *("listen_addresses", "port", "unix_socket_directories", "unix_socket_permissions"),
            *("unix_socket_group", "tcp_keepalives_idle", "tcp_keepalives_interval"),
            *("tcp_keepalives_count", "tcp_user_timeout"),
        ),
        "pgdyno chooses the location of server files": (
            *("data_directory", "config_file", "hba_file", "ident_file", "hosts_file", "external_pid_file"),
        ),
        "pgdyno reads the server log and stores it in the results file": (
            *("log_destination", "log_directory", "log_filename", "log_line_prefix", "log_timezone"),
        ),
    }.items()
    for name in names
}

# Checkpoints and autovacuum runs must be in the log of every version, because they explain dips. They are
# logged by default only from 15 on. Written before the settings of the arm, so that an arm can change these
# two.
BASE: Mapping[str, str] = {
    "logging_collector": "off",
    "log_destination": "stderr",
    "log_line_prefix": "%m [%p] ",
    "log_timezone": "UTC",
    "log_rotation_size": "0",  # a logging collector writes into one file
    "log_checkpoints": "on",
    "log_autovacuum_min_duration": "0",
}
AUTOANALYZE_SINCE = 19
"""First version that logs automatic analyzes by a setting of their own."""


def base_settings(major: int) -> Mapping[str, str]:
    """Return the base settings for a server of that major version."""
    return {**BASE, "log_autoanalyze_min_duration": "0"} if major >= AUTOANALYZE_SINCE else BASE


ENGLISH = re.compile(r"(c|posix|en)?([._].*)?", re.IGNORECASE)
"""Locales in which the messages of a server are those that pgdyno looks for in its log."""


def refuse_reserved(settings: Mapping[str, str]) -> None:
    """Raise UsageError if one of the settings is reserved for pgdyno, or lc_messages is not English, or for a
    password: a resume would run the masked words of the results file.
    """
    for name, value in settings.items():
        is_foreign = name.lower() == "lc_messages" and not ENGLISH.fullmatch(value.strip())
        if reason := "pgdyno reads the server log in English" if is_foreign else RESERVED.get(name.lower()):
            raise UsageError(f"{name} cannot be set: {reason}")
        if mask_passwords(value) != value:
            raise UsageError(
                f"{name} must not contain a password, which no results file stores: put it in ~/.pgpass"
            )


def refused_from_file(name: str, named: Collection[str]) -> str:
    """Return why a setting of a settings file is skipped; empty if the arm has it.

    ``named``: lower-case names of the settings on the command line.
    """
    if name == ARCHIVE_MODE and any(target in named for target in ARCHIVE_TARGETS):
        return ""
    return RESERVED.get(name) or reason_to_skip(name)


def config_text(settings: Mapping[str, str]) -> str:
    """Return the text of a configuration file. Raises UsageError for a value with a line break or zero
    byte."""
    lines = ["# written by pgdyno at every start"]
    for name, value in settings.items():
        if any(character in value for character in "\n\r\0"):
            raise UsageError(f"{name}: the value of a setting cannot contain a line break or a zero byte")
        quoted = value.replace("\\", "\\\\").replace("'", "''")
        lines.append(f"{name} = '{quoted}'")
    return "\n".join(lines) + "\n"


# ----------------------------------------------------------------------
# Definition of a setting in the catalogue of a server, validation of values, check after the start.
#
# The rules are those of PostgreSQL's ``guc.c``: units are case-sensitive, a bare number is in the setting's
# own unit, a fraction is allowed from version 12 on and rounded to that unit, booleans may be shortened.
# ----------------------------------------------------------------------

Value = bool | int | float | str

FRACTIONS_FROM_MAJOR = 12
# pg_settings prints reals with six significant digits (%g).
REAL_TOLERANCE = 1e-5
# Values that the server accepts and shows as another value.
SYNONYMS = {
    ("wal_compression", "on"): "pglz",  # from 15 on, where it is an enumeration
    ("wal_level", "archive"): "replica",
    ("wal_level", "hot_standby"): "replica",
}


SHOWN_IN_OWN_CASE = ("datestyle", "timezone", "client_encoding")
"""Settings that the server shows with its own letters: ``iso, mdy`` as ``ISO, MDY``."""

LIBRARIES = {"io_uring": "liburing", "lz4": "lz4", "zstd": "zstd"}
"""Values of enumerations that only builds with a library have, and its name in --with-NAME of configure."""

LIBRARY_SETTINGS = frozenset({"io_method", "wal_compression", "default_toast_compression"})


@dataclass(frozen=True)
class Definition:
    """One row of ``pg_settings``, without the value. ``context``: when the setting can change."""

    name: str
    vartype: str  # bool, integer, real, enum, string
    unit: str | None  # kB, 8kB, ms, s, min, …
    min_val: str | None
    max_val: str | None
    enumvals: tuple[str, ...]
    context: str
    boot_val: str | None
    category: str
    short_desc: str
    extra_desc: str | None

    def parse(self, text: str, version: Version) -> Value:
        """Return the value of ``text``, numbers in the unit of the setting. Raises ValueError with the
        reason."""
        match self.vartype:
            case "bool":
                return parse_bool(text)
            case "enum":
                return self._parse_enum(text, version)
            case "integer":
                return self._parse_integer(text, version)
            case "real":
                return self._in_range(self._scaled(text, version))
            case _:
                return text

    def same(self, requested: str, effective: str, version: Version) -> bool:
        """Return whether the requested value equals ``pg_settings.setting``."""
        try:
            wanted, found = self.parse(requested, version), self.parse(effective, version)
        except ValueError:
            return False
        if isinstance(wanted, float) and isinstance(found, float):
            return math.isclose(wanted, found, rel_tol=REAL_TOLERANCE, abs_tol=1e-9)
        if self.vartype == "string":
            return self._same_list(_list(requested), _list(effective))
        # -1 means "chosen by the server" for these, and pg_settings shows the chosen value.
        return wanted == found or (wanted == -1 and self.min_val == "-1" and self.boot_val == "-1")

    def _same_list(self, requested: list[str], effective: list[str]) -> bool:
        """The server shows a date style complete and in its own order: ``dmy`` is ``ISO, DMY``."""
        if self.name.lower() in SHOWN_IN_OWN_CASE:
            requested, effective = ([one.lower() for one in of] for of in (requested, effective))
        return set(requested) <= set(effective) if self.name == "DateStyle" else requested == effective

    def bare_in(self, number: float) -> str:
        """Return a number in the unit of this setting for output: 16384 of 8kB is ``128 MB``."""
        factor = unit_factor(self.unit) if self.unit else None
        if factor is None or number < 0:
            return f"{number:g}"
        return (
            format_size(round(number * factor[1]))
            if factor[0] == "size"
            else format_duration(number * factor[1])
        )

    def _parse_enum(self, text: str, version: Version) -> str:
        given = text.strip().lower()
        given = SYNONYMS.get((self.name, given), given)
        for value in self.enumvals:
            if value.lower() == given:
                return value
        # on and off of an enumeration accept all names of a boolean, though enumvals does not list them
        try:
            word = "on" if parse_bool(text) else "off"
            word = SYNONYMS.get((self.name, word), word)
        except ValueError:
            word = ""
        if word in self.enumvals:
            return word
        library = LIBRARIES.get(given)
        if library is not None and self.name in LIBRARY_SETTINGS:
            raise ValueError(
                f"has only {', '.join(self.enumvals)}, because this build of PostgreSQL lacks {library}: use "
                "an installed server, for example of apt.postgresql.org or yum.postgresql.org, or build one "
                f"with this library (pgdyno servers build {version} --source … "
                f"--build-options=--with-{library})"
            )
        raise ValueError(f"must be one of {', '.join(self.enumvals)}")

    def _parse_integer(self, text: str, version: Version) -> int:
        stripped = text.strip()
        if re.fullmatch(r"[+-]?0([xX][0-9a-fA-F]+|[0-7]+)", stripped):
            return int(self._in_range(int(stripped, 16 if "x" in stripped.lower() else 8)))
        scaled = self._scaled(text, version)
        if math.isinf(scaled):  # 1e309: out of every range, and cannot be rounded
            self._in_range(scaled)
        # A value that is no multiple of the unit (3932kB in blocks of 8kB) is truncated before 12, then
        # rounded.
        whole = round(scaled) if version.major >= FRACTIONS_FROM_MAJOR else math.trunc(scaled)
        return int(self._in_range(whole))

    def _scaled(self, text: str, version: Version) -> float:
        try:
            number, unit = split_quantity(text)
        except ValueError:
            raise ValueError(
                "must be a number" + (f" with a unit ({_units_like(self.unit)})" if self.unit else "")
            ) from None
        is_fraction = math.isfinite(number) and not number.is_integer()
        if self.vartype == "integer" and is_fraction and version.major < FRACTIONS_FROM_MAJOR:
            raise ValueError(f"must be an integer before PostgreSQL {FRACTIONS_FROM_MAJOR}")
        if not unit:
            return number
        base = unit_factor(self.unit) if self.unit else None
        if base is None:
            raise ValueError(f"must have no unit (got {unit!r})")
        given = unit_factor(unit)
        if given is None or given[0] != base[0]:
            raise ValueError(
                f"must have one of the units {_units_like(self.unit)}, case-sensitive (got {unit!r})"
            )
        return number * given[1] / base[1]

    def _in_range(self, number: float) -> float:
        low = float(self.min_val) if self.min_val is not None else -sys.float_info.max
        high = float(self.max_val) if self.max_val is not None else sys.float_info.max
        if not low <= number <= high:
            raise ValueError(f"must be from {self.bare_in(low)} to {self.bare_in(high)}")
        return number


def parse_bool(text: str) -> bool:
    """Parse a boolean like PostgreSQL: on, off, 1, 0, or a prefix of true, false, yes, no. Raises
    ValueError."""
    word = text.strip().lower()
    if word in ("on", "1") or (word and ("true".startswith(word) or "yes".startswith(word))):
        return True
    if word in ("off", "of", "0") or (word and ("false".startswith(word) or "no".startswith(word))):
        return False
    raise ValueError("must be on or off")


def unit_factor(unit: str | None) -> tuple[str, float] | None:
    """Convert ``8kB`` to ("size", 8192.0) and ``min`` to ("duration", 60.0); other text to None."""
    match = re.fullmatch(r"(\d*)([A-Za-z]+)", unit or "")
    if match is None:
        return None
    multiple = int(match[1] or 1)
    if match[2] in SIZE_UNITS_BYTES:
        return "size", float(multiple * SIZE_UNITS_BYTES[match[2]])
    if match[2] in DURATION_UNITS_S:
        return "duration", multiple * DURATION_UNITS_S[match[2]]
    return None


def _units_like(unit: str | None) -> str:
    kind = unit_factor(unit)
    return ", ".join(SIZE_UNITS_BYTES if kind and kind[0] == "size" else DURATION_UNITS_S)


def _list(text: str) -> list[str]:
    return [item.strip().strip("\"'") for item in text.split(",")]


def validate(
    settings: Mapping[str, str],
    definitions: Mapping[str, Definition],
    version: Version,
    optional: Collection[str] = (),
) -> None:
    """Raise UsageError for the first setting that this version does not know, or with an invalid value.

    ``definitions`` by lower-case name. Names with a dot belong to extensions and are checked after the start.
    """
    for name, text in settings.items():
        if "." in name:
            continue
        definition = definitions.get(name.lower())
        if definition is None:
            if name in optional:
                continue
            close = difflib.get_close_matches(name.lower(), definitions, n=1)
            hint = f": did you mean {close[0]}?" if close else ""
            raise UsageError(f"PostgreSQL {version} has no setting {name!r}{hint}")
        if definition.context == "internal":
            raise UsageError(
                f"{name} cannot be set: it is fixed when PostgreSQL is built or the cluster is initialized"
            )
        try:
            definition.parse(text, version)
        except ValueError as error:
            raise UsageError(f"{name}={text}: {name} {error}") from None


COLUMNS = (
    "name, vartype, unit, min_val, max_val, enumvals, context, boot_val, category, short_desc, extra_desc"
)

Connection = psycopg.Connection[tuple[Any, ...]]


def definition(row: tuple[Any, ...]) -> Definition:
    """Return the definition of a row of COLUMNS."""
    name, vartype, unit, low, high, enumvals, *rest = row
    return Definition(name, vartype, unit or None, low, high, tuple(enumvals or ()), *rest)


def verify(
    connection: Connection, requested: Mapping[str, str], optional: Collection[str] = ()
) -> tuple[dict[str, str], dict[str, str]]:
    """Return all settings in effect, and the settings of ``optional`` that are not, each with the reason.

    Closes the connection. Raises StartError for a setting that is neither in effect nor optional.
    """
    with connection:
        version = version_of(connection)
        rows = connection.execute(
            f"select setting, pending_restart, current_setting(name, true), {COLUMNS} from pg_settings"
        ).fetchall()
    found = {row[3].lower(): row for row in rows}
    dropped: dict[str, str] = {}
    for name, text in requested.items():
        row = found.get(name.lower())
        reason = _unlike(row, text, version)
        if reason is None:
            continue
        if name not in optional:
            raise StartError(f"{name}={text} is not in effect on PostgreSQL {version}: {reason}")
        dropped[name] = reason
    return {row[3]: row[2] or "" for row in rows}, dropped


def _unlike(row: tuple[Any, ...] | None, text: str, version: Version) -> str | None:
    if row is None:
        return "this server has no such setting (is its library in shared_preload_libraries?)"
    setting, pending_restart, shown = row[:3]
    if pending_restart:
        return "it requires a restart"
    if not definition(row[3:]).same(text, setting or "", version):
        return f"the server has {shown}"
    return None


# ----------------------------------------------------------------------
# Settings profiles: named sets of settings with their source, and all settings requested by an arm.
#
# A settings file of the user takes the place of a profile.
# ----------------------------------------------------------------------

MB, GB = 2**20, 2**30
BLOCK_BYTES = 8192
LIBRARY_LISTS = ("shared_preload_libraries", "session_preload_libraries", "local_preload_libraries")

LACKS_LIBRARY = "this server lacks the library"


@dataclass(frozen=True)
class ProfileInput:
    """Input of a profile: resources and version.

    If several servers run at the same time, each gets its share of the memory, so that they do not swap.
    Cores are not divided, because only one server is driven at a time. In a duet, where two are, ``machine``
    is the CPU partition of one server.
    """

    machine: MachineResources
    version: Version
    definitions: Mapping[str, Definition]
    servers_at_once: int = 1
    connections: int = 100
    library_dir: Path | None = None  # of the server; None if unknown

    def has_library(self, name: str) -> bool:
        """Return whether the server can preload a library; True if its files are unknown."""
        if self.library_dir is None:
            return True
        path = self.library_dir / name.replace("$libdir", str(self.library_dir))
        return path.is_file() or path.with_name(f"{path.name}.so").is_file()

    @property
    def memory_bytes(self) -> int:
        """Memory for one server."""
        return self.machine.memory_bytes // self.servers_at_once


@dataclass(frozen=True)
class SettingsProfile:
    """A named set of settings. ``optional`` has those that a version may lack without invalidating the
    arm."""

    name: str
    title: str
    source: str
    settings: Callable[[ProfileInput], dict[str, str]]
    optional: frozenset[str] = frozenset()


def _starter(fit: ProfileInput) -> dict[str, str]:
    """Return settings by the rules of PGTune for OLTP (web application, November 2026), for
    ``Fit.memory_bytes``."""
    memory, cores, disk = fit.memory_bytes, fit.machine.cores, fit.machine.disk
    shared_buffers = _whole_mb(memory // 4)
    parallel = cores >= 4
    workers = cores if parallel else 8  # 8 is the default of max_worker_processes
    work_mem = max(4 * MB, (memory - shared_buffers) // ((fit.connections + workers) * 3))
    settings = {
        "max_connections": str(fit.connections),
        "shared_buffers": format_setting_size(shared_buffers),
        "effective_cache_size": format_setting_size(_whole_mb(memory * 3 // 4)),
        "maintenance_work_mem": format_setting_size(_whole_mb(min(memory // 16, 8 * GB))),
        "checkpoint_completion_target": "0.9",
        "wal_buffers": format_setting_size(_wal_buffers(shared_buffers)),
        "default_statistics_target": "100",
        "random_page_cost": "4" if disk == "rotational" else "1.1",
        "effective_io_concurrency": {"rotational": "2", "ssd": "200", "nvme": "1000"}[disk],
        "work_mem": format_setting_size(_whole_kb(work_mem)),
        "huge_pages": "try" if shared_buffers >= 2 * GB else "off",
        "min_wal_size": "2GB",
        "max_wal_size": "8GB",
    }
    if _has_lz4(fit):
        settings["wal_compression"] = "lz4"
    if fit.version.major >= 12:
        settings["jit"] = "off"
    if parallel:
        half = (cores + 1) // 2
        settings["max_worker_processes"] = str(cores)
        settings["max_parallel_workers"] = str(cores)
        settings["max_parallel_workers_per_gather"] = str(min(4, half))
        settings["max_parallel_maintenance_workers"] = str(min(4, half))
    return settings


def _has_lz4(fit: ProfileInput) -> bool:
    """Return whether the build supports lz4: from 15 on, and not in embedded builds.

    Without lz4, WAL is not compressed: pglz took 44% (34% to 54%) more server CPU per transaction of tpcc
    just after a checkpoint (18.4, 2 cores, 5 blocks).
    """
    known = fit.definitions.get("wal_compression")
    return known is not None and "lz4" in known.enumvals


def _wal_buffers(shared_buffers: int) -> int:
    """Return 3% of shared_buffers, 32 kB to 16 MB, in whole blocks."""
    return min(max(shared_buffers * 3 // 100, 32 * 1024), 16 * MB) // BLOCK_BYTES * BLOCK_BYTES


def _whole_mb(size_bytes: int) -> int:
    return max(size_bytes // MB, 1) * MB


def _whole_kb(size_bytes: int) -> int:
    return max(size_bytes // 1024, 1) * 1024


PROFILES: Mapping[str, SettingsProfile] = {
    profile.name: profile
    for profile in (
        SettingsProfile("default", "the defaults of initdb", "PostgreSQL", lambda _: {}),
        SettingsProfile(
            "starter",
            "a starting point for OLTP, for the memory, cores and disk of this machine",
            "rules of PGTune, type OLTP, November 2026",
            _starter,
            optional=frozenset({"max_parallel_maintenance_workers"}),
        ),
    )
}


def profile_named(name: str) -> SettingsProfile:
    """Return the profile of that name. Raises UsageError if it is unknown."""
    if name not in PROFILES:
        close = difflib.get_close_matches(name, PROFILES, n=1)
        known = f"available: {', '.join(PROFILES)}; a settings file has a dot or a slash, as in @./{name}"
        raise UsageError(
            f"unknown profile {name!r}" + (f": did you mean {close[0]}?" if close else f"; {known}")
        )
    return PROFILES[name]


@dataclass(frozen=True)
class Requested:
    """Requested settings of an arm, for ``Cluster.start``.

    ``skipped``: by settings file, the settings that the arm does not have, each with the reason.
    """

    settings: Mapping[str, str]
    optional: frozenset[str]
    skipped: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        """A sentence for each settings file of which something is skipped."""
        return [f"{file}: skipped {_with_reasons(skipped)}" for file, skipped in self.skipped.items()]


def _with_reasons(skipped: Mapping[str, str]) -> str:
    """Return ``a, b (reason); c (reason)``."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in skipped.items():
        by_reason.setdefault(reason, []).append(name)
    return "; ".join(f"{', '.join(names)} ({reason})" for reason, names in by_reason.items())


def request(
    profiles: Sequence[str],
    free: Mapping[str, str],
    fit: ProfileInput,
    may_lack: Collection[str] = (),
    files: Mapping[str, Mapping[str, str]] | None = None,
) -> Requested:
    """Combine the settings of the profiles and files in their order, overridden by the ``free`` ones, and
    validate them.

    The version may lack the settings in ``may_lack``, and those of extensions in files, which PostgreSQL
    accepts without the extension. Raises UsageError for an unknown profile or setting, a value out of range,
    or a reserved setting.
    """
    refuse_reserved(free)
    own = {name.lower(): value for name, value in free.items()}
    settings: dict[str, str] = {}
    optional: set[str] = set()
    skipped: dict[str, Mapping[str, str]] = {}
    for name in profiles:
        if files is not None and name in files:
            kept, left = _of_file(name, files[name], own, fit, may_lack)
            settings |= kept
            optional |= {one for one in kept if "." in one}
            if left:
                skipped[name] = left
        else:
            profile = profile_named(name)
            settings |= profile.settings(fit)
            optional |= profile.optional
    settings |= own
    optional = optional - own.keys() | set(may_lack)
    validate(settings, fit.definitions, fit.version, optional)
    return Requested(settings, frozenset(optional & settings.keys()), skipped)


def _of_file(
    file: str, given: Mapping[str, str], own: Mapping[str, str], fit: ProfileInput, may_lack: Collection[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings that an arm has from a file, and those that it has not, each with the reason.

    ``own``: the settings of the command line, which override them. Raises UsageError with the file.
    """
    kept, skipped = {}, {}
    listed = {name: [one for one in _list(given[name]) if one] for name in LIBRARY_LISTS if name in given}
    lacking = {one for libraries in listed.values() for one in libraries if not fit.has_library(one)}
    for name, value in given.items():
        if name in own:
            continue
        if reason := refused_from_file(name, own):
            skipped[name] = reason
        elif name in listed:
            kept[name] = ",".join(one for one in listed[name] if one not in lacking)
            skipped |= {f"{one} of {name}": LACKS_LIBRARY for one in listed[name] if one in lacking}
        elif name.partition(".")[0] in lacking:
            skipped[name] = LACKS_LIBRARY
        else:
            kept[name] = value
    try:
        validate(kept, fit.definitions, fit.version, may_lack)
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from None
    return kept, skipped
