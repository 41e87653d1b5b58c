"""Records of a results file, which define its tables, and the facts stored in it as JSON.

- Facts about the driver of a trial: the JSON in the column ``driver`` of ``trial``.
- Facts about servers, machine and engine that the analysis compares, from JSON in the results file.
- Records: a class with a ``TABLE`` is a table, and its fields are the columns (``codec``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, cached_property
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field, PlainSerializer, SerializerFunctionWrapHandler, TypeAdapter, model_serializer

from pgdyno.results.codec import COUNTERS, LOG, PAIRS, POINTS, READINGS, Column, Record, Table
from pgdyno.study.defaults import Absence
from pgdyno.study.plan import Study
from pgdyno.study.schedule import Role
from pgdyno.study.values import Limit, SearchStep, capacity, parse_limit

# ----------------------------------------------------------------------
# Facts about the driver of a trial: the JSON in the column ``driver`` of ``trial``.
#
# A fact that is unknown or does not apply has no key. Unknown keys are ignored.
# ----------------------------------------------------------------------

Whole = Annotated[int, Field(ge=0, lt=2**63)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


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


@dataclass(frozen=True)
class CapacitySearch:
    """The capacity search of a trial, for a limit such as ``p99 < 20ms``."""

    limit: Limit
    closed_loop_per_s: NotNegative
    steps: Sequence[SearchStep]

    @property
    def capacity_per_s(self) -> float | None:
        """The capacity in transactions per second; None if no step, or every step, meets the limit."""
        return capacity(self.steps, parse_limit(self.limit))


ENGINE = "(engine)"
"""``stopped_by`` of a trial that a failure of our own engine ended."""


@dataclass(frozen=True)
class DriverFacts:
    """Facts about the driver in one trial.

    The first five are of its process. ``stopped_by`` is what ended a failed trial, if not its own server:
    the name of another arm, or ENGINE.
    ``ordered_checkpoint_s`` and ``last_checkpoint_s`` are the durations of ordered checkpoints before and
    after the window. ``nodes``: load generators on other nodes; without them the driver ran on this machine.
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
    last_checkpoint_s: NotNegative | None = None
    nodes: Sequence[DriverNode] | None = None

    @model_serializer(mode="wrap")
    def _known(self, as_json: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in as_json(self).items() if value is not None}


# ----------------------------------------------------------------------
# Facts about servers, machine and engine that the analysis compares, from JSON in the results file.
#
# The JSON has further facts, which reports only show. A missing fact is None or empty.
# ----------------------------------------------------------------------

Facts = TypeVar("Facts")


@dataclass(frozen=True)
class ServerFacts:
    """Facts about the server of an arm. ``compiled`` are values of pg_config, for example CFLAGS.
    ``extensions`` were built for this arm. ``wal_dir``: directory outside of its data, below which its WAL
    is; empty without one.
    """

    provider: str | None = None
    version: str | None = None
    version_text: str | None = None
    label: str | None = None
    build_id: str | None = None
    compiled: Mapping[str, str] | None = None
    extensions: Sequence[Mapping[str, Any]] = ()
    wal_dir: str = ""

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
# Records: a class with a ``TABLE`` is a table, and its fields are the columns.
#
# The unit is the end of a column's name (``generated_schema.sql``). Times of slices and intervals are seconds
# since the trial's epoch (the start of the driver's run).
# ----------------------------------------------------------------------

_OF_CASE = "case_id INTEGER NOT NULL REFERENCES study_case"
_OF_TRIAL = "trial INTEGER NOT NULL REFERENCES trial"
_DEFAULT_EMPTY = Column(sql="DEFAULT ''")
_DEFAULT_OBJECT = Column(sql="DEFAULT '{}'")


def _of_trial(name: str, *key: str) -> Table:
    return Table(name, (_OF_TRIAL,), key=", ".join(("trial", *key)), has_rowid=False)


def _counts(name: str, of: str, parent: str) -> Table:
    """Return the table of the transactions of a slice or an interval, by kind."""
    key = f"trial, {of.split(maxsplit=1)[0]}"
    owner = ("trial INTEGER NOT NULL", of, "kind TEXT NOT NULL")
    more = (f"FOREIGN KEY ({key}) REFERENCES {parent}",)
    return Table(name, owner, key=f"{key}, kind", constraints=more, has_rowid=False)


