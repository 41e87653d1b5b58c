"""Sizes that fit this machine, for what the user left open: printed, stored, open to be overridden."""

from __future__ import annotations

import math
from dataclasses import dataclass

MAX_CLIENTS = 2000
WAREHOUSE_BYTES = 110e6
"""Heap and indexes of one warehouse, rounded up; the engine's forecast before a load is the exact one."""


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


@dataclass(frozen=True)
class Rhythm:
    """How a block of slices is laid out: warm-up per arm, and rounds of one slice of each arm."""

    warmup_s: float
    rounds: int


BLOCKS_WANTED = 8
"""How many blocks a budget is cut into: an interval by Student's t needs 5 (METHOD.md), and its width
still falls steeply from 5 (t = 2.78) to 8 (t = 2.36)."""

BLOCK_OVERHEAD_S = 6.0
"""Restore, start, checks and stop of one block, roughly; only the first layout is made from it."""

ROUNDS_MIN = 4
ROUNDS_MAX = 60


def fit_rhythm(budget_s: float, arms: int, slice_s: float) -> Rhythm:
    """Lays a block out so that about BLOCKS_WANTED of them fit in the budget; an even number of rounds.

    A quarter of the running time, at least 2 s and at most 30 s an arm, is warm-up.
    """
    block_s = budget_s / BLOCKS_WANTED - BLOCK_OVERHEAD_S
    per_arm_s = max(block_s / arms, 0.0)
    warmup_s = min(30.0, max(2.0, round(per_arm_s / 4)))
    rounds = math.floor((per_arm_s - warmup_s) / slice_s / 2) * 2
    return Rhythm(warmup_s=warmup_s, rounds=min(ROUNDS_MAX, max(ROUNDS_MIN, rounds)))
