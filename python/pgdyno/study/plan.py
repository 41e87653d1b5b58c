"""The plan of a study, as a value that fits into JSON, and when it may stop.

- When interim analyses take place, which may stop a study (docs/explanation/stopping.md), and how many blocks
  verdicts need.
- The study: everything that determines what is run, as a value that fits into JSON.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AliasChoices, BaseModel, Field, model_validator

from pgdyno.study.arm_spec import ArmSpec
from pgdyno.study.defaults import (
    CONFIDENCE,
    DEFAULT_PROBES,
    DISCARD_S,
    MARGIN,
    PER_GENERATOR,
    RETRIES_MAX,
    ROUNDS_OF_A_WINDOW_MAX,
    RUN_CLIENTS_MAX,
    SLICE_S,
    SLICE_S_MAX,
    SLICE_S_MIN,
    Partition,
    ProbeName,
    Schedule,
)
from pgdyno.study.values import CHECKPOINTS_MAX, By, Limit, parse_limit
from pgdyno.study.workload_parameters import Workload
from pgdyno.units import format_duration

# ----------------------------------------------------------------------
# When interim analyses take place, which may stop a study (docs/explanation/stopping.md), and how many blocks
# verdicts need.
#
# ``analysis/statistics/intervals.py`` has the intervals that stay valid under this rule, and
# ``analysis/measurement_noise.py`` computes the verdicts.
# ----------------------------------------------------------------------

VERDICT_BLOCKS_MIN = 5
"""Minimum number of blocks for a verdict, an interim analysis, and the intervals of metrics other than that
of the verdict: with fewer blocks they are too wide to decide anything."""

SAME_BLOCKS_MIN = 15
"""Minimum number of blocks of *same* in a study with interim analyses. Fewer blocks of a skewed distribution
often lack its rare values, and their interval is too narrow (docs/explanation/stopping.md)."""

INTERVAL_BLOCKS_MIN = 2
"""Minimum number of blocks for an interval of the effect: one block has no SD.

