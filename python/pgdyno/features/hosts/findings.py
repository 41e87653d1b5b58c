"""One study from several hosts: findings of each, and pooled effects.

- One effect over several hosts: estimates by host, the pooled one, and its verdict.
- Findings of one study from several hosts: of each host, and pooled.
- Caveats: hosts that disagree, that are slow or noisy, or that did not complete the study of a fleet.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from types import MappingProxyType
from typing import Annotated

from pgdyno.analysis.comparison import Comparison, Decision, Effect, Verdict, difference, judge
from pgdyno.analysis.finding_fields import Hidden, ShownAs, about, in_json
from pgdyno.analysis.statistics.averages import LogRatios
from pgdyno.analysis.statistics.intervals import (
    LogRatioSummary,
    Method,
    f_beyond,
    simultaneous,
    summarize,
    with_error,
)
from pgdyno.analysis.statistics.pooled_quantiles import BLOCKS_MIN
from pgdyno.analysis.study_findings import AVERAGE, PRIMARY, MetricVerdict, StudyFindings
from pgdyno.analysis.telemetry.metrics import MEAN_TIME, is_latency, is_tail, split_key
from pgdyno.caveats import Caveat
from pgdyno.features.hosts.fleet_record import HostState, HostWork
from pgdyno.features.hosts.identity import files_by_machine, fitted_differences, require_same
from pgdyno.features.hosts.pooling import WHOLE, Pooled, common_parts, pool_groups, pool_summaries
from pgdyno.features.published.tables import (
    Changed,
    MeasuredCell,
    MeasuredTable,
    changes_beside,
    mean_level,
    published_in,
)
from pgdyno.results.records import Json, Trial
from pgdyno.study.cases import label_of
from pgdyno.study.plan import Study
from pgdyno.units import Better, Estimate

# ----------------------------------------------------------------------
# One effect over several hosts: estimates by host, the pooled one, and its verdict.
#
# A level belongs to a machine, so a mean of levels over machines has no interval. Pooled values are therefore
# changes: those of the table, or the change from the baseline of each of its values. A study fitted to each
# machine has other levels on each, so figures are matched by their position in the tables. Levels have an
# arithmetic mean, as in a source with several hosts; rates and durations are the speed of a machine, and have
# none. An average is over the cases and statements that every host has, and several files of one machine are
# one host.
# ----------------------------------------------------------------------

ByHost = Mapping[str, Mapping[str, Sequence[Comparison]]]
"""host → case → its comparisons."""

Pair = tuple[str, str]
"""Names of baseline and arm."""

Place = tuple[str, str, str]
"""Case and key of a pooled effect, and the part of it."""


@dataclass(frozen=True)
class OverHosts:
    """One effect over the hosts.

    ``absent`` are hosts without this effect, which do not count. ``stalled`` are hosts whose effect is biased
    (``Comparison.is_held_back``, or one block counts in a case of the average), so there is no verdict.
    ``own`` is the decision of a single comparison of a single host, which accounts for the noise floor.
    """

    case: str
    baseline: str
    arm: str
    key: Annotated[str, about("The metric.")]
    name: str
    better: Better
    pooled: Pooled
    absent: Annotated[Sequence[str], about("Hosts without a value.")]
    stalled: Sequence[str] = ()
    own: Hidden[Decision | None] = None

    @in_json
    def percent_by_host(self) -> dict[str, Estimate]:
        """The change on each host."""
        return {of.host: of.summary.percent(self.better) for of in self.pooled.hosts}

    @in_json
    def percent(self) -> Estimate:
        """The pooled change; n is the number of hosts. For a single host: its own change; n is in blocks."""
        return self.pooled.percent(self.better)

    def of_host(self, host: str) -> LogRatioSummary | None:
        """Return a host's own result."""
        return next((of.summary for of in self.pooled.hosts if of.host == host), None)

    def verdict(self, plan: Study) -> Verdict:
        """Return the verdict of the interval of ``percent``. A change in the better direction is faster.

        The interval accounts for few hosts, so there is no minimum number of hosts. The minimum number of
        blocks is that of a single host.
        """
        if self.own is not None:
            return self.own.verdict
        if self.stalled:
            return Verdict.UNDECIDED
        return judge(self.pooled.effect, plan.margin, self.better, self.pooled.blocks)

    def differs(self, plan: Study) -> Verdict | None:
        """Return faster or slower if the interval excludes 0, also if the verdict is same."""
        if self.own is not None:
            return self.own.difference
        verdict = self.verdict(plan)
        return None if verdict is Verdict.UNDECIDED else difference(self.pooled.effect, self.better)

    def metric_verdict(self, plan: Study) -> MetricVerdict:
        """Return the verdict with its interval."""
        fewest = min(of.summary.n for of in self.pooled.hosts)
        return MetricVerdict(
            case=self.case,
            baseline=self.baseline,
            arm=self.arm,
            metric=self.key,
            name=self.name,
            verdict=self.verdict(plan),
            percent=self.percent,
            summary=self.pooled.effect,
            blocks=self.pooled.blocks,
            partial=bool(self.stalled),
            difference=self.differs(plan),
            no_interval_below=BLOCKS_MIN if is_tail(self.key) and fewest < BLOCKS_MIN else None,
        )

    def caveats(self) -> list[Caveat]:
        """Return a caveat if the hosts disagree on the sign."""
        place = "on the average over the cases" if self.case == AVERAGE else f"in {self.case}"
        named = f"{self.name} {place}" if self.case else self.name
        return sign_caveats(self.pooled, arm=self.arm, baseline=self.baseline, metric=named)


