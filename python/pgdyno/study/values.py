"""Values in a study file and of options: durations, sizes, shares, limits, levels, settings."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from pgdyno.errors import UsageError
from pgdyno.study.defaults import SLICE_S_MAX, SLICE_S_MIN
from pgdyno.units import NO_BREAK, S_PER_MIN, format_duration, parse_duration_s, parse_size_bytes


@dataclass(frozen=True)
class Option:
    """A field that is also an option of the command line.

    ``names``: its spellings, if not that of the field. ``default``: the default as text, if not that of the
    field. ``of``: the beginning of the help, if not the kind of the workload. ``values``: those that the
    option may have, if not all of the field. ``is_repeated``: it gives a list. ``has_range``: the help shows
    the bounds of the field. ``parse``: returns the value of the text, or the values of several fields by
    name; raises UsageError.
    """

    metavar: str | None = None
    names: tuple[str, ...] = ()
    default: str = ""
    of: str = ""
    values: tuple[str, ...] = ()
    is_repeated: bool = False
    has_range: bool = False
    parse: Callable[[str], Any] | None = None


class Rare(Option):
    """An option that ``compare`` does not have, because few need it: only study files have the key."""


# ----------------------------------------------------------------------
# Parsers of options. The name of the option precedes the text of a UsageError.
# ----------------------------------------------------------------------

MINUTES_MAX = 60 * 24 * 366.0
"""A year. Longer values are typing errors."""


def parse_minutes(text: str) -> float:
    """Convert ``5`` (minutes), ``5m`` or ``300s`` to minutes. Raises UsageError."""
    try:
        minutes = float(text)
    except ValueError:
        minutes = parse_duration_s(text) / S_PER_MIN
    if not 0 < minutes <= MINUTES_MAX:
        raise UsageError(f"must be greater than 0 and at most {MINUTES_MAX:.0f} (got {minutes:g})")
    return minutes


def parse_percent(text: str) -> float:
    """``2%`` or ``2`` → 0.02. Raises UsageError."""
    try:
        share = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        raise UsageError(f"{text!r} is not a percentage; for example: 2%") from None
    if not 0 < share < 1:
        raise UsageError(f"must be greater than 0% and less than 100% (got {text!r})")
    return share


def parse_slice_s(text: str) -> float:
    """Parse ``1s`` or ``200ms``. Raises UsageError: not a duration, out of range."""
    if text == "auto":
        raise UsageError("auto was removed: give a length; an A/A study (18 18) measures its noise")
    slice_s = parse_duration_s(text)
    if not SLICE_S_MIN <= slice_s <= SLICE_S_MAX:
        raise UsageError(
            f"must be between {format_duration(SLICE_S_MIN)} and {format_duration(SLICE_S_MAX)} "
            f"(got {text!r}); for example: 1s"
        )
    return slice_s


def parse_warm_up(text: str) -> Mapping[str, float]:
    """Parse ``10s``, ``5s..60s`` or ``auto``. Raises UsageError."""
    least, dots, most = text.partition("..")
    if text == "auto":
        return {}
    if not dots:
        return {"warmup_s": parse_duration_s(text)}
    if not least or not most:
        raise UsageError(f"{text!r} lacks a bound: give both, for example: 5s..60s")
    return {"warmup_s": parse_duration_s(most), "warmup_min_s": parse_duration_s(least)}


CHECKPOINTS = "checkpoints:"

CHECKPOINTS_MAX = 1000
"""Maximum number of checkpoint cycles per window: 3.5 days at the default checkpoint_timeout."""


def parse_window(text: str) -> Mapping[str, float]:
    """Parse ``20s`` or ``checkpoints:2``. Raises UsageError."""
    if not text.startswith(CHECKPOINTS):
        if not (window_s := parse_duration_s(text)):
            raise UsageError(f"must be greater than 0 (got {text!r}); for example: 20s")
        return {"window_s": window_s}
    number = text.removeprefix(CHECKPOINTS)
    if not re.fullmatch(r"[0-9]{1,4}", number) or not 1 <= int(number) <= CHECKPOINTS_MAX:
        raise UsageError(
            f"the number of checkpoint cycles must be between 1 and {CHECKPOINTS_MAX} (got {text!r}); "
            "for example: checkpoints:2"
        )
    return {"checkpoints": int(number)}


NAME_LENGTH_MAX = 60
"""Maximum length of the name of a level, which is part of the names of arms and cases."""


class StudyTable(BaseModel):
    """Base class of the tables of a study file: unknown keys, other types and NaN are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def frozen(given: Any) -> Any:
    """Convert lists of TOML or JSON to tuples at every depth, so that the value is immutable."""
    if isinstance(given, Mapping):
        return {key: frozen(value) for key, value in given.items()}
    return tuple(map(frozen, given)) if isinstance(given, list | tuple) else given


