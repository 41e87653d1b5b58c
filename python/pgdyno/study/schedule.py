"""The schedule of a study: windows, blocks, slices, and hidden A/A blocks. Pure in the study's seed.

- Windows of complete checkpoint cycles: a multiple of checkpoint_timeout, starting after a checkpoint.
- The blocks of a study: layout, order of arms and slices, purpose of a slice. Pure in the study's seed.
- Hidden A/A blocks: the arm that is doubled, and the position. A pure function of the seed of the study.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from pgdyno.errors import UsageError
from pgdyno.study.arm_spec import ArmSpec
from pgdyno.study.defaults import ROUNDS_OF_A_WINDOW_MAX, Schedule
from pgdyno.study.plan import Study
from pgdyno.units import parse_duration_s

# ----------------------------------------------------------------------
# Windows of complete checkpoint cycles: a multiple of checkpoint_timeout, starting after a checkpoint.
#
# A window starts right after a forced checkpoint, for every arm. It is long enough for the given number of
# timed checkpoints; checkpoints requested by max_wal_size come on top. The forced checkpoint writes the pages
# dirtied by the warm-up, so the first cycle has nothing to write back: two cycles show the write-back once.
# ----------------------------------------------------------------------

CHECKPOINT_TIMEOUT = "checkpoint_timeout"

TIMEOUT_S = 300.0
"""PostgreSQL's default of checkpoint_timeout."""

SLACK_S = 3.0
"""Extra time of a window: the checkpointer checks the time once a second, and the start of the last
checkpoint must be observed."""


def timeout_s(text: str) -> float | None:
    """Parse the setting; a number without a unit is in seconds. Return None if it is invalid."""
    try:
        return parse_duration_s(text.strip().strip("'"))
    except UsageError:
        return None


def likely_timeout_s(arms: Iterable[ArmSpec]) -> float:
    """Return the longest checkpoint_timeout in the settings of the arms, else the default.

    Profiles and running servers may differ.
    """
    given = (
        timeout_s(arm.known_settings[CHECKPOINT_TIMEOUT])
        for arm in arms
        if CHECKPOINT_TIMEOUT in arm.known_settings
    )
    return max(filter(None, given), default=TIMEOUT_S)


def unit_of_window_s(window_s: float) -> float:
    """Return the unit in which a window is counted: a second, or more if there were too many."""
    return float(max(1, math.ceil(window_s / ROUNDS_OF_A_WINDOW_MAX)))


def rounds_for(checkpoints: int, longest_timeout_s: float) -> tuple[int, float]:
    """Return the number of rounds, and their length in seconds, of a window of ``checkpoints`` cycles."""
    window_s = checkpoints * longest_timeout_s + SLACK_S
    unit_s = unit_of_window_s(window_s)
    return max(2, math.ceil(window_s / unit_s)), unit_s


def with_window(study: Study, timeouts_s: Iterable[float | None]) -> Study:
    """Return the study with the window of its checkpoint cycles for servers with these timeouts."""
    known = [seconds for seconds in timeouts_s if seconds]
    if study.checkpoints is None or not known:
        return study
    rounds, unit_s = rounds_for(study.checkpoints, max(known))
    return study.model_copy(update={"rounds": rounds, "slice_s": unit_s})


# ----------------------------------------------------------------------
# The blocks of a study: layout, order of arms and slices, purpose of a slice. Pure in the study's seed.
# ----------------------------------------------------------------------


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


def seed_of(seed: int, part: object) -> int:
    """Return the seed of a part of a study, which does not depend on the other parts."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{part}".encode(), digest_size=6).digest(), "big")


def block_of(study: Study, index: int) -> PlannedBlock:
    """Return one block. Each block has its own random stream, so that a resumed study has the same blocks."""
    seed = seed_of(study.seed, index)
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


# ----------------------------------------------------------------------
# Hidden A/A blocks: the arm that is doubled, and the position. A pure function of the seed of the study.
#
# One A/A block follows one in BLOCKS_PER_AA blocks of a case, after the first BLOCKS_PER_AA. It compares an
# arm with a second server of the same build and settings, restored from the same snapshot, under the same
# schedule. It is an ordinary block of two arms, and therefore shows the noise of such blocks
# (docs/adr/0011-hidden-aa.md).
# ----------------------------------------------------------------------

BLOCKS_PER_AA = 10
"""Blocks per A/A block, and blocks before the first one. A study with a clear result has ended by then, and a
noise floor almost never changes a verdict."""


def aa_arms(study: Study) -> list[int]:
    """Return the arms that can be doubled: those whose server pgdyno starts."""
    return [index for index, arm in enumerate(study.arms) if not arm.is_dsn]


def why_no_aa(study: Study) -> str:
    """Return the reason why a study has no A/A blocks; empty if it has them."""
    if not study.aa:
        return f"disabled by {study.aa_refused_by}" if study.aa_refused_by else "disabled"
    if study.schedule == "sequential":
        return "the schedule sequential runs all blocks of one arm before the next arm"
    if not aa_arms(study):
        return "all arms are running servers, which pgdyno cannot start a second time"
    return ""


def aa_arm_after(study: Study, block: int) -> int | None:
    """Return the arm of the A/A block that follows this block, or None if none follows.

    The position within each BLOCKS_PER_AA blocks is random, so that A/A blocks do not coincide with periodic
    activity. The arms take turns in a random order: the noise of A vs. B is the mean of the noises of A vs. A
    and of B vs. B.
    """
    arms = [] if why_no_aa(study) else aa_arms(study)
    group, place = divmod(block, BLOCKS_PER_AA)
    if not arms or group == 0 or place != _stream(study, "place", group).randrange(BLOCKS_PER_AA):
        return None
    cycle, turn = divmod(group - 1, len(arms))
    return _stream(study, "turns", cycle).sample(arms, len(arms))[turn]


def share_of_time(study: Study) -> float:
    """Return the time of A/A blocks as a share of the other blocks: a tenth with two arms.

    For blocks after the first BLOCKS_PER_AA.
    """
    return 0.0 if why_no_aa(study) else 2 / (BLOCKS_PER_AA * len(study.arms))


def aa_study(study: Study, arm: int) -> Study:
    """Return the comparison of an arm with a second identical server.

    Load and measurement are those of the arm. Tests after the measured part (crash, VACUUM) are omitted,
    because they do not show noise.
    """
    spec, driving = study.arms[arm], study.driving(arm)
    return study.model_copy(
        update={
            **dict(driving),
            "title": f"A/A of {spec.name}",
            "arms": (spec, spec.model_copy(update={"name": f"{spec.name} (A/A)"})),
            "drivings": None,
            "recovery": False,
            "checkpoint_after": False,
            "vacuum_after": False,
            "blocks_max": None,
            "aa": False,
            "seed": seed_of(study.seed, f"aa:{arm}"),
        }
    )


def _stream(study: Study, what: str, number: int) -> random.Random:
    return random.Random(f"{study.seed}:aa {what}:{number}")
