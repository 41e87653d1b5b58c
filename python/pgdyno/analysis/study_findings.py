"""Findings of all cases of a study, and results over all cases. Features compute further ones from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgdyno.analysis.case_findings import Findings, find_case
from pgdyno.analysis.comparison import Comparison, Verdict
from pgdyno.analysis.finding_fields import Hidden, in_json
from pgdyno.analysis.measurement_noise import floor_of_average, read_noise
from pgdyno.analysis.statistics.intervals import method_of
from pgdyno.analysis.statistics.pooling import Combined, LogRatios, combine
from pgdyno.results.reader import Evidence
from pgdyno.units import Estimate


@dataclass(frozen=True)
class OverCases:
    """One arm against the baseline over all cases that have both, by name.

    ``average`` is of the metric of the verdicts; None if no case has a block. ``floor`` is its noise floor as
    a log ratio; None if unknown.
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
        """Cases that are not in the average, because an arm lost a block or the effect changes in windows."""
        return [case for case, comparison in self.comparisons.items() if comparison.is_held_back]

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

    @property
    def first(self) -> Findings:
        """The first case, for properties that all cases share."""
        return self.cases[0]


def find_study(evidence: Evidence) -> StudyFindings:
    """Read all cases from one snapshot, and compute their findings."""
    with evidence.snapshot():
        noise = read_noise(evidence)
        cases = [find_case(evidence, case, noise[case]) for case in evidence.cases()]
    names = dict.fromkeys((c.baseline.name, c.arm.name) for of in cases for c in of.comparisons)
    return StudyFindings(cases, [_over(cases, *pair) for pair in names])


def _over(cases: Sequence[Findings], baseline: str, arm: str) -> OverCases:
    found = {
        of.study.case: comparison
        for of in cases
        for comparison in of.comparisons
        if (comparison.baseline.name, comparison.arm.name) == (baseline, arm)
    }
    # The other blocks of a case would bias the average in favor of an arm that lost a block. A trend of the
    # effect biases all blocks.
    whole = {case: c.primary for case, c in found.items() if c.primary is not None and not c.is_held_back}
    ratios = {case: primary.log_ratios for case, primary in whole.items()}
    plan = cases[0].study.plan
    average = combine(ratios, plan.confidence, method_of(plan, cases[0].trials))
    return OverCases(baseline, arm, found, average, _floor(cases, ratios, average))


def _floor(
    cases: Sequence[Findings], ratios: Mapping[str, LogRatios], average: Combined | None
) -> float | None:
    if average is None:
        return None
    noises = {of.study.case: of.noise for of in cases if of.study.case in average.names}
    blocks = {case: len(ratios[case]) for case in noises}
    return floor_of_average(noises, blocks, average.summary.confidence)