@dataclass(frozen=True)
class Check:
    """Result of a check of a trial or a database. One failed check excludes the trial from the estimate."""

    TABLE: ClassVar = _of_trial("check_result", "name")

    name: str
    result: Annotated[bool | None, Column("passed")]
    """Null: skipped, because it cannot hold; the detail is the reason."""
    statistic: float | None = None
    """Value of the test statistic; null for a check without one."""
    p_value: float | None = None
    detail: Annotated[str, _DEFAULT_EMPTY] = ""
    """One line with the compared values and, if the check failed, the first violations."""

    @property
    def skipped(self) -> bool:
        """True if it was not run."""
        return self.result is None

    @property
    def passed(self) -> bool:
        """True if it did not fail, so that the trial counts."""
        return self.result is not False


Json = Mapping[str, Any]
Pairs = Annotated[npt.NDArray[np.uint64], Column(packing=PAIRS)]
"""Shape (n, 2): value in ns, count; ascending in the value."""
Points = Annotated[npt.NDArray[np.float64], Column(packing=POINTS)]
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


LOST = "question: "
"""Prefix of the keys of stored changes that lose the question of the source."""

NOT_THE_QUESTION = "Does not reproduce the source's question"


@dataclass(frozen=True, kw_only=True)
class StudyRow:
    """The study: one row."""

    TABLE: ClassVar = Table("study", ("id INTEGER PRIMARY KEY CHECK (id = 1)",))

    title: str
    created_unix_s: float
    ended_unix_s: float | None = None
    """Null during the study, and after a kill."""
    ended_because: StudyEnd | None = None
    pgdyno_version: str
    engine: Json
    """JSON: output of pgdyno-engine version (docs/reference/engine-protocol.md)."""
    command: str
    """Command line that repeats the study."""
    host: Json
    """JSON: machine facts, name → text or number; states: the machine before and after
    (python/pgdyno/features/doctor/README.md)."""
    file: Annotated[str, Field(exclude=True)] = ""
    """Text of the study file; empty for a comparison without one."""
    changes: Sequence[Json] = ()
    """JSON: values fitted to this machine, list of {key, before, after, why}; a note has only why."""
    published: Annotated[Json | None, Field(exclude=True)] = None
    """JSON: tables of the source (docs/reference/study-file.md) with the levels that were run; else null."""


@dataclass(frozen=True, kw_only=True)
class CaseRow:
    """One comparison of arms. A study file has one for each combination of the factors that are not compared.
    Reports show the cases with aa_of null. The others, after them, contain the hidden A/A blocks. Their block
    numbers are those of the blocks that they accompany.
    """

    TABLE: ClassVar = Table("study_case", ("case_id INTEGER PRIMARY KEY",))

    case: Annotated[str, Column("name", sql="UNIQUE")] = ""
    """Empty for a single case."""
    levels: Json = field(default_factory=dict)
    """JSON: factor → level."""
    plan: Annotated[
        Study,
        PlainSerializer(lambda plan: plan.model_dump(mode="json"), return_type=Json),
        Column(as_is=("workload", "warmup_workload", "drivings")),  # a resume runs them
    ]
    """JSON: see Study in study/plan.py."""
    arm_levels: Sequence[Mapping[str, str]] = ()
    """JSON: list of {factor: level} of the compared factors, one per arm."""
    why_no_aa: str = NOT_ASKED_FOR
    """Reason for missing A/A blocks; empty if there are any."""
    aa_of: Annotated[int | None, Column(sql="REFERENCES study_case")] = None
    """For A/A blocks: the case of the duplicated arm; the arms are this one and its duplicate. Else null."""
    aa_arm: int | None = None
    """For A/A blocks: the duplicated arm of that case. Else null."""
    aa_before: Sequence[float] = ()
    """JSON: list of log ratios of A/A blocks of earlier studies with the same load."""


@dataclass(frozen=True, kw_only=True)
class StudyRecord(CaseRow, StudyRow):
    """A study with the values of one of its cases."""

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

    @property
    def words(self) -> str:
        """The degree in reports."""
        return {Kept.PARTLY: "in part", Kept.NO: "NO"}.get(self, str(self))


