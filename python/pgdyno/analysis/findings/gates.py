"""Gate conditions for pipelines, evaluated on the verdicts of a study.

``slower`` and ``faster`` are claims, and many comparisons give many opportunities for a false one. So all
comparisons of such conditions (every case, arm and metric) are one family. A condition holds if the verdict
matches *and* Holm's test ("A simple sequentially rejective multiple test procedure", 1979) over the family
rejects that there is no difference. If no arm differs, the probability that a gate trips is at most 1 −
confidence, for any number of cases.

``not-same`` and ``undecided`` are the absence of a proof. A gate that passes with ``not-same`` has shown that
all comparisons are within the margin. The probability that it passes although one is not is at most 1 −
confidence without correction, because every one must pass (Berger's intersection-union test, Technometrics
1982). These conditions use each verdict unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from pgdyno.analysis.comparison.paired_comparison import Comparison, Effect, method_of
from pgdyno.analysis.comparison.verdict import BLOCKS_MIN, Verdict, decide
from pgdyno.analysis.findings.case_findings import Findings
from pgdyno.analysis.findings.host_findings import HostsFindings
from pgdyno.analysis.findings.pooled_hosts import AVERAGE, OverHosts
from pgdyno.analysis.findings.study_findings import OverCases, StudyFindings
from pgdyno.analysis.statistics.effect import Method, holm_confidences, summarize
from pgdyno.analysis.telemetry.metrics import ALL_KINDS, PERCENTILES_COMPARED, find_metric, latency_key
from pgdyno.errors import UsageError
from pgdyno.estimate import Better, Estimate
from pgdyno.results.records import TrialStatus

PRIMARY = ""
"""Placeholder for the metric of the verdicts."""


class GateOutcome(StrEnum):
    """Verdict that a condition matches."""

    SLOWER = "slower"
    FASTER = "faster"
    NOT_SAME = "not-same"
    UNDECIDED = "undecided"

    def is_met_by(self, verdict: Verdict) -> bool:
        """Return whether the verdict alone matches."""
        return verdict is not Verdict.SAME if self is GateOutcome.NOT_SAME else verdict.value == self.value


CLAIMS = (GateOutcome.SLOWER, GateOutcome.FASTER)

LOST = (TrialStatus.FAILED, TrialStatus.EXCLUDED)


@dataclass(frozen=True)
class GateCondition:
    """A condition such as ``slower``, or ``slower:latency.all.p99`` for another metric than the primary one.

    ``asked`` is the user's text, for example ``slower:p99``.
    """

    outcome: GateOutcome
    metric: str = PRIMARY
    asked: str = ""

    @property
    def text(self) -> str:
        """The condition as the user wrote it."""
        return self.asked or (f"{self.outcome}:{self.metric}" if self.metric else self.outcome.value)


@dataclass(frozen=True)
class GateComparison:
    """One arm against the baseline in one metric. ``case`` is empty for a single case, "average" over cases.

    ``percent`` and ``p_value`` are None without values. ``partial``: in some blocks an arm completed nothing,
    so the other blocks would bias the result in its favor. ``taken_back`` is the verdict of an average before
    it became undecided because it is below its noise floor.
    """

    case: str
    baseline: str
    arm: str
    metric: str
    name: str
    verdict: Verdict
    percent: Estimate | None
    p_value: float | None
    blocks: int
    partial: bool = False
    taken_back: Verdict | None = None

    @property
    def place(self) -> tuple[str, str, str, str]:
        """Key of the comparison and metric."""
        return self.case, self.baseline, self.arm, self.metric

    @property
    def has_interval(self) -> bool:
        """True if the interval may be shown: with fewer blocks the SD is too uncertain."""
        return self.percent is not None and self.percent.low is not None and self.blocks >= BLOCKS_MIN


@dataclass(frozen=True)
class Tripped:
    """A condition that holds, with its comparison."""

    condition: GateCondition
    of: GateComparison


@dataclass(frozen=True)
class NotEvaluated:
    """A condition that cannot be evaluated, with its comparison; None if nothing is compared."""

    condition: GateCondition
    of: GateComparison | None


@dataclass(frozen=True)
class Gate:
    """Result of the gate conditions. ``family`` is the number of comparisons for slower and faster.

    ``held_back``: their verdict matches a condition, but is not significant in the family. ``under_floor``:
    their interval matches one, but is below the noise floor. ``absent``: they have no values, or not in every
    block, so a condition cannot be ruled out. ``lost`` of all ``trials`` of the compared arms failed or were
    excluded.
    """

    conditions: Sequence[GateCondition]
    confidence: float
    family: int
    tripped: Sequence[Tripped]
    held_back: Sequence[Tripped]
    absent: Sequence[NotEvaluated]
    under_floor: Sequence[Tripped] = ()
    lost: int = 0
    trials: int = 0

    @property
    def holds(self) -> bool:
        """True if any condition holds."""
        return bool(self.tripped)

    @property
    def passes(self) -> bool:
        """True if no condition holds and all could be evaluated."""
        return not self.tripped and not self.absent


def parse_condition(text: str) -> GateCondition:
    """Parse ``slower``, ``slower:nopm``, ``slower:p99`` (of all transactions). Raises UsageError."""
    word, _, metric = text.strip().partition(":")
    if word not in set(GateOutcome) or text.strip().endswith(":"):
        raise UsageError(
            f"{text!r} is not a gate condition: use one of {', '.join(GateOutcome)}, "
            "or add a metric, for example slower:p99"
        )
    key = latency_key(ALL_KINDS, metric) if metric in PERCENTILES_COMPARED else metric
    if key and key != AVERAGE:
        found = find_metric(key)
        if found is None:
            raise UsageError(
                f"{text}: unknown metric {metric!r}: use a key from effects or telemetry in the JSON report"
            )
        if found.better is Better.NEITHER:
            raise UsageError(f"{text}: the metric {metric} has no better direction: use another metric")
    return GateCondition(GateOutcome(word), key, text.strip())


def gate(findings: StudyFindings | HostsFindings, conditions: Sequence[GateCondition]) -> Gate:
    """Evaluate the conditions on a study."""
    found = {
        metric: gate_comparisons(findings, metric) for metric in dict.fromkeys(of.metric for of in conditions)
    }
    studies = list(findings.studies.values()) if isinstance(findings, HostsFindings) else [findings]
    held = hold(conditions, found, studies[0].first.study.plan.confidence)
    trials = [trial.status for study in studies for case in study.cases for trial in case.trials]
    return replace(held, lost=sum(status in LOST for status in trials), trials=len(trials))


def hold(
    conditions: Sequence[GateCondition], found: dict[str, list[GateComparison]], confidence: float
) -> Gate:
    """Evaluate conditions. ``found``: metric of the conditions → its comparisons."""
    claimed = dict.fromkeys(of.metric for of in conditions if of.outcome in CLAIMS)
    family = {one.place: one.p_value for metric in claimed for one in found[metric]}
    levels = holm_confidences(list(family.values()), confidence)
    significant = {
        place
        for (place, p_value), level in zip(family.items(), levels, strict=True)
        if p_value is not None and p_value <= 1 - level
    }
    met = [
        Tripped(condition, one)
        for condition in conditions
        for one in found[condition.metric]
        if condition.outcome.is_met_by(one.verdict)
    ]
    held_back = [of for of in met if of.condition.outcome in CLAIMS and of.of.place not in significant]
    tripped = [of for of in met if of not in held_back]
    under_floor = [
        Tripped(condition, one)
        for condition in conditions
        for one in found[condition.metric]
        if one.taken_back and condition.outcome in CLAIMS and condition.outcome.is_met_by(one.taken_back)
    ]
    absent = [of for condition in conditions for of in _unjudged(condition, found[condition.metric])]
    return Gate(conditions, confidence, len(family), tripped, held_back, absent, under_floor)


def _unjudged(condition: GateCondition, found: Sequence[GateComparison]) -> list[NotEvaluated]:
    if not found:
        return [NotEvaluated(condition, None)]
    return [NotEvaluated(condition, one) for one in found if not _is_judged(condition, one)]


def _is_judged(condition: GateCondition, one: GateComparison) -> bool:
    """Return whether a condition can be evaluated. A partial comparison is known to be undecided."""
    return one.percent is not None and (not one.partial or condition.outcome.is_met_by(one.verdict))


def gate_comparisons(findings: StudyFindings | HostsFindings, metric: str = PRIMARY) -> list[GateComparison]:
    """Return every arm's comparison with the baseline in every case.

    ``metric`` is a key, or "average" for the average of the primary metric over the cases. For a single case,
    that is the primary metric. A comparison without values is undecided.
    """
    if isinstance(findings, HostsFindings):
        return _over_hosts(findings, metric)
    if metric == AVERAGE and len(findings.cases) == 1:
        metric = PRIMARY
    if metric == AVERAGE:
        return [_average(over, findings) for over in findings.over_cases]
    return [_of_case(of, one, metric) for of in findings.cases for one in of.comparisons]


def _of_case(findings: Findings, comparison: Comparison, metric: str) -> GateComparison:
    key = metric or findings.primary.key
    effect = comparison.effects.get(key) or findings.telemetry.effects[comparison.arm.arm].get(key)
    if effect is not None and key != findings.primary.key:
        effect = _with_method(effect, method_of(findings.study.plan))
    partial = bool(comparison.lost_by_an_arm) or (
        effect is not None and len(effect.log_ratios) < len(comparison.blocks)
    )
    return GateComparison(
        case=findings.study.case,
        baseline=comparison.baseline.name,
        arm=comparison.arm.name,
        metric=key,
        name=effect.name if effect else key,
        verdict=comparison.verdict
        if key == findings.primary.key
        else _verdict(comparison, effect, partial=partial),
        percent=effect.percent if effect else None,
        p_value=effect.spread.p_value if effect else None,
        blocks=effect.spread.n if effect else 0,
        partial=partial,
    )


def _with_method(effect: Effect, method: Method) -> Effect:
    """Return the effect with the interval of a study that stops on the verdict of another metric."""
    spread = summarize(list(effect.log_ratios.values()), effect.spread.confidence, method)
    return replace(effect, spread=spread, percent=spread.percent(effect.percent.better))


def _verdict(comparison: Comparison, effect: Effect | None, *, partial: bool) -> Verdict:
    """Return the verdict on another metric than the primary one.

    Undecided if blocks are missing: an arm was too slow for a value, and the other blocks would favor it.
    """
    if effect is None or partial:
        return Verdict.UNDECIDED
    return decide(effect.spread, effect.percent.better, comparison.margin).verdict


def _average(over: OverCases, findings: StudyFindings) -> GateComparison:
    """Return the comparison of the average, without values if any case was never measured."""
    primary = findings.first.primary
    whole_of_cases = all(of.primary is not None for of in over.comparisons.values())
    average = over.average if whole_of_cases else None
    margin = findings.first.study.plan.margin
    whole = average is not None and not over.stalled
    verdict = (
        decide(average.spread, primary.better, margin).verdict if average and whole else Verdict.UNDECIDED
    )
    taken_back = None
    if len(over.comparisons) == 1:  # the single case has the same value and a noise floor
        (verdict,) = over.verdicts
    elif average and verdict in {Verdict.FASTER, Verdict.SLOWER} and over.is_under_floor:
        verdict, taken_back = Verdict.UNDECIDED, verdict
    return GateComparison(
        case=AVERAGE,
        baseline=over.baseline,
        arm=over.arm,
        metric=primary.key,
        name=primary.name,
        verdict=verdict,
        percent=average.percent(primary.better) if average else None,
        p_value=average.spread.p_value if average else None,
        blocks=average.spread.n if average else 0,
        partial=bool(over.stalled),
        taken_back=taken_back,
    )


def _over_hosts(findings: HostsFindings, metric: str) -> list[GateComparison]:
    first = findings.first.first
    margin = first.study.plan.margin
    key = first.primary.key if metric in {PRIMARY, AVERAGE} else metric
    if metric == AVERAGE and findings.averages:
        pairs = [(AVERAGE, *pair) for pair in dict.fromkeys(of[1:] for of in findings.compared)]
        chosen: Sequence[OverHosts] = findings.averages
    else:
        pairs = list(findings.compared)
        chosen = [of for of in findings.effects if of.key == key]
    by_pair = {(of.case, of.baseline, of.arm): of for of in chosen}
    return [
        _pooled(by_pair[pair], margin)
        if pair in by_pair
        else GateComparison(*pair, key, key, Verdict.UNDECIDED, percent=None, p_value=None, blocks=0)
        for pair in pairs
    ]


def _pooled(of: OverHosts, margin: float) -> GateComparison:
    return GateComparison(
        case=of.case,
        baseline=of.baseline,
        arm=of.arm,
        metric=of.key,
        name=of.name,
        verdict=of.verdict(margin),
        percent=of.percent,
        p_value=of.pooled.effect.p_value,
        blocks=of.pooled.blocks,
        partial=bool(of.stalled),
    )
