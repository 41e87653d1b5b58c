"""Interim analysis of the finished blocks of a case, after which a study may stop.

It computes the verdicts as the report does, and omits everything else in a report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgdyno.analysis.comparison.measurement_noise import read_noise, with_noise
from pgdyno.analysis.comparison.paired_comparison import (
    Comparison,
    compare_arms,
    without_unconfirmed,
)
from pgdyno.analysis.comparison.verdict import Verdict
from pgdyno.analysis.telemetry import metrics, percentiles
from pgdyno.results.reader import Evidence


@dataclass(frozen=True)
class InterimResult:
    """Result for one case, with one comparison for each arm after the first."""

    comparisons: Sequence[Comparison]

    @property
    def is_decided(self) -> bool:
        """True if every comparison is decided, and no effect may change within the windows."""
        return all(
            comparison.verdict is not Verdict.UNDECIDED and not comparison.may_trend
            for comparison in self.comparisons
        )

    @property
    def is_trending(self) -> bool:
        """True if an effect changes within the windows."""
        return any(comparison.is_trending for comparison in self.comparisons)


def interim_result(evidence: Evidence, case: int) -> InterimResult:
    """Read the data for the verdicts from one snapshot, and return the result."""
    with evidence.snapshot():
        plan, arms, trials = evidence.study(case).plan, evidence.arms(case), evidence.trials(case)
        chosen = metrics.of_plan(plan, percentiles.latencies_of_all_kinds(evidence, plan, trials))
        noise = read_noise(evidence)[case]
        missed = percentiles.read_missed_limits(evidence, plan, arms, trials)
    comparisons = compare_arms(arms, trials, plan, chosen[:1], len(evidence.cases()))
    comparisons = without_unconfirmed(comparisons, missed)
    noise = noise.of_today(comparisons)
    return InterimResult([with_noise(found, noise) for found in comparisons])
