"""A case in the JSON of reports. ``json_format`` makes JSON and the JSON Schema from these dataclasses.

JSON has the fields in their order, those of base classes first. Within a version, fields are only added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from pgdyno.analysis.causes.cpu_profiles import FunctionChange
from pgdyno.analysis.causes.outlier_trials import Deviation
from pgdyno.analysis.causes.throughput_dips import Coincidence
from pgdyno.analysis.comparison.query_changes import QueryKind
from pgdyno.analysis.comparison.verdict import Verdict
from pgdyno.analysis.findings.driver_node_findings import DriverNodeSummary
from pgdyno.analysis.statistics.effect import Method
from pgdyno.analysis.steady_state.checkpoint_cycles import Cycles
from pgdyno.analysis.steady_state.stationarity import LargestStep
from pgdyno.analysis.telemetry.events import Event
from pgdyno.estimate import Estimate
from pgdyno.report.case_report import ShownCaveat
from pgdyno.results.records import Counts, Guarantee, Json, StudyEnd, TrialStatus
from pgdyno.study.schedule import Schedule


def about(text: str) -> Any:
    """Describe a field in the JSON Schema."""
    return Field(description=text)


@dataclass(frozen=True, kw_only=True)
class EffectEntry(Estimate):
    """A change in percent of the baseline."""

    p_value: float | None
    interval: Annotated[Method, about("``anytime``: valid at any stopping time.")]
    log_ratios: Annotated[Mapping[int, float], about("Natural logarithm of the ratio by block (from 0).")]


@dataclass(frozen=True)
class PlanDetails:
    """The plan as in the results file."""

    study: Json
    arms: Annotated[Sequence[Mapping[str, str]], about("Levels of the compared factors by arm.")]
    why_no_aa: str
    aa_before: Annotated[Sequence[float], about("Log ratios of A/A blocks of earlier studies.")]
    resumed_for_more: bool


@dataclass(frozen=True)
class PlanEntry:
    """The request."""

    schedule: Schedule
    workload: Json
    margin: float
    seed: int
    slice_s: float | None
    slices_per_arm: int
    discard_s: float
    warm_up_s: float
    window_s: float | None
    blocks_max: int | None
    budget_s: float
    confidence: float
    pacing: str
    rate_per_s: float | None
    stops_on_verdict: bool
    details: PlanDetails


@dataclass(frozen=True)
class DipEntry:
    """A throughput dip. ``depth`` is the relative loss of throughput, ``lost`` the loss in transactions."""

    trial: int
    from_s: float
    to_s: float
    depth: float
    lost: float
    causes: Sequence[Event]


@dataclass(frozen=True)
class DipsEntry:
    """Throughput dips of an arm (docs/explanation/why.md)."""

    n: int
    share_of_time: float
    share_of_transactions: float
    peaks: Annotated[int, about("Number of excursions above the baseline, for comparison.")]
    points: int
    unexplained: int
    coincidences: Sequence[Coincidence]
    dips: Sequence[DipEntry]


@dataclass(frozen=True)
class WarmUpsEntry:
    """Warm-ups of an arm's valid trials."""

    trials: int
    ended_steady: Annotated[int, about("Number of trials whose warm-up ended at a steady state.")]
    shortest_s: float
    longest_s: float
    never_steady: int


@dataclass(frozen=True, kw_only=True)
class TrendEntry(Estimate):
    """Mean change over the window in percent."""

    p_value: float | None
    window_s: float
    truncation_s: Annotated[float | None, about("Length of the beginning that MSER excludes.")]


@dataclass(frozen=True)
class SteadyStateEntry:
    """Steady state of an arm (docs/explanation/steady-state.md)."""

    warm_up: WarmUpsEntry | None
    rate_trend: TrendEntry | None
    effect_trend: TrendEntry | None
    steps: Sequence[LargestStep]
    checkpoints: Cycles | None


@dataclass(frozen=True, kw_only=True)
class SlopeEntry(Estimate):
    """Slope of a long window, per hour."""

    percent_of_mean: Estimate | None


@dataclass(frozen=True)
class DeviationEntry:
    """A deviation of the workload from TPC-C."""

    name: str
    clause: Annotated[str, about("Of TPC-C.")]
    about: str
    allowed: Annotated[bool, about("TPC-C permits it, but it is not the default of pgdyno.")]


