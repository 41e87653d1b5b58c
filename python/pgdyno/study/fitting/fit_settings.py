"""Fit of settings that depend on the machine or the window of the source.

Memory and WAL sizes scale with the data, numbers of processes with the cores, and checkpoint_timeout with the
window. A size or time equal to PostgreSQL's default was not chosen for a machine, and is kept.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pgdyno.errors import StudyFileError, UsageError
from pgdyno.study.arm_spec import parse_arm
from pgdyno.study.cases import setting_of
from pgdyno.study.fitting.fit_levels import FitChange, Mapped, changed_values, with_levels
from pgdyno.study.forecast_cost import MAX_WAL_SIZE_BYTES, ArmCost, Costs
from pgdyno.study.study_file import StudyFile
from pgdyno.study.values import Level, Settings, level_name
from pgdyno.units import DURATION_UNITS_S, SIZE_UNITS_BYTES, format_setting_size, split_quantity

By = Literal["data", "cores", "window"]
KB, MB, GB = 2**10, 2**20, 2**30


@dataclass(frozen=True)
class Rule:
    """Scaling of a setting in bytes, seconds or processes; ``unit`` is that of a number without a unit."""

    by: By
    unit: float
    default: float
    least: float


SHARED_BUFFERS_MIN_BYTES = 32 * MB
"""Minimum of shared_buffers: with fewer pages, contention for buffers changes the experiment."""

CHECKPOINT_TIMEOUT_MIN_S = 30.0
"""PostgreSQL's minimum of checkpoint_timeout."""

RULES: Mapping[str, Rule] = {
    "shared_buffers": Rule("data", 8 * KB, 128 * MB, SHARED_BUFFERS_MIN_BYTES),
    "effective_cache_size": Rule("data", 8 * KB, 4 * GB, 8 * MB),
    "maintenance_work_mem": Rule("data", KB, 64 * MB, MB),
    "autovacuum_work_mem": Rule("data", KB, 64 * MB, MB),
    "work_mem": Rule("data", KB, 4 * MB, 64 * KB),
    "temp_buffers": Rule("data", 8 * KB, 8 * MB, 800 * KB),
    "wal_buffers": Rule("data", 8 * KB, 16 * MB, 32 * KB),
    "max_wal_size": Rule("data", MB, MAX_WAL_SIZE_BYTES, 128 * MB),
    "min_wal_size": Rule("data", MB, 80 * MB, 32 * MB),
    "max_worker_processes": Rule("cores", 1, 8, 1),
    "max_parallel_workers": Rule("cores", 1, 8, 1),
    "max_parallel_workers_per_gather": Rule("cores", 1, 2, 1),
    "max_parallel_maintenance_workers": Rule("cores", 1, 2, 1),
    "checkpoint_timeout": Rule("window", 1.0, 300, CHECKPOINT_TIMEOUT_MIN_S),
}
"""Rules by setting. Defaults are those of all PostgreSQL versions (wal_buffers: the automatic maximum)."""

WHOLE_MB_FROM = 16 * MB
"""Smaller sizes are rounded to 8 kB instead of 1 MB."""


@dataclass(frozen=True)
class Scales:
    """Ratios of this machine and run to the source."""

    data: float
    cores: float
    window: float

    def of(self, by: By) -> float:
        """Return the ratio for a rule."""
        return {"data": self.data, "cores": self.cores, "window": self.window}[by]


def quantity(name: str, text: str) -> float | None:
    """Return a setting with a rule in bytes, seconds or processes; None for -1, 0 or an invalid value."""
    try:
        number, unit = split_quantity(text)
    except ValueError:
        return None
    units: Mapping[str, float] = {**SIZE_UNITS_BYTES, **DURATION_UNITS_S}
    factor = RULES[name].unit if not unit else units.get(unit)
    if factor is None or not 0 < number * factor < math.inf:
        return None
    return number * factor


def scaled(name: str, value: float, factor: float, *, contrasted: bool) -> float:
    """Return the value multiplied by the factor, rounded, and not below the minimum of its rule.

    ``contrasted``: other arms have the default. The value then does not cross the default, so that the tuned
    server does not become the smaller one; a time that would cross it is kept.
    """
    rule = RULES[name]
    if factor == 1 or (value == rule.default and (contrasted or rule.by != "cores")):
        return value
    wanted = value * factor
    if contrasted and (wanted > rule.default) != (value > rule.default):
        if rule.by == "window":
            return value
        wanted = rule.default
    return _rounded(rule, max(wanted, min(rule.least, value)))


def _rounded(rule: Rule, value: float) -> float:
    if rule.by != "data":
        return float(max(1, int(value + 0.5)))
    step = MB if value >= WHOLE_MB_FROM or rule.unit == MB else 8 * KB
    return float(max(1, int(value / step + 0.5)) * step)


def written(name: str, value: float) -> str:
    """Return the value in the notation of PostgreSQL."""
    match RULES[name].by:
        case "data":
            return format_setting_size(int(value))
        case "window":
            seconds = int(value)
            return f"{seconds // 60}min" if seconds % 60 == 0 else f"{seconds}s"
        case _:
            return str(int(value))


def wal_bytes(arm: ArmCost, factor: float, contrasted: Collection[str]) -> int:
    """Return the WAL size of a server at a factor of the data."""
    value = quantity("max_wal_size", arm.settings.get("max_wal_size", ""))
    if value is None:
        return MAX_WAL_SIZE_BYTES
    return round(scaled("max_wal_size", value, factor, contrasted="max_wal_size" in contrasted))


