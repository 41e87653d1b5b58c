"""What will be run: the study (a value that fits into JSON) and its blocks, a pure function of its seed."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pgdyno.study.arm_spec import ArmSpec
from pgdyno.study.capacity_search import parse_limit
from pgdyno.study.cpu_partition import Partition
from pgdyno.study.pgbench_parameters import PgbenchParameters
from pgdyno.study.probe_names import DEFAULT_PROBES, ProbeName
from pgdyno.study.schedule import Role, Schedule
from pgdyno.study.sizing import MAX_CLIENTS, ROUNDS_OF_A_WINDOW_MAX, SLICE_S_MAX, SLICE_S_MIN
from pgdyno.study.tpcc_parameters import TpccParameters

DISCARD_S = 0.05
"""Of a measured slice's start, by default: there the clients are in step."""


class Rate(BaseModel):
    """Open loop: arrivals per second of all clients of an arm together."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    per_s: float = Field(gt=0, le=10_000_000)
    arrivals: Literal["constant", "poisson"] = "poisson"


Workload = Annotated[TpccParameters | PgbenchParameters, Field(discriminator="kind")]


class Driving(BaseModel):
    """How clients drive one arm: what a single run of the driver needs to know beside its slices."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workload: Workload
    clients: int = Field(ge=1, le=MAX_CLIENTS)
    threads: int | None = Field(default=None, ge=1, le=256)
    pacing: Literal["none", "keying-and-thinking"] = "none"
    rate: Rate | None = None
    retries_max: int = Field(default=10, ge=0, le=1000)
    discard_s: float = Field(default=DISCARD_S, ge=0, le=10)

    @model_validator(mode="after")
    def _one_says_when(self) -> Self:
        if self.rate and self.pacing != "none":
            raise ValueError("rate and pacing exclude each other: each says when a transaction starts")
        if self.pacing != "none" and not self.workload.HAS_PACING:
            raise ValueError(
                f"the clients of {self.workload.kind} neither key nor think: leave --pacing away"
            )
        return self


INTERIM_ANALYSES_FROM = 5
"""Blocks before which no verdict is given: the spread of fewer is hardly known."""


def require_duet(arms: Sequence[ArmSpec]) -> None:
    """Raises ValueError where these arms cannot be driven at the same time on half of the cores each."""
    if len(arms) != 2:
        raise ValueError(
            f"duet is for two arms at the same time, and here are {len(arms)}: take the schedule slices"
        )
    for arm in arms:
        if arm.is_dsn:
            raise ValueError(
                f"duet keeps each server to half of the cores, and {arm.name} runs already, so that its "
                "processes are not ours: take the schedule slices"
            )


LIMIT_S = 90 * 86_400.0
"""Of a window bound by transactions: what is not done after 90 days will not be done."""


TRANSACTIONS_PER_CLIENT_PER_S = 1000.0
"""Of a server in good health: what takes longer is watched a little more finely than need be."""


MARGIN = 0.02
"""Equivalence margin, as a share, where none is given."""

CONFIDENCE = 0.95
"""Confidence level of the intervals, where none is given."""

CHECKPOINTS_MAX = 1000
"""Checkpoint cycles in one window: more than a month at the default checkpoint_timeout is a typing error."""


