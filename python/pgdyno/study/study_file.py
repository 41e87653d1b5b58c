"""Model of a study file: what is compared, over which cases, how it is measured, what was published.

docs/reference/study-file.md explains every key. ``study/cases.py`` makes the cases of it,
``study/study_file_reader.py`` reads it from its text and says in which line something is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer

from pgdyno.study.defaults import CONFIDENCE, MARGIN
from pgdyno.study.pgbench_parameters import PgbenchParameters
from pgdyno.study.plan import CHECKPOINTS_MAX
from pgdyno.study.probe_names import ProbeName
from pgdyno.study.published_experiment import Published
from pgdyno.study.tpcc_parameters import TpccParameters
from pgdyno.study.values import (
    Duration,
    Level,
    Limit,
    Scalar,
    Settings,
    Size,
    StudyTable,
    frozen,
    level_name,
    levels_as_written,
    levels_of,
)
from pgdyno.study.workload_parameters import WorkloadParameters

PARAMETERS: Mapping[str, type[WorkloadParameters]] = {"tpcc": TpccParameters, "pgbench": PgbenchParameters}


class SourceMachine(StudyTable):
    """The machine that the published figures come from; what is run is fitted from it to another one."""

    cores: int = Field(ge=1, description="Processors as the operating system counts them.")
    memory_bytes: Size = Field(alias="memory", description='Such as "384GB".')
    disk: str = Field(default="", description="The disk or disks, in words.")
    description: str = Field(default="", description="Anything else: processor, system, file system.")


class Source(StudyTable):
    """Where the experiment was published."""

    author: str = Field(description="Who measured.")
    year: int = Field(ge=1990, le=2100, description="Of publication.")
    title: str = Field(default="", description="Of the text.")
    where: str = Field(default="", description="Where it appeared.")
    machine: SourceMachine | None = Field(default=None, description="The machine of the source.")


class Drive(StudyTable):
    """How clients drive each arm. Each key may be a factor instead."""

    clients: int | None = Field(default=None, description="Connections per arm.")
    rate: float | None = Field(
        default=None, description="Open loop: transactions per second of all clients of an arm together."
    )
    arrivals: Literal["constant", "poisson"] | None = Field(
        default=None, description="How the arrivals of a rate are spread. [default: poisson]"
    )
    pacing: Literal["none", "keying-and-thinking"] | None = Field(
        default=None, description="Whether clients of tpcc wait as TPC-C's terminals do. [default: none]"
    )
    retries: int | None = Field(
        default=None,
        description="Of a transaction, after serialization failures and deadlocks. [default: 10]",
    )
    threads: int | None = Field(default=None, description="Of the driver. [default: one for every two cores]")


class Run(StudyTable):
    """How it is measured."""

    schedule: Literal["slices", "duet", "blocks", "sequential"] = Field(
        default="slices",
        description="slices: the arms take turns within a block; duet: two arms at the same time, each on "
        "half of the cores; blocks: one after the other, in random order; sequential: all blocks of one arm, "
        "then of the next, as most published experiments did.",
    )
    warmup_s: Duration | None = Field(
        default=None,
        alias="warmup",
        description="Driven before measuring, per arm and block; the longest, where warmup_min is given. "
        "[default: until the rates have come to rest]",
    )
    warmup_min_s: Duration | None = Field(
        default=None,
        alias="warmup_min",
        description="The shortest warm-up: from then on it ends as soon as the rates have come to rest.",
    )
    window_s: Duration | None = Field(
        default=None, alias="window", description="Measured by time, per arm and block."
    )
    transactions: int | None = Field(
        default=None, ge=1, description="Measured by transactions instead: so many of each client."
    )
    checkpoints: int | None = Field(
        default=None,
        ge=1,
        le=CHECKPOINTS_MAX,
        description="Measured by checkpoint cycles instead: so many times the longest checkpoint_timeout.",
    )
    slice_s: Duration | None = Field(
        default=None, alias="slice", description="With the schedules slices and duet: one turn. [default: 1s]"
    )
    rounds: int | None = Field(
        default=None, ge=2, description="Instead of a window: measured slices per arm and block."
    )
    repeats: int | None = Field(default=None, ge=1, description="Blocks of every case.")
    budget_s: Duration | None = Field(
        default=None, alias="budget", description="Measuring ends after this time, for all cases together."
    )
    stop: Literal["verdict", "budget"] | None = Field(
        default=None,
        description="verdict: when every comparison of every case is decided, if that is before the budget "
        "or the repeats end it; budget: not before. [default: verdict; of sequential budget]",
    )
    margin: float = Field(
        default=MARGIN, gt=0, lt=1, description="Equivalence margin, as a share: 0.02 is 2%."
    )
    confidence: float = Field(default=CONFIDENCE, gt=0.5, lt=1, description="Of the intervals.")
    capacity: Limit | None = Field(
        default=None,
        description="A limit of latency, such as p99 < 20ms: the report tells up to which rate each arm "
        "keeps it. Each block searches for that rate, unless rate is a factor: then its levels tell it.",
    )
    cache_state: Literal["restored", "cold", "prewarmed"] = Field(
        default="restored",
        description="Before each trial: as the restore leaves the operating system's cache; cold: dropped; "
        "prewarmed: every table and index read into the shared buffers.",
    )
    probes: tuple[ProbeName, ...] | None = Field(
        default=None, description="Sources of telemetry. [default: all that the servers have]"
    )
    recovery: bool = Field(
        default=False, description="End each trial with a crash and measure how long the recovery takes."
    )
    vacuum_after: bool = Field(
        default=False, description="VACUUM after the measured part, before sizes are read a second time."
    )
    seed: int = Field(default=1, ge=0, lt=2**53, description="Of everything random.")
    on_failure: Literal["continue", "stop"] = Field(default="continue", description="When a trial fails.")
    aa: bool = Field(
        default=True,
        description="Hidden A/A blocks, an arm against a twin of its own: they show the machine's noise.",
    )
    nearest: bool = Field(
        default=False,
        description="Use the nearest version if a version is not available. The report names it.",
    )


class Initdb(StudyTable):
    """How clusters are made: alike for all arms, as the defaults differ between versions."""

    checksums: bool = Field(default=True, description="Of data pages.")
    wal_segment_bytes: Size | None = Field(
        default=None, alias="wal_segment", description="Size of a WAL file, from PostgreSQL 11 on."
    )


class Drop(StudyTable):
    """Levels of one factor that a smaller machine or a shorter time may leave out."""

    factor: str = Field(description="The factor.")
    levels: tuple[Scalar, ...] = Field(
        min_length=1, description="In the order in which they may go, the first to go first."
    )


class FittedTo(StudyTable):
    """A machine, as far as the fit looks at it."""

    cores: int = Field(ge=1, description="Processors as the operating system counts them.")
    memory_bytes: Size = Field(alias="memory", description='Such as "16GB".')


class Fit(StudyTable):
    """What may change when the study is fitted to a smaller machine or a shorter time."""

    drop: tuple[Drop, ...] = Field(default=(), description="What goes first is named first.")
    keep_schedule: bool = Field(
        default=False,
        description="The schedule stays, for what takes whole trials to show. [default: arms take turns in "
        "slices where the time is short and their servers fit into memory together]",
    )
    window_min_s: Duration | None = Field(
        default=None, alias="window_min", description="The shortest window that still shows something."
    )
    machine: FittedTo | None = Field(
        default=None,
        description="The machine that this file's numbers are for, if not the source's: the fit writes it.",
    )
    notes: tuple[str, ...] = Field(
        default=(), description="What is lost by fitting, for people; the report repeats it."
    )


Factors = Annotated[
    Mapping[
        str, Annotated[tuple[Level, ...], BeforeValidator(levels_of), PlainSerializer(levels_as_written)]
    ],
    Field(description="What varies: a list of values, or a table of named ones."),
]


class StudyFile(StudyTable):
    """The whole file."""

    title: str = Field(min_length=1, description="What the study is called in reports.")
    about: str = Field(default="", description="What it asks, in a few sentences.")
    source: Source | None = Field(default=None, description="Where the experiment was published, if it was.")
    compare: tuple[str, ...] = Field(
        min_length=1,
        description="The factors that make the arms, by their product in this order; the first level of each "
        "is the baseline's. The other factors make the cases.",
    )
    server: str | None = Field(
        default=None, description="Of all arms, unless it is a factor: a version, a directory or a DSN."
    )
    settings: Settings = Field(
        default=Settings(), description="Of all arms; those of the factor settings come over them."
    )
    workload: Mapping[str, Any] = Field(
        description="kind (tpcc or pgbench), a variant of pgbench, and parameters that are no factors."
    )
    warmup_workload: Mapping[str, Any] | None = Field(
        default=None, description="What is different in the workload while warming up."
    )
    drive: Drive = Field(default=Drive(), description="How clients drive each arm.")
    factors: Factors
    exclude: tuple[Mapping[str, Scalar | tuple[Scalar, ...]], ...] = Field(
        default=(), description="Combinations that are not run: levels, or lists of levels, by factor."
    )
    run: Run = Field(default=Run(), description="How it is measured.")
    initdb: Initdb = Field(default=Initdb(), description="How clusters are made.")
    published: Published | None = Field(default=None, description="What the source printed.")
    fit: Fit = Field(default=Fit(), description="What may change when the study is fitted.")

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> StudyFile:
        """Of what a TOML or JSON parser gives. Raises ValidationError."""
        return cls.model_validate(frozen(data))

    @property
    def case_factors(self) -> tuple[str, ...]:
        """Those that make the cases, in their order."""
        return tuple(name for name in self.factors if name not in self.compare)

    def is_excluded(self, levels: Mapping[str, str]) -> bool:
        """Whether some exclusion covers these levels, given by name for every factor."""
        return any(excludes(one, levels) for one in self.exclude)


def excludes(exclusion: Mapping[str, Scalar | tuple[Scalar, ...]], levels: Mapping[str, str]) -> bool:
    """Whether every factor that it names has one of its levels."""
    return all(levels.get(factor) in level_names(given) for factor, given in exclusion.items())


def level_names(given: Scalar | tuple[Scalar, ...]) -> tuple[str, ...]:
    """Of one level or a list of them."""
    return tuple(map(level_name, given)) if isinstance(given, tuple) else (level_name(given),)