@dataclass(frozen=True)
class Guarantee:
    """One guarantee of an arm's settings, with the reason if it is not fully kept."""

    name: str
    kept: Kept
    text: str


@dataclass(frozen=True)
class Arm:
    """One thing compared: an arm of a case. Arm 0 is the baseline."""

    TABLE: ClassVar = Table("arm", (_OF_CASE,), key="case_id, arm", constraints=("UNIQUE (case_id, name)",))

    arm: int
    name: str
    spec: str
    """As the user wrote it."""
    server: Json
    """JSON: provider, version, compiler options, initdb options."""
    settings_requested: Mapping[str, str]
    """JSON: name → value, as PostgreSQL writes them."""
    safety: Sequence[Guarantee]
    """JSON: list of {name, kept: yes, partly, no, unknown; text}."""
    workload: Json
    """JSON: kind and parameters."""
    clients: Annotated[int, Column(sql="CHECK (clients > 0)")]
    dataset: Json
    """JSON: workload, scale, seed, size."""

    @cached_property
    def server_facts(self) -> ServerFacts:
        """Facts about the server. Raises ValueError (pydantic) for a fact of a wrong type."""
        return facts_from(ServerFacts, self.server)


@dataclass(frozen=True)
class Block:
    """One trial of every arm, close in time."""

    TABLE: ClassVar = Table("block", (_OF_CASE,), key="case_id, block")

    block: int
    """Position in the plan of its case: 0, 1, …"""
    seed: int
    """Below 2^63."""
    arm_order: Sequence[int]
    """JSON: arm indices in the order of the slices or trials."""
    started_unix_s: float
    status: Annotated[BlockStatus, Column(before="started_unix_s")] = BlockStatus.RUNNING
    ended_unix_s: float | None = None
    case: Annotated[int, Column("case_id")] = 0


@dataclass(frozen=True)
class Counts:
    """Transactions of one kind: each is exactly one of the first four; ``retried`` counts attempts."""

    ok: int = 0
    rolled_back: int = 0
    failed: int = 0
    skipped: int = 0
    retried: int = 0

    @classmethod
    def total(cls, every: Iterable[Counts]) -> Counts:
        """Return the sums, in one step: a study has hundreds of thousands of counts."""
        rows = ((of.ok, of.rolled_back, of.failed, of.skipped, of.retried) for of in every)
        return cls(*map(sum, zip(*rows, strict=True)))

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
    """A short turn of one arm. In the blocks schedule a trial has one warm-up and one measured slice."""

    TABLE: ClassVar = _of_trial("slice", "position")

    position: int
    """In the driver's run, over all arms."""
    role: Role
    opened_s: float
    counted_from_s: float
    """Earlier transactions are not counted."""
    closed_s: float
    """Later transactions neither start nor count."""
    drained_s: float
    """The last one in flight ended."""
    driver_cpu_user_s: float
    """Opened to drained."""
    driver_cpu_system_s: float
    kinds: Annotated[Mapping[str, Counts], _counts("slice_count", "position INTEGER NOT NULL", "slice")]
    """Transactions that ended in the counted part of a slice, by kind. Every transaction is exactly one of
    ok, rolled_back (as designed), failed, skipped; retried counts attempts."""

    @cached_property
    def executed(self) -> int:
        """The number of transactions of all kinds that ended as designed."""
        return sum([of.executed for of in self.kinds.values()])

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
    """A part of a slice, streamed by the driver. Latency is that of its ok transactions of all kinds; null
    without any.
    """

    TABLE: ClassVar = _of_trial("interval", "from_s")

    position: int
    """Position of the slice."""
    role: Role
    from_s: float
    to_s: float
    kinds: Annotated[Mapping[str, Counts], _counts("interval_count", "from_s REAL NOT NULL", "interval")]
    executed: int = field(init=False)
    """Ok and rolled_back of all kinds, so that a series is read without kinds."""
    latency_p50_ns: int | None = None
    latency_p95_ns: int | None = None
    latency_p99_ns: int | None = None
    latency_max_ns: int | None = None

    def __post_init__(self) -> None:
        """Compute the sum."""
        object.__setattr__(self, "executed", sum(counts.executed for counts in self.kinds.values()))


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

    TABLE: ClassVar = _of_trial("failure", "kind", "sqlstate")

    kind: str
    sqlstate: str
    n: int
    sample: Annotated[str, _DEFAULT_EMPTY] = ""

    @property
    def message(self) -> str:
        """The message without its SQLSTATE at the end, for texts that have it already."""
        return self.sample.removesuffix(f" (SQLSTATE {self.sqlstate})")