def contrasted_of(costs: Costs) -> frozenset[str]:
    """Return the settings that have PostgreSQL's default in some arms, and another value in others."""
    arms = [arm for case in costs for arm in case if not arm.has_profile]
    found = set()
    for name in RULES:
        texts = {arm.settings.get(name) for arm in arms}
        at_default = {text is None or quantity(name, text) == RULES[name].default for text in texts}
        if len(texts) > 1 and True in at_default:
            found.add(name)
    return frozenset(found)


def smallest(costs: Costs, name: str) -> float | None:
    """Return the smallest value of a setting over the arms that set it."""
    values = [quantity(name, arm.settings[name]) for case in costs for arm in case if name in arm.settings]
    return min((value for value in values if value is not None), default=None)


def fit_settings(
    file: StudyFile, scales: Scales, contrasted: Collection[str]
) -> tuple[StudyFile, list[FitChange]]:
    """Return the file with scaled settings: those of all arms, and those of each level."""
    changes: list[FitChange] = []
    values = _scaled_values(file.settings.values, scales, contrasted, "settings", changes)
    if values != file.settings.values:
        settings = Settings.model_construct(**{**dict(file.settings), "values": values})
        file = file.model_copy(update={"settings": settings})
    if "settings" in file.factors:
        levels = [_scaled_level(level, scales, contrasted, changes) for level in file.factors["settings"]]
        if tuple(levels) != file.factors["settings"]:
            names = [level.name for level in file.factors["settings"]]
            mapped = Mapped(tuple(levels), dict(zip(names, (level.name for level in levels), strict=True)))
            file = with_levels(file, "settings", mapped)
    for factor in file.factors:
        if setting_of(factor) in RULES:
            file = with_levels(file, factor, _scaled_factor(file, factor, scales, contrasted, changes))
    return file, changes


def _scaled_factor(
    file: StudyFile, factor: str, scales: Scales, contrasted: Collection[str], changes: list[FitChange]
) -> Mapped:
    """Return the scaled levels of a factor that is a single setting. Raises StudyFileError if two are equal.

    Equal levels would remove the factor from the study.
    """
    setting, found = setting_of(factor), list[FitChange]()

    def scaled_level(value: Any) -> Any:
        given = {setting: level_name(value)}
        text = _scaled_values(given, scales, contrasted, "factors.settings", found)[setting]
        return value if text == given[setting] else text

    mapped = changed_values(file.factors[factor], scaled_level)
    if len(mapped.levels) < len(file.factors[factor]):
        left = ", ".join(level.name for level in mapped.levels)
        message = f"--fit would leave the levels {left} only: remove levels that are close, or --fit"
        raise StudyFileError(("factors", factor), message)
    changes += found
    return mapped


def _scaled_level(
    level: Level, scales: Scales, contrasted: Collection[str], changes: list[FitChange]
) -> Level:
    """Return a level with scaled settings: a table, or text as on the command line, which is also its
    name."""
    path = f"factors.settings.{level.name}"
    if isinstance(level.value, str):
        try:
            spec = parse_arm(f"any,{level.value}")
        except UsageError:
            return level
        values = _scaled_values(spec.settings, scales, contrasted, path, changes)
        if values == spec.settings:
            return level
        parts = [f"@{name}" for name in spec.profiles] + [f"{name}={value}" for name, value in values.items()]
        text = ",".join(parts)
        return level.model_copy(
            update={"name": text if level.name == level.value else level.name, "value": text}
        )
    if not isinstance(level.value, Mapping):
        return level
    given = {key: value for key, value in level.value.items() if _is_scaled(key, value)}
    texts = {key.lower(): level_name(value) for key, value in given.items()}
    values = _scaled_values(texts, scales, contrasted, path, changes)
    changed = {key: values[key.lower()] for key in given if values[key.lower()] != texts[key.lower()]}
    return level.model_copy(update={"value": {**level.value, **changed}}) if changed else level


def _is_scaled(key: str, value: Any) -> bool:
    return key.lower() in RULES and isinstance(value, str | int | float) and not isinstance(value, bool)


def _scaled_values(
    values: Mapping[str, str],
    scales: Scales,
    contrasted: Collection[str],
    path: str,
    changes: list[FitChange],
) -> dict[str, str]:
    fitted = dict(values)
    for name, value in _quantities(values):
        rule = RULES[name]
        factor = scales.of(rule.by)
        found = scaled(name, value, factor, contrasted=name in contrasted)
        if found != value:
            fitted[name] = written(name, found)
            why = _why(rule, value, factor, found, contrasted=name in contrasted)
            changes.append(FitChange(f"{path}.{name}", values[name], fitted[name], why))
    return fitted


def _quantities(values: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    for name, text in values.items():
        if name in RULES and (value := quantity(name, text)) is not None:
            yield name, value


SHARES: Mapping[By, str] = {
    "data": "same share of the data as at the source",
    "cores": "same number per core as at the source",
    "window": "same number of checkpoints per window as at the source",
}


def _why(rule: Rule, value: float, factor: float, found: float, *, contrasted: bool) -> str:
    if contrasted and found == rule.default:
        return "limited to PostgreSQL's default, which other arms have; the source's share cannot be kept"
    if found > value * factor * 1.5 and rule.least <= found <= rule.least + 1:
        return f"practical minimum; {SHARES[rule.by]} would be less"
    return SHARES[rule.by]


def shared_buffers_bytes(arm: ArmCost, factor: float, contrasted: Collection[str]) -> int:
    """Return the shared buffers of a server at a factor of the data; PostgreSQL's default if not set."""
    value = quantity("shared_buffers", arm.settings.get("shared_buffers", ""))
    if value is None:
        return int(RULES["shared_buffers"].default)
    return int(scaled("shared_buffers", value, factor, contrasted="shared_buffers" in contrasted))
