"""The latency that a study limits, trial by trial: also of those that were never answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pgdyno.analysis.statistics.distributions import binomial_at_most
from pgdyno.analysis.telemetry.latency import limited_ms, merge
from pgdyno.caveats import Caveat, Code, Parameter
from pgdyno.evidence.records import Arm, Pairs, Trial
from pgdyno.study.limit import parse_limit
from pgdyno.study.plan import Study

ALARM = 0.05
"""At the highest rate that keeps a limit, half of the windows miss it by chance: fewer that keep it than half
must be too few to be chance, by the sign test.
"""


def limited_by_trial(
    plan: Study, trials: Sequence[Trial], histograms: Mapping[int, Mapping[str, Pairs]]
) -> dict[int, float | None]:
    """Trial id → the quantile in ms, infinite where too many were not answered; of no limit nothing."""
    if plan.capacity is None:
        return {}
    limit = parse_limit(plan.capacity)
    found = {}
    for trial in trials:
        if trial.trial in histograms:
            counts = [of for piece in trial.measured for of in piece.kinds.values()]
            answered = sum(of.executed for of in counts)
            every = sum(of.all for of in counts)
            pairs = merge(histograms[trial.trial].values())
            found[trial.trial] = limited_ms(pairs, answered, every - answered, limit.quantile)
    return found


def not_kept(
    plan: Study, arms: Sequence[Arm], trials: Sequence[Trial], limited: Mapping[int, float | None]
) -> list[Caveat]:
    """Arms that did not keep the limit when they were measured at the rates that the search had found."""
    if plan.capacity is None:
        return []
    limit_ms = 1e3 * parse_limit(plan.capacity).latency_s
    found = []
    for arm in arms:
        known = [
            ms for trial in trials if trial.arm == arm.arm and (ms := limited.get(trial.trial)) is not None
        ]
        kept = sum(ms < limit_ms for ms in known)
        if known and binomial_at_most(kept, len(known), 0.5) <= ALARM:
            names: dict[str, Parameter] = {
                "arm": arm.name,
                "limit": plan.capacity,
                "kept": kept,
                "blocks": len(known),
            }
            found.append(Caveat(Code.CAPACITY_NOT_SUSTAINED, names))
    return found
