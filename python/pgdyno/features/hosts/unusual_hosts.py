"""Slow and noisy hosts, and hosts of a fleet that did not complete the study."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from pgdyno.analysis.statistics.intervals import f_beyond
from pgdyno.analysis.study_findings import StudyFindings
from pgdyno.caveats import Caveat
from pgdyno.features.hosts.fleet_record import HostState, HostWork
from pgdyno.units import Better


class Code(StrEnum):
    """Codes of caveats about the hosts of a study."""

    HOST_INCOMPLETE = "host-incomplete"
    HOST_MISSING = "host-missing"
    HOST_REPLACED = "host-replaced"
    HOST_SLOW = "host-slow"
    HOST_NOISY = "host-noisy"


SLOW_MIN = 1.5
"""Ratio to the median of the other hosts from which a host is slow: different hardware, or a disturbance."""

NOISY_MIN = 2.0
"""Ratio of standard deviations from which a host is noisy: it needs four times as many blocks."""

LEVEL = 0.05
"""Maximum probability that one of the hosts is called noisy although all have the same variance."""


def incomplete_hosts(works: Mapping[str, HostWork], studies: Mapping[str, StudyFindings]) -> list[Caveat]:
    """Return a caveat for each host of a fleet that was lost or failed. ``works``: by file name."""
    found = []
    for file, work in works.items():
        facts = {"host": work.host, "state": work.state.value, "reason": work.reason or "unknown reason"}
        if work.state not in (HostState.LOST, HostState.FAILED):
            continue
        if work.is_moved:
            found.append(Caveat(Code.HOST_REPLACED, facts))
        elif file in studies:
            blocks = sum(len({trial.block for trial in case.trials}) for case in studies[file].cases)
            found.append(Caveat(Code.HOST_INCOMPLETE, {**facts, "blocks": blocks}))
        else:
            found.append(Caveat(Code.HOST_MISSING, facts))
    return found


def unusual_hosts(hosts: Mapping[str, Sequence[StudyFindings]]) -> list[Caveat]:
    """Return a caveat for each slow host and each noisy host. ``hosts``: studies by host."""
    return [*_slow(hosts), *_noisy(hosts)]


def _slow(hosts: Mapping[str, Sequence[StudyFindings]]) -> Iterator[Caveat]:
    """Yield hosts whose baseline is slow, on the geometric mean of the cases that others have, too."""
    levels = {host: _log_levels(studies) for host, studies in hosts.items()}
    for host, own in levels.items():
        ratios = []
        for case, level in own.items():
            others = [of[case] for name, of in levels.items() if name != host and case in of]
            if others:
                ratios.append(statistics.median(others) - level)
        if ratios and statistics.fmean(ratios) >= math.log(SLOW_MIN):
            factor = f"{math.exp(statistics.fmean(ratios)):.1f}"
            yield Caveat(Code.HOST_SLOW, {"host": host, "factor": factor})


def _log_levels(studies: Sequence[StudyFindings]) -> dict[str, float]:
    """Return the logarithm of the baseline's level by case; greater is better."""
    found = {}
    for study in studies:
        for case in study.cases:
            metric = case.primary
            level = case.arms[0].levels.get(metric.key)
            if level is not None and level.value > 0:
                sign = -1.0 if metric.better is Better.LESS else 1.0
                found[case.study.case] = sign * math.log(level.value)
    return found


def _noisy(hosts: Mapping[str, Sequence[StudyFindings]]) -> Iterator[Caveat]:
    """Yield hosts whose blocks vary more than those of the others, by a one-sided F test."""
    variances = {host: _variance(studies) for host, studies in hosts.items()}
    for host, (variance, df) in variances.items():
        others = [of for name, of in variances.items() if name != host and of[1] > 0]
        df_others = sum(n for _, n in others)
        pooled = sum(v * n for v, n in others) / df_others if df_others else 0.0
        if df == 0 or pooled <= 0 or variance / pooled < NOISY_MIN**2:
            continue
        if f_beyond(variance / pooled, df, df_others) < LEVEL / len(variances):
            factor = f"{math.sqrt(variance / pooled):.1f}"
            yield Caveat(Code.HOST_NOISY, {"host": host, "factor": factor})


def _variance(studies: Sequence[StudyFindings]) -> tuple[float, int]:
    """Return the pooled variance of log ratios of the primary metric, and its degrees of freedom."""
    total, df = 0.0, 0
    for study in studies:
        for case in study.cases:
            for comparison in case.comparisons:
                effect = comparison.effects.get(case.primary.key)
                if effect is not None and effect.summary.sd is not None:
                    total += effect.summary.sd**2 * (effect.summary.n - 1)
                    df += effect.summary.n - 1
    return (total / df if df else 0.0), df
