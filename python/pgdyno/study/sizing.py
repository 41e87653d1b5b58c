"""Default sizes for this machine, which are printed and stored, and which options override."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pgdyno.study.arm_spec import ArmSpec
from pgdyno.study.defaults import SLICE_S, WHOLE_WINDOW_S, WINDOW_S
from pgdyno.study.schedule import TOGETHER, Schedule

RUN_CLIENTS_MAX = 1_000_000
"""Maximum number of clients, and of threads, of all load generators together, per arm."""

MAX_CLIENTS = 2000
"""Maximum number of clients of a load generator, per arm."""

MAX_THREADS = 256
"""Maximum number of threads of a load generator, per arm."""

WAREHOUSE_BYTES = 110e6
"""Heap and indexes of one warehouse, rounded up. The engine's forecast before a load is exact."""

BRANCH_BYTES = 16e6
"""Accounts of one branch with their primary key, rounded up."""


@dataclass(frozen=True)
class MachineSize:
    """Resources of the machine: cores available to this process, and memory."""

    cores: int
    memory_bytes: int


def default_clients(machine: MachineSize) -> int:
    """Return four clients per core: enough to keep all cores busy during WAL syncs, without long queues."""
    return min(MAX_CLIENTS, 4 * machine.cores)


def default_warehouses(machine: MachineSize, clients: int, arms: int) -> int:
    """Return one warehouse per client, limited so that the data of all arms fit in a quarter of the memory.

    With fewer warehouses than clients, lock waits dominate the result; with data larger than memory, the disk
    does.
    """
    that_fit = math.floor(machine.memory_bytes / 4 / arms / WAREHOUSE_BYTES)
    return max(1, min(clients, that_fit))


def default_scale(machine: MachineSize, clients: int, arms: int) -> int:
    """Return one branch per client, with the same limit and for the same reasons."""
    that_fit = math.floor(machine.memory_bytes / 4 / arms / BRANCH_BYTES)
    return max(1, min(clients, that_fit))


DUET_CORES_MIN = 4
"""Minimum number of cores for a duet by default: each server has half of them."""

CORE_SETTINGS = frozenset(
    {
        "autovacuum_max_workers",
        "autovacuum_max_parallel_workers",
        "io_max_workers",
        "io_min_workers",
        "io_workers",
        "max_parallel_maintenance_workers",
        "max_parallel_workers",
        "max_parallel_workers_per_gather",
        "max_worker_processes",
    }
)
"""Settings whose effect depends on the number of cores, so it would be another one on half of them."""


def is_duet_sound(arms: Sequence[ArmSpec]) -> bool:
    """Return whether the arms are two servers that pgdyno starts, without settings for the number of cores.

    Profiles are made for the whole machine, and settings files may be.
    """
    depends_on_cores = any(arm.profiles or CORE_SETTINGS & arm.settings.keys() for arm in arms)
    return len(arms) == 2 and not any(arm.is_dsn for arm in arms) and not depends_on_cores


def default_schedule(cores: int, arms: Sequence[ArmSpec]) -> Schedule:
    """Return duet where it is sound, because it needs about half of the time; otherwise slices."""
    return Schedule.DUET if is_duet_sound(arms) and cores >= DUET_CORES_MIN else Schedule.SLICES


SLICE_S_MIN, SLICE_S_MAX = 0.05, 60.0
ROUNDS_OF_A_WINDOW_MAX = 10_000

CLIENTS_PER_CORE_OF_A_SLICE = 25
"""Maximum number of clients per core for SLICE_S. A core runs about 1000 transactions per second, so with 25
clients per core each transaction takes about 25 ms, a twentieth of SLICE_S."""


SLICE_S_PER_DRIVER = 0.1
"""Minimum length of a slice per load generator. All of them report the end of each slice, so this limits the
messages to 10 per second."""


def default_slice_s(machine: MachineSize, clients: int, drivers: int = 1) -> float:
    """Return SLICE_S, doubled until a transaction takes at most a twentieth of it, at most SLICE_S_MAX.

    At the start of a slice, all clients start together. A slice must be long compared with a transaction, or
    this start dominates its rate. It is also long enough for the messages of ``drivers`` load generators.
    """
    return slice_s_of(drivers, clients / machine.cores / CLIENTS_PER_CORE_OF_A_SLICE)


def slice_s_of(drivers: int, times: float = 1.0) -> float:
    """Return SLICE_S, doubled until it is ``times`` as long and suffices for the messages of ``drivers`` load
    generators, at most SLICE_S_MAX.
    """
    least = max(1.0, times, drivers * SLICE_S_PER_DRIVER / SLICE_S)
    return min(SLICE_S_MAX, float(SLICE_S * 2 ** math.ceil(math.log2(least))))


