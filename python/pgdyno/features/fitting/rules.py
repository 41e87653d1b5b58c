"""Rules of a fit: data, schedule and settings.

- Fit of settings that depend on the machine or the window of the source.
- Fit of the data size: one factor for all data, and for settings that are shares of the data.
- Fit of clients, threads and rates to the cores, and of blocks, windows and warm-ups to the time budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from pgdyno.errors import StudyFileError, UsageError
from pgdyno.features.fitting.levels import (
    RATIO_MAX,
    REPORTED,
    FitChange,
    Mapped,
    changed_values,
    ratio_changes,
    value_changes,
    with_levels,
)
from pgdyno.features.planning.cost import (
    WAL_SIZES_BYTES,
    ArmCost,
    Costs,
    arms_of,
    costs_of,
    data_s,
    disk_bytes,
    load_s,
    pass_s,
    quantity_of,
    transactions_per_s,
    units_at,
)
from pgdyno.study.arm_spec import parse_arm
from pgdyno.study.cases import cases_of, setting_of
from pgdyno.study.defaults import (
    PER_GENERATOR,
    SHARED_MEMORY_SHARE_MAX,
    SLICE_S,
    WINDOW_S,
    WINDOW_SHARE_MIN,
    MachineSize,
    Schedule,
)
from pgdyno.study.plan import BLOCKS_TARGET, SAME_BLOCKS_MIN, VERDICT_BLOCKS_MIN, Study
from pgdyno.study.study_file import Run, StudyFile
from pgdyno.study.values import Level, Settings, level_name
from pgdyno.study.workload_parameters import parameters_by_kind
from pgdyno.units import format_duration, format_setting_size, format_size

# ----------------------------------------------------------------------
# Fit of settings that depend on the machine or the window of the source.
#
# Memory and WAL sizes scale with the data, numbers of processes with the cores, and checkpoint_timeout with
# the window. Where the ratio to the data or the window makes the question, PostgreSQL's default scales, too:
# an arm with default settings then has them as its own.
# ----------------------------------------------------------------------


@dataclass(frozen=True)
class FitMachine(MachineSize):
    """Machine to which a study is fitted: available cores, memory, and free space on the disk of the data."""

    disk_free_bytes: int


@dataclass(frozen=True)
class FitTask:
    """Task of a fit. ``cores`` and ``memory`` are ratios of this machine to the source."""

    machine: FitMachine
    minutes: float
    cores: float
    memory: float
    contrasted: frozenset[str]
    is_from_elsewhere: bool  # the file names the machine of its numbers; else they are for this one
    is_settled: bool  # the file is already fitted to this machine; only the disk can make its data smaller
    asks: bool = False  # data and windows are large enough to keep the question of the source

    @property
    def time_s(self) -> float:
        """Time budget in seconds."""
        return 60 * self.minutes


By = Literal["data", "cores", "window"]
KB, MB, GB = 2**10, 2**20, 2**30


Value = TypeVar("Value")


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
    "max_wal_size": Rule("data", MB, WAL_SIZES_BYTES["max_wal_size"], 32 * MB, with_default=True),
    "min_wal_size": Rule("data", MB, WAL_SIZES_BYTES["min_wal_size"], 32 * MB),
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
    return quantity_of(text, RULES[name].unit)


def value_or_default(settings: Mapping[str, str], name: str) -> float:
    """Return a setting with a rule in bytes, seconds or processes; PostgreSQL's default if it is not set."""
    return quantity(name, settings.get(name, "")) or RULES[name].default


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
    values = {name: value_or_default(arm.settings, name) for name in WAL_SIZES_BYTES}
    return round(max(scaled(name, of, factor, contrasted=name in contrasted) for name, of in values.items()))


