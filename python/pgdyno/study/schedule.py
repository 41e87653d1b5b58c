"""The blocks of a study: layout, order of arms and slices, purpose of a slice. Pure in the study's seed."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgdyno.study.plan import Study


class Schedule(StrEnum):
    """The layout of a block."""

    SLICES = "slices"
    DUET = "duet"
    BLOCKS = "blocks"
    SEQUENTIAL = "sequential"

    @property
    def is_together(self) -> bool:
        """True if the servers of all arms run at the same time, and their trials are divided into slices."""
        return self in TOGETHER

    def rounds_error(self, rounds: int) -> str:
        """Return why a block cannot have so many rounds; empty if it can."""
        if rounds % 2 and self.is_together:
            return "must be even: each round is followed by its mirror image"
        return ""


TOGETHER = (Schedule.SLICES, Schedule.DUET)


class Role(StrEnum):
    """The purpose of a slice."""

    WARM_UP = "warm-up"
    MEASURE = "measure"


TRANSACTIONS_LIMIT_S = 90 * 86_400.0
"""Time limit of a window that is defined by a number of transactions."""


@dataclass(frozen=True)
class PlannedSlice:
    """One slice of one arm: index of the arm, role, planned duration, and its round.

    With ``transactions`` it ends when every client has completed that many, and the duration is its limit. In
    a duet both slices of a round are driven at the same time, each on its ``cpu_partition``, 0 or 1.
    """

    arm: int
    role: Role
    duration_s: float
    round: int
    transactions: int | None = None
    cpu_partition: int | None = None


@dataclass(frozen=True)
class PlannedBlock:
    """One trial of every arm: the seed of the block, which its arms share, and the order of the arms."""

    index: int
    seed: int
    order: tuple[int, ...]
    slices: tuple[PlannedSlice, ...]


def blocks_of(study: Study, first: int = 0) -> Iterator[PlannedBlock]:
    """Yield the blocks from number ``first`` on, without end unless ``blocks_max`` is set."""
    index = first
    while study.blocks_max is None or index < study.blocks_max:
        yield block_of(study, index)
        index += 1


def block_of(study: Study, index: int) -> PlannedBlock:
    """Return one block. Each block has its own random stream, so that a resumed study has the same blocks."""
    digest = hashlib.blake2b(f"{study.seed}:{index}".encode(), digest_size=6).digest()
    seed = int.from_bytes(digest, "big")
    rng = random.Random(seed)
    arms = list(range(len(study.arms)))
    order = tuple(arms if study.schedule is Schedule.SEQUENTIAL else rng.sample(arms, len(arms)))
    if study.schedule is Schedule.SLICES:
        slices = tuple(_interleaved(study, rng))
    elif study.schedule is Schedule.DUET:
        slices = tuple(_duet(study, rng))
    else:
        slices = tuple(s for arm in order for s in _whole(study, arm))
    return PlannedBlock(index=index, seed=seed, order=order, slices=slices)


def place_of(seed: int, data: str, block: int, position: int, places: int) -> int:
    """Return the place of an arm in one block: 0 … ``places`` − 1.

    ``position``: number of the arm among those with the same ``data``. Within ``places`` consecutive blocks,
    counted from a multiple of it, the arm takes each place once, in a random order. Arms with the same data
    have different places. Otherwise the position on disk would be confounded with the arm.
    """
    cycle, turn = divmod(block, places)
    order = random.Random(f"{seed}:place:{data}:{cycle}").sample(range(places), places)
    return order[(position + turn) % places]


def _interleaved(study: Study, rng: random.Random) -> Iterator[PlannedSlice]:
    """Yield rounds of one slice per arm. A round has a random order, and the next one its mirror (ABBA).

    The mirror balances every pair of arms against a drift that is linear over both rounds. The warm-up has
    the same layout, with slices of about the same length.
    """
    for role, rounds, slice_s in _parts(study):
        order: list[int] = []
        for number in range(rounds):
            order = order[::-1] if number % 2 else rng.sample(range(len(study.arms)), len(study.arms))
            for arm in order:
                yield PlannedSlice(arm, role, slice_s, number)


def _duet(study: Study, rng: random.Random) -> Iterator[PlannedSlice]:
    """Yield rounds of one slice of both arms at once.

    The assignment of arms to CPU partitions is random in a round and exchanged in the next one. Each arm
    uses each partition equally often.
    """
    for role, rounds, slice_s in _parts(study):
        partitions: list[int] = []
        for number in range(rounds):
            partitions = partitions[::-1] if number % 2 else rng.sample((0, 1), 2)
            for arm, partition in enumerate(partitions):
                yield PlannedSlice(arm, role, slice_s, number, cpu_partition=partition)


def _parts(study: Study) -> list[tuple[Role, int, float]]:
    """Return role, even number of rounds, and slice length of the warm-up and of the measured part."""
    warm_rounds = 2 * max(1, round(study.warmup_s / study.slice_s / 2)) if study.warmup_s > 0 else 0
    return [
        (Role.WARM_UP, warm_rounds, study.warmup_s / max(1, warm_rounds)),
        (Role.MEASURE, study.rounds, study.slice_s),
    ]


def _whole(study: Study, arm: int) -> Iterator[PlannedSlice]:
    """Yield the warm-up and the window of one arm, each in one slice."""
    if study.warmup_s > 0:
        yield PlannedSlice(arm, Role.WARM_UP, study.warmup_s, 0)
    if study.transactions is not None:
        yield PlannedSlice(arm, Role.MEASURE, TRANSACTIONS_LIMIT_S, 0, study.transactions)
    else:
        yield PlannedSlice(arm, Role.MEASURE, study.rounds * study.slice_s, 0)