SLICE_SHARE_MAX = 0.05
"""Maximum share of a slice that a transaction may take. A closed loop that starts empty completes none in
that time, so an effect of x on latency appears as about (1 + share) x in the rate."""


def longer_slice_s(slice_s: float, latency_s: float, most_s: float) -> float:
    """Return the slice, doubled up to ``most_s`` while a transaction exceeds SLICE_SHARE_MAX of it."""
    while latency_s > SLICE_SHARE_MAX * slice_s and 2 * slice_s <= min(most_s, SLICE_S_MAX):
        slice_s *= 2
    return slice_s


def discard_s(slice_s: float) -> float:
    """Return the discarded start of a slice: a twentieth; for slices below 1 s a tenth, at most 50 ms.

    The clients start together without open transactions, and stay synchronized for a few transactions.
    """
    return max(slice_s / 20, min(0.05, slice_s / 10))


@dataclass(frozen=True)
class BlockLayout:
    """Layout of a block of slices: warm-up per arm, and rounds of one slice per arm."""

    warmup_s: float
    rounds: int


BLOCKS_TARGET = 8
"""Minimum number of blocks of a budget. An interval needs 5 (docs/explanation/method.md), and its width still
decreases steeply from 5 (Student's t: 2.78 standard errors, anytime-valid: 4.95) to 8 (2.36, 4.00)."""

WARMUP_SHARE = 1 / 3
"""Expected warm-up as a share of the window."""

BLOCK_OVERHEAD_S = 6.0
"""Approximate time for restore, start, checks and stop of a block of two arms, before one was measured."""

FURTHER_ARM_OVERHEAD_S = 4.0
"""Overhead of each further arm, which shares disk and cores. Measured: blocks of five arms took 39 to 52 s
with 20 s of load (8 warehouses, 2 cores).
"""

WARMUP_MIN_S = 2.0


@dataclass(frozen=True)
class WarmUpLimits:
    """Warm-up of an arm: ``most_s``, or until steady state between ``least_s`` and ``most_s``."""

    most_s: float
    least_s: float | None = None


WARMUP_VALUES_MIN = 6
"""Minimum number of values (slices or seconds, whichever is shorter) to detect steady state; with fewer, the
warm-up has a fixed time."""


def adaptive_warm_up(likely_s: float, most_s: float, slice_s: float) -> WarmUpLimits:
    """Return an adaptive warm-up of at least a quarter of ``likely_s`` and WARMUP_MIN_S.

    Returns a fixed warm-up if ``most_s`` has too few values.
    """
    if most_s / min(1.0, slice_s) < WARMUP_VALUES_MIN:
        return WarmUpLimits(likely_s)
    return WarmUpLimits(most_s, min(most_s, max(WARMUP_MIN_S, likely_s / 4)))


def block_overhead_s(arms: int) -> float:
    """Return the approximate time of a block without its load. ``arms``: 1 if two run at the same time."""
    return BLOCK_OVERHEAD_S + FURTHER_ARM_OVERHEAD_S * max(0, arms - 2)


ROUNDS_MIN = 4
ROUNDS_MIN_S = 8.0  # with longer slices, the minimum is one pair of rounds


def fit_block_layout(budget_s: float, arms: int, slice_s: float, schedule: str) -> BlockLayout:
    """Return the default layout, with an even number of rounds.

    The window is WINDOW_S or WHOLE_WINDOW_S. A budget with too little time for BLOCKS_TARGET such blocks
    shortens it; a larger budget has more blocks, not longer ones. ``arms``: number of arms that take turns; 1
    if they run at the same time.
    """
    window_s = WINDOW_S if schedule in TOGETHER else WHOLE_WINDOW_S
    per_arm_s = max(budget_s / BLOCKS_TARGET - block_overhead_s(arms), 0.0) / arms
    window_s = min(window_s, per_arm_s / (1 + WARMUP_SHARE))
    warmup_s = max(WARMUP_MIN_S, math.ceil(WARMUP_SHARE * window_s))
    rounds = math.floor(min(window_s, per_arm_s - warmup_s) / slice_s / 2) * 2
    least = ROUNDS_MIN if ROUNDS_MIN * slice_s <= ROUNDS_MIN_S else 2
    return BlockLayout(warmup_s=warmup_s, rounds=max(least, rounds))


def whole_rounds(window_s: float, slice_s: float, schedule: str) -> int:
    """Return the number of slices nearest to the window: at least two, and even if rounds come in pairs."""
    pair = 2 if schedule in TOGETHER else 1
    slices = min(
        window_s / slice_s, 10.0 * ROUNDS_OF_A_WINDOW_MAX
    )  # avoids overflow; the caller refuses so many
    return max(2, pair * round(slices / pair))
