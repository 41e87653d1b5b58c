"""Findings of one study from several hosts: of each host, and of all together.

Hosts, not files, are what is pooled. Blocks of two studies on one machine share its disk, its memory and its
neighbours; host being the random effect, they are blocks of one host (``Host.studies`` has two), and that is
told. Where all files are of one machine, there is a pooled estimate and no interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pgdyno.analysis.comparison.paired_comparison import Comparison, Effect
from pgdyno.analysis.findings.pooled_hosts import (
    OverHosts,
    PooledTable,
    average_over_hosts,
    average_over_parts,
    over_hosts,
    pooled_tables,
)
from pgdyno.analysis.findings.study_findings import StudyFindings
from pgdyno.analysis.findings.study_identity import machines, require_same, unlike
from pgdyno.analysis.statistics.effect import Method, spread_of
from pgdyno.caveats import Caveat, Code
from pgdyno.results.records import Json
from pgdyno.study.cases import label_of

LATENCY = "latency."
"""Keys of latencies begin so."""

MEAN_TIME = "statement.mean_ms"
"""Of each statement."""

KEYS_NAMED_MAX = 8
"""Numbers that a caveat names one by one."""

ByCase = Mapping[str, Sequence[Comparison]]


@dataclass(frozen=True)
class Host:
    """A machine, with the studies that its files hold, by file. Its name is that of its files."""

    name: str
    studies: Mapping[str, StudyFindings]

    @property
    def facts(self) -> Json:
        """The machine, as its first file describes it."""
        return next(iter(self.studies.values())).first.study.host


@dataclass(frozen=True)
class HostsFindings:
    """``effects``: of every case, arm and metric, telemetry included. ``averages``: over the cases, of the
    primary metric; empty where there is one case. ``statements``: the average over the mean times of the
    statements that all hosts have, for each case and arm. ``compared``: (case, baseline, arm) of every
    comparison, also of those without a number. ``published``: the source's tables, pooled.
    """

    hosts: Sequence[Host]
    cases: Sequence[str]
    effects: Sequence[OverHosts]
    averages: Sequence[OverHosts]
    statements: Sequence[OverHosts]
    caveats: Sequence[Caveat]
    compared: Sequence[tuple[str, str, str]]
    published: Sequence[PooledTable] = ()

    @property
    def studies(self) -> dict[str, StudyFindings]:
        """By file."""
        return {name: study for host in self.hosts for name, study in host.studies.items()}

    @property
    def first(self) -> StudyFindings:
        """What is the same for all hosts can be read of it."""
        return next(iter(self.hosts[0].studies.values()))

    @property
    def primary(self) -> list[OverHosts]:
        """What the verdicts are about: an effect for each case and arm."""
        key = self.first.first.primary.key
        return [of for of in self.effects if of.key == key]


def find_hosts(studies: Mapping[str, StudyFindings]) -> HostsFindings:
    """``studies``: by the name of the file. Raises EvidenceError where they are not of one study."""
    require_same(studies)
    named = _with_common_names(studies)
    hosts, by_host = [], {}
    for files in machines(studies):
        host = Host(" and ".join(files), {file: studies[file] for file in files})
        hosts.append(host)
        by_host[host.name] = _as_one([named[file] for file in files])
    first = next(iter(studies.values())).first
    confidence, key = first.study.plan.confidence, first.primary.key
    effects = over_hosts(by_host, confidence)
    cases = list(dict.fromkeys(case for of_host in by_host.values() for case in of_host))
    averages = average_over_hosts(by_host, key, confidence) if len(cases) > 1 else []
    statements = average_over_parts(by_host, MEAN_TIME, confidence)
    disagree = [caveat for of in [*averages, *effects] if of.key == key for caveat in of.caveats()]
    caveats = [*_host_caveats(hosts, studies), *disagree]
    compared = dict.fromkeys(
        (case, of.baseline.name, of.arm.name)
        for cases_of_host in by_host.values()
        for case, comparisons in cases_of_host.items()
        for of in comparisons
    )
    published = pooled_tables({host.name: list(host.studies.values()) for host in hosts}, confidence)
    return HostsFindings(hosts, cases, effects, averages, statements, caveats, list(compared), published)


def _host_caveats(hosts: Sequence[Host], studies: Mapping[str, StudyFindings]) -> Iterator[Caveat]:
    for host in hosts:
        if len(host.studies) > 1:
            yield Caveat(Code.ONE_MACHINE, {"files": host.name})
    first, *others = studies.values()
    keys = list(dict.fromkeys(key for other in others for key in unlike(first, other)))
    if keys:
        rest = len(keys) - KEYS_NAMED_MAX
        named = ", ".join(keys[:KEYS_NAMED_MAX]) + (f" and {rest} more" if rest > 0 else "")
        yield Caveat(Code.HOSTS_FITTED_DIFFERENTLY, {"keys": named})
    builds = "; ".join(_unlike_builds(hosts))
    if builds:
        yield Caveat(Code.HOSTS_BUILDS_DIFFER, {"difference": builds})


def _unlike_builds(hosts: Sequence[Host]) -> Iterator[str]:
    """``12: 12.4 on small, 12.6 on large``."""
    found: dict[str, dict[str, str]] = {}
    for host in hosts:
        for study in host.studies.values():
            for of in study.first.arms:
                server = of.arm.server
                label = str(server.get("label") or server.get("version") or server.get("version_text", ""))
                found.setdefault(of.arm.name, {}).setdefault(host.name, label)
    for arm, labels in found.items():
        if len(set(labels.values())) > 1:
            yield f"{arm}: {', '.join(f'{label} on {host}' for host, label in labels.items())}"


def _with_common_names(studies: Mapping[str, StudyFindings]) -> dict[str, ByCase]:
    """Each file's comparisons by case. Where a study was fitted to each machine, a level may be another
    number on each: then levels are matched by place, and called by all their names (``scale 100 / 300``).
    """
    every = [of.study.levels for study in studies.values() for of in study.cases]
    factors = list(dict.fromkeys(factor for levels in every for factor in levels))
    levels = {
        factor: _joined(
            [[str(of.study.levels.get(factor, "")) for of in study.cases] for study in studies.values()]
        )
        for factor in factors
    }
    arms = _joined([[of.arm.name for case in study.cases for of in case.arms] for study in studies.values()])
    several = any(len(study.cases) > 1 for study in studies.values())
    result: dict[str, ByCase] = {}
    for place, (file, study) in enumerate(studies.items()):
        by_case = {}
        for of in study.cases:
            renamed = {f: levels[f][place][str(name)] for f, name in of.study.levels.items()}
            case = (label_of(renamed) or of.study.case) if several else of.study.case
            by_case[case] = [
                _called(comparison, arms[place], of.telemetry.effects.get(comparison.arm.arm, {}))
                for comparison in of.comparisons
            ]
        result[file] = by_case
    return result


def _joined(lists: Sequence[Sequence[str]]) -> list[dict[str, str]]:
    """For each list, what its names are called in common: by their place where there are as many of them
    everywhere, else as they are.
    """
    distinct = [list(dict.fromkeys(names)) for names in lists]
    if len({len(names) for names in distinct}) > 1:
        return [{name: name for name in names} for names in distinct]
    joint = [" / ".join(dict.fromkeys(names)) for names in zip(*distinct, strict=True)]
    return [dict(zip(names, joint, strict=True)) for names in distinct]


def _called(comparison: Comparison, names: Mapping[str, str], telemetry: Mapping[str, Effect]) -> Comparison:
    """With the arms' common names, with what the probes tell, and without latencies that some blocks do not
    have: these were too slow to have so many transactions, and without them the change would flatter.
    """
    a, b = comparison.baseline, comparison.arm
    whole = {
        key: effect
        for key, effect in comparison.effects.items()
        if not key.startswith(LATENCY) or len(effect.log_ratios) == len(comparison.blocks)
    }
    return replace(
        comparison,
        baseline=replace(a, name=names[a.name]),
        arm=replace(b, name=names[b.name]),
        effects={**whole, **telemetry},
    )


def _as_one(studies: Sequence[ByCase]) -> ByCase:
    """The blocks of several studies on one machine as those of one study; they are numbered on.

    A file's blocks stay together: block n of every case is of the same pass, also after a file that ended
    in the midst of one.
    """
    if len(studies) == 1:
        return studies[0]
    found: dict[str, dict[str, list[Comparison]]] = {}
    begin = 0
    for by_case in studies:
        for case, comparisons in by_case.items():
            for comparison in comparisons:
                found.setdefault(case, {}).setdefault(comparison.arm.name, []).append(_on(comparison, begin))
        begin += 1 + max(
            (
                block
                for comparisons in by_case.values()
                for comparison in comparisons
                for effect in comparison.effects.values()
                for block in effect.log_ratios
            ),
            default=-1,
        )
    return {case: [_merged(same) for same in by_arm.values()] for case, by_arm in found.items()}


def _on(comparison: Comparison, begin: int) -> Comparison:
    """With its blocks numbered from ``begin``."""
    effects = {
        key: replace(effect, log_ratios={begin + block: d for block, d in effect.log_ratios.items()})
        for key, effect in comparison.effects.items()
    }
    return replace(comparison, effects=effects)


def _merged(comparisons: Sequence[Comparison]) -> Comparison:
    """Only effects, ``stalled`` and names are of all of them: nothing else is read of it."""
    keys = dict.fromkeys(key for comparison in comparisons for key in comparison.effects)
    common = [key for key in keys if all(key in comparison.effects for comparison in comparisons)]
    return replace(
        comparisons[0],
        effects={key: _merged_effect([c.effects[key] for c in comparisons]) for key in common},
        stalled=[block for comparison in comparisons for block in comparison.stalled],
        decision=None,
    )


def _merged_effect(effects: Sequence[Effect]) -> Effect:
    ratios = {block: d for effect in effects for block, d in effect.log_ratios.items()}
    first = effects[0]
    methods = [effect.spread.method for effect in effects]
    method = Method.ANYTIME if Method.ANYTIME in methods else first.spread.method
    spread = spread_of(list(ratios.values()), first.spread.confidence, method)
    return replace(
        first,
        log_ratios=ratios,
        spread=spread,
        percent=spread.percent(first.percent.better),
        bootstrap=None,
    )
