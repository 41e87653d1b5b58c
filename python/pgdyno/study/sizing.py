"""Sizes that fit this machine, for what the user left open: printed, stored, open to be overridden."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pgdyno.study.schedule import TOGETHER

MAX_CLIENTS = 2000
WAREHOUSE_BYTES = 110e6
"""Heap and indexes of one warehouse, rounded up; the engine's forecast before a load is the exact one."""

BRANCH_BYTES = 16e6
"""Accounts of one branch with their key, rounded up."""


@dataclass(frozen=True)
class Machine:
    """What sizes depend on: cores that we may use, memory, and the free space of the cache's disk."""

    cores: int
    memory_bytes: int


def default_clients(machine: Machine) -> int:
    """Four clients a core: enough that a commit's fsync leaves no core idle, few enough not to queue."""
    return min(MAX_CLIENTS, 4 * machine.cores)


def default_warehouses(machine: Machine, clients: int, arms: int) -> int:
    """A warehouse of its own for each client, as far as all arms' data stay within a quarter of the memory.

    With fewer warehouses than clients, clients wait for each other's rows and the lock manager is what
    is measured; with data beyond memory it is the disk.
    """
    that_fit = math.floor(machine.memory_bytes / 4 / arms / WAREHOUSE_BYTES)
    return max(1, min(clients, that_fit))


def default_scale(machine: Machine, clients: int, arms: int) -> int:
    """A branch of its own for each client, within the same bounds and for the same reasons."""
    that_fit = math.floor(machine.memory_bytes / 4 / arms / BRANCH_BYTES)
    return max(1, min(clients, that_fit))


SLICE_S_MIN, SLICE_S_MAX = 0.05, 60.0
ROUNDS_OF_A_WINDOW_MAX = 10_000

SLICE_S = 1.0
"""Short against whatever drifts on a machine, long against a transaction of some milliseconds."""

CLIENTS_PER_CORE_OF_A_SLICE = 50
"""A core does some thousand transactions a second, so a client of 50 per core waits some 50 ms for its own:
a twentieth of SLICE_S."""


def default_slice_s(machine: Machine, clients: int) -> float:
    """SLICE_S, and longer where many clients wait for each other: at its start no client is done, so a slice
    must be long against a transaction, or its rate is that of the start.
    """
    return SLICE_S * max(1, math.ceil(clients / machine.cores / CLIENTS_PER_CORE_OF_A_SLICE))


def discard_s(slice_s: float) -> float:
    """What is not counted at the start of a slice: a twentieth; of slices below 1 s a tenth, at most 50 ms.

    The clients start together with nothing in flight, and are in step for their first few transactions.
    """
    return max(slice_s / 20, min(0.05, slice_s / 10))


@dataclass(frozen=True)
class Rhythm:
    """How a block of slices is laid out: warm-up per arm, and rounds of one slice of each arm."""

    warmup_s: float
    rounds: int


BLOCKS_WANTED = 8
"""How many blocks a budget is cut into, at least: an interval needs 5 (docs/explanation/method.md), and
its width still falls steeply from 5 (by Student's t 2.78 standard errors, at any stopping time 4.95) to 8
(2.36, 4.00)."""

PER_ARM_S_MAX = 20.0
"""Of a block's driving, where slices may stop on a verdict: that needs 5 blocks, so long ones would keep a
plain answer waiting, and several short ones say more than a long one. Not shorter: restarts take seconds."""

BLOCK_OVERHEAD_S = 6.0
"""Restore, start, checks and stop of one block, roughly; only the first layout is made from it."""

WARMUP_MIN_S = 2.0


@dataclass(frozen=True)
class WarmUp:
    """How long an arm is warmed up: ``most_s``, or by evidence between ``least_s`` and that."""

    most_s: float
    least_s: float | None = None


WARMUP_VALUES_MIN = 6
"""Slices, or seconds where those are shorter: of fewer nothing can be told, and a warm-up takes its time."""


def by_evidence(likely_s: float, most_s: float, slice_s: float) -> WarmUp:
    """From a quarter of what is likely on, not below WARMUP_MIN_S: what is steady at once needs no more."""
    if most_s / min(1.0, slice_s) < WARMUP_VALUES_MIN:
        return WarmUp(likely_s)
    return WarmUp(most_s, min(most_s, max(WARMUP_MIN_S, likely_s / 4)))


ROUNDS_MIN = 4
ROUNDS_MIN_S = 8.0  # but no longer than this by itself: one pair of rounds is the least there is
ROUNDS_MAX = 60


def fit_rhythm(budget_s: float, arms: int, slice_s: float, *, may_stop: bool = False) -> Rhythm:
    """Lays a block out so that about BLOCKS_WANTED of them fit in the budget; an even number of rounds. Of
    slices that ``may_stop`` before the budget's end a block is no longer than PER_ARM_S_MAX allows.
    ``arms``: those that take turns; 1 where they are driven at the same time.

    A quarter of the running time, at least 2 s and at most 30 s an arm, is warm-up.
    """
    block_s = budget_s / BLOCKS_WANTED - BLOCK_OVERHEAD_S
    per_arm_s = min(max(block_s / arms, 0.0), PER_ARM_S_MAX if may_stop else math.inf)
    warmup_s = min(30.0, max(2.0, round(per_arm_s / 4)))
    rounds = math.floor((per_arm_s - warmup_s) / slice_s / 2) * 2
    least = ROUNDS_MIN if ROUNDS_MIN * slice_s <= ROUNDS_MIN_S else 2
    return Rhythm(warmup_s=warmup_s, rounds=min(ROUNDS_MAX, max(least, rounds)))


def whole_rounds(window_s: float, slice_s: float, schedule: str) -> int:
    """The number of slices that comes nearest to the window; at least two, and even where each round is
    followed by its mirror image.
    """
    pair = 2 if schedule in TOGETHER else 1
    slices = min(
        window_s / slice_s, 10.0 * ROUNDS_OF_A_WINDOW_MAX
    )  # too many are refused, infinitely many too
    return max(2, pair * round(slices / pair))
