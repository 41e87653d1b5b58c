"""Model of a study file: arms, cases, measurement, tables of features.

- Tables of the source, the load, the measurement, load generators and initdb.
- Names of keys and options, for messages.
- Tables of features, and the study file with all of its tables.

docs/reference/study-file.md is generated from the descriptions. ``study/cases.py`` derives the cases, and
``study/study_file_reader.py`` parses the text and reports errors with the path of the key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    SerializeAsAny,
    TypeAdapter,
)

from pgdyno.errors import StudyFileError, UsageError
from pgdyno.hooks import Hooks
from pgdyno.study import plan
from pgdyno.study.defaults import (
    CONFIDENCE,
    MARGIN,
    RETRIES_MAX,
    ROUNDS_OF_A_WINDOW_MAX,
    SLICE_S,
    SLICE_S_MAX,
    SLICE_S_MIN,
    ProbeName,
)
from pgdyno.study.values import (
    By,
    Duration,
    Level,
    Limit,
    Option,
    Rare,
    Scalar,
    Settings,
    Size,
    StudyTable,
    frozen,
    level_name,
    levels_as_written,
    levels_of,
    parse_minutes,
    parse_percent,
    parse_slice_s,
    parse_warm_up,
    parse_window,
)
from pgdyno.units import given_percent


class SourceMachine(StudyTable):
    """The machine of the published figures. A study is fitted from it to another machine."""

    cores: int = Field(ge=1, description="Logical CPUs.")
    memory_bytes: Size = Field(alias="memory", description='Memory, for example "384GB".')
    disk: str = Field(default="", description="Description of the disks.")
    description: str = Field(default="", description="Other facts: processor, operating system, file system.")


class Source(StudyTable):
    """Where the experiment was published."""

    author: str = Field(description="Author of the experiment.")
    year: int = Field(ge=1990, le=2100, description="Year of publication.")
    title: str = Field(default="", description="Title of the publication.")
    where: str = Field(default="", description="Place of publication.")
    machine: SourceMachine | None = Field(default=None, description="Machine of the experiment.")


def driving_fields(drive: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of ``Driving`` for values of ``Drive``, without those that are None.

    Raises UsageError for an arrival process without a rate.
    """
    fields = {name: value for name, value in drive.items() if value is not None}
    arrivals = fields.pop("arrivals", None)
    if "rate" in fields:
        fields["rate"] = {"per_s": fields["rate"]} | ({"arrivals": arrivals} if arrivals else {})
    elif arrivals is not None:
        raise UsageError(f"--arrivals={arrivals} requires --rate: add --rate, or remove --arrivals")
    if "retries" in fields:
        fields["retries_max"] = fields.pop("retries")
    return fields


class Drive(StudyTable):
    """Load of each arm. Each key may be a factor instead."""

    clients: Annotated[int | None, Option("N", ("--clients", "-c", "--client"))] = Field(
        default=None, description="Number of client connections per arm, 1 to 2000 per load generator."
    )
    rate: Annotated[float | None, Option("N", ("--rate", "-R"), "closed loop")] = Field(
        default=None,
        description="Open-loop load of N transactions per second per arm, independent of response times.",
    )
    arrivals: Annotated[plan.Arrivals | None, Rare(default="poisson")] = Field(
        default=None, description="Arrival process of --rate."
    )
    pacing: Annotated[plan.Pacing | None, Rare(default="none")] = Field(
        default=None, description="tpcc: keying and think times of TPC-C terminals, or none."
    )
    retries: Annotated[int | None, Rare("N", default=str(RETRIES_MAX))] = Field(
        default=None,
        description="Maximum number of retries per transaction after a serialization failure or deadlock.",
    )
    threads: Annotated[
        int | None, Option("N", ("--threads", "-j", "--jobs"), "one per two cores, at most one per client")
    ] = Field(default=None, description="Number of load generator threads.")