@dataclass(frozen=True)
class Histogram:
    """HDR histogram of the ok transactions of one kind with intended start in the counted part of a slice,
    including those that ended while it drained (docs/adr/0006): 3 significant digits, 1 ns to 60 s.
    latency = done − intended, service = done − sent, lag = sent − intended.
    skipped: the time that each skipped arrival of an open loop had waited, a lower bound of its latency.
    """

    TABLE: ClassVar = _of_trial("histogram", "kind", "measure")

    kind: str
    measure: Measure
    n: int = field(init=False)
    """Sum of the counts in pairs; readers check it."""
    pairs: Pairs
    """Zlib stream (RFC 1950) of (value in ns, count) pairs in ascending order of value, each number an
    unsigned 64-bit little-endian integer. A value represents all values of its bucket within 0.1%."""

    def __post_init__(self) -> None:
        """Compute the sum."""
        object.__setattr__(self, "n", int(self.pairs[:, 1].sum()))


def with_log_error(reason: str, log_error: str) -> str:
    """Return the reason of a trial that is not ok, with the error in the log of its server."""
    return f"{reason}; server log: {log_error}" if log_error else reason


@dataclass(frozen=True)
class TrialResults:
    """Results of a trial in its row, written at its end."""

    status: Annotated[TrialStatus, Column(values=("running", "ok", "excluded", "failed", "interrupted"))]
    ended_unix_s: float | None
    reason: Annotated[str, Column(before="ended_unix_s", sql="DEFAULT ''")] = ""
    """Reason if it is not ok."""
    log_error: Annotated[str, Column(before="ended_unix_s", sql="DEFAULT ''")] = ""
    """First severe message of the server's log, if it explains the reason."""
    epoch_unix_s: float | None = None
    """Epoch of the driver: origin of the times of slices and intervals."""
    restore_s: float | None = None
    """Null without a restore (dsn)."""
    start_s: float | None = None
    """Server start until it accepts connections; null for dsn."""
    server_cpu_s: float | None = None
    """User + system of all the server's processes over the window; null if it cannot be read, as for dsn."""
    transactions: int | None = None
    """Neither failed nor skipped, between the two readings of server_cpu_s."""
    counters: Annotated[Mapping[str, int], _DEFAULT_OBJECT] = field(default_factory=dict)
    """JSON: counters of the workload since connection, including warm-up; name → number."""
    driver_memory_bytes: int | None = None
    """Peak of the driver."""
    driver: Annotated[DriverFacts, _DEFAULT_OBJECT] = field(default_factory=DriverFacts)
    """JSON: threads, round_trip_ns, wake_late_ns, warm_up, capacity (its search), …"""
    settings: Annotated[Mapping[str, str], _DEFAULT_OBJECT] = field(default_factory=dict)
    """JSON: effective settings, name → value."""
    tally: Annotated[Json | None, Column(packing=COUNTERS)] = None
    """Zlib of JSON: counters of the workload, for conformance checks."""
    recovery_s: float | None = None
    """From a crash after the measured part until the server accepts connections; null if not measured."""
    restart_s: float | None = None
    """Clean stop and start; null if not measured."""
    probe_cpu_s: float | None = None
    """CPU of the probes over the window: their thread and their backends; null without probes."""
    failures: Sequence[Failure] = ()
    checks: Sequence[Check] = ()


@dataclass(frozen=True)
class TrialOutcome(TrialResults):
    """Results of a trial apart from its slices and series, written in one transaction."""

    histograms: Sequence[Histogram] = ()
    readings: Sequence[StoredReading] = ()
    server_log: str = ""


class Moment(StrEnum):
    """Time of a reading: the barriers before and after the measured part, and after a VACUUM."""

    BEGIN = "begin"
    END = "end"
    AFTER = "after"


