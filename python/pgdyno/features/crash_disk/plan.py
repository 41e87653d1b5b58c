"""Plan of a crash test: arms, kinds of crash, and the moment of each, which follows from the seed."""

from __future__ import annotations

import random
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, Field

from pgdyno.errors import UsageError
from pgdyno.study.arm_spec import ArmSpec
from pgdyno.study.values import Option
from pgdyno.units import parse_duration_s, parse_size_bytes
from pgdyno.workloads.pgbench.parameters import PgbenchParameters
from pgdyno.workloads.tpcc.parameters import TpccParameters

CUTS = 30
"""Number of crashes per arm of a crash test: none with a loss means a probability below 10%."""

CUTS_MAX = 10_000


class CrashKind(StrEnum):
    """Kind of a crash. ``backend``: one backend ends. ``server``: all processes of the server end. ``power``:
    the power of the machine is cut, so that also the operating system's and the disk's caches are lost.
    """

    BACKEND = "backend"
    SERVER = "server"
    POWER = "power"


class DiskBehavior(StrEnum):
    """Behavior of the simulated disk. ``honest``: without faults. ``lying``: it acknowledges flushes and
    ignores them. ``failing``: one write or flush fails with EIO, and the power is cut up to 2 s later.
    ``full``: no space is left from a moment up to 2 s before the power cut.
    """

    HONEST = "honest"
    LYING = "lying"
    FAILING = "failing"
    FULL = "full"

    @property
    def fails_before_cut(self) -> bool:
        """True if something goes wrong before the power cut."""
        return self in (DiskBehavior.FAILING, DiskBehavior.FULL)


class FileSystem(StrEnum):
    """File system on the simulated disk."""

    EXT4 = "ext4"
    XFS = "xfs"
    BTRFS = "btrfs"


class CrashMoment(StrEnum):
    """Moment of a crash. ``any``: at random. ``checkpoint``, ``vacuum``: during a checkpoint or a VACUUM of
    all tables that begins at a random moment. A power cut then waits until the disk has many unflushed
    writes. ``commit``: a power cut at the next flush after a random moment, before it takes effect:
    usually a commit waits for it.
    """

    ANY = "any"
    COMMIT = "commit"
    CHECKPOINT = "checkpoint"
    VACUUM = "vacuum"

    @property
    def is_forced(self) -> bool:
        """True for a phase that pgdyno starts."""
        return self in (CrashMoment.CHECKPOINT, CrashMoment.VACUUM)


class StandbyCrash(StrEnum):
    """Servers that crash, of a primary and its synchronous standby. ``primary``: the primary; the standby is
    promoted. ``both``: both at the same time; the standby starts again and is promoted. ``standby``: the
    standby, which starts again, catches up and is promoted.
    """

    PRIMARY = "primary"
    BOTH = "both"
    STANDBY = "standby"


class Survivors(StrEnum):
    """Survivors of writes that were not flushed at a power cut: nothing, everything, a random subset of
    blocks of 4 KiB, or the same with some blocks torn at 512 bytes.
    """

    NOTHING = "nothing"
    ALL = "all"
    PIECES = "pieces"
    TORN = "torn"


class CrashWorkload(StrEnum):
    """Transactions of the clients. ``ledger``: the two changes of the ledger alone. ``tpcc``, ``pgbench``:
    each transaction of the workload makes these changes, too.
    """

    LEDGER = "ledger"
    TPCC = "tpcc"
    PGBENCH = "pgbench"


ACTIVE_S_MIN = 1.0
ACTIVE_S_MAX = 5.0
"""Default range of the time from the first transaction until the crash: at least five cycles of the WAL
writer, and the whole cycle of a file system's journal (5 s)."""

ACTIVE_S_LIMIT = 3600.0


DELAY_S_MAX = 0.1
"""Maximum time from the start of a forced checkpoint or VACUUM until a crash of the server."""