class Run(StudyTable):
    """Schedule, durations and stopping of the measurement."""

    schedule: Annotated[
        Literal["slices", "duet", "blocks", "sequential"],
        Option(
            default="duet for two servers that pgdyno starts on 4 or more cores, without profiles and "
            "settings for cores; otherwise slices",
            values=("slices", "duet", "blocks"),
        ),
    ] = Field(
        default="slices",
        description="How arms share a block: in alternating slices, at the same time on half of the cores "
        "each (duet, two arms only), or one after the other in random order (blocks). In study files also "
        "sequential: all blocks of one arm, then of the next, as in most published experiments.",
    )
    warmup_s: Annotated[
        Duration | None, Option("auto|DURATION|MIN..MAX", ("--warmup",), parse=parse_warm_up)
    ] = Field(
        default=None,
        alias="warmup",
        description="Warm-up per arm and block: a fixed time, or with a minimum (MIN..MAX, key warmup_min) "
        "until the rates reach steady state. [default: until steady state, 2s to a third of the window, "
        "longer while an effect changes]",
    )
    warmup_min_s: Duration | None = Field(
        default=None, alias="warmup_min", description="Minimum warm-up, which then ends at steady state."
    )
    window_s: Annotated[
        Duration | None, Option("DURATION|checkpoints:N", ("--window",), parse=parse_window)
    ] = Field(
        default=None,
        gt=0,
        alias="window",
        description="Measurement window per arm and block: a time, or checkpoint cycles with one arm at a "
        "time (checkpoints:N, key checkpoints). [default: 10s, or 60s with one arm at a time; less to fit 15 "
        "or 8 blocks into the budget]",
    )
    transactions: Annotated[plan.Transactions | None, Option("N", ("--transactions", "-t"))] = Field(
        default=None,
        description="Measure N transactions per client instead of a time, with one arm at a time.",
    )
    checkpoints: plan.Checkpoints | None = Field(
        default=None,
        description="Measurement window as a number of checkpoint cycles, each as long as the longest "
        "checkpoint_timeout of the arms.",
    )
    slice_s: Annotated[Duration | None, Option("DURATION", ("--slice",), parse=parse_slice_s)] = Field(
        default=None,
        ge=SLICE_S_MIN,
        le=SLICE_S_MAX,
        alias="slice",
        description=f"Length of a slice, 50ms to 60s. [default: {SLICE_S:g}s; longer with more than 25 "
        "clients per core in compare, or with more than 5 load generators]",
    )
    rounds: int | None = Field(
        default=None,
        ge=2,
        le=ROUNDS_OF_A_WINDOW_MAX,
        description="Measurement window as a number of slices per arm and block.",
    )
    repeats: Annotated[int | None, Option("N", ("--blocks",))] = Field(
        default=None,
        ge=1,
        description="Maximum number of blocks of every case. [default: limited by the time budget only]",
    )
    budget_s: Annotated[Duration | None, Option("N|DURATION", ("--minutes",), parse=parse_minutes)] = Field(
        default=None,
        gt=0,
        alias="budget",
        description="Time budget of all cases, in compare kept to within half a block. "
        "The first block always runs. Fetching servers and loading data are not included.",
    )
    stop: Annotated[plan.Stop | None, Option(default="verdict")] = Field(
        default=None,
        description="When to stop: at the verdict of every comparison of every case, at the latest at the "
        "end of the budget or of the number of blocks; budget: at that end only.",
    )
    margin: Annotated[plan.Margin, Option("PERCENT", default=given_percent(MARGIN), parse=parse_percent)] = (
        Field(
            default=MARGIN,
            description="Equivalence margin: two servers are the same if larger differences are rejected.",
        )
    )
    confidence: Annotated[
        plan.Confidence, Rare("PERCENT", default=given_percent(CONFIDENCE), parse=parse_percent)
    ] = Field(default=CONFIDENCE, description="Confidence level of the intervals.")
    capacity: Annotated[Limit | None, Option("LIMIT")] = Field(
        default=None,
        description="Compare the highest load at which latency stays within LIMIT, for example 'p99<20ms'. "
        "Each block searches for it.",
    )
    capacity_by: Annotated[By, Option(names=("--by",))] = Field(
        default="rate",
        description="Load of --capacity. rate: transactions per second of an open loop; clients: number of "
        "clients of a closed loop, at most --clients.",
    )
    cache_state: plan.CacheState = Field(
        default="restored",
        description="Caches before each trial. restored: page cache as after the restore; cold: page cache "
        "dropped; prewarmed: every table and index read, into shared buffers if pg_prewarm is available.",
    )
    probes: Annotated[
        tuple[ProbeName, ...] | None, Option("NAME|default|none", ("--probe",), is_repeated=True)
    ] = Field(
        default=None,
        description="Telemetry to collect: statements, wal, …. [default: all probes with low overhead]",
    )
    memory_limit_bytes: Size | None = Field(
        default=None,
        alias="memory_limit",
        gt=0,
        description='Memory of each server and its page cache, such as "2GB", by a control group and with '
        "cache_state cold.",
    )
    recovery: bool = Field(
        default=False, description="End each trial with a crash and measure the recovery time."
    )
    checkpoint_after: bool = Field(
        default=False,
        description="End each trial with a timed CHECKPOINT and restart; with recovery, every second block.",
    )
    vacuum_after: bool = Field(default=False, description="Run VACUUM and read sizes after the measurement.")
    beside: tuple[str, ...] = Field(
        default=(), description="Program beside the clients in each window, and its arguments."
    )
    seed: Annotated[plan.Seed, Option("N", default="random")] = Field(
        default=1, description="Seed of all random choices."
    )
    on_failure: Annotated[plan.OnFailure, Rare()] = Field(
        default="continue",
        description="What to do after a failed trial. Three failed blocks in a row always end the case, "
        "and so does a failure that prevents the verdict, after five blocks.",
    )
    aa: Annotated[bool, Rare(names=("--no-aa",))] = Field(
        default=True, description="Hidden A/A blocks to measure noise, one per ten after the tenth block."
    )
    nearest: Annotated[bool, Rare()] = Field(
        default=False, description="Use the nearest version if one is not available, and report it."
    )

    def study_fields(self) -> dict[str, Any]:
        """Return the fields of a study that have the values of keys."""
        same = {name: getattr(self, name) for name in SAME_IN_STUDY}
        return {**same, "stop": self.stop or "verdict", "blocks_max": self.repeats}


