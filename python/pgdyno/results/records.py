"""Typed records of a results file, and the facts stored in it as JSON.

- Facts about the driver of a trial: the JSON in the column ``driver`` of ``trial``.
- Facts about servers, machine and engine that the analysis compares, from JSON in the results file.
- Typed records of a results file: one per table of ``schema.sql``, which defines the units.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cache, cached_property
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, Field, TypeAdapter

from pgdyno.errors import UsageError
from pgdyno.features.capacity.search import SearchStep, capacity, parse_limit
from pgdyno.study.plan import Study
from pgdyno.study.schedule import Role
from pgdyno.study.sizing import Absence

# ----------------------------------------------------------------------
# Facts about the driver of a trial: the JSON in the column ``driver`` of ``trial``.
#
# A fact that is unknown or does not apply has no key. Unknown keys are ignored.
# ----------------------------------------------------------------------

Whole = Annotated[int, Field(ge=0, lt=2**63)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class RoundTripNs:
    """Quantiles of the time of an empty query; None if unknown."""

    p50: Whole | None = None
    p99: Whole | None = None


@dataclass(frozen=True)
class WakeLateNs(RoundTripNs):
    """Quantiles and maximum of the delay of the driver's timers; None if unknown."""

    max: Whole | None = None


@dataclass(frozen=True)
class CpuTimeNs:
    """CPU time of the driver's process."""

    user: Whole
    system: Whole


@dataclass(frozen=True)
class WarmUpEnd:
    """End of a warm-up: ``by`` evidence (stationarity) or time.

    ``values`` is the number of intervals, ``looks`` that of tests, and ``looks_steady`` that of passed tests.
    ``times``: its maximum as a multiple of the plan's, which a study extends while the effect changes.
    """

    driven_s: NotNegative
    by: Literal["evidence", "time"]
    values: Whole
    looks: Whole
    looks_steady: Whole
    times: Annotated[int, Field(ge=1, lt=2**31)] = 1


@dataclass(frozen=True)
class DriverNode:
    """A load generator on a node. Rates and shares are those of the measured part of the run, with all its
    arms; None if unknown.

    ``clock_spread_s``: largest error of instants between the nodes. ``executed_per_s``: transactions of its
    clients. ``ceiling_per_s``: SELECT 1 of the same clients. ``driver_cpu_share`` and ``busy_share``: of its
    cores, by the engine and by all processes. ``retransmitted_share``: of the segments that it sent by TCP.
    """

    name: str
    threads: Whole
    clients: Whole
    cpu_ns: CpuTimeNs
    wake_late_ns: WakeLateNs
    clock_spread_s: NotNegative
    executed_per_s: NotNegative
    round_trip_ns: RoundTripNs | None = None
    ceiling_per_s: NotNegative | None = None
    cores: Whole | None = None
    driver_cpu_share: NotNegative | None = None
    busy_share: NotNegative | None = None
    received_bytes_per_s: NotNegative | None = None
    sent_bytes_per_s: NotNegative | None = None
    retransmitted_share: NotNegative | None = None


def _limit(text: str) -> str:
    try:
        parse_limit(text)
    except UsageError as error:
        raise ValueError(str(error)) from error
    return text


@dataclass(frozen=True)
class StoredStep:
    """A step of a capacity search. ``latency_ms`` is None if it is infinite."""

    rate_per_s: Positive
    latency_ms: NotNegative | None


@dataclass(frozen=True)
class CapacitySearch:
    """The capacity search of a trial, for a limit such as ``p99 < 20ms``."""

    limit: Annotated[str, AfterValidator(_limit)]
    closed_loop_per_s: NotNegative
    steps: Sequence[StoredStep]

    @classmethod
    def of(cls, limit: str, closed_loop_per_s: float, tried: Sequence[SearchStep]) -> CapacitySearch:
        """Return the record of these steps."""
        steps = [
            StoredStep(step.rate_per_s, None if math.isinf(step.latency_ms) else step.latency_ms)
            for step in tried
        ]
        return cls(limit, closed_loop_per_s, steps)

    @property
    def tried(self) -> list[SearchStep]:
        """The steps as the search uses them."""
        return [
            SearchStep(step.rate_per_s, math.inf if step.latency_ms is None else step.latency_ms)
            for step in self.steps
        ]

    @property
    def capacity_per_s(self) -> float | None:
        """The capacity in transactions per second; None if no step, or every step, meets the limit."""
        return capacity(self.tried, parse_limit(self.limit))


ENGINE = "(engine)"
"""``stopped_by`` of a trial that a failure of our own engine ended."""