def contrasted_of(costs: Costs) -> frozenset[str]:
    """Return the settings that have PostgreSQL's default in some arms, and another value in others.

    Those of KEPT_IF_CONTRASTED need no arm with the default.
    """
    arms = [arm for arm in arms_of(costs) if not arm.has_profile]
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
    arms = [arm for arm in arms_of(costs) if name in arm.settings or not arm.has_profile]
    return min((value_or_default(arm.settings, name) for arm in arms), default=None)


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
            file = _with_settings(file, levels)
    for factor in file.factors:
        if setting_of(factor) in RULES:
            file = with_levels(file, factor, _scaled_factor(file, factor, scales, contrasted, changes))
    return _with_wal_buffers(before, file, changes), changes


def _with_defaults(file: StudyFile, scales: Scales) -> StudyFile:
    """Return the file with those of PostgreSQL's defaults that scale as settings of all arms.

    An arm's own setting overrides them. Running servers take no settings, and values of profiles are unknown.
    """
    arms = arms_of(costs_of(cases_of(file)))
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
    levels = after.factors.get("settings", ())
    if "wal_buffers" in before.settings.values or before.settings.profiles:
        return after
    if not levels or SHARED_BUFFERS_FACTOR in before.factors:
        return _with_wal_buffers_of_all(before, after, changes)
    given = []
    for then, level in zip(before.factors["settings"], levels, strict=True):
        is_own = not isinstance(level.value, Mapping) or _has_profile(level) or "wal_buffers" in level.value
        pair = ((before, then), (after, level))
        was, now = (_automatic_wal_buffers({**file.settings.values, **_texts(of)}) for file, of in pair)
        if not is_own and was != now:
            key = f"factors.settings.{level.name}.wal_buffers"
            changes.append(FitChange(key, now, was, AUTOMATIC))
            value = {**level.value, "wal_buffers": was}
            given.append(level.model_copy(update={"value": value}))
        else:
            given.append(level)
    return after if tuple(given) == levels else _with_settings(after, given)


AUTOMATIC = "automatic value at the source"

SHARED_BUFFERS_FACTOR = "settings.shared_buffers"


