"""Fit of settings that depend on the machine or the window of the source.

Memory and WAL sizes scale with the data, numbers of processes with the cores, and checkpoint_timeout with the
window. Where the ratio to the data or the window makes the question, PostgreSQL's default scales, too: an arm
with default settings then has them as its own.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pgdyno.errors import StudyFileError, UsageError
from pgdyno.study.arm_spec import parse_arm
from pgdyno.study.cases import cases_of, setting_of
from pgdyno.study.fitting.fit_levels import FitChange, Mapped, changed_values, with_levels
from pgdyno.study.forecast_cost import MAX_WAL_SIZE_BYTES, ArmCost, Costs, costs_of
from pgdyno.study.study_file import StudyFile
from pgdyno.study.values import Level, Settings, level_name
from pgdyno.units import DURATION_UNITS_S, SIZE_UNITS_BYTES, format_setting_size, split_quantity

By = Literal["data", "cores", "window"]
KB, MB, GB = 2**10, 2**20, 2**30


@dataclass(frozen=True)
class Rule:
    """Scaling of a setting in bytes, seconds or processes; ``unit`` is that of a number without a unit.

    ``with_default``: an arm without the setting gets the scaled default.
    """

    by: By
    unit: float
    default: float
    least: float
    with_default: bool = False


SHARED_BUFFERS_MIN_BYTES = 2 * MB
"""Minimum of shared_buffers: with fewer pages, clients wait for each other's pinned buffers."""

CHECKPOINT_TIMEOUT_MIN_S = 30.0
"""PostgreSQL's minimum of checkpoint_timeout."""

RULES: Mapping[str, Rule] = {
    "shared_buffers": Rule("data", 8 * KB, 128 * MB, SHARED_BUFFERS_MIN_BYTES, with_default=True),
    "effective_cache_size": Rule("data", 8 * KB, 4 * GB, MB, with_default=True),
    "maintenance_work_mem": Rule("data", KB, 64 * MB, MB, with_default=True),
    "autovacuum_work_mem": Rule("data", KB, 64 * MB, MB),
    "work_mem": Rule("data", KB, 4 * MB, 64 * KB),
    "temp_buffers": Rule("data", 8 * KB, 8 * MB, 800 * KB),
    "wal_buffers": Rule("data", 8 * KB, 16 * MB, 32 * KB),
    "max_wal_size": Rule("data", MB, MAX_WAL_SIZE_BYTES, 32 * MB, with_default=True),
    "min_wal_size": Rule("data", MB, 80 * MB, 32 * MB),
    "max_worker_processes": Rule("cores", 1, 8, 1),
    "max_parallel_workers": Rule("cores", 1, 8, 1),
    "max_parallel_workers_per_gather": Rule("cores", 1, 2, 1),
    "max_parallel_maintenance_workers": Rule("cores", 1, 2, 1),
    "checkpoint_timeout": Rule("window", 1.0, 300, CHECKPOINT_TIMEOUT_MIN_S, with_default=True),
}
"""Rules by setting. Defaults are those of all PostgreSQL versions (wal_buffers: the automatic maximum)."""