@dataclass(frozen=True)
class ArmEntry:
    """An arm with its results."""

    name: str
    spec: str
    clients: int
    deviations: Annotated[Sequence[DeviationEntry], about("From TPC-C; empty for other workloads.")]
    server: Json
    settings_requested: Mapping[str, str]
    safety: Sequence[Guarantee]
    trials: Annotated[Mapping[TrialStatus, int], about("Number of trials by status.")]
    levels: Annotated[Mapping[str, Estimate | None], about("By metric: ``nopm``, ``server_cpu``, …")]
    latency_ms: Annotated[
        Mapping[str, Mapping[str, int | float | None]], about("By kind: ``n``, ``p50`` … ``max``.")
    ]
    lower_bounds: Annotated[
        Mapping[str, float],
        about("Latencies in ms that are only known to be longer, by metric: arrivals were skipped."),
    ]
    counts: Annotated[Mapping[str, Counts], about("By kind of transaction.")]
    driver_memory_bytes: Annotated[int | None, about("Peak memory of the driver.")]
    telemetry: Annotated[Mapping[str, Estimate], about("By key of docs/reference/metrics.md.")]
    dips: DipsEntry | None
    not_in_version: Annotated[Mapping[str, str], about("Reason by probe.")]
    steady_state: SteadyStateEntry | None
    per_hour: Mapping[str, SlopeEntry]


@dataclass(frozen=True)
class TimePartEntry:
    """Time per transaction in µs: of the baseline, of the arm, and their difference."""

    baseline: float
    arm: float
    difference: float
    low: float | None
    high: float | None
    confidence: float
    n: int
    p_value: float | None
    significant: bool
    by_block: Mapping[int, float]


@dataclass(frozen=True)
class WaterfallEntry:
    """A decomposition: the parts add up to the total."""

    total: TimePartEntry
    parts: Mapping[str, TimePartEntry]


@dataclass(frozen=True)
class WhyEntry:
    """Breakdown of the time per transaction (docs/explanation/why.md)."""

    sentences: Sequence[str]
    total_is: str
    unit: str
    by_resource: WaterfallEntry | None
    by_statement: WaterfallEntry | None
    wait_samples: Annotated[float, about("Number of wait-event samples in both arms.")]
    waits_multiplied_by: Annotated[
        float | None, about("Factor that fits sampled waits to the kernel's figure.")
    ]
    cpu_of_all_processes: Annotated[bool, about("Whether CPU time includes processes without a client.")]
    nested_statements_counted_twice: Annotated[Sequence[str], about("Names of arms.")]


@dataclass(frozen=True)
class QueryEntry:
    """Change of the mean time of a script or a statement (docs/explanation/method.md#single-queries)."""

    name: Annotated[str, about("Name of the script, or text of the statement.")]
    verdict: Verdict
    share: Annotated[float, about("Share of the baseline's time, from 0 to 1.")]
    contribution: Annotated[float, about("Change of the time of all queries due to this one, as a share.")]
    baseline_ms: float
    arm_ms: float
    change: EffectEntry


@dataclass(frozen=True)
class QueriesEntry:
    """Scripts or statements of an arm. Differences come first, with the largest contribution at the top."""

    kind: QueryKind
    sentence: str
    uncompared: Annotated[Sequence[str], about("Queries with too few calls in a block, most time first.")]
    family: Annotated[int, about("Number of comparisons in the family of Holm's correction.")]
    changes: Sequence[QueryEntry]


@dataclass(frozen=True)
class ComparisonEntry:
    """Comparison of an arm with the baseline."""

    arm: str
    baseline: str
    verdict: Verdict
    sentence: str
    margin: float
    primary: Annotated[str, about("Metric of the verdict.")]
    effects: Annotated[Mapping[str, EffectEntry], about("By metric, or ``latency.KIND.QUANTILE``.")]
    telemetry: Mapping[str, EffectEntry]
    statements_average: Annotated[Estimate | None, about("Geometric mean over the statements' mean times.")]
    queries: Annotated[Sequence[QueriesEntry], about("Of scripts and of statements, if there are several.")]
    why: WhyEntry | None
    blocks: Sequence[int]
    blocks_dropped: Sequence[int]
    blocks_needed: Annotated[int | None, about("Number of further blocks until a verdict is likely.")]
    detectable_percent: Annotated[float | None, about("Effect that the study detects with 80% power.")]


@dataclass(frozen=True)
class ProbesEntry:
    """Cost of probing during measurement."""

    cpu_share: Annotated[float | None, about("Share of the machine's CPU time, all arms together.")]
    us_per_transaction: Annotated[Mapping[str, float], about("CPU time by arm.")]


