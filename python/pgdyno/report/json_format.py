"""Reports as JSON: models of the study and of its cases, and their values.

- A case in the JSON of reports. ``json_format`` makes JSON and the JSON Schema from these dataclasses.
- The JSON documents of reports: one case, several cases, several hosts, history.
- One case as the dataclass for JSON.
- Reports as JSON: the documents and their JSON Schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from pgdyno.analysis.case_findings import ArmFindings, Findings
from pgdyno.analysis.comparison import Comparison, Effect, Verdict
from pgdyno.analysis.gates import Gate, GateOutcome, Reason, gate_comparisons
from pgdyno.analysis.outlier_trials import Deviation, OutlierTrials
from pgdyno.analysis.queries import QueryChange, QueryChanges, QueryKind
from pgdyno.analysis.statistics.intervals import Method, percent_of
from pgdyno.analysis.statistics.series import VALUES_MIN
from pgdyno.analysis.steady_state import Cycles, LargestStep, Trend
from pgdyno.analysis.study_findings import StudyFindings
from pgdyno.analysis.telemetry.metrics import latency_key
from pgdyno.analysis.telemetry.samples import Event
from pgdyno.analysis.throughput_dips import ArmDips, Coincidence
from pgdyno.analysis.time_breakdown import TimePart, Waterfall
from pgdyno.features.capacity.section import Capacity, capacity_change_sentence, capacity_sentence
from pgdyno.features.crash.sections import crash_json
from pgdyno.features.drivers.section import DriverNodeSummary, driver_node_summaries
from pgdyno.features.factors.effects import Contrast, Effects, Factor, LevelChange, factor_sentence
from pgdyno.features.factors.scalability import Curve, Scalability, scalability_sentences
from pgdyno.features.history.changes import FileDifference, HistoryChange, HistorySeries, Key, Separation
from pgdyno.features.history.report import HistoryReport, history_change_sentence
from pgdyno.features.hosts.findings import OverHosts
from pgdyno.features.hosts.sections import HostsReport
from pgdyno.features.profiles.findings import FunctionChange
from pgdyno.features.published.tables import MeasuredTable, SourceChange
from pgdyno.report.answer import Headline, Report, ShownCaveat
from pgdyno.report.conditions import blocks_of_floor, noise_sentence
from pgdyno.report.gate_section import gate_sentence, why_not_evaluated
from pgdyno.report.study_report import StudyReport
from pgdyno.report.telemetry_tables import query_sentence
from pgdyno.report.visible_text import json_text
from pgdyno.report.why_section import WhyReport, in_order
from pgdyno.results.records import Counts, Guarantee, Json, StudyEnd, StudyRecord, TrialStatus
from pgdyno.study.plan import VERDICT_BLOCKS_MIN, Study
from pgdyno.study.sizing import Schedule
from pgdyno.units import Better, Estimate

# ----------------------------------------------------------------------
# A case in the JSON of reports. ``json_format`` makes JSON and the JSON Schema from these dataclasses.
#
# JSON has the fields in their order, those of base classes first. Within a version, fields are only added.
# ----------------------------------------------------------------------


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


# ----------------------------------------------------------------------
# The JSON documents of reports: one case, several cases, several hosts, history.
#
# Parts of a case are above, with how JSON is made of both.
# ----------------------------------------------------------------------


def only_if(condition: str) -> Any:
    """Describe a field that is absent instead of null."""
    return Field(description=f"Only if {condition}", exclude_if=lambda value: value is None)


@dataclass(frozen=True)
class UnboundedEstimate:
    """An estimate whose numbers may be infinite, which is null in JSON."""

    value: float | None
    unit: str
    n: int
    better: Better
    low: float | None
    high: float | None
    confidence: float


@dataclass(frozen=True)
class NumericVerdict:
    """Verdict of one comparison in one metric."""

    case: Annotated[str, about("Empty with one case.")]
    arm: str
    baseline: str
    metric: str
    verdict: Verdict
    percent: Estimate | None
    p_value: float | None


@dataclass(frozen=True)
class _Met:
    condition: str
    sentence: str


@dataclass(frozen=True)
class GateVerdict(NumericVerdict, _Met):
    """A verdict that meets a condition of the gate."""


@dataclass(frozen=True)
class _NotEvaluable:
    condition: str
    reason: str


@dataclass(frozen=True)
class NotEvaluableVerdict(NumericVerdict, _NotEvaluable):
    """A comparison without a number, or not in every block, so that the gate cannot evaluate a condition."""


@dataclass(frozen=True)
class InconclusiveVerdict(GateVerdict):
    """A comparison that neither meets a condition nor rules it out."""

    reason: Reason


@dataclass(frozen=True)
class GateEntry:
    """Result of ``--fail-if``. docs/reference/gates.md describes the rules."""

    conditions: Sequence[str]
    outcome: GateOutcome
    confidence: float
    family: Annotated[int, about("Number of comparisons in the family of Holm's correction.")]
    met: Annotated[Sequence[GateVerdict], about("Verdicts that meet a condition.")]
    inconclusive: Annotated[
        Sequence[InconclusiveVerdict], about("Comparisons that neither meet a condition nor rule it out.")
    ]
    conditions_not_evaluable: Annotated[Sequence[str], about("Conditions that cannot be evaluated.")]
    not_evaluable: Sequence[NotEvaluableVerdict]
    trials_lost: Annotated[int, about("Number of failed or excluded trials.")]


@dataclass(frozen=True, kw_only=True)
class ContrastEntry(LevelChange):
    """Change of the metric from one level to another, averaged over the combinations of the other factors.

    For an interaction, it is the change of the ratio.
    """

    by: Annotated[LevelChange | None, about("Change of the other factor of an interaction.")]
    effect: Annotated[Estimate | None, about("In percent; ``n`` is the number of passes.")]
    p_value: float | None
    combinations: int
    of_combinations: int


@dataclass(frozen=True, kw_only=True)
class ConditionalContrast(ContrastEntry):
    """Change at one level (``at``) of another factor (``other``)."""

    other: str
    at: str


@dataclass(frozen=True)
class FactorsEntry:
    """Effects of several factors."""

    metric: str
    factors: Sequence[Factor]
    main: Sequence[ContrastEntry]
    interactions: Sequence[ContrastEntry]
    not_compared: Annotated[
        Sequence[LevelChange], about("Between levels with other transactions, which have no common unit.")
    ]
    simple_effects: Sequence[ConditionalContrast]
    sentences: Sequence[str]


@dataclass(frozen=True)
class LackOfFitEntry:
    """F test of the fitted law."""

    f: float | None
    p_value: float | None


@dataclass(frozen=True)
class CurveEntry:
    """The universal scalability law, fitted to the rates of one arm."""

    name: str
    levels: Mapping[str, str]
    passes: Sequence[int]
    rate_of_one: UnboundedEstimate
    sigma: Annotated[UnboundedEstimate, about("In percent.")]
    kappa: Annotated[UnboundedEstimate, about("Per million.")]
    contention: UnboundedEstimate
    coherency: UnboundedEstimate
    knee: Annotated[UnboundedEstimate | None, about("Clients; unlimited above without ``high``.")]
    peak: Annotated[UnboundedEstimate | None, about("Clients; unlimited above without ``high``.")]
    measured: Annotated[Mapping[int, UnboundedEstimate], about("By number of clients.")]
    fitted: Annotated[Mapping[int, float], about("By number of clients.")]
    lack_of_fit: LackOfFitEntry
    left_out: Sequence[str]


@dataclass(frozen=True)
class CurveDifferenceEntry:
    """Differences of a curve from the baseline."""

    curve: str
    baseline: str
    rate_of_one: UnboundedEstimate
    sigma: UnboundedEstimate
    kappa: UnboundedEstimate
    peak: UnboundedEstimate | None
    ratios: Annotated[Mapping[int, UnboundedEstimate], about("By number of clients.")]


@dataclass(frozen=True)
class ScalabilityEntry:
    """Scalability over the number of clients."""

    metric: str
    curves: Sequence[CurveEntry]
    differences: Sequence[CurveDifferenceEntry]
    without_curve: Annotated[Sequence[str], about("Arms without a curve.")]
    sentences: Sequence[str]


@dataclass(frozen=True)
class ArmCapacityEntry:
    """Capacity of one arm."""

    name: str
    capacity: UnboundedEstimate | None
    by_pass: Mapping[int, float]
    passes_above: Annotated[int, about("Number of passes in which every rate kept the limit.")]
    passes_below: Annotated[int, about("Number of passes in which no rate kept the limit.")]
    latency_ms: Annotated[Mapping[str, UnboundedEstimate | None], about("By rate. A null value is infinite.")]
    sentence: str


@dataclass(frozen=True)
class CapacityChangeEntry:
    """Change of the capacity."""

    arm: str
    baseline: str
    effect: UnboundedEstimate
    verdict: Verdict
    sentence: str


@dataclass(frozen=True)
class CapacityEntry:
    """The largest rate that keeps a latency limit."""

    limit: str
    arms: Sequence[ArmCapacityEntry]
    changes: Sequence[CapacityChangeEntry]


@dataclass(frozen=True)
class PublishedChangeEntry:
    """A change of the source in percent beside the measured one."""

    table: str
    what: str
    arm: str
    baseline: str
    published_percent: float
    measured: Estimate
    agreement: str


@dataclass(frozen=True, kw_only=True)
class StudyTables:
    """Results over the cases of one file."""

    lost_question: Annotated[str | None, only_if("the fit lost the question of the source.")] = None
    published: Annotated[Sequence[MeasuredTable] | None, only_if("the study has any.")] = None
    published_notes: Annotated[Sequence[str] | None, only_if("the study has published tables.")] = None
    published_changes: Annotated[
        Sequence[PublishedChangeEntry] | None, only_if("changes of the source were measured.")
    ] = None
    published_not_repeated: Annotated[
        Sequence[str] | None, only_if("the source has more than the study repeats.")
    ] = None
    capacity: Annotated[CapacityEntry | None, only_if("the study limits the latency.")] = None
    durability: Annotated[
        Json | None, only_if("the arms had a crash test: the document of ``pgdyno crash --json``.")
    ] = None
    factors: Annotated[FactorsEntry | None, only_if("several factors vary.")] = None
    scalability: Annotated[ScalabilityEntry | None, only_if("the number of clients varies enough.")] = None


@dataclass(frozen=True)
class OverCasesEntry:
    """One arm over all cases."""

    arm: str
    baseline: str
    sentence: str
    verdicts: Annotated[Mapping[Verdict, int], about("Number of cases by verdict.")]
    primary: str
    average: Annotated[Estimate | None, about("In percent; ``n`` is the number of passes.")]


@dataclass(frozen=True)
class CasesEntry:
    """Several cases."""

    pgdyno_report: Annotated[Literal[2], about("Version of the format.")]
    title: str
    command: str
    percent_of: str
    changes: Annotated[Sequence[Json], about("Settings fitted to this machine.")]
    over_cases: Sequence[OverCasesEntry]
    caveats: Sequence[ShownCaveat]
    cases: Sequence[CaseEntry]


@dataclass(frozen=True)
class CaseFile(StudyTables, CaseEntry):
    """A results file with one case."""


@dataclass(frozen=True)
class CasesFile(StudyTables, CasesEntry):
    """A results file with several cases."""


@dataclass(frozen=True)
class HostShare:
    """One host in a pooled effect."""

    host: str
    effect: Estimate
    weight: float


@dataclass(frozen=True)
class OverHostsEntry:
    """One effect over the hosts."""

    case: Annotated[str, about("Empty with one case; or ``average``.")]
    arm: str
    baseline: str
    metric: str
    name: str
    verdict: Annotated[Verdict | None, about("Null unless the metric is the primary one.")]
    pooled: Annotated[Estimate, about("``n`` is the number of hosts.")]
    tau: Annotated[float | None, about("SD between hosts of the natural logarithm.")]
    i2: float | None
    p_value: float | None
    signs_differ: Annotated[bool, about("Whether the sign differs between hosts.")]
    hosts: Sequence[HostShare]
    absent: Annotated[Sequence[str], about("Hosts without a value.")]


@dataclass(frozen=True)
class HostEntry:
    """One host with the documents of its results files."""

    host: str
    facts: Json
    files: Mapping[str, CaseFile | CasesFile]


@dataclass(frozen=True)
class HostsEntry:
    """Pooled results of several hosts."""

    pgdyno_report: Annotated[Literal[2], about("Version of the format.")]
    title: str
    command: str
    percent_of: str
    sentences: Annotated[Sequence[str], about("The claims with their basis, τ and I².")]
    primary: Annotated[str, about("Metric of the verdicts.")]
    over_hosts: Sequence[OverHostsEntry]
    caveats: Sequence[ShownCaveat]
    hosts: Sequence[HostEntry]


@dataclass(frozen=True, kw_only=True)
class VerdictsAndGate:
    """End of every document of ``pgdyno report``."""

    verdicts: Annotated[Sequence[NumericVerdict], about("On the primary metric, of all cases and arms.")]
    gate: Annotated[GateEntry | None, about("Null without ``--fail-if``.")]


@dataclass(frozen=True)
class CaseDocument(VerdictsAndGate, CaseFile):
    """Report of one case."""


@dataclass(frozen=True)
class CasesDocument(VerdictsAndGate, CasesFile):
    """Report of several cases."""


@dataclass(frozen=True)
class HostsDocument(VerdictsAndGate, HostsEntry):
    """Report of several hosts."""


@dataclass(frozen=True)
class SkippedFile:
    """A file that is not used."""

    file: str
    reason: str


@dataclass(frozen=True)
class _InFile:
    file: str
    created_unix_s: float


@dataclass(frozen=True)
class PointEntry(Estimate, _InFile):
    """Value of one file."""


@dataclass(frozen=True)
class HistoryChangeEntry:
    """A change between files."""

    file: str
    at: Annotated[int, about("Index of the first file with the change, from 0.")]
    verdict: Verdict
    percent: Estimate
    p_value: float
    files_before: int
    files_since: int
    differences: Annotated[Sequence[FileDifference], about("Other differences from the previous file.")]
    sentence: str
    confirmed_by: Annotated[str | None, about("File. Null for a level, and before confirmation.")]


@dataclass(frozen=True)
class SeriesEntry(Key):
    """Values of one metric. ``baseline`` is empty for the level of an arm."""

    better: Better
    level: Annotated[float, about("Threshold of the p-values; with a baseline, per 365 files.")]
    points: Sequence[PointEntry]
    changes: Annotated[Sequence[HistoryChangeEntry], about("With a baseline: confirmed changes.")]
    awaiting: Annotated[HistoryChangeEntry | None, about("Change to be confirmed by the next run.")]


@dataclass(frozen=True)
class HistoryEntry:
    """History of one study on one machine."""

    title: str
    machine: str
    files: Sequence[str]
    confidence: float
    separation: Annotated[Separation | None, about("Why it continues no history of the same title.")]
    series: Sequence[SeriesEntry]


@dataclass(frozen=True)
class HistoryGate:
    """Result of ``--fail-if``, in sentences."""

    outcome: GateOutcome
    met: Sequence[str]
    not_evaluable: Annotated[Sequence[str], about("Metrics with too few files, or without a baseline.")]
    awaiting: Annotated[Sequence[str], about("Changes to be confirmed by the next run.")]


@dataclass(frozen=True)
class HistoryDocument:
    """Output of ``pgdyno history --json``."""

    pgdyno_history: Annotated[Literal[2], about("Version of the format.")]
    skipped: Sequence[SkippedFile]
    histories: Sequence[HistoryEntry]
    gate: Annotated[HistoryGate | None, about("Null without ``--fail-if``.")]


# ----------------------------------------------------------------------
# One case as the dataclass for JSON.
# ----------------------------------------------------------------------

VERSION: Literal[2] = 2
"""Version of the format."""


Filled = TypeVar("Filled")


def filled(kind: type[Filled], source: object, **others: Any) -> Filled:
    """Return a dataclass with the attributes of ``source`` for its fields, except for ``others``."""
    names = [field.name for field in fields(kind) if field.name not in others]  # type: ignore[arg-type]
    return kind(**{name: getattr(source, name) for name in names}, **others)


def case_entry(report: Report) -> CaseEntry:
    """Return the document of one case."""
    findings, study = report.findings, report.findings.study
    reasons = {one.why.arm.arm: one for one in report.why}
    comparisons = [
        _comparison(comparison, headline, findings, reasons.get(comparison.arm.arm))
        for comparison, headline in zip(findings.comparisons, report.headlines, strict=True)
    ]
    return filled(
        CaseEntry,
        report,
        pgdyno_report=VERSION,
        case=study.case,
        levels=study.levels,
        created_unix_s=study.created_unix_s,
        ended_because=study.ended_because,
        pgdyno_version=study.pgdyno_version,
        host=study.host,
        verdict=comparisons[0].verdict if len(comparisons) == 1 else None,
        coverage=study.plan.workload.coverage,
        plan=_plan(study),
        arms=[_arm(of, findings) for of in findings.arms],
        driver_nodes=driver_node_summaries(findings.trials),
        comparisons=comparisons,
        probes=_probes(findings),
        noise=_noise(findings),
        outlier_trials=_outlier_trials(findings.outliers),
        profiles=[
            filled(ProfileEntry, of, arm=of.arm.name, baseline=of.baseline.name) for of in findings.profiles
        ],
    )


def _plan(study: StudyRecord) -> PlanEntry:
    plan = study.plan
    return filled(
        PlanEntry,
        plan,
        workload=plan.workload.model_dump(mode="json"),
        slice_s=plan.turn_s,
        slices_per_arm=plan.slices_per_trial(),
        warm_up_s=plan.warmup_s,
        details=PlanDetails(
            study=plan.model_dump(mode="json"),
            arms=study.arm_levels,
            why_no_aa=study.why_no_aa,
            aa_before=study.aa_before,
            resumed_for_more=plan.resumed_for_more,
        ),
    )


def _probes(findings: Findings) -> ProbesEntry | None:
    cost = findings.telemetry.cost
    if cost is None:
        return None
    names = {of.arm.arm: of.arm.name for of in findings.arms}
    return ProbesEntry(cost.share, {names[arm]: us for arm, us in cost.us_per_tx.items()})


def _arm(of: ArmFindings, findings: Findings) -> ArmEntry:
    telemetry, arm = findings.telemetry, of.arm.arm
    return filled(
        ArmEntry,
        of.arm,
        deviations=[
            filled(DeviationEntry, one) for one in findings.study.plan.driving(arm).workload.deviations
        ],
        trials=of.trials_by_status,
        levels=of.levels,
        latency_ms={
            kind: {
                "n": latencies.n,
                **{name: ms and ms.value for name, ms in latencies.quantiles_ms().items()},
            }
            for kind, latencies in of.latency.items()
        },
        lower_bounds={
            **of.bounds,
            **{
                latency_key(kind, name): ms.value
                for kind, latencies in of.latency.items()
                for name, ms in latencies.quantiles_ms().items()
                if ms is not None and ms.is_bound
            },
        },
        counts=of.counts,
        driver_memory_bytes=of.driver_memory_bytes,
        telemetry=telemetry.levels[arm],
        dips=_dips(findings.dips.get(arm)),
        not_in_version=telemetry.missing.get(arm, {}),
        steady_state=_steady_state(findings, arm),
        per_hour={
            drift.key: filled(SlopeEntry, drift.estimate, percent_of_mean=drift.percent)
            for drift in findings.drifts[arm]
        },
    )


def _dips(of: ArmDips | None) -> DipsEntry | None:
    if of is None:
        return None
    return filled(
        DipsEntry,
        of,
        n=len(of.dips),
        share_of_time=of.share_of_time(of.dips),
        share_of_transactions=of.share_of_transactions(of.dips),
        unexplained=len(of.unexplained),
        dips=[filled(DipEntry, dip) for dip in of.dips],
    )


def _steady_state(findings: Findings, arm: int) -> SteadyStateEntry | None:
    of = next((one for one in findings.steady_states if one.arm.arm == arm), None)
    if of is None:
        return None
    warm = of.warm_ups
    return SteadyStateEntry(
        warm_up=filled(WarmUpsEntry, warm, never_steady=warm.unsteady) if warm else None,
        rate_trend=_trend(of.rate_trend),
        effect_trend=_trend(of.effect_trend),
        steps=of.steps,
        checkpoints=of.cycles,
    )


def _trend(of: Trend | None) -> TrendEntry | None:
    if of is None:
        return None
    return filled(
        TrendEntry, of.percent, p_value=of.p_value, window_s=of.span_s, truncation_s=of.truncation_s
    )


def _comparison(
    comparison: Comparison, headline: Headline, findings: Findings, why: WhyReport | None
) -> ComparisonEntry:
    decision, arm, telemetry = comparison.decision, comparison.arm.arm, findings.telemetry
    average = telemetry.average.get(arm)
    return filled(
        ComparisonEntry,
        comparison,
        arm=comparison.arm.name,
        baseline=comparison.baseline.name,
        sentence=headline.sentence,
        primary=findings.primary.key,
        effects=_effects(comparison.effects),
        telemetry=_effects(telemetry.effects[arm]),
        statements_average=average.percent(Better.LESS) if average else None,
        queries=[_queries(of) for of in findings.queries if of.arm.arm == arm],
        why=_why(why) if why else None,
        blocks_dropped=comparison.dropped,
        blocks_needed=decision.blocks_needed if decision else None,
        detectable_percent=decision.detectable_percent if decision else None,
    )


def _effects(effects: Mapping[str, Effect]) -> dict[str, EffectEntry]:
    return {key: _change(effect) for key, effect in effects.items()}


def _change(of: Effect | QueryChange) -> EffectEntry:
    return filled(
        EffectEntry,
        of.percent,
        p_value=of.summary.p_value,
        interval=of.summary.method,
        log_ratios=of.log_ratios,
    )


def _queries(of: QueryChanges) -> QueriesEntry:
    changes = [filled(QueryEntry, one, change=_change(one)) for one in of.changes]
    return filled(QueriesEntry, of, sentence=query_sentence(of), changes=changes)


def _why(of: WhyReport) -> WhyEntry:
    why = of.why
    return WhyEntry(
        sentences=of.sentences,
        total_is="mean latency" if why.latency else "clients × time / transactions",
        unit="µs per transaction",
        by_resource=_waterfall(why.by_resource),
        by_statement=_waterfall(why.by_statement),
        wait_samples=why.samples,
        waits_multiplied_by=why.scaled,
        cpu_of_all_processes=why.cpu_is_of_all,
        nested_statements_counted_twice=why.twice,
    )


def _waterfall(of: Waterfall | None) -> WaterfallEntry | None:
    if of is None:
        return None
    return WaterfallEntry(_part(of.total), {part.key: _part(part) for part in in_order(of)})


def _part(part: TimePart) -> TimePartEntry:
    change = part.difference
    return filled(
        TimePartEntry,
        part,
        baseline=part.a_us,
        arm=part.b_us,
        difference=change.value,
        low=change.low,
        high=change.high,
        confidence=change.confidence,
        n=change.n,
    )


def _noise(findings: Findings) -> NoiseEntry:
    noise, blocks, alarms = findings.noise, blocks_of_floor(findings), findings.noise.alarms
    interval, summary = noise.sd_interval, noise.summary
    return NoiseEntry(
        why_no_aa=noise.why_no_aa or None,
        sentence=noise_sentence(findings),
        sd_percent=_percent(noise.sd),
        sd_interval_percent=(percent_of(interval[0]), percent_of(interval[1])) if interval else None,
        aa_blocks=len(noise.log_ratios),
        aa_blocks_before=len(noise.before),
        aa_blocks_left_out=noise.left_out,
        blocks=blocks,
        floor_percent=_percent(noise.floor(blocks)),
        detectable_percent=_percent(noise.detectable(blocks)),
        verdict=noise.verdict if summary is not None and summary.n >= VERDICT_BLOCKS_MIN else None,
        false_alarm=noise.is_false_alarm,
        aa_series=filled(AaSeriesEntry, alarms, rate_interval=alarms.interval) if alarms else None,
        log_ratios=noise.log_ratios,
    )


def _percent(log_ratio: float | None) -> float | None:
    return None if log_ratio is None else percent_of(log_ratio)


def _outlier_trials(found: OutlierTrials) -> OutlierTrialsEntry:
    return OutlierTrialsEntry(
        trials_min=VALUES_MIN,
        trials=[
            filled(
                OutlierEntry,
                one,
                arm=one.arm.name,
                causes=[
                    CauseEntry(
                        covariate=cause.covariate.key,
                        value=cause.value,
                        median=cause.median,
                        unit="µs" if cause.covariate.key == "server_cpu" else cause.covariate.unit,
                    )
                    for cause in one.causes
                ],
            )
            for one in found.trials
        ],
        without_block=[
            WithoutBlockEntry(
                arm=left.arm.name,
                block=left.block,
                change_percent=left.without.value,
                low=left.without.low,
                high=left.without.high,
            )
            for left in found.without_block
        ],
    )


# ----------------------------------------------------------------------
# Reports as JSON: the documents and their JSON Schema.
# ----------------------------------------------------------------------

Document = CaseDocument | CasesDocument | HostsDocument | HistoryDocument


def to_json(report: StudyReport | HostsReport, gate: Gate | None = None) -> str:
    """Return the JSON document of a report, indented."""
    end = VerdictsAndGate(
        verdicts=[filled(NumericVerdict, of) for of in gate_comparisons(report.findings)],
        gate=_gate(gate),
    )
    if isinstance(report, HostsReport):
        return encoded(HostsDocument(**vars(_hosts(report)), **vars(end)))
    file = _file(report)
    kind = CaseDocument if isinstance(file, CaseFile) else CasesDocument
    return encoded(kind(**vars(file), **vars(end)))


def history_to_json(
    report: HistoryReport,
    outcome: GateOutcome | None,
    met: Sequence[str] = (),
    not_evaluable: Sequence[str] = (),
    awaiting: Sequence[str] = (),
) -> str:
    """Return the JSON document of a history. ``outcome`` is that of the gate, None without one.

    ``not_evaluable`` are the metrics that the gate cannot judge, ``awaiting`` the changes to be confirmed.
    """
    document = HistoryDocument(
        pgdyno_history=VERSION,
        skipped=[SkippedFile(file, reason) for file, reason in report.skipped.items()],
        histories=[
            filled(HistoryEntry, history, series=[_series(series) for series in history.series])
            for history in report.histories
        ],
        gate=HistoryGate(outcome, met, not_evaluable, awaiting) if outcome else None,
    )
    return encoded(document)


def encoded(document: Document) -> str:
    """Return the JSON of a document. NaN and infinity become null."""
    return json_text(_codec().dump_python(document, warnings=False))


def decoded(text: str) -> Document:
    """Return the document of a JSON text. Raises ValueError (pydantic) unless it matches the schema."""
    return _codec().validate_json(text, strict=True)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of all documents."""
    whole = _codec().json_schema(mode="serialization", schema_generator=_Untitled)
    return {"$schema": GenerateJsonSchema.schema_dialect, "title": "A report of pgdyno", **whole}