KEPT_IF_CONTRASTED = frozenset({"work_mem", "temp_buffers", "autovacuum_work_mem", "min_wal_size"})
"""Sizes that are kept if they are a treatment: what they limit depends on a query or on the WAL, and scaled
values would fall to the minimum of all arms."""

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

    ``contrasted``: arms differ in the setting (``contrasted_of``), and it is a treatment. If the default does
    not scale, it is kept or does not cross the default.
    """
    rule = RULES[name]
    if factor == 1:
        return value
    if not rule.with_default:
        if value == rule.default and (contrasted or rule.by != "cores"):
            return value
        if contrasted and name in KEPT_IF_CONTRASTED:
            return value
    wanted = value * factor
    if contrasted and not rule.with_default and (wanted > rule.default) != (value > rule.default):
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
    names = ("max_wal_size", "min_wal_size")
    values = {name: quantity(name, arm.settings.get(name, "")) or RULES[name].default for name in names}
    return round(max(scaled(name, of, factor, contrasted=name in contrasted) for name, of in values.items()))


def contrasted_of(costs: Costs) -> frozenset[str]:
    """Return the settings that have PostgreSQL's default in some arms, and another value in others.

    Those of KEPT_IF_CONTRASTED need no arm with the default.
    """
    arms = [arm for case in costs for arm in case if not arm.has_profile]
    found = set()
    for name in RULES:
        texts = {arm.settings.get(name) for arm in arms}
        values = {RULES[name].default if text is None else quantity(name, text) for text in texts}
        if len(texts) > 1 and RULES[name].default in values:
            found.add(name)
        if len(values) > 1 and name in KEPT_IF_CONTRASTED:
            found.add(name)
    return frozenset(found)


def smallest(costs: Costs, name: str) -> float | None:
    """Return the smallest value of a setting over the arms; None if a profile determines all."""
    arms = [arm for case in costs for arm in case if name in arm.settings or not arm.has_profile]
    values = [quantity(name, arm.settings.get(name, "")) or RULES[name].default for arm in arms]
    return min(values, default=None)


def fit_settings(
    file: StudyFile, scales: Scales, contrasted: Collection[str]
) -> tuple[StudyFile, list[FitChange]]:
    """Return the file with scaled settings: those of all arms, and those of each level."""
    changes: list[FitChange] = []
    before = file
    file = _with_defaults(file, scales)
    values = _scaled_values(file.settings.values, scales, contrasted, "settings", changes)
    file = _with_values(file, values)
    if "settings" in file.factors:
        levels = [_scaled_level(level, scales, contrasted, changes) for level in file.factors["settings"]]
        if tuple(levels) != file.factors["settings"]:
            names = [level.name for level in file.factors["settings"]]
            mapped = Mapped(tuple(levels), dict(zip(names, (level.name for level in levels), strict=True)))
            file = with_levels(file, "settings", mapped)
    for factor in file.factors:
        if setting_of(factor) in RULES:
            file = with_levels(file, factor, _scaled_factor(file, factor, scales, contrasted, changes))
    return _with_wal_buffers(before, file, changes), changes


def _with_defaults(file: StudyFile, scales: Scales) -> StudyFile:
    """Return the file with those of PostgreSQL's defaults that scale as settings of all arms.

    An arm's own setting overrides them. Running servers take no settings, and values of profiles are unknown.
    """
    arms = [arm for case in costs_of(cases_of(file)) for arm in case]
    if any(arm.is_dsn or arm.has_profile for arm in arms):
        return file
    given = file.settings.values.keys() | {setting_of(factor) for factor in file.factors}
    added = {
        name: written(name, rule.default)
        for name, rule in RULES.items()
        if rule.with_default
        and name not in given
        and scaled(name, rule.default, scales.of(rule.by), contrasted=False) != rule.default
    }
    return _with_values(file, {**file.settings.values, **added})


def _with_values(file: StudyFile, values: Mapping[str, str]) -> StudyFile:
    if values == file.settings.values:
        return file
    settings = Settings.model_construct(**{**dict(file.settings), "values": values})
    return file.model_copy(update={"settings": settings})


def _has_profile(level: Level) -> bool:
    if isinstance(level.value, Mapping):
        return bool(level.value.get("profiles"))
    return "@" in str(level.value)


WAL_BUFFERS_SHARE = 1 / 32
"""Share of shared_buffers that PostgreSQL uses as WAL buffers by default, up to a default WAL segment."""


def _with_wal_buffers(before: StudyFile, after: StudyFile, changes: list[FitChange]) -> StudyFile:
    """Return the file with the automatic wal_buffers of the source, which follow from shared_buffers.

    The WAL of a transaction does not depend on the size of the data.
    """
    if "wal_buffers" in before.settings.values or before.settings.profiles:
        return after
    levels = after.factors.get("settings", ())
    why = "automatic value at the source"
    if SHARED_BUFFERS_FACTOR in before.factors:
        return _with_wal_buffers_of_all(before, after, changes)
    if not levels:
        was, now = (_automatic_wal_buffers(of.settings.values) for of in (before, after))
        if was != now:
            changes.append(FitChange("settings.wal_buffers", now, was, why))
            return _with_values(after, {**after.settings.values, "wal_buffers": was})
        return after
    given = []
    for then, level in zip(before.factors["settings"], levels, strict=True):
        is_own = not isinstance(level.value, Mapping) or _has_profile(level) or "wal_buffers" in level.value
        pair = ((before, then), (after, level))
        was, now = (_automatic_wal_buffers({**file.settings.values, **_texts(of)}) for file, of in pair)
        if not is_own and was != now:
            changes.append(FitChange(f"factors.settings.{level.name}.wal_buffers", now, was, why))
            given.append(level.model_copy(update={"value": {**level.value, "wal_buffers": was}}))
        else:
            given.append(level)
    if tuple(given) == levels:
        return after
    names = [level.name for level in levels]
    return with_levels(after, "settings", Mapped(tuple(given), dict(zip(names, names, strict=True))))


SHARED_BUFFERS_FACTOR = "settings.shared_buffers"


def _with_wal_buffers_of_all(before: StudyFile, after: StudyFile, changes: list[FitChange]) -> StudyFile:
    """Return the file with the automatic wal_buffers of the source if all levels of shared_buffers have one.

    Levels of a single setting have no other settings, so different values are reported only.
    """
    was, now = (
        [
            _automatic_wal_buffers({"shared_buffers": level_name(level.value)})
            for level in file.factors[SHARED_BUFFERS_FACTOR]
        ]
        for file in (before, after)
    )
    given = {name for level in before.factors.get("settings", ()) for name in _texts(level)}
    if was == now or "settings.wal_buffers" in before.factors or "wal_buffers" in given:
        return after
    key = "settings.wal_buffers"
    if len(set(was)) > 1:
        why = "automatic value of each level of shared_buffers, which has no other settings"
        changes.append(FitChange(key, ", ".join(was), ", ".join(now), why))
        return after
    changes.append(FitChange(key, ", ".join(now), was[0], "automatic value at the source"))
    return _with_values(after, {**after.settings.values, "wal_buffers": was[0]})


def _automatic_wal_buffers(values: Mapping[str, str]) -> str:
    buffers = quantity("shared_buffers", values.get("shared_buffers", ""))
    size = (buffers or RULES["shared_buffers"].default) * WAL_BUFFERS_SHARE
    return format_setting_size(
        int(min(RULES["wal_buffers"].default, max(64 * KB, size))) // (8 * KB) * 8 * KB
    )


def _texts(level: Level) -> dict[str, str]:
    if not isinstance(level.value, Mapping):
        return {}
    return {key.lower(): level_name(value) for key, value in level.value.items() if _is_scaled(key, value)}


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
    text = arm.settings.get("shared_buffers", "")
    value = quantity("shared_buffers", text) or RULES["shared_buffers"].default
    return int(scaled("shared_buffers", value, factor, contrasted="shared_buffers" in contrasted))