def over_hosts(by_host: ByHost, confidence: float) -> list[OverHosts]:
    """Return every effect of any host, by case, in the order of the first host that has it."""
    return _pooled(by_host, confidence, lambda case, key: (case, key, WHOLE))


def average_over_hosts(by_host: ByHost, keys: Mapping[str, str], confidence: float) -> list[OverHosts]:
    """Return the pooled average over the cases on each host, for each pair of arms.

    ``keys``: key of the primary metric by case. The key of the average is that of the first one. Only cases
    of every host are included; otherwise hosts would differ in their cases.
    """
    first = next(iter(keys.values()))

    def place(case: str, own: str) -> Place | None:
        is_common = all(case in cases for cases in by_host.values())
        return (AVERAGE, first, case) if own == keys[case] and is_common else None

    return _pooled(by_host, confidence, place)


def average_over_parts(by_host: ByHost, key: str, confidence: float) -> list[OverHosts]:
    """Return the averages over the statements (tables, waits) of every host, by case."""

    def place(case: str, own: str) -> Place | None:
        of, part = split_key(own)
        return (case, key, part) if of == key and part else None

    return [replace(over, name=AVERAGE) for over in _pooled(by_host, confidence, place)]


@dataclass
class _Effects:
    """Effects that are pooled as one, by pair of arms. ``ratios``: pair → host → part.

    ``tails``: pair → host → result, of a percentile above the median, which is not a mean over blocks.
    """

    name: str
    better: Better
    method: Method
    ratios: dict[Pair, dict[str, dict[str, LogRatios]]] = field(default_factory=dict)
    tails: dict[Pair, dict[str, LogRatioSummary]] = field(default_factory=dict)
    decisions: dict[Pair, list[Decision | None]] = field(default_factory=dict)


def _pooled(by_host: ByHost, confidence: float, place: Callable[[str, str], Place | None]) -> list[OverHosts]:
    """Return the effects over hosts. ``place`` has the place of an effect, by its case and key, or None.

    Parts of one place are averaged on each host. Arms are matched by name. The intervals of several arms hold
    simultaneously (Holm); a host's own intervals have the confidence of the pooled one.
    """
    found: dict[tuple[str, str], _Effects] = {}
    stalled: dict[Pair, list[tuple[str, str]]] = {}
    for host, case, pair, comparison in _comparisons(by_host):
        if comparison.is_held_back:
            stalled.setdefault(pair, []).extend([(case, host), (AVERAGE, host)])
        for own, effect in comparison.effects.items():
            placed = place(case, own)
            if placed is None:
                continue
            method = effect.summary.method
            one = found.setdefault(placed[:2], _Effects(effect.name, effect.percent.better, method))
            one.method = Method.ANYTIME if one.method is Method.ANYTIME else method  # a resumed study
            one.ratios.setdefault(pair, {}).setdefault(host, {})[placed[2]] = effect.log_ratios
            if is_tail(own):
                one.tails.setdefault(pair, {})[host] = effect.summary
            is_primary = comparison.primary is not None and comparison.primary.key == own
            one.decisions.setdefault(pair, []).append(comparison.decision if is_primary else None)
    for of_average in [one for (case, _), one in found.items() if case == AVERAGE]:
        for pair, by_host_and_case in of_average.ratios.items():
            single = _with_single_blocks(by_host_and_case)
            stalled.setdefault(pair, []).extend((AVERAGE, host) for host in single)
    return [
        OverHosts(
            *(case, *pair, key, one.name, one.better, pooled, _absent(by_host, pooled)),
            stalled=list(dict.fromkeys(host for at, host in stalled.get(pair, ()) if at == case)),
            # For several comparisons, the noise floor is unknown.
            own=one.decisions[pair][0] if len(one.decisions[pair]) == 1 else None,
        )
        for (case, key), one in found.items()
        for pair, pooled in _of_pairs(one, confidence)
    ]


