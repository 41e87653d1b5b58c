"""All cases of a study: the findings of each, and what holds over all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgdyno.analysis.combined import Combined, combine
from pgdyno.analysis.comparison import Comparison
from pgdyno.analysis.findings import Findings, find_case
from pgdyno.analysis.verdict import Verdict
from pgdyno.evidence.reader import Evidence


@dataclass(frozen=True)
class OverCases:
    """One arm against the baseline over all cases that have both, by the arm's name.

    ``average`` is of the metric that the verdicts are about; None where no case has a block.
    """

    baseline: str
    arm: str
    comparisons: Mapping[str, Comparison]  # by case
    average: Combined | None

    @property
    def verdicts(self) -> Counter[Verdict]:
        """How often each."""
        return Counter(comparison.verdict for comparison in self.comparisons.values())


@dataclass(frozen=True)
class StudyFindings:
    """Of a comparison there is one case, without a name."""

    cases: Sequence[Findings]
    over_cases: Sequence[OverCases]

    @property
    def first(self) -> Findings:
        """What is the same for all cases can be read of it."""
        return self.cases[0]


def find_study(evidence: Evidence) -> StudyFindings:
    """Read all of it, at one moment, and compute."""
    with evidence.snapshot():
        cases = [find_case(evidence, case) for case in evidence.cases()]
    names = dict.fromkeys((c.baseline.name, c.arm.name) for of in cases for c in of.comparisons)
    return StudyFindings(cases, [_over(cases, *pair) for pair in names])


def _over(cases: Sequence[Findings], baseline: str, arm: str) -> OverCases:
    found = {
        of.study.case: comparison
        for of in cases
        for comparison in of.comparisons
        if (comparison.baseline.name, comparison.arm.name) == (baseline, arm)
    }
    ratios = {case: c.primary.log_ratios for case, c in found.items() if c.primary is not None}
    return OverCases(baseline, arm, found, combine(ratios, cases[0].study.plan.confidence))