FAULT_S_MAX = 2.0
"""Maximum time from a fault of the disk until the power cut: the server can restart within it."""

DISK_OPERATIONS = ("write", "flush")
"""Operations of the disk that can fail."""

FAILING_NTH_MAX = 32
"""The fault hits one of this many next operations, so that it is not always of the same file."""

VOLATILE_RANGES = {CrashMoment.CHECKPOINT: (16, 128), CrashMoment.VACUUM: (4, 32)}
"""Number of unflushed blocks of 4 KiB at a power cut in a phase, from and to. Commits of a few clients leave
less than a checkpoint, which writes 64 at a time. A VACUUM of the small tables leaves about 60 in all."""


DISK_BLOCK_BYTES = 4096
DISK_BYTES_MIN = 1 << 30
DISK_BYTES_MAX = 1 << 40
"""Range of the size of the simulated disk: a cluster with 1 GB of WAL does not fit into less."""


def parse_active_s(text: str) -> float:
    """Parse the time until a crash. Raises UsageError."""
    active_s = parse_duration_s(text)
    if not ACTIVE_S_MIN <= active_s <= ACTIVE_S_LIMIT:
        raise UsageError(f"must be at least 1s and at most 1h (got {text})")
    return active_s


def parse_disk_bytes(text: str) -> int:
    """Parse the size of a disk, in whole blocks. Raises UsageError."""
    size = parse_size_bytes(text) // DISK_BLOCK_BYTES * DISK_BLOCK_BYTES
    if not DISK_BYTES_MIN <= size <= DISK_BYTES_MAX:
        raise UsageError(f"must be at least 1GB and at most 1TB (got {text})")
    return size


class CrashPlan(BaseModel, frozen=True, extra="forbid"):
    """A crash test as the user requested it. ``cuts``: crashes per arm."""

    arms: tuple[ArmSpec, ...] = Field(min_length=1)
    kind: Annotated[CrashKind, Option()] = Field(
        default=CrashKind.POWER,
        description="What ends. backend: one backend. server: all processes of the server. power: the power "
        "of the machine; needs root, /dev/fuse and a loop device.",
    )
    real: Annotated[bool, Option()] = Field(
        default=False,
        description="The arm is a running server on another machine, as a DSN, and you cut the power of that "
        "machine. pgdyno counts what is lost when the server is back.",
    )
    disk: Annotated[DiskBehavior, Option()] = Field(
        default=DiskBehavior.HONEST,
        description="Behavior of the simulated disk of --kind power. lying: it acknowledges flushes and "
        "ignores them. failing: a write or flush fails, and the power is cut up to 2 s later. full: no space "
        "is left from a moment up to 2 s before the power cut.",
    )
    file_system: Annotated[FileSystem, Option()] = Field(
        default=FileSystem.EXT4, description="File system on the simulated disk; needs its mkfs."
    )
    at: Annotated[CrashMoment, Option()] = Field(
        default=CrashMoment.ANY,
        description="Moment of a crash, from 1 s after the first transaction until --within. any: at random. "
        "commit: a power cut at the next flush, before it takes effect. checkpoint, vacuum: during a forced "
        "checkpoint or a VACUUM; a power cut then waits for unflushed writes.",
    )
    standby: Annotated[StandbyCrash | None, Option(default="no standby")] = Field(
        default=None,
        description="Add a synchronous standby on the same machine, with its own disk, and audit it after "
        "its promotion. primary: the primary crashes. both: both crash at the same time. standby: it crashes "
        "alone, starts again and catches up.",
    )
    survivors: Annotated[Survivors | None, Option(default="a random one per cut")] = Field(
        default=None,
        description="What survives a power cut of writes that were not flushed: nothing, all, a random "
        "subset of blocks of 4 KiB (pieces), or the same with blocks torn at 512 bytes.",
    )
    workload: Annotated[CrashWorkload, Option()] = Field(
        default=CrashWorkload.LEDGER,
        description="Transactions of the clients. ledger: two changes that the audit checks. tpcc, pgbench: "
        "the transactions of the workload with these changes added; its consistency is checked as well.",
    )
    scale: Annotated[int, Option("N", has_range=True)] = Field(
        default=1, ge=1, le=1000, description="Warehouses of tpcc, or scale of pgbench."
    )
    active_s_max: Annotated[
        float, Option("DURATION", ("--within",), f"{ACTIVE_S_MAX:g}s", parse=parse_active_s)
    ] = Field(
        default=ACTIVE_S_MAX,
        ge=ACTIVE_S_MIN,
        le=ACTIVE_S_LIMIT,
        description="Longest time from the first transaction until a crash, 1s to 1h. With fsync=off the "
        "kernel writes data back after about 30 s.",
    )
    cuts: Annotated[int, Option("N", has_range=True)] = Field(
        default=CUTS, ge=1, le=CUTS_MAX, description="Number of crashes per arm."
    )
    clients: Annotated[int, Option("N", has_range=True)] = Field(
        default=8, ge=1, le=80, description="Number of client connections."
    )
    slots: int = Field(default=2000, gt=0, le=1_000_000)
    disk_bytes: Annotated[int, Option("SIZE", ("--disk-size",), "4GB", parse=parse_disk_bytes)] = Field(
        default=4 << 30,
        ge=DISK_BYTES_MIN,
        le=DISK_BYTES_MAX,
        multiple_of=DISK_BLOCK_BYTES,
        description="Size of the simulated disk, at least 1GB.",
    )
    checksums: bool = True
    wal_segment_mb: int | None = None
    seed: int = 0

    @property
    def parameters(self) -> TpccParameters | PgbenchParameters | None:
        """Parameters of the workload; None for the ledger alone."""
        match self.workload:
            case CrashWorkload.TPCC:
                return TpccParameters(warehouses=self.scale)
            case CrashWorkload.PGBENCH:
                return PgbenchParameters(scale=self.scale)
        return None