def _with_single_blocks(ratios: Mapping[str, Mapping[str, LogRatios]]) -> list[str]:
    """Return the hosts whose average lacks a part with a single block (``combine``)."""
    blocks = {host: [len(d) for d in parts.values()] for host, parts in ratios.items()}
    return [host for host, of_parts in blocks.items() if min(of_parts) == 1 < max(of_parts)]


def _of_pairs(effects: _Effects, confidence: float) -> list[tuple[Pair, Pooled]]:
    """Return the pooled effect of each pair of arms for which the hosts have parts in common."""
    common = {pair: groups for pair, of in effects.ratios.items() if (groups := common_parts(of))}
    poolings = [
        partial(pool_summaries, effects.tails[pair])
        if pair in effects.tails
        else partial(pool_groups, groups, method=effects.method)
        for pair, groups in common.items()
    ]
    return list(zip(common, simultaneous(poolings, confidence), strict=True))


def _comparisons(by_host: ByHost) -> Iterable[tuple[str, str, Pair, Comparison]]:
    for host, cases in by_host.items():
        for case, comparisons in cases.items():
            for comparison in comparisons:
                yield host, case, (comparison.baseline.name, comparison.arm.name), comparison


def _absent(by_host: Iterable[str], pooled: Pooled) -> list[str]:
    there = {of.host for of in pooled.hosts}
    return [host for host in by_host if host not in there]


@dataclass(frozen=True)
class PooledCell:
    """A cell of a published table. ``published`` is that of the first file.

    ``over`` is of the hosts with a ratio; None with fewer than two. ``is_requested``: whether it should have
    one. ``levels``: of the hosts that have the figure, for a value.
    """

    published: MeasuredCell
    over: OverHosts | None
    is_requested: bool
    levels: Mapping[str, Estimate]

    @property
    def is_speed(self) -> bool:
        """True for rates and durations, of which each host has its own."""
        return any(re.search(SPEED, level.unit) for level in self.levels.values())

    @property
    def mean(self) -> Estimate | None:
        """The arithmetic mean of the levels of all hosts; None without any."""
        return mean_level(list(self.levels.values()), self.published.unit) if self.levels else None