SAME_IN_STUDY = (
    *("margin", "confidence", "capacity", "capacity_by", "transactions", "checkpoints"),
    *("memory_limit_bytes", "recovery", "checkpoint_after", "vacuum_after", "on_failure", "nearest", "aa"),
    *("cache_state", "beside"),
)
"""Keys that are fields of a study."""


class Fleet(StudyTable):
    """Load generators on nodes of a Ray cluster. Requires the extra fleet of the wheel (Ray)."""

    drivers: Annotated[int | tuple[str, ...] | None, Option("N|NODE,NODE", default="on this machine")] = (
        Field(
            default=None,
            description="Generate the load on N nodes of a Ray cluster, chosen at random for each block, or "
            "on these nodes. Requires the extra fleet of the wheel (Ray).",
        )
    )
    address: Annotated[str, Option("HOST:PORT", ("--cluster",), default="the one on this machine")] = Field(
        default="", description="Address of the Ray cluster."
    )
    on_node_loss: Annotated[Literal["stop", "continue"], Rare(default="stop")] = Field(
        default="stop",
        description="What to do when fewer nodes than --drivers are left: stop, or start the study again "
        "with them.",
    )

    def require_drivers(self) -> None:
        """Raise UsageError for a cluster, or a rule for its nodes, without load generators on it."""
        if self.drivers is None and (self.address or self.on_node_loss != "stop"):
            option = "--cluster" if self.address else "--on-node-loss"
            raise UsageError(f"{option} requires --drivers: add it, or remove {option}")

    @property
    def n(self) -> int:
        """Number of load generators, including that of this machine."""
        if self.drivers is None:
            return 1
        return self.drivers if isinstance(self.drivers, int) else len(self.drivers)


class Initdb(StudyTable):
    """Options of initdb, the same for all arms, because the defaults differ between versions."""

    checksums: bool = Field(default=True, description="Checksums of data pages.")
    wal_segment_bytes: Size | None = Field(
        default=None, alias="wal_segment", description="Size of a WAL segment (PostgreSQL 11 and later)."
    )


Factors = Annotated[
    Mapping[
        str, Annotated[tuple[Level, ...], BeforeValidator(levels_of), PlainSerializer(levels_as_written)]
    ],
    Field(description="Factors with their levels: a list of values, or a table of named values."),
]


TABLES: Mapping[str, type[StudyTable]] = {"drive": Drive, "run": Run, "fleet": Fleet, "initdb": Initdb}
"""Tables with the keys that options of ``pgdyno compare`` have, too."""

OTHER_NAMES = {
    "--window=checkpoints:": "--checkpoints=",
    "the minimum of --warmup": "--warmup-min",
    "its maximum": "--warmup",
    "--minutes": "--budget",
    "--cluster": "--address",
    "--blocks": "--repeats",
}
"""Options whose key has another name, as they are written in messages."""


def key_of(name: str) -> tuple[str, ...]:
    """Return the path of the key of a field or option; empty if a study file has it in other places."""
    for table, model in TABLES.items():
        for field, info in model.model_fields.items():
            if name in (field, info.alias):
                return table, info.alias or field
    return ()


@dataclass(frozen=True)
class FeatureTable:
    """A table of study files that a feature reads."""

    name: str
    model: type[StudyTable]


STUDY_TABLES: Hooks[FeatureTable] = Hooks("study_tables")
"""The tables of features. Without its feature, a study file cannot have the table."""

STUDY_ERRORS: Hooks[Callable[[StudyFile], Iterable[StudyFileError]]] = Hooks("study_errors")
"""Errors in the values and tables of features, beyond the types of their keys."""


