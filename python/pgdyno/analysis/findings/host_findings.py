"""Findings of one study from several hosts: of each host, and pooled.

Results are pooled over hosts, not files. Two studies on one machine share its disk, its memory and its
neighbors. Host is the random effect, so their blocks are blocks of one host (``Host.studies`` has two), and a
caveat reports this. If all files are of one machine, the pooled estimate has no interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from pgdyno.analysis.comparison.paired_comparison import Comparison, Effect
from pgdyno.analysis.findings.fleet_hosts import incomplete_hosts, unusual_hosts
from pgdyno.analysis.findings.pooled_hosts import (
    OverHosts,
    PooledTable,
    average_over_hosts,
    average_over_parts,
    first_blocks,
    over_hosts,
    pooled_tables,
)
from pgdyno.analysis.findings.study_findings import StudyFindings
from pgdyno.analysis.findings.study_identity import files_by_machine, fitted_differences, require_same
from pgdyno.analysis.statistics.effect import Method, summarize
from pgdyno.analysis.telemetry.metrics import MEAN_TIME, is_latency
from pgdyno.caveats import Caveat, Code
from pgdyno.results.fleet_file import HostWork
from pgdyno.results.records import Json
from pgdyno.study.cases import label_of

KEYS_NAMED_MAX = 8
"""Maximum number of keys that a caveat lists."""

ByCase = Mapping[str, Sequence[Comparison]]


@dataclass(frozen=True)
class Host:
    """A machine with the studies of its files, by file. Its name is made of the file names."""

    name: str
    studies: Mapping[str, StudyFindings]

    @property
    def facts(self) -> Json:
        """Description of the machine in its first file."""
        return next(iter(self.studies.values())).first.study.host


@dataclass(frozen=True)
class HostsFindings:
    """Findings over hosts. ``effects`` are of every case, arm and metric, including telemetry.

    ``averages`` are of the primary metric over the cases; empty for a single case. ``statements`` are
    averages over the mean times of the statements that all hosts have, for each case and arm. ``compared``
    has (case, baseline, arm) of every comparison, also of those without values. ``published`` are the
    source's tables, pooled. ``incomplete``: caveats about hosts of a fleet that were lost or failed.
    """

    hosts: Sequence[Host]
    cases: Sequence[str]
    effects: Sequence[OverHosts]
    averages: Sequence[OverHosts]
    statements: Sequence[OverHosts]
    caveats: Sequence[Caveat]
    compared: Sequence[tuple[str, str, str]]
    published: Sequence[PooledTable] = ()
    incomplete: Sequence[Caveat] = ()

    @property
    def studies(self) -> dict[str, StudyFindings]:
        """All studies by file."""
        return {name: study for host in self.hosts for name, study in host.studies.items()}

    @property
    def first(self) -> StudyFindings:
        """The first study, for properties that all hosts share."""
        return next(iter(self.hosts[0].studies.values()))

    @property
    def primary(self) -> list[OverHosts]:
        """Effects on the metric of the verdicts, for each case and arm."""
        key = self.first.first.primary.key
        return [of for of in self.effects if of.key == key]


def find_hosts(
    studies: Mapping[str, StudyFindings], works: Mapping[str, HostWork] = MappingProxyType({})
) -> HostsFindings:
    """Return the findings. ``studies`` is by file name. Raises EvidenceError for different studies.

    ``works``: the works of a fleet study by file name, also those without a file.
    """
    require_same(studies)
    named = _with_common_names(studies)
    hosts, by_host = [], {}
    for files in files_by_machine(studies):
        host = Host(" and ".join(files), {file: studies[file] for file in files})
        hosts.append(host)
        by_host[host.name] = _consecutive([named[file] for file in files])
    first = next(iter(studies.values())).first
    confidence, key = first.study.plan.confidence, first.primary.key
    effects = over_hosts(by_host, confidence)
    cases = list(dict.fromkeys(case for of_host in by_host.values() for case in of_host))
    averages = average_over_hosts(by_host, key, confidence) if len(cases) > 1 else []
    statements = average_over_parts(by_host, MEAN_TIME, confidence)
    disagree = [caveat for of in [*averages, *effects] if of.key == key for caveat in of.caveats()]
    incomplete = incomplete_hosts(works, studies)
    by_name = {host.name: list(host.studies.values()) for host in hosts}
    caveats = [*incomplete, *unusual_hosts(by_name), *_host_caveats(hosts, studies), *disagree]
    compared = dict.fromkeys(
        (case, of.baseline.name, of.arm.name)
        for cases_of_host in by_host.values()
        for case, comparisons in cases_of_host.items()
        for of in comparisons
    )
    published = pooled_tables({host.name: list(host.studies.values()) for host in hosts}, confidence)
    return HostsFindings(
        hosts, cases, effects, averages, statements, caveats, list(compared), published, incomplete
    )


def _host_caveats(hosts: Sequence[Host], studies: Mapping[str, StudyFindings]) -> Iterator[Caveat]:
    for host in hosts:
        if len(host.studies) > 1:
            yield Caveat(Code.ONE_MACHINE, {"files": host.name})
    first, *others = studies.values()
    keys = list(dict.fromkeys(key for other in others for key in fitted_differences(first, other)))
    if keys:
        rest = len(keys) - KEYS_NAMED_MAX
        named = ", ".join(keys[:KEYS_NAMED_MAX]) + (f" and {rest} more" if rest > 0 else "")
        yield Caveat(Code.HOSTS_FITTED_DIFFERENTLY, {"keys": named})
    builds = "; ".join(_build_differences(hosts))
    if builds:
        yield Caveat(Code.HOSTS_BUILDS_DIFFER, {"difference": builds})


def _build_differences(hosts: Sequence[Host]) -> Iterator[str]:
    """Yield differences such as ``12: 12.4 on small, 12.6 on large``."""
    found: dict[str, dict[str, str]] = {}
    for host in hosts:
        for study in host.studies.values():
            for of in study.first.arms:
                found.setdefault(of.arm.name, {}).setdefault(host.name, of.arm.server_facts.shown)
    for arm, labels in found.items():
        if len(set(labels.values())) > 1:
            yield f"{arm}: {', '.join(f'{label} on {host}' for host, label in labels.items())}"


def _with_common_names(studies: Mapping[str, StudyFindings]) -> dict[str, ByCase]:
    """Return each file's comparisons by case, with common names.

    If a study was fitted to each machine, a level may differ between machines. Levels are then matched by
    position, and named by all their values (``scale 100 / 300``). Otherwise hosts may have different cases.
    """
    is_fitted = any(study.first.study.changes for study in studies.values())
    every = [of.study.levels for study in studies.values() for of in study.cases]
    factors = list(dict.fromkeys(factor for levels in every for factor in levels))
    names = {
        factor: [[str(of.study.levels.get(factor, "")) for of in study.cases] for study in studies.values()]
        for factor in factors
    }
    levels = {factor: _joined(of_factor, by_place=is_fitted) for factor, of_factor in names.items()}
    arms = _joined([[of.arm.name for case in study.cases for of in case.arms] for study in studies.values()])
    several = len({frozenset(of.items()) for of in every}) > 1
    result: dict[str, ByCase] = {}
    for place, (file, study) in enumerate(studies.items()):
        by_case = {}
        for of in study.cases:
            renamed = {f: levels[f][place][str(name)] for f, name in of.study.levels.items()}
            case = (label_of(renamed) or of.study.case) if several else of.study.case
            by_case[case] = [
                _renamed(comparison, arms[place], of.telemetry.effects.get(comparison.arm.arm, {}))
                for comparison in of.comparisons
            ]
        result[file] = by_case
    return result


def _joined(lists: Sequence[Sequence[str]], *, by_place: bool = True) -> list[dict[str, str]]:
    """Return the common names for each list.

    ``by_place``: names are matched by position if all lists have the same length. Otherwise they stay
    unchanged.
    """
    distinct = [list(dict.fromkeys(names)) for names in lists]
    if not by_place or len({len(names) for names in distinct}) > 1:
        return [{name: name for name in names} for names in distinct]
    joint = [" / ".join(dict.fromkeys(names)) for names in zip(*distinct, strict=True)]
    return [dict(zip(names, joint, strict=True)) for names in distinct]


def _renamed(comparison: Comparison, names: Mapping[str, str], telemetry: Mapping[str, Effect]) -> Comparison:
    """Return the comparison with common arm names and telemetry effects, without some latencies.

    Incomplete or dispersed ones are omitted. In the missing blocks an arm was too slow for enough
    transactions, so the others would bias the effect. Dispersed ones have no interval on their host.
    """
    a, b = comparison.baseline, comparison.arm
    whole = {
        key: effect
        for key, effect in comparison.effects.items()
        if not is_latency(key)
        or (len(effect.log_ratios) == len(comparison.blocks) and not effect.is_dispersed)
    }
    return replace(
        comparison,
        baseline=replace(a, name=names[a.name]),
        arm=replace(b, name=names[b.name]),
        effects={**whole, **telemetry},
    )


def _consecutive(studies: Sequence[ByCase]) -> ByCase:
    """Combine the blocks of several studies on one machine, numbered consecutively.

    Blocks of a file stay together: block n of every case is of the same pass, also after a file that ended
    during a pass.
    """
    if len(studies) == 1:
        return studies[0]
    found: dict[str, dict[str, list[Comparison]]] = {}
    for by_case, begin in zip(studies, first_blocks(map(_blocks, studies)), strict=True):
        for case, comparisons in by_case.items():
            for comparison in comparisons:
                found.setdefault(case, {}).setdefault(comparison.arm.name, []).append(_on(comparison, begin))
    return {case: [_merged(same) for same in by_arm.values()] for case, by_arm in found.items()}


def _blocks(by_case: ByCase) -> Iterator[int]:
    """Yield the blocks of a study that have a ratio, with repetitions."""
    for comparisons in by_case.values():
        for comparison in comparisons:
            for effect in comparison.effects.values():
                yield from effect.log_ratios


def _on(comparison: Comparison, begin: int) -> Comparison:
    """Return the comparison with its blocks numbered from ``begin``."""
    effects = {
        key: replace(effect, log_ratios={begin + block: d for block, d in effect.log_ratios.items()})
        for key, effect in comparison.effects.items()
    }
    return replace(comparison, effects=effects)


def _merged(comparisons: Sequence[Comparison]) -> Comparison:
    """Merge effects, lost blocks and names. Other fields are not used."""
    keys = dict.fromkeys(key for comparison in comparisons for key in comparison.effects)
    common = [key for key in keys if all(key in comparison.effects for comparison in comparisons)]
    return replace(
        comparisons[0],
        effects={key: _merged_effect([c.effects[key] for c in comparisons]) for key in common},
        stalled=[block for comparison in comparisons for block in comparison.stalled],
        censored=[block for comparison in comparisons for block in comparison.censored],
        failed=[block for comparison in comparisons for block in comparison.failed],
        decision=None,
    )


def _merged_effect(effects: Sequence[Effect]) -> Effect:
    ratios = {block: d for effect in effects for block, d in effect.log_ratios.items()}
    first = effects[0]
    methods = [effect.summary.method for effect in effects]
    method = Method.ANYTIME if Method.ANYTIME in methods else first.summary.method
    summary = summarize(list(ratios.values()), first.summary.confidence, method)
    return replace(
        first,
        log_ratios=ratios,
        summary=summary,
        percent=summary.percent(first.percent.better),
        bootstrap=None,
    )