@dataclass(frozen=True)
class PooledTable:
    """A pooled table. ``of_changes``: the table has changes, and only these are pooled."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[PooledCell]]
    of_changes: bool


def first_blocks(files: Iterable[Iterable[int]]) -> list[int]:
    """Return the number of each file's first block if the blocks of all files are numbered consecutively.

    ``files`` are the blocks of each file, from 0. Missing ones count, so that block n of every case remains
    of the same pass.
    """
    lengths = [1 + max(blocks, default=-1) for blocks in files]
    return [0, *accumulate(lengths)][:-1]


def pooled_tables(hosts: Mapping[str, Sequence[StudyFindings]], confidence: float) -> list[PooledTable]:
    """Return the pooled tables; empty for a single host, or if hosts have different tables."""
    every = [study for of_host in hosts.values() for study in of_host]
    published = [found.tables if (found := published_in(study.cases)) else () for study in every]
    shapes = [[(t.title, t.columns, len(t.rows)) for t in tables] for tables in published]
    if len(hosts) < 2 or any(shape != shapes[0] for shape in shapes):
        return []
    by_place = len({len(study.cases) for study in every}) == 1
    files = {host: [_file(study, by_place=by_place) for study in of_host] for host, of_host in hosts.items()}
    of_file = dict(zip(map(id, every), published, strict=True))
    shown = {host: [of_file[id(study)] for study in of_host] for host, of_host in hosts.items()}
    return [_table(n, table, files, shown, confidence) for n, table in enumerate(published[0])]


_File = tuple[Sequence[int], Sequence[Sequence[Sequence[Changed | None]]]]
"""Blocks of the trials, and changes of the figures."""

SPEED = r"/(s|min|h)$|^(TPM|NOPM|s|min|h)$"
"""Units of rates and durations."""


def _file(study: StudyFindings, *, by_place: bool) -> _File:
    """Return the blocks and changes of one file. Cases are matched by position, else by name."""
    names = [str(n) if by_place else case.study.case for n, case in enumerate(study.cases)]
    blocks = [trial.block for case in study.cases for trial in case.trials]
    return blocks, changes_beside(study.cases, names)


def _table(
    n: int,
    table: MeasuredTable,
    files: Mapping[str, Sequence[_File]],
    shown: Mapping[str, Sequence[Sequence[MeasuredTable]]],
    confidence: float,
) -> PooledTable:
    of_changes = any(cell.is_change for row in table.rows for cell in row)
    rows = []
    for r, row in enumerate(table.rows):
        cells = []
        for c, cell in enumerate(row):
            by_host = {
                host: [(blocks, found[n][r][c]) for blocks, found in of_host]
                for host, of_host in files.items()
            }
            asked = cell.is_requested and (cell.is_change or not of_changes)
            there = asked and any(changed for of_host in by_host.values() for _, changed in of_host)
            own = {host: [tables[n].rows[r][c] for tables in of_host] for host, of_host in shown.items()}
            over = _over(by_host, confidence) if there else None
            cells.append(PooledCell(cell, over, asked, _levels(own)))
        rows.append(cells)
    return PooledTable(table.title, table.columns, rows, of_changes)


def _levels(by_host: Mapping[str, Sequence[MeasuredCell]]) -> dict[str, Estimate]:
    """Return the level of each host that has the figure: the mean of its files."""
    found = {host: [of.measured for of in cells if of.measured] for host, cells in by_host.items()}
    units = {host: cells[0].unit for host, cells in by_host.items() if not cells[0].is_change}
    return {host: mean_level(found[host], unit) for host, unit in units.items() if found[host]}


def _over(
    by_host: Mapping[str, Sequence[tuple[Sequence[int], Changed | None]]], confidence: float
) -> OverHosts | None:
    """Return the pooled effect; None with fewer than two hosts. ``by_host``: (blocks, change) per file."""
    found = {host: ratios for host, files in by_host.items() if (ratios := _of_host(files))}
    common = common_parts(found) if len(found) > 1 else {}
    if not common:
        return None
    changes = [changed for files in by_host.values() for _, changed in files if changed]
    method = Method.ANYTIME if any(of.method is Method.ANYTIME for of in changes) else Method.STUDENT
    pooled = pool_groups(common, confidence, method)
    return OverHosts("", "", "", "", "", changes[0].better, pooled, _absent(by_host, pooled))


def _of_host(files: Sequence[tuple[Sequence[int], Changed | None]]) -> dict[str, LogRatios]:
    """Return the ratios of a machine's files, with consecutive blocks, by what they are the mean of.

    Empty if a file has none, or the mean of something else.
    """
    changes = [changed for _, changed in files if changed]
    if len(changes) < len(files) or len({changed.of for changed in changes}) != 1:
        return {}
    found: dict[int, float] = {}
    for changed, begin in zip(changes, first_blocks(blocks for blocks, _ in files), strict=True):
        found |= {begin + block: d for block, d in changed.ratios.items()}
    return {changes[0].of: found}


# ----------------------------------------------------------------------
# Findings of one study from several hosts: of each host, and pooled.
#
# Results are pooled over hosts, not files. Two studies on one machine share its disk, its memory and its
# neighbors. Host is the random effect, so their blocks are blocks of one host (``Host.studies`` has two), and
# a caveat reports this. If all files are of one machine, the pooled estimate has no interval.
# ----------------------------------------------------------------------

KEYS_NAMED_MAX = 8
"""Maximum number of keys that a caveat lists."""

ByCase = Mapping[str, Sequence[Comparison]]


@dataclass(frozen=True)
class Host:
    """A machine with the studies of its files, by file. Its name is made of the file names."""

    name: str
    studies: Annotated[Mapping[str, StudyFindings], ShownAs(list[str], list), about("Names of its files.")]

    @in_json
    def facts(self) -> Json:
        """Description of the machine in its first file."""
        return next(iter(self.studies.values())).first.study.host


@dataclass(frozen=True)
class HostsFindings:
    """Findings over hosts. ``effects`` are of every case, arm and metric, including telemetry.

    ``averages`` are of the primary metric over the cases; empty for a single case. ``statements`` are
    averages over the mean times of the statements that all hosts have, for each case and arm. ``compared``
    has (case, baseline, arm) of every comparison, also of those without values. ``published`` are the
    source's tables, pooled. ``incomplete``: caveats about hosts of a fleet that were lost or failed, or have
    no file.
    """

    hosts: Sequence[Host]
    cases: Sequence[str]
    effects: Sequence[OverHosts]
    averages: Sequence[OverHosts]
    statements: Sequence[OverHosts]
    caveats: Sequence[Caveat]
    compared: Sequence[tuple[str, str, str]]
    primary_keys: Hidden[Mapping[str, str]]
    published: Hidden[Sequence[PooledTable]] = ()
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
        return [of for of in self.effects if of.key == self.primary_keys[of.case]]

    @property
    def confidence(self) -> float:
        """Confidence of the verdicts."""
        return self.first.confidence

    @property
    def trials(self) -> list[Trial]:
        """All trials of all hosts."""
        return [trial for study in self.studies.values() for trial in study.trials]

    def verdicts_on(self, metric: str = PRIMARY) -> list[MetricVerdict]:
        """Return every arm's pooled comparison with the baseline in every case; see ``Compared``."""
        plan = self.first.first.study.plan
        key = self.first.first.primary.key if metric in {PRIMARY, AVERAGE} else metric
        if metric == AVERAGE and len(self.cases) > 1:
            pairs = [(AVERAGE, *pair) for pair in dict.fromkeys(of[1:] for of in self.compared)]
            chosen = self.averages
        else:
            pairs = list(self.compared)
            of_key = [of for of in self.effects if of.key == metric]
            chosen = self.primary if metric in {PRIMARY, AVERAGE} else of_key
        by_pair = {(of.case, of.baseline, of.arm): of for of in chosen}
        return [
            by_pair[pair].metric_verdict(plan)
            if pair in by_pair
            else MetricVerdict(*pair, key, key, Verdict.UNDECIDED, percent=None, summary=None, blocks=0)
            for pair in pairs
        ]


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
    confidence = first.study.plan.confidence
    effects = over_hosts(by_host, confidence)
    cases = list(dict.fromkeys(case for of_host in by_host.values() for case in of_host))
    of_cases = [
        (case, of.primary)
        for file, study in studies.items()
        for case, of in zip(named[file], study.cases, strict=True)
    ]
    keys = {case: metric.key for case, metric in of_cases}
    # Rates and latencies have no average, because their directions are opposite.
    is_averaged = len(cases) > 1 and len({metric.better for _, metric in of_cases}) == 1
    averages = average_over_hosts(by_host, keys, confidence) if is_averaged else []
    statements = average_over_parts(by_host, MEAN_TIME, confidence)
    primary = [of for of in effects if of.key == keys[of.case]]
    disagree = [caveat for of in [*averages, *primary] for caveat in of.caveats()]
    incomplete = incomplete_hosts(works, studies)
    by_name = {host.name: list(host.studies.values()) for host in hosts}
    caveats = [*incomplete, *_slow(by_name), *_noisy(by_name), *_host_caveats(hosts, studies), *disagree]
    compared = dict.fromkeys((case, *pair) for _, case, pair, _ in _comparisons(by_host))
    published = pooled_tables(by_name, confidence)
    return HostsFindings(
        hosts, cases, effects, averages, statements, caveats, list(compared), keys, published, incomplete
    )