class Study(Driving):
    """Everything that decides what is run in one comparison, or one case of a study file.

    It is stored in the evidence, and a resume reads it from there. Where arms differ in how they are driven,
    ``drivings`` has one for each, and what the study says itself is of the baseline. ``halves`` are the cores
    of a duet, known when it is made ready on a machine. With ``warmup_min_s`` a
    warm-up ends by evidence between it and ``warmup_s``, without it takes ``warmup_s``. Each window of whole
    ``checkpoints`` cycles begins with a checkpoint; how long it is, ``rounds`` and ``slice_s`` say.
    """

    title: str
    arms: tuple[ArmSpec, ...] = Field(min_length=2)
    drivings: tuple[Driving, ...] | None = None
    schedule: Schedule = Schedule.SLICES
    halves: Partition | None = None
    transactions: int | None = Field(default=None, ge=1, le=10**9)
    checkpoints: int | None = Field(default=None, ge=1, le=CHECKPOINTS_MAX)
    warmup_workload: Workload | None = None
    cache_state: Literal["restored", "cold", "prewarmed"] = "restored"
    probes: tuple[ProbeName, ...] = DEFAULT_PROBES
    recovery: bool = False
    vacuum_after: bool = False
    checksums: bool = True
    wal_segment_mb: int | None = Field(default=None, ge=1, le=1024)
    slice_s: float = Field(default=1.0, ge=SLICE_S_MIN, le=SLICE_S_MAX)
    warmup_s: float = Field(ge=0, le=86_400)
    warmup_min_s: float | None = Field(default=None, ge=0, le=86_400)
    rounds: int = Field(ge=2, le=ROUNDS_OF_A_WINDOW_MAX)
    budget_s: float = Field(gt=0)
    stop: Literal["verdict", "budget"] = "verdict"
    blocks_max: int | None = Field(default=None, ge=1)
    margin: float = Field(default=MARGIN, gt=0, lt=1)
    confidence: float = Field(default=CONFIDENCE, gt=0.5, lt=1)
    capacity: str | None = None  # a latency limit (capacity_search.py): up to which rate is it kept?
    seed: int = Field(ge=0, lt=2**53)
    on_failure: Literal["continue", "stop"] = "continue"
    nearest: bool = False
    into_existing: bool = False
    aa: bool = True
    aa_refused_by: str = ""  # in words
    slice_from: str = ""
    resumed_for_more: bool = False  # time was added when it was resumed: someone may have looked before

    @model_validator(mode="after")
    def _slices_have_a_counted_part(self) -> Self:
        if self.discard_s >= self.slice_s:
            raise ValueError(f"discard ({self.discard_s} s) leaves nothing of a slice ({self.slice_s} s)")
        if error := self.schedule.rounds_error(self.rounds):
            raise ValueError(f"rounds {error}")
        return self

    @model_validator(mode="after")
    def _warmup_can_end(self) -> Self:
        if self.warmup_min_s is None:
            return self
        if self.warmup_min_s > self.warmup_s:
            raise ValueError(
                f"the shortest warm-up ({self.warmup_min_s:g} s) is longer than the longest "
                f"({self.warmup_s:g} s)"
            )
        if self.warmup_workload is not None:
            raise ValueError("a warm-up by another workload is not watched: give it a time")
        return self

    @model_validator(mode="after")
    def _schedule_can_be_kept(self) -> Self:
        if self.transactions is not None and self.is_together:
            raise ValueError("a window bound by transactions is one piece: take the schedule blocks")
        if self.checkpoints is not None and self.is_together:
            raise ValueError("checkpoint cycles are measured one arm at a time: take the schedule blocks")
        if self.checkpoints is not None and self.transactions is not None:
            raise ValueError("a window is bound by transactions or by checkpoints, not by both")
        if self.schedule == "sequential" and self.blocks_max is None:
            raise ValueError("the schedule sequential needs to know its repeats (blocks) beforehand")
        return self

    @model_validator(mode="after")
    def _two_servers_of_ours_play_a_duet(self) -> Self:
        if self.schedule == "duet":
            require_duet(self.arms)
        return self

    @model_validator(mode="after")
    def _drivings_are_of_the_arms(self) -> Self:
        if self.drivings is None:
            return self
        if len(self.drivings) != len(self.arms):
            raise ValueError("there must be a driving for each arm")
        if len({driving.workload.kind for driving in self.drivings}) > 1:
            raise ValueError("arms with different workloads cannot be compared")
        return self

    @property
    def stops_on_verdict(self) -> bool:
        """Whether it looks after every block. Not where there is one look only: all of one arm come first, or
        there are no more blocks than a verdict needs.
        """
        return self.stop == "verdict" and self.may_have_several_looks

    @property
    def may_have_several_looks(self) -> bool:
        """By anybody, while it goes on."""
        return self.schedule != "sequential" and (
            self.blocks_max is None or self.blocks_max > INTERIM_ANALYSES_FROM
        )

    @property
    def is_together(self) -> bool:
        """Whether the servers of all arms are up at the same time, and their trials cut into slices."""
        return self.schedule.is_together

    @model_validator(mode="after")
    def _capacity_can_be_sought(self) -> Self:
        if self.capacity is not None:
            parse_limit(self.capacity)
        if self.capacity is not None and self.pacing != "none":
            raise ValueError("capacity and pacing exclude each other: a capacity is a rate")
        if self.searches_capacity and self.schedule == "duet":
            raise ValueError("capacity is searched for one arm at a time: take the schedule slices or blocks")
        return self

    @property
    def searches_capacity(self) -> bool:
        """Whether each block finds its rate by itself; of a rate that is given a sweep tells the capacity."""
        return self.capacity is not None and self.rate is None

    @property
    def may_be_looked_at_again(self) -> bool:
        """Whether the number of blocks was not fixed beforehand, so that one look is not all."""
        return self.stops_on_verdict or self.resumed_for_more

    @property
    def rate_per_s(self) -> float | None:
        """Of an open loop with a given rate; None without one."""
        return self.rate.per_s if self.rate else None

    @property
    def load_is_fixed(self) -> bool:
        """Whether the clients start transactions by the clock, however fast the server is."""
        return self.rate is not None or self.pacing != "none" or self.searches_capacity

    @property
    def turn_s(self) -> float | None:
        """The length of a measured slice; None where a trial is one piece."""
        return self.slice_s if self.is_together else None

    @property
    def window_s(self) -> float | None:
        """The measured time per trial; None of a window bound by transactions."""
        return None if self.transactions else self.rounds * self.slice_s

    def without_passwords(self) -> Self:
        """Return the study as it may be stored. A resumed study finds passwords as libpq does."""
        return self.model_copy(update={"arms": tuple(arm.without_password() for arm in self.arms)})

    def driving(self, arm: int) -> Driving:
        """How the clients of one arm drive it."""
        return self if self.drivings is None else self.drivings[arm]

    def window_likely_s(self) -> float:
        """How long a run of the driver will measure, roughly, to choose how finely it is watched."""
        if self.transactions is not None:
            return self.transactions / TRANSACTIONS_PER_CLIENT_PER_S
        arms = len(self.arms) if self.schedule == "slices" else 1
        return arms * self.rounds * self.slice_s

    def slices_per_trial(self) -> int:
        """Measured slices of one arm in one block."""
        return self.rounds if self.is_together else 1


