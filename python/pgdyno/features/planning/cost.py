"""Forecast of the disk space and run time of a study from its file.

The rates are pessimistic: those of a small, busy machine (2 cores and a shared virtual disk, November 2026).
A plan based on them ends in time; a faster machine runs more blocks instead.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pgdyno.features.capacity.search import expected_search_s
from pgdyno.features.load_time.parameters import LoadParameters
from pgdyno.study.cases import Case
from pgdyno.study.defaults import MachineSize, Schedule, discard_s
from pgdyno.study.plan import Study
from pgdyno.study.schedule import share_of_time
from pgdyno.study.values import parse_limit
from pgdyno.study.workload_parameters import WorkloadParameters
from pgdyno.units import DURATION_UNITS_S, SIZE_UNITS_BYTES, split_quantity


@dataclass(frozen=True)
class Rates:
    """Rates of a workload. A trial's checks read all data, those of tpcc several times.

    Without an entry in RATES, a workload has the lowest rates of all.
    """

    load_bytes_per_s: float = 40e6
    check_bytes_per_s: float = 150e6
    transactions_per_core_s: float = 100.0  # with data larger than memory
    transactions_in_memory_per_core_s: float = 300.0


RATES = {
    "pgbench": Rates(100e6, 1e9, 300.0, 1000.0),
    "sysbench": Rates(check_bytes_per_s=1e9),
    "load": Rates(load_bytes_per_s=math.inf),  # nothing is loaded before the trials
}
"""Measured of tpcc and pgbench: loads 56 to 92 MB/s with two or more warehouses, 135 to 181 MB/s; checks
175 MB/s, 1.6 GB/s; transactions in memory with synchronous commits 1000 (procedures), 1300. Published: 102
transactions per second and core with larger data (56 cores), 325 (4 cores)."""

RESTORE_BYTES_PER_S = 300e6
"""Restore rate, if a trial changes all data files. Measured: 190 MB/s to 1.1 GB/s."""

READ_BYTES_PER_S = 300e6
"""Rate of prewarming and of a VACUUM after the measured part."""

INSPECT_BYTES_PER_S = 1e9
"""Rate of pgstattuple with data in memory."""

TRIAL_S = 1.0
"""Time for start, connections and stop. Measured: 0.6 s."""

RECOVERY_S = 10.0
"""Time of a crash and its recovery; the amount of WAL to replay is unknown in advance."""

CLUSTER_BYTES = 100_000_000
"""Size of a cluster without data: system catalogs and the first WAL files."""

CLUSTER_S = 5.0
"""Time of initdb, start and shutdown around a load."""

GROWTH_BYTES_PER_CORE_S = 500_000
"""Growth of the data by writing transactions. Published: 0.1 MB (56 cores, 118 to 335 GB in ten hours)."""

GROWTH_MAX = 2.0
"""Maximum growth as a multiple of the data: longer runs slow down before they reach it."""

WAL_SIZES_BYTES = {"max_wal_size": 2**30, "min_wal_size": 80 * 2**20}
"""PostgreSQL's defaults of the settings that determine the size of the WAL. Their unit is MB."""


@dataclass(frozen=True)
class Data:
    """Data of an arm. ``units``: warehouses, branches, or rows of a table of sysbench.

    Equal keys and units mean the same dataset.
    """

    key: str
    kind: str
    units: int
    unit_bytes: float

    def units_at(self, factor: float) -> int:
        """Return the units at a factor, rounded down so that limits hold; at least one."""
        return units_at(self.units, factor)

    def bytes_at(self, factor: float) -> int:
        """Return the size of heap, indexes and an empty cluster."""
        return round(self.units_at(factor) * self.unit_bytes) + CLUSTER_BYTES


def rates_of(kind: str) -> Rates:
    """Return the rates of a workload."""
    return RATES.get(kind, Rates())


def units_at(units: int, factor: float) -> int:
    """Return ``units`` times ``factor``, rounded down; at least one."""
    return max(1, int(units * factor + 1e-9))