def table_model(name: str) -> type[StudyTable] | None:
    """Return the model of a table of a feature; None without the feature."""
    return next((table.model for table in STUDY_TABLES if table.name == name), None)


def _read_table(name: str, given: Any) -> StudyTable | None:
    if given is None:
        return None
    if (model := table_model(name)) is None:
        raise ValueError("no feature has this table: remove it")
    return model.model_validate(given)


@dataclass(frozen=True)
class _SchemaOfTable:
    name: str

    def __get_pydantic_json_schema__(self, _: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        model: Any = table_model(self.name)
        return handler(TypeAdapter(None if model is None else model | None).core_schema)


class StudyFile(StudyTable):
    """A study file."""

    title: str = Field(min_length=1, description="Title in reports.")
    about: str = Field(default="", description="Question of the study, in a few sentences.")
    source: Source | None = Field(default=None, description="Source of a published experiment.")
    compare: tuple[str, ...] = Field(
        min_length=1,
        description="Factors that are compared. Each combination of their levels, in this order, is an arm; "
        "the first levels are the baseline. The other factors create the cases.",
    )
    server: str | None = Field(
        default=None,
        description="Server of all arms, unless it is a factor: a version, a directory, git:REF or a DSN.",
    )
    settings: Settings = Field(
        default=Settings(), description="Settings of all arms. Levels of the factor settings override them."
    )
    workload: Mapping[str, Any] = Field(
        default_factory=dict,
        description="kind, a variant of pgbench, and parameters that are not factors. Levels of the factor "
        "workload override them, and may have keys of drive.",
    )
    warmup_workload: Mapping[str, Any] | None = Field(
        default=None, description="Parameters of the workload that differ during the warm-up."
    )
    drive: Drive = Field(default=Drive(), description="Load of each arm.")
    factors: Factors
    exclude: tuple[Mapping[str, Scalar | tuple[Scalar, ...]], ...] = Field(
        default=(), description="Combinations that are not run: a level or a list of levels for each factor."
    )
    run: Run = Field(default=Run(), description="Schedule, durations and stopping.")
    fleet: Fleet = Field(default=Fleet(), description="Load generators on other machines.")
    initdb: Initdb = Field(default=Initdb(), description="Options of initdb.")
    published: Annotated[
        SerializeAsAny[StudyTable] | None,
        BeforeValidator(partial(_read_table, "published")),
        _SchemaOfTable("published"),
    ] = Field(default=None, description="Published results.")
    fit: Annotated[
        SerializeAsAny[StudyTable] | None, BeforeValidator(partial(_read_table, "fit")), _SchemaOfTable("fit")
    ] = Field(default=None, description="Changes that a fit may make.")
    settings_files: Mapping[str, Mapping[str, str]] = Field(
        default_factory=dict,
        description="Contents of the settings files among the profiles, by name. pgdyno adds them to a study "
        "that it stores or sends to other hosts.",
    )

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> StudyFile:
        """Validate the result of a TOML or JSON parser. Raises ValidationError."""
        return cls.model_validate(frozen(data))

    def as_keys(self, message: str, options: Collection[str] = ()) -> str:
        """Return a message about options with the keys of this file: ``--schedule=duet`` is
        ``run.schedule = "duet"``. ``options``: names that were given as options.
        """

        def key(found: re.Match[str]) -> str:
            name, value = found[1].replace("-", "_"), found[2]
            if name in options:
                return found[0]
            table = next((one for one in ("factors", "workload") if name in getattr(self, one)), "")
            path = f"{table}.{name}" if table else ".".join(key_of(name)) or name
            return f"{path} = {value if value.isdecimal() else json.dumps(value)}" if value else path

        for option, other in OTHER_NAMES.items():
            message = message.replace(option, other)
        return re.sub(r"--([a-z][a-z-]*)(?:=(\w[\w.-]*))?", key, message)

    def with_run(self, **values: object) -> Self:
        """Return the file with other values in the table ``run``."""
        return self.model_copy(update={"run": self.run.model_copy(update=values)})

    @property
    def case_factors(self) -> tuple[str, ...]:
        """The factors that create the cases, in their order."""
        return tuple(name for name in self.factors if name not in self.compare)


def excludes(exclusion: Mapping[str, Scalar | tuple[Scalar, ...]], levels: Mapping[str, str]) -> bool:
    """Return whether every factor of the exclusion has one of its levels."""
    return all(levels.get(factor) in level_names(given) for factor, given in exclusion.items())


def level_names(given: Scalar | tuple[Scalar, ...]) -> tuple[str, ...]:
    """Return the names of one level or of a list of levels."""
    return tuple(map(level_name, given)) if isinstance(given, tuple) else (level_name(given),)