def _quantity(parse: Callable[[str], float], example: str) -> Callable[[Any], float]:
    def read(given: Any) -> float:
        if isinstance(given, bool) or not isinstance(given, str | int | float):
            raise ValueError(f"must be {example}")
        try:
            number = parse(given) if isinstance(given, str) else given
        except UsageError as error:
            raise ValueError(str(error)) from None
        if not (math.isfinite(number) and number >= 0):
            raise ValueError(f"must be {example}")
        return number

    return read


def _schema(of: str, example: str) -> WithJsonSchema:
    return WithJsonSchema(
        {"anyOf": [{"type": "string", "examples": [example]}, {"type": "number", "minimum": 0}], "title": of}
    )


Duration = Annotated[
    float,
    BeforeValidator(_quantity(parse_duration_s, 'a duration, such as "5min", or a number of seconds')),
    _schema("Duration", "5min"),
]
"""Duration in seconds."""

Size = Annotated[
    int,
    BeforeValidator(_quantity(parse_size_bytes, 'a size, such as "384GB", or a number of bytes')),
    _schema("Size", "384GB"),
]
"""Size in bytes."""

Scalar = str | int | float | bool


_LIMIT = re.compile(r"p(\d{1,2}(?:\.\d+)?)\s*<\s*(.+)")

BEYOND_MIN = 10
"""Minimum number of values beyond a quantile: p99.9 of 500 values would be their maximum."""

TRANSACTIONS_MAX = 20_000_000
"""Maximum number of transactions in a step of the search: no server completes more within STEP_S_MAX."""


@dataclass(frozen=True)
class LatencyLimit:
    """Latency limit: the ``quantile`` of the latency is below ``latency_s``."""

    quantile: float
    latency_s: float

    def __str__(self) -> str:
        """Return the text of reports: ``p99 < 20 ms``."""
        return f"{self.percentile} < {1e3 * self.latency_s:,.12g}{NO_BREAK}ms"

    @property
    def percentile(self) -> str:
        """The name of the quantile: ``p99``."""
        return f"p{100 * self.quantile:.6g}"

    @property
    def transactions_min(self) -> int:
        """Minimum number of transactions that decides whether the limit is met."""
        return round(BEYOND_MIN / (1 - self.quantile))


def parse_limit(text: str) -> LatencyLimit:
    """Parse ``p99 < 20ms``. Raises UsageError."""
    match = _LIMIT.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a latency limit; for example: p99 < 20ms")
    if re.fullmatch(r"[\d.]+", match[2].strip()):
        raise UsageError(
            f"{text!r} has no unit of time: write, for example, p{match[1]} < {match[2].strip()}ms"
        )
    limit = LatencyLimit(float(match[1]) / 100, parse_duration_s(match[2]))
    if not 0 < limit.quantile < 1 or limit.latency_s <= 0:
        raise UsageError(f"{text!r} is not a latency limit; for example: p99 < 20ms")
    if limit.transactions_min > TRANSACTIONS_MAX:
        raise UsageError(
            f"{text!r} needs {limit.transactions_min} transactions at every rate, too many for a step of the "
            "search: use a lower percentile, for example p99.99"
        )
    return limit


