"""The same study from several hosts: each effect with each host's own estimate and the pooled one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgdyno.analysis.combined import combine
from pgdyno.analysis.comparison import Comparison
from pgdyno.analysis.effect import student
from pgdyno.analysis.pooling import HostEffect, Pooled, disagreement, pool
from pgdyno.caveats import Caveat
from pgdyno.estimate import Better

ByHost = Mapping[str, Mapping[str, Sequence[Comparison]]]
"""host → case → its comparisons."""

AVERAGE = ""
"""Stands for a case: the average over all of them."""


@dataclass(frozen=True)
class OverHosts:
    """One effect over the hosts. ``absent``: hosts that have nothing of it, and so do not count."""

    case: str
    baseline: str
    arm: str
    key: str
    name: str
    better: Better
    pooled: Pooled
    absent: Sequence[str]

    def doubts(self) -> list[Caveat]:
        """That the hosts disagree about the sign."""
        named = f"{self.name} in {self.case}" if self.case else self.name
        return disagreement(self.pooled, arm=self.arm, baseline=self.baseline, metric=named)


def over_hosts(by_host: ByHost, confidence: float, keys: Sequence[str] | None = None) -> list[OverHosts]:
    """Every effect that some host has, case by case, in the order of the first host that has it.

    ``keys``: these metrics only. Arms are the same where they have the same name. Intervals are at
    ``confidence`` each: those of single hosts, too, which in their own reports may be wider where several
    arms are compared (Holm).
    """
    places: dict[tuple[str, str, str, str], tuple[str, Better]] = {}
    found: dict[tuple[str, str, str, str], dict[str, HostEffect]] = {}
    for host, cases in by_host.items():
        for case, comparisons in cases.items():
            for comparison in comparisons:
                for key, effect in comparison.effects.items():
                    if keys is not None and key not in keys:
                        continue
                    place = (case, comparison.baseline.name, comparison.arm.name, key)
                    places.setdefault(place, (effect.name, effect.percent.better))
                    ratios = list(effect.log_ratios.values())
                    found.setdefault(place, {})[host] = HostEffect(host, student(ratios, confidence))
    return [_over(place, *told, found[place], by_host, confidence) for place, told in places.items()]


def average_over_hosts(by_host: ByHost, key: str, confidence: float) -> list[OverHosts]:
    """The average over the cases on each host, pooled; one for each pair of arms. Only cases that every host
    has count: else hosts would differ by which cases they have.
    """
    common = set.intersection(*(set(cases) for cases in by_host.values())) if by_host else set()
    ratios: dict[tuple[str, str], dict[str, dict[str, Mapping[int, float]]]] = {}
    told: dict[tuple[str, str], tuple[str, Better]] = {}
    for host, cases in by_host.items():
        for case, comparisons in cases.items():
            for comparison in comparisons if case in common else ():
                effect = comparison.effects.get(key)
                if effect is not None:
                    pair = (comparison.baseline.name, comparison.arm.name)
                    told.setdefault(pair, (effect.name, effect.percent.better))
                    ratios.setdefault(pair, {}).setdefault(host, {})[case] = effect.log_ratios
    result = []
    for pair, of_hosts in ratios.items():
        everywhere = set.intersection(*(set(cases) for cases in of_hosts.values()))
        effects = {
            host: HostEffect(host, combined.spread)
            for host, cases in of_hosts.items()
            if (combined := combine({c: d for c, d in cases.items() if c in everywhere}, confidence))
        }
        if effects:
            place = (AVERAGE, *pair, key)
            result.append(_over(place, *told[pair], effects, by_host, confidence))
    return result


def _over(
    place: tuple[str, str, str, str],
    name: str,
    better: Better,
    effects: Mapping[str, HostEffect],
    by_host: ByHost,
    confidence: float,
) -> OverHosts:
    absent = [host for host in by_host if host not in effects]
    return OverHosts(*place, name, better, pool(list(effects.values()), confidence), absent)