@dataclass(frozen=True)
class StoredReading:
    """Raw counters that a probe read at one moment, from the server or the host, or the reason why they are
    missing. Readers compute the differences.
    """

    TABLE: ClassVar = _of_trial("reading", "probe", "moment")

    probe: str
    moment: Moment
    """Before and after the measured part; after a VACUUM."""
    at_s: float
    """Since the trial's epoch."""
    took_s: float
    rows: Annotated[
        Sequence[Mapping[str, float | int | str | None]] | None, Column("found", packing=READINGS)
    ]
    """Zlib of JSON: list of {column: number, text or null}; null if unavailable."""
    reason: Annotated[str, Column(before="found", sql="DEFAULT ''")] = ""
    """Reason for missing rows."""
    absence: Annotated[Absence | None, Column(before="found")] = None
    """Code of the reason."""


@dataclass(frozen=True)
class SampleSeries:
    """Samples of a probe in each second (less often in a long window), about ten minutes per row."""

    TABLE: ClassVar = _of_trial("series", "probe", "from_s")

    probe: str
    from_s: float = field(init=False)
    """Since the trial's epoch: the first sample's at_s."""
    columns: Sequence[str]
    """JSON: list of names, first at_s (since the trial's epoch) and late_s."""
    points: Points
    """Zlib of little-endian float64, row by row, ascending in at_s; NaN for missing values."""

    def __post_init__(self) -> None:
        """Take the time of the first sample."""
        object.__setattr__(self, "from_s", float(self.points[0, 0]) if len(self.points) else 0.0)

    @cached_property
    def step_s(self) -> float:
        """Median time between samples; 1 if there are fewer than two."""
        return float(np.median(np.diff(self.points[:, 0]))) if len(self.points) > 1 else 1.0

    def column(self, name: str) -> npt.NDArray[np.float64]:
        """Return a column; all NaN if the series does not have it."""
        if name not in self.columns:
            return np.full(len(self.points), np.nan)
        return self.points[:, list(self.columns).index(name)]


@dataclass(frozen=True, kw_only=True)
class Trial(TrialResults):
    """One arm's part of a block. A repeated trial is a new row with the next attempt, and the last one
    counts.
    """

    TABLE: ClassVar = Table(
        "trial",
        ("trial INTEGER PRIMARY KEY", "case_id INTEGER NOT NULL"),
        order="block, arm, attempt",
        constraints=(
            "UNIQUE (case_id, block, arm, attempt)",
            "FOREIGN KEY (case_id, block) REFERENCES block",
            "FOREIGN KEY (case_id, arm) REFERENCES arm",
        ),
    )

    trial: int
    block: Annotated[int, Column(before="status")]
    arm: Annotated[int, Column(before="status")]
    attempt: Annotated[int, Column(before="status", sql="DEFAULT 1")]
    started_unix_s: Annotated[float, Column(before="ended_unix_s")]
    slices: Sequence[Slice]

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

    @cached_property
    def measured(self) -> Sequence[Slice]:
        """The measured slices, in order."""
        return [piece for piece in self.slices if piece.role is Role.MEASURE]

    @cached_property
    def counts(self) -> Counts:
        """The transactions of all kinds in the measured slices."""
        return Counts.total(of for piece in self.measured for of in piece.kinds.values())

    @property
    def driver_cpu_s(self) -> float:
        """CPU time of the driver in the measured slices."""
        return sum(piece.driver_cpu_s for piece in self.measured)


@dataclass(frozen=True)
class StoredCaveat:
    """A caveat of a trial or a case, from the closed lists in caveats.toml of the core and of features."""

    TABLE: ClassVar = Table("caveat", ("caveat INTEGER PRIMARY KEY", _OF_CASE))

    trial: Annotated[int | None, Column(sql="REFERENCES trial")]
    """Null for a caveat about the whole case."""
    code: str
    parameters: Json
    """JSON."""


@dataclass(frozen=True)
class ServerLog:
    """The server's log over the trial."""

    TABLE: ClassVar = Table("log", ("trial INTEGER PRIMARY KEY REFERENCES trial",))

    text: Annotated[str, Column(packing=LOG)]
    """Zlib (RFC 1950) of UTF-8 text."""


TABLES: tuple[type[Record], ...] = (
    *(StudyRow, CaseRow, Arm, Block, Trial, Slice, Interval, Failure, Histogram, Check),
    *(StoredReading, SampleSeries, StoredCaveat, ServerLog),
)
"""The records of a study, in the order of their tables in the file."""
