"""Values of parameters in a log: which are equal, and the ranges of numbers. They stay in memory."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pgdyno.workload.statements.statement_parser import nodes, parameter_locations, shape_of

NULL = "\0"
"""The value NULL, which no text is."""

Value = str | None
"""The text of a value; None if the log does not have it."""

DISTINCT_MAX = 3
"""Number of different values that is counted at most."""

_PARAMETER = re.compile(r"\$(\d+) = (?:NULL|'((?:[^']|'')*)')")
_NUMBER = re.compile(r"[+-]?\d{1,12}(\.\d{1,6})?")
_INTERVAL = re.compile(
    r"([+-]?\d{1,9}(?:\.\d{1,6})?) ?(second|sec|minute|min|hour|day|week|month|mon|year)s?", re.IGNORECASE
)
_CLOCK = re.compile(r"(\d+):(\d\d):(\d\d(?:\.\d+)?)")


@dataclass(frozen=True)
class LoggedStatement:
    """A statement that was executed: its shape, and the value at each place of a parameter."""

    shape: str
    values: tuple[Value, ...]


def logged_statement(text: str, detail: str) -> LoggedStatement | None:
    """Return the values of a statement, whose constants are in its text and whose parameters are in the
    detail of its entry; None if the text cannot be read.
    """
    sources = _sources(text)
    if sources is None:
        return None
    bound: dict[int, Value] = {}
    for found in _PARAMETER.finditer(detail):
        value = NULL if found[2] is None else found[2].replace("''", "'")
        is_cut = value.endswith("...")  # by log_parameter_max_length
        bound[int(found[1])] = None if is_cut else value
    shape, places = sources
    return LoggedStatement(shape, tuple(bound.get(one) if isinstance(one, int) else one for one in places))


@lru_cache(maxsize=10_000)
def _sources(text: str) -> tuple[str, tuple[str | int, ...]] | None:
    """Return the shape of a statement, and for each place of a parameter its constant or its number."""
    import pgparse  # noqa: PLC0415

    try:
        normalized = str(pgparse.normalize(text))
        before, after = pgparse.parse(text), pgparse.parse(normalized)
    except (pgparse.PGQueryError, RecursionError, ValueError, UnicodeError):
        return None
    numbers = parameter_locations(before)
    known: dict[int, str | int] = {**numbers}
    for constant in nodes(before, "A_Const"):
        known.setdefault(int(constant.get("location", 0)), _text_of(constant))
    places = _aligned(text.encode(), normalized.encode(), known, parameter_locations(after))
    return None if places is None else (shape_of(normalized), places)


def _aligned(
    text: bytes, normalized: bytes, known: Mapping[int, str | int], parameters: Mapping[int, int]
) -> tuple[str | int, ...] | None:
    """Return what the original text has at each parameter: both texts are equal in between."""
    found: list[str | int] = []
    starts = iter(sorted(known))
    end = 0
    for location, number in parameters.items():
        between = normalized[end:location]
        start = next((one for one in starts if text[:one].endswith(between)), None)
        if start is None:
            return None
        found.append(known[start])
        end = location + len(f"${number}")
    return tuple(found)


def _text_of(constant: Mapping[str, Any]) -> str:
    if constant.get("isnull"):
        return NULL
    for kind, of in (("sval", "sval"), ("fval", "fval"), ("bsval", "bsval")):
        if kind in constant:
            return str(constant[kind].get(of, ""))
    if "boolval" in constant:
        return "t" if constant["boolval"].get("boolval") else "f"
    return str(constant.get("ival", {}).get("ival", 0))  # 0 is omitted


@dataclass
class EqualValues:
    """The places of a transaction whose values were equal in each of its executions.

    ``groups`` has the number of a group for each place, ``distinct`` the first different values of a group.
    """

    executions: int = 0
    groups: list[int] = field(default_factory=list)
    distinct: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))

    def add(self, values: Sequence[Value]) -> None:
        """Divide the groups by the values of one more execution."""
        before = self.groups or [0] * len(values)
        numbers: dict[tuple[int, object], int] = {}
        distinct: dict[int, set[str]] = {}
        groups = []
        for place, (group, value) in enumerate(zip(before, values, strict=True)):
            key = (group, ("unknown", place) if value is None else value)
            number = numbers.setdefault(key, len(numbers))
            groups.append(number)
            known = distinct.setdefault(number, set(self.distinct[group]))
            if value not in (None, NULL) and len(known) < DISTINCT_MAX:
                known.add(str(value))
        self.executions += 1
        self.groups, self.distinct = groups, defaultdict(set, distinct)


@dataclass
class LoggedRange:
    """Smallest and largest value of a number, or of an interval in units (``day``)."""

    low: float = math.inf
    high: float = -math.inf
    unit: str | None = None
    is_usable: bool = True

    def add(self, value: Value) -> None:
        """Include a value. One that is no number makes the range unusable."""
        measured = _measured(value) if self.is_usable else None
        if measured is None or self.unit not in (None, measured[1]):
            self.is_usable = False
            return
        self.unit = measured[1]
        self.low, self.high = min(self.low, measured[0]), max(self.high, measured[0])

    def rounded(self) -> tuple[float, float] | None:
        """Return the limits rounded outward to two digits; None if unusable."""
        if not self.is_usable or self.unit is None:
            return None
        return _two_digits(self.low, math.floor), _two_digits(self.high, math.ceil)


def _measured(value: Value) -> tuple[float, str] | None:
    if value is None:
        return None
    if _NUMBER.fullmatch(value):
        return float(value), ""
    if found := _INTERVAL.fullmatch(value):
        unit = {"sec": "second", "min": "minute", "mon": "month"}.get(found[2].lower(), found[2].lower())
        return float(found[1]), unit
    if found := _CLOCK.fullmatch(value):
        return int(found[1]) * 3600 + int(found[2]) * 60 + float(found[3]), "second"
    return None


def _two_digits(value: float, direction: Any) -> float:
    if value == 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    if step <= 1 and value == round(value):
        return value
    return float(round(direction(round(value / step, 9)) * step, 9))