RESOLUTION = 1.05
"""Ratio of the loads at the ends of the last bracket of a capacity search."""

By = Literal["rate", "clients"]
"""Load that a capacity search varies: the rate of an open loop, or the clients of a closed loop."""


@dataclass(frozen=True)
class SearchStep:
    """A step of a capacity search. ``latency_ms`` is the quantile of the limit, infinite with too many
    unanswered transactions: null in JSON. With ``clients``, ``rate_per_s`` is their measured throughput."""

    rate_per_s: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    latency_ms: Annotated[
        float,
        Field(ge=0),
        BeforeValidator(lambda stored: math.inf if stored is None else stored),
        PlainSerializer(lambda latency_ms: None if math.isinf(latency_ms) else latency_ms),
    ]
    clients: Annotated[int, Field(ge=1)] | None = None

    @model_serializer(mode="wrap")
    def _known(self, as_json: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in as_json(self).items() if (key, value) != ("clients", None)}

    @property
    def load(self) -> float:
        """The load that the search varies: clients, or transactions per second."""
        return self.rate_per_s if self.clients is None else self.clients


def bracket(tried: Sequence[SearchStep], limit: LatencyLimit) -> tuple[SearchStep | None, SearchStep | None]:
    """Return the lowest step that exceeds the limit, preceded by the highest step below it that meets it."""
    limit_ms = 1e3 * limit.latency_s
    steps = medians(tried)
    missed = [step for step in steps if step.latency_ms >= limit_ms]
    high = min(missed, key=lambda step: step.load, default=None)
    kept = [step for step in steps if step.latency_ms < limit_ms and (high is None or step.load < high.load)]
    return max(kept, key=lambda step: step.load, default=None), high


def medians(tried: Sequence[SearchStep]) -> list[SearchStep]:
    """Return a step for each load, with the medians of the latencies and rates of its steps."""
    found: dict[float, list[SearchStep]] = {}
    for step in tried:
        found.setdefault(step.load, []).append(step)
    return [
        SearchStep(
            statistics.median(step.rate_per_s for step in steps),
            statistics.median(step.latency_ms for step in steps),
            steps[0].clients,
        )
        for steps in found.values()
    ]


def capacity(tried: Sequence[SearchStep], limit: LatencyLimit) -> float | None:
    """Return the capacity, a rate or a number of clients; None if no step, or every step, meets the limit."""
    low, high = bracket(tried, limit)
    if low is None or high is None:
        return None
    logs = [math.log(step.latency_ms) for step in (low, high)]
    return crossing([low.load, high.load], logs, math.log(1e3 * limit.latency_s))


def crossing(rates: Sequence[float], logs: Sequence[float], aim: float) -> float:
    """Return the rate at which ln latency first reaches ``aim``; ``rates`` ascend.

    Returns 0 if the first rate reaches it, and infinity if none does. Between a rate with finite and one with
    infinite latency, returns the geometric mean.
    """
    for i, latency in enumerate(logs):
        if latency >= aim:
            if i == 0:
                return 0.0
            share = 0.5 if math.isinf(latency) else (aim - logs[i - 1]) / (latency - logs[i - 1])
            return rates[i - 1] * math.pow(rates[i] / rates[i - 1], share)
    return math.inf


def _limit(given: Any) -> str:
    try:
        parse_limit(str(given))
    except UsageError as error:
        raise ValueError(str(error)) from None
    return str(given)


Limit = Annotated[str, BeforeValidator(_limit)]
"""Latency limit, parsed by ``parse_limit``."""