def _host_caveats(hosts: Sequence[Host], studies: Mapping[str, StudyFindings]) -> Iterator[Caveat]:
    for host in hosts:
        if len(host.studies) > 1:
            yield Caveat.of("one-machine", files=host.name)
    first, *others = studies.values()
    keys = list(dict.fromkeys(key for other in others for key in fitted_differences(first, other)))
    if keys:
        rest = len(keys) - KEYS_NAMED_MAX
        named = ", ".join(keys[:KEYS_NAMED_MAX]) + (f" and {rest} more" if rest > 0 else "")
        yield Caveat.of("hosts-fitted-differently", keys=named)
    builds = "; ".join(_build_differences(hosts))
    if builds:
        yield Caveat.of("hosts-builds-differ", difference=builds)


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
    """Return the comparison with common arm names and telemetry effects, without incomplete latencies.

    In the missing blocks an arm was too slow for enough transactions, so the others would bias the effect.
    """
    a, b = comparison.baseline, comparison.arm
    whole = {
        key: effect
        for key, effect in comparison.effects.items()
        if not is_latency(key) or len(effect.log_ratios) == len(comparison.blocks)
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
    found: dict[str, dict[str, list[tuple[int, Comparison]]]] = {}
    for by_case, begin in zip(studies, first_blocks(map(_blocks, studies)), strict=True):
        for case, comparisons in by_case.items():
            for comparison in comparisons:
                found.setdefault(case, {}).setdefault(comparison.arm.name, []).append((begin, comparison))
    return {case: [_merged(same) for same in by_arm.values()] for case, by_arm in found.items()}


def _blocks(by_case: ByCase) -> Iterator[int]:
    """Yield the blocks of a study that have a ratio, with repetitions."""
    for comparisons in by_case.values():
        for comparison in comparisons:
            for effect in comparison.effects.values():
                yield from effect.log_ratios


def _merged(files: Sequence[tuple[int, Comparison]]) -> Comparison:
    """Merge effects, lost blocks and reasons to hold back. ``files``: number of the first block, comparison.

    Other fields are not used.
    """
    first = files[0][1]
    effects = {}
    for key, effect in first.effects.items():
        if all(key in of.effects for _, of in files):
            ratios = {begin + n: d for begin, of in files for n, d in of.effects[key].log_ratios.items()}
            methods = [of.effects[key].summary.method for _, of in files]
            method = Method.ANYTIME if Method.ANYTIME in methods else effect.summary.method
            summary = summarize(list(ratios.values()), effect.summary.confidence, method)
            if is_tail(key):
                own = [of.effects[key].summary for _, of in files]
                mean = sum(one.n * one.mean for one in own) / summary.n
                summary = with_error(mean, None, summary.n, summary.confidence, method)
            percent = summary.percent(effect.percent.better)
            effects[key] = replace(
                effect, log_ratios=ratios, summary=summary, percent=percent, bootstrap=None
            )
    return replace(
        first,
        effects=effects,
        stalled=[block for _, of in files for block in of.stalled],
        censored=[block for _, of in files for block in of.censored],
        failed=[block for _, of in files for block in of.failed],
        is_trending=any(of.is_trending for _, of in files),
        bias=next((of.bias for _, of in files if of.bias and of.is_unsteady), None),
        unconfirmed=[arm for _, of in files for arm in of.unconfirmed],
        missed_rates=[missed for _, of in files for missed in of.missed_rates],
        decision=None,
    )


# ----------------------------------------------------------------------
# Caveats: hosts that disagree, that are slow or noisy, or that did not complete the study of a fleet.
# ----------------------------------------------------------------------


def sign_caveats(pooled: Pooled, *, arm: str, baseline: str, metric: str) -> list[Caveat]:
    """Return a caveat if the hosts' signs differ. ``metric`` is a word, for example throughput."""
    if not pooled.signs_differ:
        return []
    shown = (f"{of.summary.percent(Better.NEITHER).signed_text} on {of.host}" for of in pooled.hosts)
    hosts = ", ".join(shown)
    return [Caveat.of("hosts-disagree", arm=arm, baseline=baseline, metric=metric, hosts=hosts)]


SLOW_MIN = 1.5
"""Ratio to the median of the other hosts from which a host is slow: different hardware, or a disturbance."""

NOISY_MIN = 2.0
"""Ratio of standard deviations from which a host is noisy: it needs four times as many blocks."""

LEVEL = 0.05
"""Maximum probability that one of the hosts is called noisy although all have the same variance."""


def incomplete_hosts(works: Mapping[str, HostWork], studies: Mapping[str, StudyFindings]) -> list[Caveat]:
    """Return a caveat for each host of a fleet that was lost or failed, or has no file.

    ``works``: by file name.
    """
    found = []
    for file, work in works.items():
        is_there = file in studies
        if is_there and not work.reason and work.state not in (HostState.LOST, HostState.FAILED):
            continue
        reason = work.reason or ("unknown reason" if is_there else "no results file")
        facts = {"host": work.host, "state": work.state.value, "reason": reason}
        if work.is_moved:
            found.append(Caveat.of("host-replaced", **facts))
        elif is_there:
            blocks = sum(len({trial.block for trial in case.trials}) for case in studies[file].cases)
            found.append(Caveat.of("host-incomplete", **facts, blocks=blocks))
        elif work.state is HostState.DONE:
            found.append(Caveat.of("host-file-missing", host=work.host, file=work.file))
        else:
            found.append(Caveat.of("host-missing", **facts))
    return found


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
            yield Caveat.of("host-slow", host=host, factor=factor)


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
            yield Caveat.of("host-noisy", host=host, factor=factor)


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
