"""Findings of all cases of a study, results over all cases, and the verdicts on a metric.

Features compute further results from them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from pgdyno.analysis.case_findings import Findings, find_case
from pgdyno.analysis.comparison import Comparison, Decision, Effect, Verdict, decide
from pgdyno.analysis.finding_fields import Hidden, in_json
from pgdyno.analysis.measurement_noise import floor_of_average, read_noise
from pgdyno.analysis.statistics.averages import Combined, LogRatios, combine
from pgdyno.analysis.statistics.intervals import LogRatioSummary, method_of, simultaneous
from pgdyno.hooks import Hooks
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Trial
from pgdyno.study.plan import Study
from pgdyno.units import Estimate

FeatureFindings = TypeVar("FeatureFindings")

FINDINGS = Hooks[Callable[[Evidence], Any]]("findings")
"""Functions of features that compute findings from a results file."""


PRIMARY = ""
"""Placeholder for the metric of the verdicts."""

AVERAGE = "average"
"""Placeholder for a case and for a metric: the average of the primary metric over all cases."""


@dataclass(frozen=True)
class MetricVerdict:
    """One arm against the baseline in one metric. ``case`` is empty for a single case, "average" over cases.

    ``percent`` and ``summary`` have the interval of the report; None without values. ``partial``: the result
    is biased, because an arm completed nothing in some blocks, the effect changed within the windows, one
    block counts in a case of the average, or the latency limit did not hold at the capacity found.
    ``no_interval_below``: number of blocks below which a percentile has no interval, if it has fewer.
    ``floor`` is the noise floor as a log ratio, None if unknown, and ``taken_back`` the verdict before it
    became undecided because it is below the floor. ``difference`` is faster or slower if the interval
    excludes 0, also if the verdict is same.
    """

    case: str
    baseline: str
    arm: str
    metric: str
    name: str
    verdict: Verdict
    percent: Estimate | None
    summary: Hidden[LogRatioSummary | None]
    blocks: int
    partial: bool = False
    no_interval_below: int | None = None
    floor: float | None = None
    taken_back: Verdict | None = None
    difference: Verdict | None = None

    @in_json
    def p_value(self) -> float | None:
        """P-value of the two-sided test of no change."""
        return self.summary.p_value if self.summary else None


class Compared(Protocol):
    """Findings on arms that were compared."""

    @property
    def confidence(self) -> float:
        """Confidence of the verdicts."""

    @property
    def trials(self) -> Sequence[Trial]:
        """All trials."""

    def verdicts_on(self, metric: str = PRIMARY) -> list[MetricVerdict]:
        """Return every arm's comparison with the baseline in every case.

        ``metric`` is a key, or "average" for the average of the primary metric over the cases. For a single
        case, that is the primary metric. A comparison without values is undecided.
        """


@dataclass(frozen=True)
class OverCases:
    """One arm against the baseline over all cases that have both, by name.

    ``average`` is of the metric of the verdicts; None if no case has a block, or if the cases have metrics of
    opposite directions. ``floor`` is its noise floor as a log ratio; None if unknown.
    """

    baseline: str
    arm: str
    comparisons: Hidden[Mapping[str, Comparison]]  # by case
    average: Combined | None
    floor: float | None = None

    @in_json
    def percent(self) -> Estimate | None:
        """The average in percent; ``n`` is the number of passes."""
        effect = next((of.primary for of in self.comparisons.values() if of.primary), None)
        return self.average.percent(effect.percent.better) if self.average and effect else None

    @in_json
    def stalled(self) -> list[str]:
        """Cases not averaged: an arm lost blocks, the effect changes in windows, or only one block counts."""
        single = self.average.left_out if self.average else ()
        return [case for case, of in self.comparisons.items() if of.is_held_back or case in single]

    @property
    def is_under_floor(self) -> bool:
        """True if the average is below its noise floor."""
        return (
            self.average is not None
            and self.floor is not None
            and abs(self.average.summary.mean) < self.floor
        )

    @in_json
    def verdicts(self) -> Counter[Verdict]:
        """Number of cases by verdict."""
        return Counter(comparison.verdict for comparison in self.comparisons.values())


@dataclass(frozen=True)
class StudyFindings:
    """Findings of a study. A comparison has one case, without a name."""

    cases: Sequence[Findings]
    over_cases: Sequence[OverCases]
    feature_findings: Hidden[Mapping[Callable[[Evidence], Any], Any]] = field(default_factory=dict)
    """Findings of features, by the function that computes them."""

    def findings_of(self, find: Callable[[Evidence], FeatureFindings]) -> FeatureFindings | None:
        """Return the findings of a feature's function; None if they were not computed from a results file."""
        return self.feature_findings.get(find)

    @property
    def first(self) -> Findings:
        """The first case, for properties that all cases share."""
        return self.cases[0]

    @property
    def confidence(self) -> float:
        """Confidence of the verdicts."""
        return self.first.study.plan.confidence

    @property
    def trials(self) -> list[Trial]:
        """All trials."""
        return [trial for case in self.cases for trial in case.trials]

    def verdicts_on(self, metric: str = PRIMARY) -> list[MetricVerdict]:
        """Return every arm's comparison with the baseline in every case; see ``Compared``."""
        if metric == AVERAGE and len(self.cases) == 1:
            metric = PRIMARY
        if metric == AVERAGE:
            return [_average(over, self) for over in self.over_cases]
        return [_of_case(of, one, metric) for of in self.cases for one in of.comparisons]