def data_of(parameters: WorkloadParameters, server: str = "") -> Data:
    """Return the data that a workload has on a server."""
    shape = {name: value for name, value in parameters.shape().items() if name != parameters.SIZE}
    key = json.dumps([server, parameters.kind, {**shape, **parameters.aging()}], sort_keys=True)
    return Data(key, parameters.kind, parameters.units, parameters.unit_bytes)


@dataclass(frozen=True)
class ArmCost:
    """Requirements of one arm of one case; a running server has none on this machine."""

    data: Data
    clients: int
    writes: bool
    is_dsn: bool
    settings: Mapping[str, str]
    has_profile: bool


Costs = Sequence[Sequence[ArmCost]]
"""Costs by case and arm."""


def costs_of(cases: Sequence[Case]) -> Costs:
    """Return the costs of the cases of a study file."""
    return [[_arm_cost(case.study, index) for index in range(len(case.study.arms))] for case in cases]


def arms_of(costs: Costs) -> list[ArmCost]:
    """Return the costs of the arms of all cases."""
    return [arm for case in costs for arm in case]


def _arm_cost(study: Study, index: int) -> ArmCost:
    arm, driving = study.arms[index], study.driving(index)
    return ArmCost(
        data_of(driving.workload, arm.build),
        driving.clients,
        driving.workload.writes,
        arm.is_dsn,
        arm.known_settings,
        bool(arm.profiles),
    )


def datasets_of(costs: Costs, factor: float = 1.0) -> dict[tuple[str, int], Data]:
    """Return the datasets in the cache: one for each server, shape and size."""
    ours = (arm.data for arm in arms_of(costs) if not arm.is_dsn)
    return {(data.key, data.units_at(factor)): data for data in ours}


def load_s(costs: Costs, factor: float = 1.0) -> float:
    """Return the time to load all datasets into an empty cache."""
    return sum(
        CLUSTER_S + data.bytes_at(factor) / rates_of(data.kind).load_bytes_per_s
        for data in datasets_of(costs, factor).values()
    )


def data_s(costs: Costs, study: Study, factor: float = 1.0) -> float:
    """Return the time of one block of every case that depends on the size: restores, checks and scans."""
    return sum(arm.data.bytes_at(factor) * _s_per_byte(arm.data.kind, study) for arm in arms_of(costs))


def _s_per_byte(kind: str, study: Study) -> float:
    read = (study.cache_state == "prewarmed") + study.vacuum_after
    inspected = 2 * ("pgstattuple" in study.probes)  # before and after
    return (
        1 / RESTORE_BYTES_PER_S
        + 1 / rates_of(kind).check_bytes_per_s
        + read / READ_BYTES_PER_S
        + inspected / INSPECT_BYTES_PER_S
    )


def trials_s(costs: Costs, study: Study) -> float:
    """Return the time of one block of every case that does not depend on the size of the data."""
    return sum(map(len, costs)) * (TRIAL_S + (RECOVERY_S if study.recovery else 0.0))


def window_s(study: Study, machine: MachineSize) -> float:
    """Return the measured time of a trial; a number of transactions takes a pessimistic time."""
    if study.transactions is None:
        return study.rounds * study.slice_s
    return study.transactions * study.clients / transactions_per_s(study, machine)


def search_s(study: Study, machine: MachineSize, slice_s: float | None = None) -> float:
    """Return the time of the capacity search before a trial, with slices of ``slice_s`` if given."""
    if study.capacity is None or not study.searches_capacity:
        return 0.0
    limit, closed_per_s = parse_limit(study.capacity), transactions_per_s(study, machine)
    discarded_s = study.discard_s if slice_s is None else discard_s(slice_s)
    most = study.clients if study.searches_clients else None
    return expected_search_s(limit, slice_s or study.slice_s, discarded_s, closed_per_s, most)