@dataclass(frozen=True)
class AaSeriesEntry:
    """Series of five A/A blocks, and the number of them in which identical arms were called different."""

    false_alarms: int
    series: int
    rate_interval: tuple[float, float]


@dataclass(frozen=True)
class NoiseEntry:
    """Results of hidden A/A blocks (docs/explanation/noise.md). Many are null below five A/A blocks."""

    why_no_aa: Annotated[str | None, about("Reason for missing A/A blocks.")]
    sentence: str
    sd_percent: Annotated[float | None, about("SD of a block.")]
    sd_interval_percent: tuple[float, float] | None
    aa_blocks: int
    aa_blocks_before: Annotated[int, about("A/A blocks of earlier studies.")]
    aa_blocks_left_out: Annotated[int, about("A/A blocks of earlier studies with a different SD.")]
    blocks: Annotated[int, about("Blocks of the noise floor and the detectable effect.")]
    floor_percent: float | None
    detectable_percent: float | None
    verdict: Annotated[Verdict | None, about("Verdict on an arm against itself.")]
    false_alarm: bool
    aa_series: AaSeriesEntry | None
    log_ratios: Sequence[float]


@dataclass(frozen=True)
class CauseEntry:
    """A covariate of a trial that differs from the ``median`` of the arm's other trials."""

    covariate: str
    value: float
    median: float
    unit: str


@dataclass(frozen=True)
class OutlierEntry:
    """A valid trial, compared with the arm's other trials (``within_arm``) and other blocks (``ratio``)."""

    trial: int
    block: int
    arm: str
    value: float
    is_outlier: Annotated[bool, about("Whether it is an outlier.")]
    within_arm: Deviation
    ratio: Deviation | None
    causes: Sequence[CauseEntry]


@dataclass(frozen=True)
class WithoutBlockEntry:
    """An arm's change without the block with the most extreme ratio."""

    arm: str
    block: int
    change_percent: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class OutlierTrialsEntry:
    """Outlier trials (docs/explanation/noise.md)."""

    trials_min: Annotated[int, about("Required number of trials per arm.")]
    trials: Annotated[Sequence[OutlierEntry], about("The most extreme first.")]
    without_block: Sequence[WithoutBlockEntry]


@dataclass(frozen=True)
class ProfileEntry:
    """CPU profiles of two arms (docs/how-to/profile-cpu.md). The stacks are in the results file."""

    arm: str
    baseline: str
    blocks: Sequence[int]
    samples: Annotated[tuple[int, int], about("Number of samples: baseline, arm.")]
    covered: Annotated[tuple[float | None, float | None], about("Sampled share of the server's CPU time.")]
    hz: int
    functions: Annotated[Sequence[FunctionChange], about("The most time first.")]


@dataclass(frozen=True)
class CaseEntry:
    """One case: a comparison of arms under the same conditions."""

    pgdyno_report: Annotated[Literal[2], about("Version of the format.")]
    title: str
    case: Annotated[str, about("Name of the case, empty with one case.")]
    levels: Annotated[Json, about("Levels of the factors of the case.")]
    command: Annotated[str, about("Command that repeats the study.")]
    created_unix_s: float
    ended_because: Annotated[StudyEnd | None, about("Null while the study runs.")]
    pgdyno_version: str
    host: Annotated[Json, about("Facts about the machine.")]
    percent_of: Annotated[str, about("Definition of the percentages.")]
    verdict: Annotated[Verdict | None, about("Null with more than two arms.")]
    coverage: Annotated[
        float | None,
        about("Share of the recorded time of a database that the scripts cover. Null for other loads."),
    ]
    plan: PlanEntry
    arms: Annotated[Sequence[ArmEntry], about("The baseline first.")]
    driver_nodes: Annotated[
        Sequence[DriverNodeSummary], about("Load generators; empty if this machine generated the load.")
    ]
    comparisons: Annotated[Sequence[ComparisonEntry], about("One per arm after the first.")]
    caveats: Sequence[ShownCaveat]
    method: Annotated[Sequence[str], about("Description of the measurement.")]
    derived: str
    probes: ProbesEntry | None
    noise: NoiseEntry
    outlier_trials: OutlierTrialsEntry
    profiles: Annotated[Sequence[ProfileEntry], about("One per arm after the first, if it has profiles.")]
