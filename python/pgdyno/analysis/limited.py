"""The latency that a study limits, trial by trial: also of those that were never answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pgdyno.analysis.latency import limited_ms, merge
from pgdyno.evidence.records import Pairs, Plan, Trial
from pgdyno.study.limit import parse_limit


def limited_by_trial(
    plan: Plan, trials: Sequence[Trial], histograms: Mapping[int, Mapping[str, Pairs]]
) -> dict[int, float | None]:
    """Trial id → the quantile in ms, infinite where too many were not answered; of no limit nothing."""
    text = plan.details.get("study", {}).get("capacity")
    if not text:
        return {}
    limit = parse_limit(text)
    found = {}
    for trial in trials:
        if trial.trial in histograms:
            counts = [of for piece in trial.measured for of in piece.kinds.values()]
            answered = sum(of.executed for of in counts)
            every = sum(of.all for of in counts)
            pairs = merge(histograms[trial.trial].values())
            found[trial.trial] = limited_ms(pairs, answered, every - answered, limit.quantile)
    return found
