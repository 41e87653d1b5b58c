"""Typed records of a results file: one per table of ``schema.sql``, which defines the units.

Times of slices and intervals are seconds since the trial's epoch (the start of the driver's run).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pgdyno.results.driver_facts import DriverFacts
from pgdyno.results.recorded_facts import EngineFacts, HostFacts, ServerFacts, facts_from
from pgdyno.study.plan import Study
from pgdyno.study.probe_names import Absence
from pgdyno.study.schedule import Role
from pgdyno.workload.interface import Check

Json = Mapping[str, Any]
Pairs = npt.NDArray[np.uint64]
"""Shape (n, 2): value in ns, count; ascending in the value."""
Points = npt.NDArray[np.float64]
"""Shape (samples, columns)."""


class BlockStatus(StrEnum):
    """Status of a block. It is done when every arm has had its trial, with any status."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class TrialStatus(StrEnum):
    """Status of a trial."""

    RUNNING = "running"
    OK = "ok"
    EXCLUDED = "excluded"  # ran, but a check failed
    FAILED = "failed"  # did not run to its end
    INTERRUPTED = "interrupted"  # stopped by the user or by a kill: to be repeated
    SUPERSEDED = "superseded"  # counted until the warm-up was extended. Derived, not stored


class StudyEnd(StrEnum):
    """Reason why a study ended."""

    VERDICT = "verdict"
    BUDGET = "budget"
    BLOCKS = "blocks"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class Measure(StrEnum):
    """Measured duration: latency = done − intended, service = done − sent, lag = sent − intended.

    ``skipped`` is the time that an arrival waited until it was skipped, a lower bound of its latency.
    """

    LATENCY = "latency"
    SERVICE = "service"
    LAG = "lag"
    SKIPPED = "skipped"


NOT_ASKED_FOR = "not requested"


@dataclass(frozen=True)
class StudyRecord:
    """The row of ``study`` with the values of one of its cases, to which ``plan`` belongs.

    ``case`` is the name of the case, empty for a single case. ``levels`` are the levels of its factors.
    ``file`` is the text of the study file, and ``changes`` lists the values fitted to this machine.
    ``published`` has the tables of the source, as ``study.published`` reads them. ``arm_levels`` has each
    arm's levels of the compared factors. ``why_no_aa`` is the reason for missing A/A blocks, else empty.
    ``aa_before`` are log ratios of A/A blocks of earlier studies with the same load. ``aa_of`` and
    ``aa_arm`` are set for hidden A/A blocks: the case and the arm that they duplicate.
    """

    title: str
    created_unix_s: float
    pgdyno_version: str
    engine: Json
    command: str
    plan: Study
    host: Json
    ended_unix_s: float | None = None
    ended_because: StudyEnd | None = None
    case: str = ""
    levels: Json = field(default_factory=dict)
    file: str = ""
    changes: Sequence[Json] = ()
    published: Json | None = None
    arm_levels: Sequence[Mapping[str, str]] = ()
    why_no_aa: str = NOT_ASKED_FOR
    aa_of: int | None = None
    aa_arm: int | None = None
    aa_before: Sequence[float] = ()

    @cached_property
    def host_facts(self) -> HostFacts:
        """Facts about the machine. Raises ValueError (pydantic) for a fact of a wrong type."""
        return facts_from(HostFacts, self.host)

    @cached_property
    def engine_facts(self) -> EngineFacts:
        """Facts about the engine. Raises ValueError (pydantic) for a fact of a wrong type."""
        return facts_from(EngineFacts, self.engine)


class Kept(StrEnum):
    """Degree to which a guarantee is kept."""

    YES = "yes"
    PARTLY = "partly"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Guarantee:
    """One guarantee of an arm's settings, with the reason if it is not fully kept."""

    name: str
    kept: Kept
    text: str


