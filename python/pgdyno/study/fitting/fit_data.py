"""Fit of the data size: one factor for all data, and for settings that are shares of the data.

The factor is the ratio of the memories, which keeps data : shared buffers : memory. If the disk, the load
time or the measurement time allow less, only data : shared buffers is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from pgdyno.errors import UsageError
from pgdyno.study.fitting.fit_levels import (
    RATIO_MAX,
    RATIO_TOLERANCE,
    FitChange,
    changed_values,
    ratio,
    with_levels,
)
from pgdyno.study.fitting.fit_settings import (
    SHARED_BUFFERS_MIN_BYTES,
    shared_buffers_bytes,
    smallest,
    wal_bytes,
)
from pgdyno.study.forecast_cost import ArmCost, Costs, Data, data_s, disk_bytes, load_s, units_at
from pgdyno.study.plan import Study
from pgdyno.study.study_file import StudyFile
from pgdyno.units import format_size

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

UNITS_PER_CLIENT = {"tpcc": 1, "pgbench": 2, "sysbench": 1000}
"""Minimum warehouses, branches or rows per client of a writing workload, if the source had them: with fewer,
lock waits change the experiment."""

BISECTIONS = 60


@dataclass(frozen=True)
class Room:
    """Limits of the data size.

    ``study`` is that of any case. ``blocks``: number of blocks of every case whose restores and checks must
    fit DATA_SHARE; None: no limit. ``is_settled``: the data are already fitted to this machine, and only the
    disk can make them smaller. ``scales_settings``: sizes in the settings follow the data.
    ``keeps_buffers``: the data are large enough for the minimum of shared buffers. ``aa_share``: time of A/A
    blocks as a share of the other blocks.
    """

    study: Study
    disk_bytes: int
    cores: int
    minutes: float
    growing_s: float
    blocks: int | None
    is_settled: bool
    scales_settings: bool
    keeps_buffers: bool = False
    aa_share: float = 0.0

    def limits(self, costs: Costs, contrasted: Collection[str]) -> dict[str, Callable[[float], bool]]:
        """Return the limits by name: functions that return True if a factor of the data is allowed."""

        def wal(arm: ArmCost, factor: float) -> int:
            return wal_bytes(arm, factor if self.scales_settings else 1.0, contrasted)

        def on_disk(factor: float) -> bool:
            needed = disk_bytes(costs, self.growing_s, self.cores, wal, factor)
            return needed <= DISK_SHARE * self.disk_bytes

        def loaded(factor: float) -> bool:
            return load_s(costs, factor) <= max(LOAD_MIN_S, LOAD_SHARE * 60 * self.minutes)

        def measured(factor: float) -> bool:
            spent_s = 0.0 if self.blocks is None else self.blocks * data_s(costs, self.study, factor)
            return (1 + self.aa_share) * spent_s <= DATA_SHARE * 60 * self.minutes

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


def factor_of(costs: Costs, room: Room, memory: float, contrasted: Collection[str]) -> DataFactor:
    """Return the largest factor within all limits; ``memory`` is the ratio of the memories.

    Time limits reduce the data at most to ``floor_of``. Raises UsageError if the disk is too small for the
    smallest data.
    """
    limits = room.limits(costs, contrasted)
    found, why = memory, ""
    for name in ("load", "time"):
        allowed = found if room.is_settled else _largest(limits[name], found)
        if allowed < found:
            found, why = allowed, WHY[name]
    least = min(memory, floor_of(costs, room.keeps_buffers))
    if found < least:
        found, why = least, f"{why}, but {WHY['floor']}"
    allowed = _largest(limits["disk"], found)
    if allowed < found:
        found, why = allowed, WHY["disk"]
        if not limits["disk"](found):
            raise UsageError(
                f"the disk is too small: {format_size(room.disk_bytes)} are free, and the study needs more "
                "even with the smallest data: run pgdyno cache prune, set PGDYNO_CACHE to a larger disk, or "
                "drop levels"
            )
    whole = _whole(costs, found)
    # Equal levels may become different again at the rounded factor, and then need more space.
    return DataFactor(whole if limits["disk"](whole) else found, why)


def _whole(costs: Costs, factor: float) -> float:
    """Return the factor that makes the largest data a whole number of warehouses or branches."""
    largest = max(arm.data.units for case in costs for arm in case)
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
    for arm in (arm for case in costs for arm in case):
        wanted = max(1, UNITS_PER_CLIENT[arm.data.kind] * arm.clients if arm.writes else 1)
        factors.append(wanted / arm.data.units)
    buffers = smallest(costs, "shared_buffers")
    if keeps_buffers and buffers is not None:
        factors.append(SHARED_BUFFERS_MIN_BYTES / buffers)
    return min(1.0, max(factors))


SIZES = {"tpcc": "warehouses", "pgbench": "scale", "sysbench": "table_size"}
"""Parameter of the size of the data, by workload."""


def fit_data(file: StudyFile, factor: DataFactor) -> tuple[StudyFile, list[FitChange]]:
    """Return the file with its scale multiplied, as a parameter or as a factor. Raises UsageError."""
    name = SIZES[str(file.workload["kind"])]
    why = factor.limit or "same share of memory as at the source"

    def fitted(units: int) -> int:
        return units_at(units, factor.value)

    if name in file.factors:
        before = file.factors[name]
        mapped = changed_values(before, fitted)
        if [level.value for level in mapped.levels] == [level.value for level in before]:
            return file, []
        change = FitChange(f"factors.{name}", _listed(before), _listed(mapped.levels), why)
        return with_levels(file, name, mapped), [change]
    if name not in file.workload:
        raise UsageError(f"a fit requires the size of the data: set {name} in the table workload")
    units = file.workload[name]
    if fitted(units) == units:
        return file, []
    workload = {**file.workload, name: fitted(units)}
    change = FitChange(f"workload.{name}", str(units), str(fitted(units)), why)
    return file.model_copy(update={"workload": workload}), [change]


def _listed(levels: tuple[object, ...]) -> str:
    return ", ".join(str(getattr(level, "value", level)) for level in levels)


SHARED_MEMORY_SHARE_MAX = 0.6
"""Maximum share of memory for the shared buffers of servers that run at the same time."""

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


@dataclass(frozen=True)
class Memories:
    """Memory of the source (``before``) and of this machine (``after``), in bytes."""

    before: int
    after: int


AS_NEAR = "nearest ratio with whole warehouses or branches and the minimum of shared_buffers"


def ratio_changes(
    before: Costs, after: Costs, memories: Memories | None, contrasted: Collection[str]
) -> Iterator[FitChange]:
    """Yield the changes of data : memory and of data : shared buffers."""
    largest = (_largest_data(before), _largest_data(after))
    sizes = [data.units * data.unit_bytes for data in largest]
    if memories is not None:
        was, now = sizes[0] / memories.before, sizes[1] / memories.after
        if abs(now / was - 1) > RATIO_TOLERANCE:
            fits = (
                "; the largest data now fit in memory, unlike at the source"
                if was > RATIO_MAX and now < 1
                else ""
            )
            why = f"the memory of the machine is fixed{fits}"
            yield FitChange("data : memory", ratio(was), ratio(now), why)
    buffers = (_buffers(costs, contrasted) for costs in (before, after))
    for (is_given, buffers_before), (_, buffers_after) in zip(*buffers, strict=False):
        was, now = sizes[0] / buffers_before, sizes[1] / buffers_after
        if abs(now / was - 1) > RATIO_TOLERANCE:
            key = f"data : shared_buffers{'' if is_given else ' (default)'}"
            yield FitChange(key, ratio(was), ratio(now), AS_NEAR)


def data_sizes(costs: Costs) -> list[float]:
    """Return the sizes of the data of all cases, smallest first, without an empty cluster."""
    return sorted({arm.data.units * arm.data.unit_bytes for arm in _arms(costs)})


def shared_buffers_of(costs: Costs) -> list[int]:
    """Return the shared buffers of the arms, smallest first."""
    return [size for _, size in _buffers(costs, ())]


def _buffers(costs: Costs, contrasted: Collection[str]) -> list[tuple[bool, int]]:
    """Return the shared buffers of the arms, smallest first, each with True if the arm sets them."""
    arms = (arm for arm in _arms(costs) if not arm.has_profile)
    found = {("shared_buffers" in arm.settings, shared_buffers_bytes(arm, 1, contrasted)) for arm in arms}
    return sorted(found, key=lambda one: one[1])


def _arms(costs: Costs) -> list[ArmCost]:
    return [arm for case in costs for arm in case]


def _largest_data(costs: Costs) -> Data:
    return max((arm.data for arm in _arms(costs)), key=lambda data: data.bytes_at(1))
