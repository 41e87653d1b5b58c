"""The JSON documents of reports: one case, several cases, several hosts, history.

``json_case_models`` has the parts of a case, and explains how JSON is made of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from pgdyno.analysis.comparison.verdict import Verdict
from pgdyno.analysis.findings.factor_effects import Factor, LevelChange
from pgdyno.analysis.findings.gates import GateOutcome, Reason
from pgdyno.analysis.findings.history_changes import FileDifference, Key, Separation
from pgdyno.analysis.findings.published_tables import MeasuredTable
from pgdyno.estimate import Better, Estimate
from pgdyno.report.case_report import ShownCaveat
from pgdyno.report.json_case_models import CaseEntry, about
from pgdyno.results.records import Json


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