@cache
def _codec() -> TypeAdapter[Document]:
    config = ConfigDict(extra="forbid", json_schema_serialization_defaults_required=True)
    return TypeAdapter(Document, config=config)


class _Untitled(GenerateJsonSchema):
    """Without titles, which repeat the names of the fields."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False


def _file(study: StudyReport) -> CaseFile | CasesFile:
    findings = study.findings
    tables = StudyTables(
        lost_question=study.lost or None,
        published=findings.published if study.published else None,
        published_notes=findings.source_notes if study.published else None,
        published_changes=[_published_change(one) for one in findings.source_changes] or None,
        published_not_repeated=findings.not_repeated or None,
        capacity=_capacity(findings.capacity) if findings.capacity else None,
        durability=crash_json(study.crashes) if study.crashes else None,
        factors=_factors(findings.effects, findings) if findings.effects else None,
        scalability=_scalability(findings.scalability, findings) if findings.scalability else None,
    )
    if study.only:
        return CaseFile(**vars(case_entry(study.only)), **vars(tables))
    return CasesFile(**vars(_cases(study)), **vars(tables))


def _published_change(one: SourceChange) -> PublishedChangeEntry:
    return filled(PublishedChangeEntry, one, agreement=one.agreement.value)


def _hosts(report: HostsReport) -> HostsEntry:
    findings, first = report.findings, report.findings.first.first
    return filled(
        HostsEntry,
        report,
        pgdyno_report=VERSION,
        sentences=[f"{headline.sentence} {headline.more}" for headline in report.headlines],
        primary=first.primary.key,
        over_hosts=[
            _over_hosts(over, first.study.plan if over.key == first.primary.key else None)
            for over in [*findings.effects, *findings.averages, *findings.statements]
        ],
        hosts=[
            HostEntry(host.name, host.facts, {file: _file(report.studies[file]) for file in host.studies})
            for host in findings.hosts
        ],
    )


def _over_hosts(over: OverHosts, plan: Study | None) -> OverHostsEntry:
    pooled = over.pooled
    return filled(
        OverHostsEntry,
        over,
        metric=over.key,
        verdict=over.verdict(plan) if plan else None,
        pooled=over.percent,
        tau=pooled.tau if len(pooled.hosts) > 1 else None,
        i2=pooled.i2,
        p_value=pooled.p_value,
        signs_differ=pooled.signs_differ,
        hosts=[
            HostShare(of.host, of.summary.percent(over.better), weight)
            for of, weight in zip(pooled.hosts, pooled.weights, strict=True)
        ],
    )


def _cases(study: StudyReport) -> CasesEntry:
    first = study.findings.first
    return filled(
        CasesEntry,
        study,
        pgdyno_report=VERSION,
        changes=first.study.changes,
        over_cases=[
            filled(
                OverCasesEntry,
                over,
                sentence=headline.sentence,
                verdicts=dict(over.verdicts),
                primary=first.primary.key,
                average=over.average.percent(first.primary.better) if over.average else None,
            )
            for over, headline in zip(study.findings.over_cases, study.headlines, strict=True)
        ],
        cases=[case_entry(report) for report in study.cases.values()],
    )


def _gate(of: Gate | None) -> GateEntry | None:
    if of is None:
        return None
    return filled(
        GateEntry,
        of,
        conditions=[condition.text for condition in of.conditions],
        met=[
            filled(GateVerdict, one.of, condition=one.condition.text, sentence=gate_sentence(one.of))
            for one in of.met
        ],
        inconclusive=[
            filled(
                InconclusiveVerdict,
                one.of,
                condition=one.condition.text,
                sentence=gate_sentence(one.of),
                reason=one.reason,
            )
            for one in of.inconclusive
        ],
        conditions_not_evaluable=list(dict.fromkeys(one.condition.text for one in of.not_evaluable)),
        not_evaluable=[
            filled(
                NotEvaluableVerdict,
                one.of,
                condition=one.condition.text,
                reason=why_not_evaluated(one),
            )
            for one in of.not_evaluable
            if one.of is not None
        ],
        trials_lost=of.lost,
    )


def _factors(effects: Effects, findings: StudyFindings) -> FactorsEntry:
    plan, factors = findings.first.study.plan, effects.design.factors
    return FactorsEntry(
        metric=effects.design.metric.key,
        factors=factors,
        main=[_contrast(contrast, effects) for contrast in effects.main],
        interactions=[_contrast(contrast, effects) for contrast in effects.interactions],
        not_compared=effects.not_compared,
        simple_effects=[
            ConditionalContrast(**vars(_contrast(contrast, effects)), other=other, at=level)
            for (_, other), found in effects.simple_effects.items()
            for level, contrast in found
        ],
        sentences=[factor_sentence(effects, factor.name, plan) for factor in factors],
    )


def _contrast(contrast: Contrast, effects: Effects) -> ContrastEntry:
    combined = contrast.combined
    return filled(
        ContrastEntry,
        contrast.change,
        by=contrast.by,
        effect=combined and combined.percent(effects.design.metric.better),
        p_value=combined and combined.summary.p_value,
        combinations=len(combined.names) if combined else 0,
        of_combinations=contrast.combinations,
    )


def _capacity(found: Capacity) -> CapacityEntry:
    return CapacityEntry(
        limit=found.text,
        arms=[
            filled(
                ArmCapacityEntry,
                kept,
                capacity=_unbounded(kept.capacity),
                passes_above=kept.above,
                passes_below=kept.below,
                latency_ms={f"{rate:g}": _unbounded(level) for rate, level in kept.latency_ms.items()},
                sentence=capacity_sentence(kept, found),
            )
            for kept in found.arms
        ],
        changes=[
            filled(
                CapacityChangeEntry,
                change,
                arm=change.name,
                effect=_unbounded(change.percent),
                verdict=change.decision.verdict,
                sentence=capacity_change_sentence(change),
            )
            for change in found.changes
        ],
    )


def _scalability(found: Scalability, findings: StudyFindings) -> ScalabilityEntry:
    return filled(
        ScalabilityEntry,
        found,
        metric=found.metric.key,
        curves=[_curve(curve) for curve in found.curves],
        differences=[
            filled(
                CurveDifferenceEntry,
                of,
                curve=of.name,
                rate_of_one=_unbounded(of.rate_of_one),
                sigma=_unbounded(of.sigma),
                kappa=_unbounded(of.kappa),
                peak=_unbounded(of.peak),
                ratios={clients: _unbounded(ratio) for clients, ratio in of.ratios.items()},
            )
            for of in found.differences
        ],
        sentences=scalability_sentences(found, findings.first.study.plan),
    )


def _curve(curve: Curve) -> CurveEntry:
    return filled(
        CurveEntry,
        curve,
        rate_of_one=_unbounded(curve.rate_of_one),
        sigma=_unbounded(curve.sigma),
        kappa=_unbounded(curve.kappa),
        contention=_unbounded(curve.contention),
        coherency=_unbounded(curve.coherency),
        knee=_unbounded(curve.knee),
        peak=_unbounded(curve.peak),
        measured={clients: _unbounded(level) for clients, level in curve.measured.items()},
        fitted={clients: float(curve.law.at(clients)[0]) for clients in curve.clients},
        lack_of_fit=filled(LackOfFitEntry, curve.fitting),
    )


def _unbounded(of: Estimate | None) -> UnboundedEstimate | None:
    return UnboundedEstimate(**vars(of)) if of else None


def _series(series: HistorySeries) -> SeriesEntry:
    return filled(
        SeriesEntry,
        series.key,
        better=series.better,
        level=series.level,
        points=[
            filled(PointEntry, of.estimate, file=of.file, created_unix_s=of.created_unix_s)
            for of in series.points
        ],
        changes=[_history_change(series, change) for change in series.changes],
        awaiting=_history_change(series, series.awaiting) if series.awaiting else None,
    )


def _history_change(series: HistorySeries, change: HistoryChange) -> HistoryChangeEntry:
    at = change.confirmed_at
    return filled(
        HistoryChangeEntry,
        change,
        file=series.points[change.at].file,
        confirmed_by=None if at is None else series.points[at].file,
        files_before=len(change.before),
        files_since=len(change.after),
        sentence=history_change_sentence(series, change),
    )