def find_study(evidence: Evidence) -> StudyFindings:
    """Read all cases from one snapshot, and compute their findings."""
    with evidence.snapshot():
        noise = read_noise(evidence)
        cases = [find_case(evidence, case, noise[case]) for case in evidence.cases()]
        of_features = {find: find(evidence) for find in FINDINGS}
    return StudyFindings(cases, _over_cases(cases), of_features)


def _over_cases(cases: Sequence[Findings]) -> list[OverCases]:
    """Return the averages of all arms, one family."""
    pairs: dict[tuple[str, str], dict[str, Comparison]] = {}
    for of in cases:
        for one in of.comparisons:
            pairs.setdefault((one.baseline.name, one.arm.name), {})[of.study.case] = one
    plan = cases[0].study.plan
    method = method_of(plan, cases[0].trials)
    estimators = [partial(combine, _averaged(of_cases), method=method) for of_cases in pairs.values()]
    averages = simultaneous(estimators, plan.confidence)
    return [
        OverCases(*pair, of_cases, average, _floor(cases, average))
        for (pair, of_cases), average in zip(pairs.items(), averages, strict=True)
    ]


def _averaged(comparisons: Mapping[str, Comparison]) -> dict[str, LogRatios]:
    """Return the ratios of the cases that can be averaged.

    The other blocks of a case would bias the average in favor of an arm that lost a block. A trend of the
    effect biases all blocks. Rates and latencies have no average, because their directions are opposite.
    """
    of_cases = {case: c.primary for case, c in comparisons.items() if c.primary and not c.is_held_back}
    return {case: of.log_ratios for case, of in of_cases.items()} if are_alike(comparisons) else {}


def are_alike(comparisons: Mapping[str, Comparison]) -> bool:
    """Return whether more is better in all cases, or less in all."""
    return len({of.primary.percent.better for of in comparisons.values() if of.primary}) < 2


def _floor(cases: Sequence[Findings], average: Combined | None) -> float | None:
    if average is None:
        return None
    noises = [of.noise for of in cases if of.study.case in average.names]
    return floor_of_average(noises, average.summary.n, average.summary.confidence)


def _of_case(findings: Findings, comparison: Comparison, metric: str) -> MetricVerdict:
    key = metric or findings.primary.key
    effect = comparison.effects.get(key) or findings.telemetry.effects[comparison.arm.arm].get(key)
    partial = comparison.is_held_back or (
        effect is not None and len(effect.log_ratios) < len(comparison.blocks)
    )
    is_primary = key == findings.primary.key
    decision = own = _decision(findings.study.plan, effect, partial=partial)
    floor = taken_back = None
    if is_primary:
        decision = comparison.decision
        floor = findings.noise.floor(effect.summary.n, effect.summary.confidence) if effect else None
        is_below_floor = effect is not None and floor is not None and abs(effect.summary.mean) < floor
        if own and decision and decision.verdict is not own.verdict and is_below_floor:
            taken_back = own.verdict
    return MetricVerdict(
        case=findings.study.case,
        baseline=comparison.baseline.name,
        arm=comparison.arm.name,
        metric=key,
        name=effect.name if effect else key,
        verdict=decision.verdict if decision else Verdict.UNDECIDED,
        percent=effect.percent if effect else None,
        summary=effect.summary if effect else None,
        blocks=effect.summary.n if effect else 0,
        partial=partial,
        no_interval_below=effect.no_interval_below if effect else None,
        floor=floor,
        taken_back=taken_back,
        difference=decision.difference if decision else None,
    )


def _decision(plan: Study, effect: Effect | None, *, partial: bool) -> Decision | None:
    """Return the decision on a metric, whatever the noise floor is.

    None if blocks are missing: an arm was too slow for a value, and the other blocks would favor it.
    """
    if effect is None or partial:
        return None
    return decide(effect.summary, effect.percent.better, plan.margin)


def _average(over: OverCases, findings: StudyFindings) -> MetricVerdict:
    """Return the comparison of the average, without values if any case was never measured."""
    primary = findings.first.primary
    whole_of_cases = all(of.primary is not None for of in over.comparisons.values())
    average = over.average if whole_of_cases else None
    plan = findings.first.study.plan
    decision = taken_back = None
    if len(over.comparisons) == 1:  # the single case has the same value and a noise floor
        (decision,) = (of.decision for of in over.comparisons.values())
    elif average and not over.stalled:
        decision = own = decide(average.summary, primary.better, plan.margin)
        if over.is_under_floor:
            decision = own.without_difference()
            taken_back = own.difference if own.verdict is own.difference else None
    return MetricVerdict(
        case=AVERAGE,
        baseline=over.baseline,
        arm=over.arm,
        metric=primary.key,
        name=primary.name,
        verdict=decision.verdict if decision else Verdict.UNDECIDED,
        percent=average.percent(primary.better) if average else None,
        summary=average.summary if average else None,
        blocks=average.summary.n if average else 0,
        partial=bool(over.stalled),
        floor=over.floor,
        taken_back=taken_back,
        difference=decision.difference if decision else None,
    )