@dataclass(frozen=True)
class DriverFacts:
    """Facts about the driver in one trial.

    The first five are of its process. ``stopped_by`` is what ended a failed trial, if not its own server:
    the name of another arm, or ENGINE.
    ``ordered_checkpoint_s`` is the duration of the forced checkpoint before the window. ``nodes``: load
    generators on other nodes; without them the driver ran on this machine.
    """

    cpu_ns: CpuTimeNs | None = None
    memory_peak_bytes: Whole | None = None
    wake_late_ns: WakeLateNs | None = None
    threads: Whole | None = None
    io: str | None = None
    round_trip_ns: RoundTripNs | None = None
    stopped_by: str | None = None
    capacity: CapacitySearch | None = None
    warm_up: WarmUpEnd | None = None
    ordered_checkpoint_s: NotNegative | None = None
    nodes: Sequence[DriverNode] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the stored object."""
        return {key: value for key, value in asdict(self).items() if value is not None}


def driver_facts(found: Mapping[str, object]) -> DriverFacts:
    """Return the facts in an object of the engine. Raises ValueError (pydantic)."""
    return _driver_codec().validate_python(found)


def driver_facts_from_json(text: str) -> DriverFacts:
    """Return the facts in a stored object. Raises ValueError (pydantic)."""
    return _driver_codec().validate_json(text, strict=True)


@cache
def _driver_codec() -> TypeAdapter[DriverFacts]:
    return TypeAdapter(DriverFacts)


# ----------------------------------------------------------------------
# Facts about servers, machine and engine that the analysis compares, from JSON in the results file.
#
# The JSON has further facts, which reports only show. A missing fact is None or empty.
# ----------------------------------------------------------------------

Facts = TypeVar("Facts")


@dataclass(frozen=True)
class ServerFacts:
    """Facts about the server of an arm. ``compiled`` are values of pg_config, for example CFLAGS.
    ``extensions`` were built for this arm.
    """

    provider: str | None = None
    version: str | None = None
    version_text: str | None = None
    label: str | None = None
    build_id: str | None = None
    compiled: Mapping[str, str] | None = None
    extensions: Sequence[Mapping[str, Any]] = ()

    @property
    def shown(self) -> str:
        """The label, or else the version."""
        return self.label or self.version or self.version_text or ""

    @property
    def extensions_shown(self) -> str:
        """Name, version and source of each extension that was built for this arm; empty without one."""
        return "; ".join(
            f"{one['name']} {one['version']} ({one['source']})".strip() for one in self.extensions
        )

    def compiled_with(self, name: str) -> str:
        """Return a value of pg_config; empty if it is unknown."""
        return (self.compiled or {}).get(name, "")

    @property
    def optimization(self) -> str:
        """Level of optimization of the build, for example -O2; empty if it is unknown."""
        flags = self.compiled_with("CFLAGS")
        words = re.findall(r"(?<!\S)-O\S*", flags)
        return words[-1] if words else "-O0" if flags else ""


@dataclass(frozen=True)
class RecordedCheck:
    """Result of one check of the machine: ``found`` is fine, or a kind of problem."""

    about: str
    found: str
    text: str


@dataclass(frozen=True)
class RecordedState:
    """State of the machine before or after the study."""

    when: str
    checks: Sequence[RecordedCheck]


@dataclass(frozen=True)
class HostFacts:
    """Facts about the machine."""

    processor: str | None = None
    cores: int | None = None
    states: Sequence[RecordedState] = ()


@dataclass(frozen=True)
class EngineFacts:
    """Facts about the engine. ``profile`` is release or debug."""

    version: str | None = None
    profile: str | None = None


def facts_from(kind: type[Facts], stored: Mapping[str, Any]) -> Facts:
    """Return these facts of a stored object. Raises ValueError (pydantic) for one of a wrong type."""
    of: Any = kind
    found: Facts = _codec(of).validate_python(dict(stored))
    return found


@cache
def _codec(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


# ----------------------------------------------------------------------
# Typed records of a results file: one per table of ``schema.sql``, which defines the units.
#
# Times of slices and intervals are seconds since the trial's epoch (the start of the driver's run).
# ----------------------------------------------------------------------


@dataclass(frozen=True)
class Check:
    """Result of a check of a trial or a database.

    ``statistic`` and ``p_value``: those of a statistical test. ``detail``: one line with the compared values
    and, if the check failed, the first violations. ``skipped``: it was not run, because it cannot hold;
    ``detail`` is the reason, and ``passed`` is true, so that the trial counts.
    """

    name: str
    passed: bool
    statistic: float | None = None
    p_value: float | None = None
    detail: str = ""
    skipped: bool = False


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