class PlannedCrash(BaseModel, frozen=True):
    """One crash of one arm. ``active_s``: time from the first transaction until the crash, the forced
    checkpoint or VACUUM, or the fault of the disk. ``delay_s`` then separates a crash of the server from the
    start of the checkpoint; a power cut waits for ``volatile`` unflushed blocks. ``key``: part of all
    checksums of its rows. With a failing disk the ``failing_nth`` ``failing_operation`` fails; ``fault_s``
    separates a fault from the power cut.
    """

    number: int
    arm: int
    active_s: float
    delay_s: float
    volatile: int
    survivors: Survivors
    seed: int
    key: int
    failing_operation: str
    failing_nth: int
    fault_s: float


def planned_crash(plan: CrashPlan, number: int, arm: int) -> PlannedCrash:
    """Return a crash, from 0 to ``cuts`` - 1. All arms crash at the same time of their n-th run."""
    shared, own = random.Random(f"{plan.seed} {number}"), random.Random(f"{plan.seed} {number} {arm}")
    active_s, delay_s = shared.uniform(ACTIVE_S_MIN, plan.active_s_max), shared.uniform(0, DELAY_S_MAX)
    survivors = shared.choice(list(Survivors))
    return PlannedCrash(
        number=number,
        arm=arm,
        active_s=active_s,
        delay_s=delay_s,
        survivors=plan.survivors or survivors,
        volatile=shared.randint(*VOLATILE_RANGES.get(plan.at, VOLATILE_RANGES[CrashMoment.CHECKPOINT])),
        failing_operation=shared.choice(DISK_OPERATIONS),
        failing_nth=shared.randint(1, FAILING_NTH_MAX),
        fault_s=shared.uniform(0, FAULT_S_MAX),
        seed=own.getrandbits(53),
        key=own.getrandbits(53),
    )
