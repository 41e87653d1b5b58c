"""Definition of a setting in the catalogue of a server, validation of values, check after the start.

The rules are those of PostgreSQL's ``guc.c``: units are case-sensitive, a bare number is in the setting's own
unit, a fraction is allowed from version 12 on and rounded to that unit, booleans may be shortened.
"""

from __future__ import annotations

import difflib
import math
import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from pgdyno.errors import StartError, UsageError
from pgdyno.server.version import Version, version_of
from pgdyno.units import DURATION_UNITS_S, SIZE_UNITS_BYTES, format_duration, format_size, split_quantity

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