@dataclass(frozen=True)
class PlannedSlice:
    """One turn of one arm: index of the arm, role, planned duration, and the round it belongs to.

    With ``transactions`` it ends when every client has done as many, and the duration is its limit. In a duet
    the two of a round are driven at the same time, each on its ``half`` of the cores, 0 or 1.
    """

    arm: int
    role: Role
    duration_s: float
    round: int
    transactions: int | None = None
    half: int | None = None


@dataclass(frozen=True)
class PlannedBlock:
    """One trial of every arm: the block's seed (the same for all its arms) and the order of the arms."""

    index: int
    seed: int
    order: tuple[int, ...]
    slices: tuple[PlannedSlice, ...]


def blocks_of(study: Study, first: int = 0) -> Iterator[PlannedBlock]:
    """The blocks from number ``first`` on; endless unless ``blocks_max`` is set. Pure in the study's seed."""
    index = first
    while study.blocks_max is None or index < study.blocks_max:
        yield block_of(study, index)
        index += 1


def block_of(study: Study, index: int) -> PlannedBlock:
    """One block. Each block has a random stream of its own, so that a resumed study gets the same blocks."""
    digest = hashlib.blake2b(f"{study.seed}:{index}".encode(), digest_size=6).digest()
    seed = int.from_bytes(digest, "big")
    rng = random.Random(seed)
    arms = list(range(len(study.arms)))
    order = tuple(arms if study.schedule == "sequential" else rng.sample(arms, len(arms)))
    if study.schedule == "slices":
        slices = tuple(_interleaved(study, rng))
    elif study.schedule == "duet":
        slices = tuple(_duet(study, rng))
    else:
        slices = tuple(s for arm in order for s in _whole(study, arm))
    return PlannedBlock(index=index, seed=seed, order=order, slices=slices)


def _interleaved(study: Study, rng: random.Random) -> Iterator[PlannedSlice]:
    """Rounds of one slice of each arm. A round is a random order, the next one its mirror image (ABBA).

    The mirror balances every pair of arms against a drift that is linear over the two rounds. The
    warm-up is laid out in the same way, in slices of about the same length.
    """
    for role, rounds, slice_s in _parts(study):
        order: list[int] = []
        for number in range(rounds):
            order = order[::-1] if number % 2 else rng.sample(range(len(study.arms)), len(study.arms))
            for arm in order:
                yield PlannedSlice(arm, role, slice_s, number)


def _duet(study: Study, rng: random.Random) -> Iterator[PlannedSlice]:
    """Rounds of one slice of both arms at once. Which arm has which half of the cores is drawn for a round,
    and the next one is its mirror image: so each has each half as often, whatever drifts.
    """
    for role, rounds, slice_s in _parts(study):
        halves: list[int] = []
        for number in range(rounds):
            halves = halves[::-1] if number % 2 else rng.sample((0, 1), 2)
            for arm, half in enumerate(halves):
                yield PlannedSlice(arm, role, slice_s, number, half=half)


def _parts(study: Study) -> list[tuple[Role, int, float]]:
    """Warm-up and measured part: how many rounds of how long slices; an even number of them."""
    warm_rounds = 2 * max(1, round(study.warmup_s / study.slice_s / 2)) if study.warmup_s > 0 else 0
    return [
        (Role.WARM_UP, warm_rounds, study.warmup_s / max(1, warm_rounds)),
        (Role.MEASURE, study.rounds, study.slice_s),
    ]


def _whole(study: Study, arm: int) -> Iterator[PlannedSlice]:
    if study.warmup_s > 0:
        yield PlannedSlice(arm, Role.WARM_UP, study.warmup_s, 0)
    if study.transactions is not None:
        yield PlannedSlice(arm, Role.MEASURE, LIMIT_S, 0, study.transactions)
    else:
        yield PlannedSlice(arm, Role.MEASURE, study.rounds * study.slice_s, 0)