A study whose budget ends before its first interim analysis has a single analysis, so Student's interval
holds. Its quantile allows for the uncertain SD. With the noise of ``bench/noise.py``, the 95% interval of 2,
3 and 4 blocks covers in 93.5 to 96.4% of studies (recorded noise: 94.7, 95.5, 92.1%), not less than with 5
blocks (92.6 to 96.1%; 90.7%)."""

BLOCKS_TARGET = 8
"""Number of blocks of a budget that is too short for SAME_BLOCKS_MIN. The width of an interval still
decreases steeply from 5 (Student's t: 2.78 standard errors, anytime-valid: 4.95) to 8 (2.36, 4.00)."""


def block_targets(stop: str | None = None, blocks_max: int | None = None) -> tuple[int, ...]:
    """Return the numbers of blocks for which a budget makes room, the best one first.

    A study that cannot have SAME_BLOCKS_MIN, by its ``blocks_max``, or does not need them, because it has a
    fixed length, does not try.
    """
    may_be_same = stop != "budget" and (blocks_max or SAME_BLOCKS_MIN) >= SAME_BLOCKS_MIN
    return (SAME_BLOCKS_MIN, BLOCKS_TARGET) if may_be_same else (BLOCKS_TARGET,)


# ----------------------------------------------------------------------
# The study: everything that determines what is run, as a value that fits into JSON.
# ----------------------------------------------------------------------


# Types of a study and of the keys of study files, with their ranges.
Arrivals = Literal["constant", "poisson"]
CacheState = Literal["restored", "cold", "prewarmed"]
Checkpoints = Annotated[int, Field(ge=1, le=CHECKPOINTS_MAX)]
Confidence = Annotated[float, Field(gt=0.5, lt=1)]
Margin = Annotated[float, Field(gt=0, lt=1)]
OnFailure = Literal["continue", "stop"]
Pacing = Literal["none", "keying-and-thinking"]
Seed = Annotated[int, Field(ge=0, lt=2**53)]
Stop = Literal["verdict", "budget"]
Transactions = Annotated[int, Field(ge=1, le=10**9)]


class Rate(BaseModel, frozen=True, extra="forbid"):
    """Open-loop load: arrivals per second of all clients of an arm together."""

    per_s: float = Field(gt=0, le=10_000_000)
    arrivals: Arrivals = "poisson"


class Driving(BaseModel, frozen=True, extra="forbid"):
    """Load on one arm: the parameters of one run of the engine, without its slices."""

    workload: Workload
    clients: int = Field(ge=1, le=RUN_CLIENTS_MAX)
    threads: int | None = Field(default=None, ge=1, le=RUN_CLIENTS_MAX)
    pacing: Pacing = "none"
    rate: Rate | None = None
    retries_max: int = Field(default=RETRIES_MAX, ge=0, le=1000)
    discard_s: float = Field(default=DISCARD_S, ge=0, le=10)

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        if self.rate and self.pacing != "none":
            raise ValueError(
                "--rate and --pacing exclude each other, because both set the start times: remove one of them"
            )
        if self.pacing != "none" and not self.workload.HAS_PACING:
            raise ValueError(
                f"--pacing={self.pacing} requires the workload tpcc (got {self.workload.kind}): remove it"
            )
        if self.rate and self.workload.HAS_RATES:
            raise ValueError(f"--rate and --workload={self.workload.kind} exclude each other: remove --rate")
        self.workload.require_clients(self.clients)
        return self


DRIVERS_MAX = 1000
"""Maximum number of load generators."""


class DriversPlan(BaseModel, frozen=True, extra="forbid"):
    """``n`` load generators per block, on nodes of a Ray cluster.

    ``nodes``: names of the nodes to choose from; empty: all. ``address``: of the cluster; empty: that of
    this machine. ``on_node_loss``: what follows when fewer than ``n`` nodes are left.
    """

    n: int = Field(ge=1, le=DRIVERS_MAX)
    nodes: tuple[str, ...] = ()
    address: str = ""
    on_node_loss: Literal["stop", "continue"] = "stop"

    @model_validator(mode="after")
    def _nodes_are_enough(self) -> Self:
        if len(set(self.nodes)) < len(self.nodes):
            raise ValueError(f"--drivers must name each node once (got {', '.join(self.nodes)})")
        if self.nodes and self.n > len(self.nodes):
            raise ValueError(f"--drivers={self.n} requires as many nodes (got {len(self.nodes)})")
        return self


def window_conflict(**lengths: object) -> str:
    """Return why a window cannot have all of these lengths, by option; empty if it can."""
    given = [f"--{name}" for name, length in lengths.items() if length is not None]
    return f"{' and '.join(given)} exclude each other: keep one of them" if len(given) > 1 else ""


TRANSACTIONS_PER_CLIENT_PER_S = 1000.0
"""Assumed rate, used only to choose the sampling interval of a window of transactions."""


class Study(Driving, frozen=True):
    """Everything that determines what is run in one comparison, or in one case of a study file.

    The results file contains it, and ``--resume`` reads it from there. If arms are driven differently,
    ``drivings`` has one entry per arm, and the fields of the study describe the baseline. ``cpu_partition``:
    that of a duet, set by the preparation on a machine. With ``warmup_min_s`` a warm-up ends at steady
    state, between this time and ``warmup_s``; without it the warm-up takes ``warmup_s``. A window of whole
    ``checkpoints`` cycles starts with a forced checkpoint; ``rounds`` and ``slice_s`` give its length.
    """

    title: str
    arms: tuple[ArmSpec, ...] = Field(min_length=2)
    drivings: tuple[Driving, ...] | None = None
    schedule: Schedule = Schedule.SLICES
    cpu_partition: Partition | None = Field(
        default=None,
        validation_alias=AliasChoices("cpu_partition", "halves"),  # "halves": results files until 2026-11
    )
    transactions: Transactions | None = None
    checkpoints: Checkpoints | None = None
    warmup_workload: Workload | None = None
    cache_state: CacheState = "restored"
    probes: tuple[ProbeName, ...] = DEFAULT_PROBES
    recovery: bool = False
    checkpoint_after: bool = False
    vacuum_after: bool = False
    beside: tuple[str, ...] = ()  # program and arguments
    checksums: bool = True
    wal_segment_mb: int | None = Field(default=None, ge=1, le=1024)
    memory_limit_bytes: int | None = Field(default=None, gt=0)  # of each server with its page cache
    slice_s: float = Field(default=SLICE_S, ge=SLICE_S_MIN, le=SLICE_S_MAX)
    warmup_s: float = Field(ge=0, le=86_400)
    warmup_min_s: float | None = Field(default=None, ge=0, le=86_400)
    rounds: int = Field(ge=2)
    budget_s: float = Field(gt=0)
    stop: Stop = "verdict"
    blocks_max: int | None = Field(default=None, ge=1)
    margin: Margin = MARGIN
    confidence: Confidence = CONFIDENCE
    capacity: Limit | None = None
    capacity_by: By = "rate"
    seed: Seed
    drivers: DriversPlan | None = None  # load generators on other nodes
    on_failure: OnFailure = "continue"
    nearest: bool = False
    into_existing: bool = False
    aa: bool = True
    aa_refused_by: str = ""  # reason, as text
    slice_from: str = ""
    slices_may_grow: bool = False  # after the first block, if transactions are long (defaults.longer_slice_s)
    resumed_for_more: bool = False  # a resume added time, perhaps because of the results so far

    @model_validator(mode="after")
    def _warmup_can_end(self) -> Self:
        least_s, most_s = self.warmup_min_s, self.warmup_s
        if least_s is not None and least_s > most_s:
            raise ValueError(
                f"the minimum of --warmup ({least_s:g} s) must not exceed its maximum ({most_s:g} s)"
            )
        if least_s is not None and self.warmup_workload is not None:
            raise ValueError(
                "the minimum of --warmup and warmup_workload exclude each other: remove one of them"
            )
        return self

    @model_validator(mode="after")
    def _schedule_can_be_kept(self) -> Self:
        if self.discard_s >= self.slice_s:
            raise ValueError(
                f"discard ({self.discard_s:g} s) must be shorter than slice ({self.slice_s:g} s)"
            )
        if self.rounds > ROUNDS_OF_A_WINDOW_MAX:
            longest, one = (format_duration(n * self.slice_s) for n in (ROUNDS_OF_A_WINDOW_MAX, 1))
            raise ValueError(
                f"--window must be at most {longest}, {ROUNDS_OF_A_WINDOW_MAX} slices of {one}: use a "
                "shorter --window, or a longer --slice"
            )
        if conflict := window_conflict(transactions=self.transactions, checkpoints=self.checkpoints):
            raise ValueError(conflict)
        if self.is_together and (self.transactions or self.checkpoints):
            whole = (
                f"--window=checkpoints:{self.checkpoints}"
                if self.checkpoints
                else f"--transactions={self.transactions}"
            )
            raise ValueError(
                f"{whole} measures one arm at a time and cannot be combined with "
                f"--schedule={self.schedule}: use --schedule=blocks"
            )
        if self.rounds % 2 and self.is_together:
            raise ValueError(
                f"--rounds must be even with --schedule={self.schedule} (got {self.rounds}): each round is "
                "followed by its mirror image"
            )
        if self.schedule is Schedule.SEQUENTIAL and self.blocks_max is None:
            raise ValueError("--schedule=sequential requires a fixed number of blocks: set --blocks")
        if self.schedule is Schedule.DUET:
            self._require_duet()
        return self

    def _require_duet(self) -> None:
        """Raise ValueError unless both arms can run at the same time, each on half of the cores."""
        if len(self.arms) != 2:
            raise ValueError(
                f"--schedule=duet requires exactly 2 arms (got {len(self.arms)}): use --schedule=slices"
            )
        for arm in self.arms:
            if arm.is_dsn:
                raise ValueError(
                    f"--schedule=duet requires servers that pgdyno starts (got {arm.name}, a running "
                    "server): use --schedule=slices"
                )
        if self.drivers is not None:
            raise ValueError("--drivers and --schedule=duet exclude each other: use --schedule=slices")
        if self.searches_capacity:
            raise ValueError(
                "--capacity is searched with one arm at a time and cannot be combined with "
                "--schedule=duet: use --schedule=slices, or blocks"
            )

    @model_validator(mode="after")
    def _generators_are_enough(self) -> Self:
        if problem := self.generators_problem(self.drivers.n if self.drivers else 1):
            raise ValueError(problem)
        if self.drivers is None:
            return self
        every = self.drivings or (self,)
        if len({driving.threads for driving in every}) > 1:
            raise ValueError("--drivers requires the same number of --threads for all arms")
        if (fewest := min(driving.clients for driving in every)) < self.drivers.n:
            raise ValueError(
                f"--drivers={self.drivers.n} requires as many --clients (got {fewest}): use fewer drivers"
            )
        return self

    def generators_problem(self, n: int) -> str:
        """Return why ``n`` load generators cannot have all clients or threads; empty if they can."""
        for driving in self.drivings or (self,):
            for what, limit in PER_GENERATOR.items():
                if (count := getattr(driving, what) or 1) > n * limit:
                    per, of = ("", "") if n == 1 else (" per load generator", f" for {n}")
                    return (
                        f"--{what} must be between 1 and {limit}{per} (got {count}{of}): use "
                        f"--drivers={-(-count // limit)}, or fewer {what}"
                    )
        return ""

    @model_validator(mode="after")
    def _each_arm_has_a_driving(self) -> Self:
        if self.drivings is None:
            return self
        if len(self.drivings) != len(self.arms):
            raise ValueError(f"drivings must have one entry per arm (got {len(self.drivings)})")
        if len({driving.workload.kind for driving in self.drivings}) > 1:
            raise ValueError("arms with different workloads cannot be compared")
        return self

    @model_validator(mode="after")
    def _running_servers_suit_the_data(self) -> Self:
        if self.into_existing and not any(arm.is_dsn for arm in self.arms):
            raise ValueError("--into-existing requires a DSN as ARM: remove it, or name a running server")
        for index, arm in enumerate(self.arms):
            if arm.is_dsn and self.driving(index).workload.aging():
                raise ValueError(
                    f"age and pg_upgrade require servers that pgdyno starts (got {arm.name}, a running "
                    "server): name a version or a directory"
                )
        return self

    @property
    def stops_on_verdict(self) -> bool:
        """True if an interim analysis follows each block and can end the study."""
        return self.stop == "verdict" and self.can_have_interim_analyses

    @property
    def can_have_interim_analyses(self) -> bool:
        """True if verdicts are possible before the last block.

        A sequential study has complete blocks only at its end. A study of at most VERDICT_BLOCKS_MIN blocks
        has a single analysis.
        """
        few = self.blocks_max is not None and self.blocks_max <= VERDICT_BLOCKS_MIN
        return self.schedule is not Schedule.SEQUENTIAL and not few

    @property
    def is_together(self) -> bool:
        """True if the servers of all arms run at the same time, and their trials are divided into slices."""
        return self.schedule.is_together

    @model_validator(mode="after")
    def _capacity_can_be_searched(self) -> Self:
        # A client without a task never ends its transactions.
        others = [name for name in ("capacity", "drivers", "transactions") if getattr(self, name) is not None]
        if self.workload.HAS_RATES and others:
            other = f"--{others[0]}"
            raise ValueError(
                f"{other} and --workload={self.workload.kind} exclude each other: remove {other}"
            )
        if self.capacity is not None and self.pacing != "none":
            raise ValueError(
                "--capacity and --pacing exclude each other, because a search sets the load: remove one of "
                "them"
            )
        if self.capacity_by == "clients" and not self.searches_clients:
            raise ValueError("--by=clients requires --capacity, and no --rate: set --capacity")
        if self.searches_clients and self.drivers is not None:
            raise ValueError(
                "--by=clients and --drivers exclude each other, because a search begins with few clients: "
                "use --by=rate"
            )
        return self

    @property
    def has_grown_slices(self) -> bool:
        """True if the slices were lengthened after the first block, because its transactions were long."""
        return self.slices_may_grow and bool(self.slice_from)

    @property
    def limit_text(self) -> str:
        """The latency limit as reports show it; empty without one."""
        return "" if self.capacity is None else str(parse_limit(self.capacity))

    @property
    def searches_capacity(self) -> bool:
        """True if each block searches for its load. With given rates, the levels of the rate determine it."""
        return self.capacity is not None and self.rate is None

    @property
    def searches_clients(self) -> bool:
        """True if each block searches for its number of clients; ``clients`` is the maximum."""
        return self.searches_capacity and self.capacity_by == "clients"

    def clients_text(self, clients: int) -> str:
        """Return the number of clients as text; it is the maximum of a search."""
        return f"up to {clients}" if self.searches_clients else str(clients)

    @property
    def needs_anytime_intervals(self) -> bool:
        """True if intervals must be valid at any stopping time: the number of blocks is not fixed."""
        return self.stops_on_verdict or self.resumed_for_more

    def unmet_minimum(self, blocks: int) -> tuple[int, str] | None:
        """Return the minimum number of blocks of a verdict, or of *same*, if ``blocks`` are fewer."""
        same = SAME_BLOCKS_MIN if self.needs_anytime_intervals else VERDICT_BLOCKS_MIN
        minima = ((VERDICT_BLOCKS_MIN, "a verdict"), (same, "the verdict same"))
        return next((one for one in minima if blocks < one[0]), None)

    @property
    def rate_per_s(self) -> float | None:
        """Rate of an open loop, in transactions per second; None without a given rate."""
        return self.rate.per_s if self.rate else None

    @property
    def load_is_fixed(self) -> bool:
        """True if the clients start transactions at given times, independent of the speed of the server."""
        searches_rate = self.searches_capacity and not self.searches_clients
        return self.rate is not None or self.pacing != "none" or searches_rate

    @property
    def turns(self) -> int:
        """Number of windows of a block that follow one another: a duet runs both arms in one."""
        return 1 if self.schedule == Schedule.DUET else len(self.arms)

    @property
    def turn_s(self) -> float | None:
        """Length of a measured slice; None if a trial is not divided into slices."""
        return self.slice_s if self.is_together else None

    @property
    def window_s(self) -> float | None:
        """Measured time per trial; None for a window of transactions."""
        return None if self.transactions else self.rounds * self.slice_s

    def without_passwords(self) -> Self:
        """Return the study without passwords, to be stored. A resumed study finds them as libpq does."""
        return self.model_copy(update={"arms": tuple(arm.without_password() for arm in self.arms)})

    def driving(self, arm: int) -> Driving:
        """Return how the clients of one arm drive it."""
        return self if self.drivings is None else self.drivings[arm]

    def window_likely_s(self) -> float:
        """Return the approximate measured time of a run of the engine, to choose the sampling interval."""
        if self.transactions is not None:
            return self.transactions / TRANSACTIONS_PER_CLIENT_PER_S
        arms = len(self.arms) if self.schedule == "slices" else 1
        return arms * self.rounds * self.slice_s

    def slices_per_trial(self) -> int:
        """Return the number of measured slices of one arm in one block."""
        return self.rounds if self.is_together else 1