def level_name(value: Scalar) -> str:
    """Return the name of a level without a name of its own: its value, as in ``8``, ``true``, ``12.4``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.12g}" if isinstance(value, float) else str(value)


class Level(BaseModel, frozen=True, extra="forbid"):
    """One value of a factor, and its name in arms, cases, exclusions and published tables."""

    name: str
    value: Any
    place: str | int  # its key or index in the file


def levels_of(given: Any) -> tuple[Level, ...]:
    """Return the levels of a list of values, also as ``levels`` of a table, or a table of named values.

    Raises ValueError.
    """
    if isinstance(given, Mapping) and set(given) == {"levels"} and isinstance(given["levels"], tuple):
        given = given["levels"]  # a table of its own, [factors.NAME]
    if isinstance(given, tuple) and given:
        if any(not isinstance(value, Scalar) for value in given):
            raise ValueError("must be plain values; for other values use a table of named levels")
        levels = [
            Level(name=level_name(value), value=value, place=place) for place, value in enumerate(given)
        ]
    elif isinstance(given, Mapping) and given:
        levels = [Level(name=name, value=value, place=name) for name, value in given.items()]
    else:
        raise ValueError("must be a list of levels or a table of named levels")
    names = [level.name for level in levels]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"has the level {sorted(twice)[0]} twice")
    for level in levels:
        name = level.name
        if not 0 < len(name) <= NAME_LENGTH_MAX or "," in name or "\n" in name or name != name.strip():
            # The message omits the name: a connection string may contain a password.
            raise ValueError(
                f"level {level.place} requires a name of 1 to {NAME_LENGTH_MAX} characters without a comma: "
                "make the levels a table, NAME = VALUE"
            )
    return tuple(levels)


def levels_as_written(levels: tuple[Level, ...]) -> list[Any] | dict[str, Any]:
    """Return the levels as written in a file: the inverse of ``levels_of``."""
    if all(level.place != level.name for level in levels):
        return [level.value for level in levels]
    return {level.name: level.value for level in levels}


class Settings(StudyTable):
    """Settings of an arm: profiles, and single settings that override them, as further keys of the table.

    Settings of an extension have a dot: ``pg_stat_statements.track = "all"``, with or without quotes.
    """

    about: str = Field(default="", description="Description of this set of settings.")
    profiles: tuple[str, ...] = Field(
        default=(),
        description="Profiles of `pgdyno settings`, and settings files: names with a dot or a slash, "
        "relative to the study file. Later ones override earlier ones.",
    )
    optional: tuple[str, ...] = Field(
        default=(), description="Settings that are omitted for versions that do not have them."
    )
    values: Mapping[str, str] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _others_are_settings(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            raise ValueError("must be a table of settings")
        own = {key: frozen(given[key]) for key in ("about", "profiles", "optional") if key in given}
        values = {name: text for name, text in _settings(given, "") if name not in own}
        return {**own, "values": values}

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        own = {"about": self.about, "profiles": list(self.profiles), "optional": list(self.optional)}
        return {**{key: value for key, value in own.items() if value}, **self.values}

    def over(self, base: Settings) -> Settings:
        """Return these settings, overriding ``base``."""
        return Settings.model_construct(
            about=self.about or base.about,
            profiles=(*base.profiles, *(name for name in self.profiles if name not in base.profiles)),
            optional=(*base.optional, *(name for name in self.optional if name not in base.optional)),
            values={**base.values, **self.values},
        )


def _settings(given: Mapping[str, Any], prefix: str) -> list[tuple[str, str]]:
    """Return names and values as text; TOML reads names with dots as nested tables."""
    found = []
    for key, value in given.items():
        name = f"{prefix}{key}".lower()
        if isinstance(value, bool):
            found.append((name, "on" if value else "off"))
        elif isinstance(value, str | int | float):
            found.append((name, level_name(value)))
        elif isinstance(value, Mapping) and not prefix:
            found += _settings(value, f"{name}.")
        elif name not in ("profiles", "optional"):
            raise ValueError(f"{name} must be a string, a number, true or false")
    return found