def _with_wal_buffers_of_all(before: StudyFile, after: StudyFile, changes: list[FitChange]) -> StudyFile:
    """Return the file with the automatic wal_buffers of the source if all arms have the same.

    Levels of a single setting have no other settings, so different values are reported only.
    """
    was, now = (
        [
            _automatic_wal_buffers({**file.settings.values, **own})
            for own in (
                [{"shared_buffers": level_name(level.value)} for level in file.factors[SHARED_BUFFERS_FACTOR]]
                if SHARED_BUFFERS_FACTOR in file.factors
                else [{}]
            )
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
    changes.append(FitChange(key, ", ".join(now), was[0], AUTOMATIC))
    return _with_values(after, {**after.settings.values, "wal_buffers": was[0]})


def _with_settings(file: StudyFile, levels: Sequence[Level]) -> StudyFile:
    """Return the file with these levels of ``settings``, which may have other names."""
    names = [level.name for level in file.factors["settings"]]
    mapped = Mapped(tuple(levels), dict(zip(names, (level.name for level in levels), strict=True)))
    return with_levels(file, "settings", mapped)


def _automatic_wal_buffers(values: Mapping[str, str]) -> str:
    size = max(64 * KB, value_or_default(values, "shared_buffers") * WAL_BUFFERS_SHARE)
    return format_setting_size(int(min(RULES["wal_buffers"].default, size)) // (8 * KB) * 8 * KB)


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
    value = value_or_default(arm.settings, "shared_buffers")
    return int(scaled("shared_buffers", value, factor, contrasted="shared_buffers" in contrasted))


# ----------------------------------------------------------------------
# Fit of the data size: one factor for all data, and for settings that are shares of the data.
#
# The factor is the ratio of the memories, which keeps data : shared buffers : memory. If the disk, the load
# time or the measurement time allow less, only data : shared buffers is kept.
# ----------------------------------------------------------------------

DISK_SHARE = 0.8
"""Usable share of the free disk space; the rest is for temporary files, logs and the like."""

LOAD_SHARE = 1.0
"""Maximum load time as a share of the time budget. Loading is additional and happens once; the data are
kept."""

LOAD_MIN_S = 120.0
"""Load time that is always allowed, also with a smaller time budget."""

DATA_SHARE = 1 / 3
"""Maximum share of the time for restores and checks, which depend on the data size; the rest is for
measurement."""

UNITS_PER_CLIENT = {"tpcc": 1, "pgbench": 2, "sysbench": 1000, "linkbench": 1000, "insert": 10_000}
"""Minimum warehouses, branches, rows or nodes per client of a writing workload, if the source had them, else
1: with fewer, lock waits change the experiment."""

BISECTIONS = 60


@dataclass(frozen=True)
class Room:
    """Limits of the data size.

    ``study`` is that of any case. ``blocks``: number of blocks of every case whose restores and checks must
    fit DATA_SHARE; None: no limit. ``aa_share``: time of A/A blocks as a share of the other blocks.
    """

    task: FitTask
    study: Study
    growing_s: float
    blocks: int | None
    aa_share: float

    def limits(self, costs: Costs) -> dict[str, Callable[[float], bool]]:
        """Return the limits by name: functions that return True if a factor of the data is allowed."""
        task = self.task

        def wal(arm: ArmCost, factor: float) -> int:
            return wal_bytes(arm, factor if task.is_from_elsewhere else 1.0, task.contrasted)

        def on_disk(factor: float) -> bool:
            needed = disk_bytes(costs, self.growing_s, task.machine.cores, wal, factor)
            return needed <= DISK_SHARE * task.machine.disk_free_bytes

        def loaded(factor: float) -> bool:
            return load_s(costs, factor) <= max(LOAD_MIN_S, LOAD_SHARE * task.time_s)

        def measured(factor: float) -> bool:
            spent_s = 0.0 if self.blocks is None else self.blocks * data_s(costs, self.study, factor)
            return (1 + self.aa_share) * spent_s <= DATA_SHARE * task.time_s

        return {"disk": on_disk, "load": loaded, "time": measured}


@dataclass(frozen=True)
class DataFactor:
    """Factor of the data. ``limit``: reason why it is below the ratio of the memories, or empty."""

    value: float
    limit: str


WHY = {
    "disk": f"datasets, live copies and WAL must fit into {DISK_SHARE:.0%} of the free disk",
    "load": "loading must not take longer than measuring",
    "time": "restores and checks of larger data would take more than a third of the time",
    "floor": "smaller data would cause contention for rows or buffers",
}


def factor_of(costs: Costs, room: Room) -> DataFactor:
    """Return the largest factor within all limits, at most the ratio of the memories.

    Time limits reduce the data at most to ``floor_of``. Raises UsageError if the disk is too small for the
    smallest data.
    """
    limits, task = room.limits(costs), room.task
    found, why = task.memory, ""
    for name in ("load", "time"):
        allowed = found if task.is_settled else _largest(limits[name], found)
        if allowed < found:
            found, why = allowed, WHY[name]
    least = min(task.memory, floor_of(costs, task.asks))
    if found < least:
        found, why = least, f"{why}, but {WHY['floor']}"
    allowed = _largest(limits["disk"], found)
    if allowed < found:
        found, why = allowed, WHY["disk"]
        if not limits["disk"](found):
            raise UsageError(
                f"the disk is too small: {format_size(task.machine.disk_free_bytes)} are free, and the study "
                "needs more even with the smallest data: run pgdyno cache prune, set PGDYNO_CACHE to a "
                "larger disk, or drop levels"
            )
    whole = _whole(costs, found)
    # Equal levels may become different again at the rounded factor, and then need more space.
    return DataFactor(whole if limits["disk"](whole) else found, why)


def _whole(costs: Costs, factor: float) -> float:
    """Return the factor that makes the largest data a whole number of warehouses or branches."""
    largest = max(arm.data.units for arm in arms_of(costs))
    return units_at(largest, factor) / largest


def _largest(allows: Callable[[float], bool], most: float) -> float:
    """Return the largest allowed factor up to ``most``; near 0 if none is allowed."""
    if allows(most):
        return most
    low, high = 0.0, most
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if allows(middle) else (low, middle)
    return low


def floor_of(costs: Costs, keeps_buffers: bool) -> float:
    """Return the factor, at most 1, below which clients contend or shared buffers reach their minimum."""
    factors = [0.0]
    for arm in arms_of(costs):
        wanted = max(1, UNITS_PER_CLIENT.get(arm.data.kind, 1) * arm.clients if arm.writes else 1)
        factors.append(wanted / arm.data.units)
    buffers = smallest(costs, "shared_buffers")
    if keeps_buffers and buffers is not None:
        factors.append(SHARED_BUFFERS_MIN_BYTES / buffers)
    return min(1.0, max(factors))


def fit_data(file: StudyFile, factor: DataFactor) -> tuple[StudyFile, list[FitChange]]:
    """Return the file with its scale multiplied, as a parameter or as a factor. Raises UsageError."""
    name = parameters_by_kind()[str(file.workload["kind"])].SIZE
    why = factor.limit or "same share of memory as at the source"

    def fitted(units: int) -> int:
        return units_at(units, factor.value)

    if name in file.factors:
        return _fit_levels(file, name, fitted, factor.value, why)
    if name not in file.workload:
        raise UsageError(f"a fit requires the size of the data: set {name} in the table workload")
    units = file.workload[name]
    workload = {**file.workload, name: fitted(units)}
    changes = value_changes(f"workload.{name}", units, fitted(units), why)
    return file.model_copy(update={"workload": workload}), changes


def _fit_levels(
    file: StudyFile, name: str, change: Callable[[Any], Any], ratio: float, why: str, if_merged: str = ""
) -> tuple[StudyFile, list[FitChange]]:
    """Return the file with changed levels of a factor, which ``change`` multiplies by about ``ratio``.

    ``if_merged`` follows the reason if levels merged.
    """
    before = file.factors[name]
    mapped = replace(changed_values(before, change), unlike=_unlike(before, change, ratio))
    if [level.value for level in mapped.levels] == [level.value for level in before]:
        return file, []
    then, now = (", ".join(f"{level.value:.15g}" for level in levels) for levels in (before, mapped.levels))
    why += if_merged if len(mapped.levels) < len(before) else ""
    return with_levels(file, name, mapped), [FitChange(f"factors.{name}", then, now, why)]


def _unlike(before: Sequence[Level], change: Callable[[Any], Any], ratio: float) -> frozenset[str]:
    """Return the levels that lose their ratio and merge with others that keep it, within RATIO_MAX.

    One client on two cores is not the source's one client on many.
    """
    new = {level.name: change(level.value) for level in before}
    exact = {level.name: level.value * ratio for level in before}
    like = {name for name, of in exact.items() if of / RATIO_MAX <= new[name] <= of * RATIO_MAX}
    kept = {new[name] for name in like}
    return frozenset(name for name, value in new.items() if name not in like and value in kept)


MEMORY_SHARE_MAX = 0.9
"""Maximum share of memory for shared buffers and data of servers that run at the same time. Each server then
has as much memory as if it ran alone."""


def fit_in_memory_together(
    costs: Costs, factor: float, memory_bytes: int, contrasted: Collection[str]
) -> bool:
    """Return True if all servers of each case fit into memory together."""
    for case in costs:
        shared = sum(shared_buffers_bytes(arm, factor, contrasted) for arm in case)
        data = sum(arm.data.bytes_at(factor) for arm in case)
        if shared > SHARED_MEMORY_SHARE_MAX * memory_bytes or shared + data > MEMORY_SHARE_MAX * memory_bytes:
            return False
    return True


AS_NEAR = "nearest ratio with whole warehouses or branches and the minimum of shared_buffers"


def data_changes(before: Costs, after: Costs, task: FitTask, memory_bytes: int | None) -> Iterator[FitChange]:
    """Yield the changes of data : memory and of data : shared buffers.

    ``memory_bytes`` is the memory of the source; None if unknown.
    """
    sizes = [data_sizes(costs)[-1] for costs in (before, after)]
    if memory_bytes is not None:
        was, now = sizes[0] / memory_bytes, sizes[1] / task.machine.memory_bytes
        fits = "; the largest data now fit in memory, unlike at the source"
        why = f"the memory of the machine is fixed{fits if was > RATIO_MAX and now < 1 else ''}"
        yield from ratio_changes("data : memory", was, now, why, REPORTED)
    buffers = (_buffers(costs, task.contrasted) for costs in (before, after))
    for (is_given, then), (_, here) in paired(*buffers):
        key = f"data : shared_buffers{'' if is_given else ' (default)'}"
        yield from ratio_changes(key, sizes[0] / then, sizes[1] / here, AS_NEAR, REPORTED)


def paired(before: Sequence[Value], after: Sequence[Value]) -> Iterator[tuple[Value, Value]]:
    """Return the values before and after a fit in pairs. Both are ordered; where fewer are left, the first
    ones became equal, because a fit has smallest sizes and times.
    """
    count = min(len(before), len(after))
    return zip(before[len(before) - count :], after[len(after) - count :], strict=True)


def data_sizes(costs: Costs) -> list[float]:
    """Return the sizes of the data of all cases, smallest first, without an empty cluster."""
    return sorted({arm.data.units * arm.data.unit_bytes for arm in arms_of(costs)})


def shared_buffers_of(costs: Costs) -> list[int]:
    """Return the shared buffers of the arms, smallest first."""
    return [size for _, size in _buffers(costs, ())]


def _buffers(costs: Costs, contrasted: Collection[str]) -> list[tuple[bool, int]]:
    """Return the shared buffers of the arms, smallest first, each with True if the arm sets them."""
    arms = (arm for arm in arms_of(costs) if not arm.has_profile)
    found = {("shared_buffers" in arm.settings, shared_buffers_bytes(arm, 1, contrasted)) for arm in arms}
    return sorted(found, key=lambda one: one[1])


# ----------------------------------------------------------------------
# Fit of clients, threads and rates to the cores, and of blocks, windows and warm-ups to the time budget.
# ----------------------------------------------------------------------


def fit_clients(file: StudyFile, cores: float) -> tuple[StudyFile, list[FitChange]]:
    """Scale clients, threads and rates by ``cores``, the ratio to the source. Equal levels merge."""
    changes: list[FitChange] = []
    if cores == 1:
        return file, changes
    why = "same number per core as at the source"
    for name in ("clients", "threads", "rate"):
        scaled = _scaled_by(name, cores)
        fixed = getattr(file.drive, name)
        if fixed is not None:
            changes += value_changes(f"drive.{name}", fixed, scaled(fixed), why, "{:g}".format)
            file = file.model_copy(update={"drive": file.drive.model_copy(update={name: scaled(fixed)})})
        if name in file.factors:
            file, found = _fit_levels(file, name, scaled, cores, why, "; equal levels merged")
            changes += found
    return file, changes


def _scaled_by(name: str, cores: float) -> Callable[[Any], Any]:
    def whole(number: int) -> int:
        return min(PER_GENERATOR[name], max(1, int(number * cores + 0.5)))

    def rate(number: float) -> float:
        return float(f"{number * cores:.3g}")

    return rate if name == "rate" else whole


BLOCKS_MIN = 2
"""Minimum number of blocks: one block has no SD."""

DRIVEN_SHARE = 0.5
"""Minimum share of load in the time with more than VERDICT_BLOCKS_MIN blocks, because each block needs a
restore."""

WINDOW_MIN_S = 10.0
"""Minimum window of a trial without slices: connections, caches and the first WAL files settle in seconds."""

SLICES_MIN = 4
SLICES_MIN_S = 4.0
"""Minimum number and time of slices per arm and block: two rounds and their mirror images."""

WARMUP_MIN_S = 2.0

CHECKPOINTS_MIN = 2.0
"""Timed checkpoints of a window, of which the first one is complete. A window of a source with more of them
has at least this number."""

CHECKPOINT_WINDOW_S = CHECKPOINTS_MIN * CHECKPOINT_TIMEOUT_MIN_S


@dataclass(frozen=True)
class RequestedLengths:
    """Lengths in the file, and the available time. ``slice_s`` is None for trials without slices.

    ``least_s`` is the minimum window of the file; ``aa_share`` is the time of A/A blocks as a share of the
    other blocks; ``may_be_same``: the study stops on its verdict, so *same* needs SAME_BLOCKS_MIN.
    """

    time_s: float
    turns: int  # trials of one block of every case that run one after another
    fixed_s: float  # time of these trials without load
    window_s: float
    warmup_s: float
    slice_s: float | None
    blocks_max: int | None
    least_s: float = 0.0
    aa_share: float = 0.0
    may_be_same: bool = True

    @property
    def window_min_s(self) -> float:
        """Minimum window, at most that of the file; with slices, an even number of them."""
        if self.slice_s is None:
            return min(self.window_s, max(WINDOW_MIN_S, self.least_s))
        pairs = math.ceil(max(SLICES_MIN, max(SLICES_MIN_S, self.least_s) / self.slice_s) / 2)
        return min(self.window_s, 2 * pairs * self.slice_s)

    @property
    def window_max_s(self) -> float:
        """Maximum window: that of the file; with slices WINDOW_S, because many short blocks decide sooner."""
        if self.slice_s is None:
            return self.window_s
        pair_s = 2 * self.slice_s
        return min(self.window_s, max(self.window_min_s, pair_s * round(WINDOW_S / pair_s)))

    def pass_s(self, window_s: float) -> float:
        """Return the time of one block of every case with this window."""
        return (1 + self.aa_share) * (self.fixed_s + self.driven_s(window_s))

    def driven_s(self, window_s: float) -> float:
        """Return the load time of one block of every case, without A/A blocks."""
        return self.turns * (window_s + self.warmup_of(window_s))

    def warmup_of(self, window_s: float) -> float:
        """Return the warm-up with the file's share of the window, in whole seconds, at least WARMUP_MIN_S."""
        if window_s >= self.window_s:
            return self.warmup_s
        share_s = float(round(window_s * self.warmup_s / self.window_s))
        return min(self.warmup_s, max(WARMUP_MIN_S, share_s))


@dataclass(frozen=True)
class Layout:
    """Number of blocks per case, and window and warm-up of each trial."""

    blocks: int
    window_s: float
    warmup_s: float


def lay_out(wanted: RequestedLengths, least: int) -> Layout | None:
    """Return a layout of at least ``least`` blocks, or None if they do not fit with the shortest windows.

    Windows have their maximum length if SAME_BLOCKS_MIN blocks fit, or the number of blocks in the file. They
    become shorter, down to WINDOW_SHARE_MIN, for SAME_BLOCKS_MIN, and else for BLOCKS_TARGET.
    """
    most = wanted.blocks_max or BLOCKS_TARGET
    window_s = wanted.window_max_s
    whole = math.floor(wanted.time_s / wanted.pass_s(window_s))
    if wanted.may_be_same and whole < SAME_BLOCKS_MIN <= (wanted.blocks_max or SAME_BLOCKS_MIN):
        same_s = _window_s(wanted, wanted.time_s / SAME_BLOCKS_MIN) or 0.0
        driven_s = SAME_BLOCKS_MIN * wanted.driven_s(same_s)
        if same_s >= WINDOW_SHARE_MIN * window_s and driven_s >= DRIVEN_SHARE * wanted.time_s:
            return Layout(SAME_BLOCKS_MIN, same_s, wanted.warmup_of(same_s))
    if whole >= max(least, min(most, BLOCKS_TARGET)):
        blocks = min(whole, most) if wanted.slice_s is None else whole
        return Layout(blocks, window_s, wanted.warmup_of(window_s))
    for blocks in range(max(least, BLOCKS_TARGET), least - 1, -1):
        shorter_s = _window_s(wanted, wanted.time_s / blocks)
        if shorter_s is None:
            continue
        driven_s = blocks * wanted.driven_s(shorter_s)
        if blocks <= VERDICT_BLOCKS_MIN or driven_s >= DRIVEN_SHARE * wanted.time_s:
            return Layout(blocks, shorter_s, wanted.warmup_of(shorter_s))
    return None


def shortest(wanted: RequestedLengths) -> Layout:
    """Return BLOCKS_MIN blocks of the shortest windows, even if they do not fit."""
    window_s = wanted.window_min_s
    return Layout(BLOCKS_MIN, window_s, wanted.warmup_of(window_s))


def _window_s(wanted: RequestedLengths, pass_s: float) -> float | None:
    """Return the longest window with which one block of every case takes at most ``pass_s``."""
    most_s = wanted.window_max_s
    if wanted.pass_s(most_s) <= pass_s:
        return most_s
    if wanted.pass_s(wanted.window_min_s) > pass_s:
        return None
    step = 1.0 if wanted.slice_s is None else 2 * wanted.slice_s
    low, high = 0, math.ceil((most_s - wanted.window_min_s) / step)
    while high - low > 1:
        middle = (low + high) // 2
        fits = wanted.pass_s(wanted.window_min_s + middle * step) <= pass_s
        low, high = (middle, high) if fits else (low, middle)
    return wanted.window_min_s + low * step


def fit_duet(file: StudyFile, cores: int) -> tuple[StudyFile, list[FitChange]]:
    """Replace the schedule duet on a machine with one core, because a duet requires two."""
    if file.run.schedule != "duet" or cores > 1:
        return file, []
    why = "duet requires at least 2 cores"
    return file.with_run(schedule="slices"), [FitChange("run.schedule", "duet", "slices", why)]


def fit_run(
    file: StudyFile, layout: Layout, wanted: RequestedLengths, slice_s: float | None, machine: MachineSize
) -> StudyFile:
    """Return the file with blocks, windows, warm-ups and schedule of the layout."""
    update: dict[str, object] = {"repeats": layout.blocks}
    if slice_s is not None:
        update["schedule"] = "duet" if file.run.schedule == "duet" else "slices"
        if slice_s != SLICE_S:
            update["slice_s"] = slice_s
    if layout.window_s != wanted.window_s:
        update |= _window(file, layout, machine)
    fitted = file.with_run(**update)
    needed_s = layout.blocks * pass_s(cases_of(fitted), machine)
    if fitted.run.schedule != "sequential":  # which ends after its repeats
        is_enough = needed_s <= wanted.time_s  # else not even the minimum fits
        update["budget_s"] = wanted.time_s if is_enough else float(math.ceil(needed_s))
        if is_enough:
            update["repeats"] = None
    return file.with_run(**update)


def _window(file: StudyFile, layout: Layout, machine: MachineSize) -> dict[str, object]:
    shortest_s = cases_of(file)[0].study.warmup_min_s
    warmup: dict[str, object] = {"warmup_s": layout.warmup_s}
    if shortest_s is not None:
        warmup["warmup_min_s"] = min(shortest_s, layout.warmup_s)
    if file.run.transactions is None:
        return {"window_s": layout.window_s, "rounds": None, "checkpoints": None, **warmup}
    studies = [case.study for case in cases_of(file)]
    number = min(layout.window_s * transactions_per_s(study, machine) / study.clients for study in studies)
    return {"transactions": _two_digits(number), **warmup}


def _two_digits(number: float) -> int:
    """Rounded down, so that the time is kept."""
    unit: int = 10 ** max(0, math.floor(math.log10(max(1.0, number))) - 1)
    return max(1, int(number / unit + 1e-9) * unit)


def run_changes(
    before: StudyFile, after: StudyFile, layout: Layout | None, time_s: float, machine: MachineSize
) -> Iterator[FitChange]:
    """Yield the changes in ``[run]`` and in the number of checkpoints per window."""
    was, now, time = before.run, after.run, format_duration(time_s)
    why = "all servers fit into memory together, and short windows should be close in time"
    yield from value_changes("run.schedule", was.schedule, now.schedule, why)
    then_s, here_s = (run.slice_s or SLICE_S for run in (was, now))
    yield from value_changes("run.slice", then_s, here_s, "many clients per core", format_duration)
    why = f"with whole checkpoint cycles, too few blocks fit into {time}"
    yield from value_changes(
        "run.checkpoints", was.checkpoints, now.checkpoints, why, lambda n: str(n or "a window in seconds")
    )
    why = f"number that fits into {time} at a low rate"
    yield from value_changes("run.transactions", was.transactions, now.transactions, why)
    studies = [cases_of(file)[0].study for file in (before, after)]
    if was.transactions == now.transactions and (was.window_s, was.rounds) != (now.window_s, now.rounds):
        then, here = (format_duration(study.rounds * study.slice_s) for study in studies)
        yield FitChange("run.window", then, here, f"fits into {time}")
    why = "same share of the window, at least 2 s"
    then_s, here_s = (study.warmup_s for study in studies)
    yield from value_changes("run.warmup", then_s, here_s, why, format_duration)
    takes_s = now.budget_s or (now.repeats or 0) * pass_s(cases_of(after), machine)
    is_too_long = layout is not None and takes_s > time_s
    is_other = (was.repeats, was.budget_s) != (now.repeats, now.budget_s)
    if is_other or (is_too_long and was != now):
        why = _why_blocks(layout, time_s, is_too_long=is_too_long)
        yield FitChange("run.repeats", _ends(was), _ends(now, layout), why)
    yield from _checkpoints(before, after)


def _ends(run: Run, layout: Layout | None = None) -> str:
    if run.budget_s is None:
        return str(run.repeats)
    expected = f", about {layout.blocks}" if layout else f", at most {run.repeats}" if run.repeats else ""
    return f"as many as fit into {format_duration(run.budget_s)}{expected}"


def _why_blocks(layout: Layout | None, time_s: float, *, is_too_long: bool) -> str:
    if is_too_long:
        return f"not even {BLOCKS_MIN} blocks of the shortest windows fit into {format_duration(time_s)}"
    if layout is None or layout.blocks >= VERDICT_BLOCKS_MIN:
        return "blocks of every case within the time budget"
    return f"the time budget allows no more; a verdict needs {VERDICT_BLOCKS_MIN}"


def _checkpoints(before: StudyFile, after: StudyFile) -> Iterator[FitChange]:
    """Yield the changes of the ratio of window and checkpoint_timeout."""
    if before.run.transactions is not None:
        return
    timeouts_s = zip(_timeouts_s(before), _timeouts_s(after), strict=False)
    ratios = zip(checkpoints_of(before), checkpoints_of(after), strict=False)
    for timeouts, (was, now) in zip(timeouts_s, ratios, strict=False):
        short = "; the window has no timed checkpoint" if now < 1 <= was else ""
        then, here = map(format_duration, timeouts)
        why = f"a timed checkpoint every {here}, instead of every {then}{short}"
        yield from ratio_changes("window : checkpoint_timeout", was, now, why, REPORTED)


def checkpoints_of(file: StudyFile) -> list[float]:
    """Return the number of timed checkpoints of a window, by checkpoint_timeout, shortest first.

    Servers whose slices alternate run all the time. None for a number of transactions.
    """
    if file.run.transactions is not None:
        return []
    study = cases_of(file)[0].study
    turns = len(study.arms) if study.schedule == Schedule.SLICES else 1
    return [turns * study.rounds * study.slice_s / timeout_s for timeout_s in _timeouts_s(file)]


def _timeouts_s(file: StudyFile) -> list[float]:
    """Return the values of checkpoint_timeout of the arms, shortest first."""
    arms = (arm for arm in arms_of(costs_of(cases_of(file))) if not arm.has_profile)
    return sorted({value_or_default(arm.settings, "checkpoint_timeout") for arm in arms})