def searches_s(cases: Sequence[Case], machine: MachineSize, slice_s: float | None = None) -> float:
    """Return the time of the searches of one block of every case, one arm at a time."""
    return sum(len(case.study.arms) * search_s(case.study, machine, slice_s) for case in cases)


def driven_s(study: Study, machine: MachineSize) -> float:
    """Return the time in which the clients of a trial change its data, without the warm-up."""
    return search_s(study, machine) + window_s(study, machine)


def transactions_per_s(study: Study, machine: MachineSize) -> float:
    """Return a pessimistic throughput of all clients together; a load is a transaction per client."""
    data = data_of(study.workload)
    if isinstance(study.workload, LoadParameters):
        return study.clients * rates_of(study.workload.loaded.kind).load_bytes_per_s / data.bytes_at(1)
    in_memory = data.bytes_at(1) < machine.memory_bytes
    rates = rates_of(data.kind)
    per_core = rates.transactions_in_memory_per_core_s if in_memory else rates.transactions_per_core_s
    return per_core * machine.cores


def pass_s(cases: Sequence[Case], machine: MachineSize) -> float:
    """Return the time of one block of every case, including its share of A/A blocks."""
    costs = costs_of(cases)
    measured_s = sum(
        case.study.turns * (case.study.warmup_s + window_s(case.study, machine)) for case in cases
    )
    fixed_s = data_s(costs, cases[0].study) + trials_s(costs, cases[0].study)
    return (1 + aa_share(cases)) * (measured_s + searches_s(cases, machine) + fixed_s)


def aa_share(cases: Sequence[Case], *, in_slices: bool = False) -> float:
    """Return the time of A/A blocks as a share of the other blocks; ``in_slices``: for alternating slices."""
    studies = [case.study for case in cases]
    if in_slices:
        studies = [study.model_copy(update={"schedule": Schedule.SLICES}) for study in studies]
    return sum(map(share_of_time, studies)) / len(studies)


WalSize = Callable[[ArmCost, float], int]
"""WAL size of the server of an arm, at a factor of the data."""


def quantity_of(text: str, unit: float) -> float | None:
    """Return a setting in bytes, seconds or processes; None for -1, 0 or an invalid value.

    ``unit`` is that of a number without a unit.
    """
    try:
        number, name = split_quantity(text)
    except ValueError:
        return None
    units: Mapping[str, float] = {"": unit, **SIZE_UNITS_BYTES, **DURATION_UNITS_S}
    found = number * units.get(name, math.nan)
    return found if 0 < found < math.inf else None


def wal_size(arm: ArmCost, _: float = 1.0) -> int:
    """Return the WAL size of the server of an arm with its settings."""
    sizes = (quantity_of(arm.settings.get(n, ""), 2**20) or usual for n, usual in WAL_SIZES_BYTES.items())
    return round(max(sizes))


def disk_bytes(
    costs: Costs, growing_s: float, cores: int, wal: WalSize = wal_size, factor: float = 1.0
) -> int:
    """Return the size of datasets and live copies, including growth and WAL.

    Each dataset has one live copy per position among the arms, shared by the cases.
    """
    kept = sum(data.bytes_at(factor) for data in datasets_of(costs, factor).values())
    live: dict[tuple[str, int, int], int] = {}
    for case in costs:
        for index, arm in enumerate(case):
            if not arm.is_dsn:
                place = (arm.data.key, arm.data.units_at(factor), index)
                needed = _live_bytes(arm, growing_s, cores, wal, factor)
                live[place] = max(needed, live.get(place, 0))
    return kept + sum(live.values())


def _live_bytes(arm: ArmCost, growing_s: float, cores: int, wal: WalSize, factor: float) -> int:
    size = arm.data.bytes_at(factor)
    growth = min(GROWTH_MAX * size, GROWTH_BYTES_PER_CORE_S * cores * growing_s) if arm.writes else 0.0
    return size + round(growth) + wal(arm, factor)