@dataclass(frozen=True)
class Arm:
    """One thing compared. Arm 0 is the baseline."""

    arm: int
    name: str
    spec: str
    server: Json
    settings_requested: Mapping[str, str]
    safety: Sequence[Guarantee]
    workload: Json
    clients: int
    dataset: Json

    @cached_property
    def server_facts(self) -> ServerFacts:
        """Facts about the server. Raises ValueError (pydantic) for a fact of a wrong type."""
        return facts_from(ServerFacts, self.server)


@dataclass(frozen=True)
class Block:
    """One trial of every arm, close in time. ``seed`` is below 2**63."""

    block: int
    seed: int
    arm_order: Sequence[int]
    started_unix_s: float
    status: BlockStatus = BlockStatus.RUNNING
    ended_unix_s: float | None = None
    case: int = 0


@dataclass(frozen=True)
class Counts:
    """Transactions of one kind: each is exactly one of the first four; ``retried`` counts attempts."""

    ok: int = 0
    rolled_back: int = 0
    failed: int = 0
    skipped: int = 0
    retried: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Return the sum of both."""
        return Counts(
            self.ok + other.ok,
            self.rolled_back + other.rolled_back,
            self.failed + other.failed,
            self.skipped + other.skipped,
            self.retried + other.retried,
        )

    @property
    def all(self) -> int:
        """The number of transactions."""
        return self.ok + self.rolled_back + self.failed + self.skipped

    @property
    def executed(self) -> int:
        """The number of transactions that ended as designed: committed or rolled back intentionally."""
        return self.ok + self.rolled_back


@dataclass(frozen=True)
class Slice:
    """A short turn of one arm. ``kinds`` counts the transactions that ended in counted_from_s .. closed_s."""

    position: int
    role: Role
    opened_s: float
    counted_from_s: float
    closed_s: float
    drained_s: float
    driver_cpu_user_s: float
    driver_cpu_system_s: float
    kinds: Mapping[str, Counts]

    @property
    def counted_s(self) -> float:
        """The time in which counted transactions ended; 0 if the slice was stopped before it counted."""
        return max(0.0, self.closed_s - self.counted_from_s)

    @property
    def driver_cpu_s(self) -> float:
        """User and system CPU time."""
        return self.driver_cpu_user_s + self.driver_cpu_system_s


@dataclass(frozen=True)
class Interval:
    """Counts of a part of a slice, and latencies of its ok transactions (None without any)."""

    position: int
    role: Role
    from_s: float
    to_s: float
    kinds: Mapping[str, Counts]
    latency_p50_ns: int | None = None
    latency_p95_ns: int | None = None
    latency_p99_ns: int | None = None
    latency_max_ns: int | None = None


class Executed(NamedTuple):
    """Intervals of a trial as columns, for charts: an hour has thousands.

    ``measured`` is false during warm-up. ``n`` counts the transactions that ended as designed.
    """

    measured: npt.NDArray[np.bool_]
    from_s: npt.NDArray[np.float64]
    to_s: npt.NDArray[np.float64]
    n: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Failure:
    """Failed transactions of one kind and SQLSTATE (``connection`` for a lost one), with one message."""

    kind: str
    sqlstate: str
    n: int
    sample: str = ""

    @property
    def message(self) -> str:
        """The message without its SQLSTATE at the end, for texts that have it already."""
        return self.sample.removesuffix(f" (SQLSTATE {self.sqlstate})")


@dataclass(frozen=True)
class Histogram:
    """Durations of the ok, or the skipped, transactions of one kind. See ``Pairs``."""

    kind: str
    measure: Measure
    pairs: Pairs

    @property
    def n(self) -> int:
        """The number of durations."""
        return int(self.pairs[:, 1].sum())


def with_log_error(reason: str, log_error: str) -> str:
    """Return the reason of a trial that is not ok, with the error in the log of its server."""
    return f"{reason}; server log: {log_error}" if log_error else reason


@dataclass(frozen=True)
class TrialOutcome:
    """Results of a trial apart from its slices, written in one transaction.

    ``log_error`` is the first severe message of the server's log, if it explains the ``reason``.
    ``transactions`` are those executed between the two readings of ``server_cpu_s``. ``server_cpu_s`` is
    None if the CPU time of the server cannot be read.
    """

    status: TrialStatus
    ended_unix_s: float
    reason: str = ""
    log_error: str = ""
    epoch_unix_s: float | None = None
    restore_s: float | None = None
    start_s: float | None = None
    server_cpu_s: float | None = None
    transactions: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict)  # of the workload, by name
    driver_memory_bytes: int | None = None
    driver: DriverFacts = field(default_factory=DriverFacts)
    settings: Mapping[str, str] = field(default_factory=dict)
    tally: Json | None = None
    failures: Sequence[Failure] = ()
    histograms: Sequence[Histogram] = ()
    checks: Sequence[Check] = ()
    server_log: str = ""
    recovery_s: float | None = None
    restart_s: float | None = None
    probe_cpu_s: float | None = None
    readings: Sequence[StoredReading] = ()


class Moment(StrEnum):
    """Time of a reading: the barriers before and after the measured part, and after a VACUUM."""

    BEGIN = "begin"
    END = "end"
    AFTER = "after"


@dataclass(frozen=True)
class StoredReading:
    """Raw counters that one probe read at one moment, or the reason why they are missing."""

    probe: str
    moment: Moment
    at_s: float
    took_s: float
    rows: Sequence[Mapping[str, float | int | str | None]] | None
    reason: str = ""
    absence: Absence | None = None  # the code of the reason


@dataclass(frozen=True)
class SampleSeries:
    """Samples of one probe: ``points`` has shape (n, len(columns)), ascending in ``at_s``.

    The first two columns are ``at_s`` (seconds since the trial's epoch) and ``late_s``. NaN marks missing
    values.
    """

    probe: str
    columns: Sequence[str]
    points: Points

    @cached_property
    def step_s(self) -> float:
        """Median time between samples; 1 if there are fewer than two."""
        return float(np.median(np.diff(self.points[:, 0]))) if len(self.points) > 1 else 1.0

    def column(self, name: str) -> npt.NDArray[np.float64]:
        """Return a column; all NaN if the series does not have it."""
        if name not in self.columns:
            return np.full(len(self.points), np.nan)
        return self.points[:, list(self.columns).index(name)]


@dataclass(frozen=True)
class Trial:
    """One arm's part of a block, as read. Histograms and log are large and read separately."""

    trial: int
    block: int
    arm: int
    attempt: int
    status: TrialStatus
    reason: str
    log_error: str
    started_unix_s: float
    ended_unix_s: float | None
    epoch_unix_s: float | None
    restore_s: float | None
    start_s: float | None
    server_cpu_s: float | None
    transactions: int | None
    counters: Mapping[str, int]
    driver_memory_bytes: int | None
    driver: DriverFacts
    settings: Mapping[str, str]
    slices: Sequence[Slice]
    failures: Sequence[Failure]
    checks: Sequence[Check]
    recovery_s: float | None = None
    restart_s: float | None = None
    probe_cpu_s: float | None = None

    @property
    def failed_by_itself(self) -> bool:
        """True if its own server is the cause why it does not count."""
        return self.status is TrialStatus.EXCLUDED or (
            self.status is TrialStatus.FAILED and self.driver.stopped_by is None
        )

    @property
    def full_reason(self) -> str:
        """The reason with the error in the server's log, as text."""
        return with_log_error(self.reason, self.log_error)

    @property
    def measured(self) -> list[Slice]:
        """The measured slices, in order."""
        return [piece for piece in self.slices if piece.role is Role.MEASURE]

    @property
    def driver_cpu_s(self) -> float:
        """CPU time of the driver in the measured slices."""
        return sum(piece.driver_cpu_s for piece in self.measured)
