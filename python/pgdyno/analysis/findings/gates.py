"""Gate conditions for pipelines, evaluated on the verdicts of a study.

``slower`` and ``faster`` are claims, and many comparisons give many opportunities for a false one. So all
comparisons of such conditions (every case, arm and metric) are one family. A condition holds if the verdict
matches *and* Holm's test ("A simple sequentially rejective multiple test procedure", 1979) over the family
rejects that there is no difference. If no arm differs, the probability that a gate fails is at most 1 −
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

from pgdyno.analysis.comparison.paired_comparison import Comparison, Effect, method_of, summarize_ratios
from pgdyno.analysis.comparison.verdict import Decision, Verdict, decide
from pgdyno.analysis.findings.case_findings import Findings
from pgdyno.analysis.findings.host_findings import HostsFindings
from pgdyno.analysis.findings.pooled_hosts import AVERAGE, OverHosts
from pgdyno.analysis.findings.study_findings import OverCases, StudyFindings
from pgdyno.analysis.statistics.effect import Method, holm_confidences
from pgdyno.analysis.telemetry.metrics import ALL_KINDS, PERCENTILES_COMPARED, find_metric, latency_key
from pgdyno.errors import UsageError
from pgdyno.estimate import Better, Estimate
from pgdyno.results.records import TrialStatus
from pgdyno.study.plan import Study
from pgdyno.study.stopping_rule import VERDICT_BLOCKS_MIN

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

    ``percent`` and ``p_value`` are None without values. ``equivalence`` has the interval for *same*, for this
    verdict only. ``partial``: the result is biased, because an arm completed nothing in some blocks, the
    effect changed within the windows, or the latency limit did not hold at the capacity found. ``dispersed``:
    the block ratios of a tail percentile are too dispersed for an interval. ``taken_back`` is the verdict of
    an average before it became undecided because it is below its noise floor.
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
    dispersed: bool = False
    taken_back: Verdict | None = None
    equivalence: Estimate | None = None

    @property
    def place(self) -> tuple[str, str, str, str]:
        """Key of the comparison and metric."""
        return self.case, self.baseline, self.arm, self.metric

    @property
    def has_interval(self) -> bool:
        """True if the interval may be shown: with fewer blocks the SD is too uncertain."""
        return self.percent is not None and self.percent.low is not None and self.blocks >= VERDICT_BLOCKS_MIN


@dataclass(frozen=True)
class MetCondition:
    """A condition that holds, with its comparison."""

    condition: GateCondition
    of: GateComparison


@dataclass(frozen=True)
class NotEvaluable:
    """A condition that cannot be evaluated, with its comparison; None if nothing is compared."""

    condition: GateCondition
    of: GateComparison | None


@dataclass(frozen=True)
class Gate:
    """Result of the gate conditions. ``family`` is the number of comparisons for slower and faster.

    ``met`` are the conditions that hold. ``not_significant``: the verdict matches a condition, but is not
    significant in the family. ``below_noise_floor``: the interval matches one, but is below the noise floor.
    ``not_evaluable``: there are no values, or not in every block, so a condition cannot be ruled out.
    ``lost`` of all ``trials`` of the compared arms failed or were excluded.
    """

    conditions: Sequence[GateCondition]
    confidence: float
    family: int
    met: Sequence[MetCondition]
    not_significant: Sequence[MetCondition]
    not_evaluable: Sequence[NotEvaluable]
    below_noise_floor: Sequence[MetCondition] = ()
    lost: int = 0
    trials: int = 0

    @property
    def failed(self) -> bool:
        """True if any condition holds."""
        return bool(self.met)

    @property
    def passes(self) -> bool:
        """True if no condition holds and all could be evaluated."""
        return not self.met and not self.not_evaluable


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
    evaluated = evaluate(conditions, found, studies[0].first.study.plan.confidence)
    trials = [trial.status for study in studies for case in study.cases for trial in case.trials]
    return replace(evaluated, lost=sum(status in LOST for status in trials), trials=len(trials))


def evaluate(
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
    matching = [
        MetCondition(condition, one)
        for condition in conditions
        for one in found[condition.metric]
        if condition.outcome.is_met_by(one.verdict)
    ]
    not_significant = [
        of for of in matching if of.condition.outcome in CLAIMS and of.of.place not in significant
    ]
    met = [of for of in matching if of not in not_significant]
    below_noise_floor = [
        MetCondition(condition, one)
        for condition in conditions
        for one in found[condition.metric]
        if one.taken_back and condition.outcome in CLAIMS and condition.outcome.is_met_by(one.taken_back)
    ]
    not_evaluable = [
        of for condition in conditions for of in _not_evaluable(condition, found[condition.metric])
    ]
    return Gate(conditions, confidence, len(family), met, not_significant, not_evaluable, below_noise_floor)


def _not_evaluable(condition: GateCondition, found: Sequence[GateComparison]) -> list[NotEvaluable]:
    if not found:
        return [NotEvaluable(condition, None)]
    return [NotEvaluable(condition, one) for one in found if not _is_evaluable(condition, one)]


def _is_evaluable(condition: GateCondition, one: GateComparison) -> bool:
    """Return whether a condition can be evaluated. A partial or dispersed one is known to be undecided."""
    is_undecided = one.partial or one.dispersed
    return one.percent is not None and (not is_undecided or condition.outcome.is_met_by(one.verdict))


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
        effect = _with_method(effect, method_of(findings.study.plan, findings.trials))
    partial = comparison.is_held_back or (
        effect is not None and len(effect.log_ratios) < len(comparison.blocks)
    )
    is_primary = key == findings.primary.key
    decision = comparison.decision if is_primary else _decision(findings.study.plan, effect, partial=partial)
    return GateComparison(
        case=findings.study.case,
        baseline=comparison.baseline.name,
        arm=comparison.arm.name,
        metric=key,
        name=effect.name if effect else key,
        verdict=decision.verdict if decision else Verdict.UNDECIDED,
        percent=effect.percent if effect else None,
        equivalence=_equivalence(decision),
        p_value=effect.summary.p_value if effect else None,
        blocks=effect.summary.n if effect else 0,
        partial=partial,
        dispersed=effect is not None and effect.is_dispersed,
    )


def _with_method(effect: Effect, method: Method) -> Effect:
    """Return the effect with the interval of a study that stops on the verdict of another metric."""
    summary = summarize_ratios(effect.key, effect.log_ratios, effect.summary.confidence, method)
    return replace(effect, summary=summary, percent=summary.percent(effect.percent.better))


def _decision(plan: Study, effect: Effect | None, *, partial: bool) -> Decision | None:
    """Return the decision on another metric than the primary one.

    None if blocks are missing: an arm was too slow for a value, and the other blocks would favor it.
    """
    if effect is None or partial:
        return None
    return decide(effect.summary, effect.percent.better, plan.margin, plan.confidence)


def _equivalence(decision: Decision | None) -> Estimate | None:
    return decision.equivalence if decision and decision.verdict is Verdict.SAME else None


def _average(over: OverCases, findings: StudyFindings) -> GateComparison:
    """Return the comparison of the average, without values if any case was never measured."""
    primary = findings.first.primary
    whole_of_cases = all(of.primary is not None for of in over.comparisons.values())
    average = over.average if whole_of_cases else None
    plan = findings.first.study.plan
    decision = None
    if average and not over.stalled:
        decision = decide(average.summary, primary.better, plan.margin, plan.confidence)
    verdict = decision.verdict if decision else Verdict.UNDECIDED
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
        p_value=average.summary.p_value if average else None,
        blocks=average.summary.n if average else 0,
        partial=bool(over.stalled),
        taken_back=taken_back,
        equivalence=_equivalence(decision),
    )


def _over_hosts(findings: HostsFindings, metric: str) -> list[GateComparison]:
    first = findings.first.first
    plan = first.study.plan
    key = first.primary.key if metric in {PRIMARY, AVERAGE} else metric
    if metric == AVERAGE and findings.averages:
        pairs = [(AVERAGE, *pair) for pair in dict.fromkeys(of[1:] for of in findings.compared)]
        chosen: Sequence[OverHosts] = findings.averages
    else:
        pairs = list(findings.compared)
        chosen = [of for of in findings.effects if of.key == key]
    by_pair = {(of.case, of.baseline, of.arm): of for of in chosen}
    return [
        _pooled(by_pair[pair], plan)
        if pair in by_pair
        else GateComparison(*pair, key, key, Verdict.UNDECIDED, percent=None, p_value=None, blocks=0)
        for pair in pairs
    ]


def _pooled(of: OverHosts, plan: Study) -> GateComparison:
    verdict = of.verdict(plan)
    return GateComparison(
        case=of.case,
        baseline=of.baseline,
        arm=of.arm,
        metric=of.key,
        name=of.name,
        verdict=verdict,
        percent=of.percent,
        p_value=of.pooled.effect.p_value,
        blocks=of.pooled.blocks,
        partial=bool(of.stalled),
        equivalence=of.equivalence(plan) if verdict is Verdict.SAME else None,
    )
