"""Default sizes for this machine, which are printed and stored, and which options override."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pgdyno.study.defaults import SLICE_S
from pgdyno.study.schedule import TOGETHER

MAX_CLIENTS = 2000
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


SLICE_S_MIN, SLICE_S_MAX = 0.05, 60.0
ROUNDS_OF_A_WINDOW_MAX = 10_000

CLIENTS_PER_CORE_OF_A_SLICE = 50
"""Maximum number of clients per core for SLICE_S. A core runs about 1000 transactions per second, so with 50
clients per core each transaction takes about 50 ms, a twentieth of SLICE_S."""


def default_slice_s(machine: MachineSize, clients: int) -> float:
    """Return SLICE_S, or more with many clients per core.

    At the start of a slice, all clients start together. A slice must be long compared with a transaction, or
    this start dominates its rate.
    """
    return SLICE_S * max(1, math.ceil(clients / machine.cores / CLIENTS_PER_CORE_OF_A_SLICE))


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

PER_ARM_S_MAX = 20.0
"""Maximum load time per arm and block, if the study may stop at a verdict. A verdict needs 5 blocks, so long
blocks would delay a clear result, and several short blocks give more information than a long one. Shorter
blocks would spend too much time on restarts."""

BLOCK_OVERHEAD_S = 6.0
"""Approximate time for restore, start, checks and stop of a block, used for the first layout only."""

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


ROUNDS_MIN = 4
ROUNDS_MIN_S = 8.0  # with longer slices, the minimum is one pair of rounds
ROUNDS_MAX = 60


def fit_block_layout(budget_s: float, arms: int, slice_s: float, *, may_stop: bool = False) -> BlockLayout:
    """Return a layout with an even number of rounds, of which about BLOCKS_TARGET fit in the budget.

    ``may_stop``: the study may stop at a verdict, so PER_ARM_S_MAX limits the block. ``arms``: number of arms
    that take turns; 1 if they run at the same time. A quarter of the load time is warm-up, 2 s to 30 s per
    arm.
    """
    block_s = budget_s / BLOCKS_TARGET - BLOCK_OVERHEAD_S
    per_arm_s = min(max(block_s / arms, 0.0), PER_ARM_S_MAX if may_stop else math.inf)
    warmup_s = min(30.0, max(2.0, round(per_arm_s / 4)))
    rounds = math.floor((per_arm_s - warmup_s) / slice_s / 2) * 2
    least = ROUNDS_MIN if ROUNDS_MIN * slice_s <= ROUNDS_MIN_S else 2
    return BlockLayout(warmup_s=warmup_s, rounds=min(ROUNDS_MAX, max(least, rounds)))


def whole_rounds(window_s: float, slice_s: float, schedule: str) -> int:
    """Return the number of slices nearest to the window: at least two, and even if rounds come in pairs."""
    pair = 2 if schedule in TOGETHER else 1
    slices = min(
        window_s / slice_s, 10.0 * ROUNDS_OF_A_WINDOW_MAX
    )  # avoids overflow; the caller refuses so many
    return max(2, pair * round(slices / pair))
