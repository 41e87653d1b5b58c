"""Default values, sizes that fit this machine, the cores of arms, and names of probes.

- Default values of a study that do not depend on the machine.
- Names of the probes (docs/reference/telemetry.md), those of a command, and codes for missing values.
- CPU partition: the cores of a machine in two sets, for two servers driven at the same time. Pure.
- Default sizes for this machine, which are printed and stored, and which options override.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Self, get_args

from pydantic import BaseModel, model_validator

from pgdyno.errors import UsageError
from pgdyno.study.arm_spec import ArmSpec

# ----------------------------------------------------------------------
# Default values of a study that do not depend on the machine.
#
# The command line, study files and the model of a study share them. A workload has its defaults in its
# parameters.
# ----------------------------------------------------------------------


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


TOGETHER = (Schedule.SLICES, Schedule.DUET)


MARGIN = 0.02
"""Equivalence margin, as a share."""

CONFIDENCE = 0.95
"""Confidence level of the intervals."""

BUDGET_MIN = 5.0
"""Time budget of ``pgdyno compare``, in minutes."""

SLICE_S = 0.5
"""Length of a slice: short compared with drift of the machine, long compared with a transaction. With many
clients per core it is longer (``defaults.default_slice_s``)."""

WINDOW_S = 10.0
"""Measured time per arm and block, if the arms take turns in slices or run at the same time. Many short
blocks give more information than few long ones, and a verdict needs five. Restarts take too large a share of
shorter blocks."""

WHOLE_WINDOW_S = 60.0
"""Length of a window with the schedules blocks and sequential, which are for effects that take minutes."""

SHARED_MEMORY_SHARE_MAX = 0.6
"""Maximum share of memory for the shared buffers of all servers that run at the same time. Backends and the
page cache need the remainder; without it a measurement is not realistic."""

DISCARD_S = 0.05
"""Discarded start of a measured slice, in which the clients are still synchronized."""

RETRIES_MAX = 10
"""Maximum number of retries per transaction after a serialization failure or deadlock."""


# ----------------------------------------------------------------------
# Names of the probes (docs/reference/telemetry.md), those of a command, and codes for missing values.
# ----------------------------------------------------------------------

ProbeName = Literal[
    "beside",
    "blocks",
    "checkpoints",
    "database",
    "hardware",
    "host",
    "io",
    "locks",
    "pgstattuple",
    "plans",
    "profile",
    "programs",
    "relations",
    "replication",
    "statements",
    "waits",
    "wal",
    "wal_records",
    "wraparound",
]

ON_REQUEST = frozenset({"beside", "hardware", "pgstattuple", "profile", "statements", "wal_records"})
"""beside requires a program, named in a study file; statements requires a preloaded library, which slows
every statement slightly; pgstattuple reads whole tables; profile requires perf and the permission to use it;
hardware slows every context switch of the server; wal_records reads up to 256 MB of WAL after each trial."""

DEFAULT_PROBES: tuple[ProbeName, ...] = tuple(name for name in get_args(ProbeName) if name not in ON_REQUEST)

ALL_BY_DEFAULT = "default"
"""Value of ``--probe`` that stands for the default probes, so that others can be added."""


def requested_probes(names: Sequence[str] | None) -> Sequence[str]:
    """Return the probes of ``names``. Raises UsageError for an unknown name."""
    known = get_args(ProbeName)
    if not names:
        return DEFAULT_PROBES
    for name in names:
        if name not in (*known, ALL_BY_DEFAULT) and list(names) != ["none"]:
            raise UsageError(
                f"--probe must be one of {', '.join(known)}, {ALL_BY_DEFAULT}, or none alone (got {name!r})"
            )
    if list(names) == ["none"]:
        return ()
    each = (DEFAULT_PROBES if name == ALL_BY_DEFAULT else (name,) for name in names)
    return tuple(dict.fromkeys(probe for of in each for probe in of))


class Absence(StrEnum):
    """Code of the reason for which a probe has no values. The reason itself is text."""

    VERSION = "version"
    """This PostgreSQL version does not have them."""
    SHARED_SERVER = "shared-server"
    """The server counts the work of several arms together."""
    RESET = "reset"
    """The statistics were reset during the measurement."""
    OTHER = "other"


# ----------------------------------------------------------------------
# CPU partition: the cores of a machine in two sets, for two servers driven at the same time. Pure.
# ----------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class Core:
    """A logical CPU with its kernel number. CPUs with equal ``package`` and ``core`` are SMT siblings."""

    package: int
    core: int
    number: int


class Partition(BaseModel, frozen=True, extra="forbid"):
    """Two sets of cores of equal size; ``resting`` cores stay idle.

    ``of_one_core``: both sets are SMT siblings of one physical core.
    """

    cores: tuple[tuple[int, ...], tuple[int, ...]]
    resting: tuple[int, ...] = ()
    of_one_core: bool = False

    @model_validator(mode="after")
    def _are_disjoint_and_equal(self) -> Self:
        first, second = self.cores
        if not first or len(first) != len(second) or set(first) & set(second):
            raise ValueError("the two CPU partitions must be disjoint and of equal size")
        return self

    @property
    def size(self) -> int:
        """Number of cores per arm."""
        return len(self.cores[0])

    @property
    def all(self) -> frozenset[int]:
        """The cores of both partitions."""
        return frozenset(core for side in self.cores for core in side)


def partition_of(cores: Iterable[Core]) -> Partition:
    """Divide the cores in two sets of whole physical cores.

    Adjacent cores stay together, so that two packages are separate. A single physical core is divided into
    its SMT siblings. Raises UsageError with fewer than two cores.
    """
    known = sorted(cores)
    if len(known) < 2:
        raise UsageError(
            "the schedule duet requires at least 2 cores, half of them for each server (got 1): "
            "use the schedule slices"
        )
    physical: dict[tuple[int, int], list[int]] = {}
    for core in known:
        physical.setdefault((core.package, core.core), []).append(core.number)
    groups = list(physical.values())
    one = len(groups) == 1
    if one:
        groups = [[number] for number in groups[0]]
    half = len(groups) // 2
    first, second = ([n for group in part for n in group] for part in (groups[:half], groups[-half:]))
    # If only some SMT siblings of a core are available, one side can have more.
    size = min(len(first), len(second))
    sides = (tuple(sorted(first[:size])), tuple(sorted(second[:size])))
    resting = sorted({core.number for core in known} - {*sides[0], *sides[1]})
    return Partition(cores=sides, resting=tuple(resting), of_one_core=one)


# ----------------------------------------------------------------------
# Default sizes for this machine, which are printed and stored, and which options override.
# ----------------------------------------------------------------------

RUN_CLIENTS_MAX = 1_000_000
"""Maximum number of clients, and of threads, of all load generators together, per arm."""

MAX_CLIENTS = 2000
"""Maximum number of clients of a load generator, per arm."""

MAX_THREADS = 256
"""Maximum number of threads of a load generator, per arm."""

PER_GENERATOR = {"clients": MAX_CLIENTS, "threads": MAX_THREADS}
"""Both maxima, by the name of the option."""


@dataclass(frozen=True)
class MachineSize:
    """Resources of the machine: cores available to this process, and memory."""

    cores: int
    memory_bytes: int


def default_clients(machine: MachineSize, *, searched: bool = False) -> int:
    """Return four clients per core: enough to keep all cores busy during WAL syncs, without long queues.

    The maximum of a search is 16 per core. The data grow with the clients, so more would take longer to load.
    """
    return min(MAX_CLIENTS, (16 if searched else 4) * machine.cores)


def default_size(machine: MachineSize, clients: int, arms: int, unit_bytes: float) -> int:
    """Return one warehouse or branch of ``unit_bytes`` per client, limited so that the data of all arms fit
    in a quarter of the memory.

    With fewer warehouses than clients, lock waits dominate the result; with data larger than memory, the disk
    does.
    """
    that_fit = math.floor(machine.memory_bytes / 4 / arms / unit_bytes)
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


WINDOW_SHARE_MIN = 1 / 2
"""Minimum share of the default window that room for more blocks may leave. With 15 blocks of 5 s instead of
eight of 10 s, 5 min call 48 to 97% of equal arms with an SD of 1.5 to 1% the same instead of none, and detect
changes of 2 to 5% equally often. With 2 s, 3 min detect 5% in 56 instead of 77% (SD of 10 s: 2.5%; noise of
independent slices)."""

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


def fit_block_layout(
    budget_s: float, arms: int, slice_s: float, schedule: str, targets: Sequence[int]
) -> BlockLayout:
    """Return the default layout, with an even number of rounds.

    The window is WINDOW_S or WHOLE_WINDOW_S. A budget with too little time for the first number of blocks in
    ``targets`` shortens it, down to WINDOW_SHARE_MIN, or as far as needed for the last number. A larger
    budget has more blocks, not longer ones. ``arms``: number of arms that take turns; 1 if they run at the
    same time.
    """
    longest_s = WINDOW_S if schedule in TOGETHER else WHOLE_WINDOW_S
    least = ROUNDS_MIN if ROUNDS_MIN * slice_s <= ROUNDS_MIN_S else 2
    for blocks in targets:
        per_arm_s = max(budget_s / blocks - block_overhead_s(arms), 0.0) / arms
        window_s = min(longest_s, per_arm_s / (1 + WARMUP_SHARE))
        if window_s >= max(WINDOW_SHARE_MIN * longest_s, least * slice_s):
            break
    warmup_s = max(WARMUP_MIN_S, math.ceil(WARMUP_SHARE * window_s))
    rounds = math.floor(min(window_s, per_arm_s - warmup_s) / slice_s / 2) * 2
    if schedule in TOGETHER and slice_s <= SLICE_S:
        # Most arms are steady before. Only a warm-up with so many values can end then, or be extended.
        warmup_s = max(warmup_s, WARMUP_VALUES_MIN * slice_s)
    return BlockLayout(warmup_s=warmup_s, rounds=max(least, rounds))


def whole_rounds(window_s: float, slice_s: float, schedule: str) -> int:
    """Return the number of slices nearest to the window: at least two, and even if rounds come in pairs."""
    pair = 2 if schedule in TOGETHER else 1
    slices = min(
        window_s / slice_s, 10.0 * ROUNDS_OF_A_WINDOW_MAX
    )  # avoids overflow; the caller refuses so many
    return max(2, pair * round(slices / pair))
