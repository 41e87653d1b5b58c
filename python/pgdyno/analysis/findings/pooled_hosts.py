"""One effect over several hosts: estimates by host, the pooled one, and its verdict.

A level belongs to a machine, so a mean of levels over machines has no meaning. Pooled values are therefore
changes: those of the table, or the change from the baseline of each of its values. A study fitted to each
machine has other levels on each, so figures are matched by their position in the tables. An average is over
the cases and statements that every host has, and several files of one machine are one host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pgdyno.analysis.comparison.paired_comparison import Comparison
from pgdyno.analysis.comparison.verdict import Verdict, judge
from pgdyno.analysis.findings.published_tables import Changed, OwnCell, OwnTable
from pgdyno.analysis.findings.study_findings import StudyFindings, changes_beside
from pgdyno.analysis.statistics.effect import LogRatioSummary, Method, holm_confidences, summarize
from pgdyno.analysis.statistics.pooling import HostEffect, Pooled, combine, pool, sign_caveats
from pgdyno.caveats import Caveat
from pgdyno.estimate import Better, Estimate

ByHost = Mapping[str, Mapping[str, Sequence[Comparison]]]
"""host → case → its comparisons."""

AVERAGE = "average"
"""Placeholder for a case: the average over all cases."""

Pair = tuple[str, str]
"""Names of baseline and arm."""

Ratios = Mapping[int, float]
"""block → log ratio."""

NameAndBetter = tuple[str, Better]


@dataclass(frozen=True)
class OverHosts:
    """One effect over the hosts.

    ``absent`` are hosts without this effect, which do not count. ``stalled`` are hosts with blocks in which
    an arm completed nothing, so there is no verdict. ``own`` is the verdict of a single comparison of a
    single host, which accounts for the noise floor.
    """

    case: str
    baseline: str
    arm: str
    key: str
    name: str
    better: Better
    pooled: Pooled
    absent: Sequence[str]
    stalled: Sequence[str] = ()
    own: Verdict | None = None

    @property
    def percent(self) -> Estimate:
        """The pooled change; n is the number of hosts. For a single host: its own change; n is in blocks."""
        if len(self.pooled.hosts) == 1:
            return self.pooled.hosts[0].spread.percent(self.better)
        return self.pooled.percent(self.better)

    @property
    def _interval(self) -> tuple[float | None, float | None]:
        of = self.pooled.hosts[0].spread if len(self.pooled.hosts) == 1 else self.pooled
        return of.low, of.high

    def of_host(self, host: str) -> LogRatioSummary | None:
        """Return a host's own result."""
        return next((of.spread for of in self.pooled.hosts if of.host == host), None)

    def verdict(self, margin: float) -> Verdict:
        """Return the verdict of the interval of ``percent``. A change in the better direction is faster.

        The interval accounts for few hosts, so there is no minimum number of hosts. The minimum number of
        blocks is that of a single host.
        """
        if self.own is not None:
            return self.own
        if self.stalled:
            return Verdict.UNDECIDED
        low, high = self._interval
        if self.better is Better.LESS:
            low, high = (None if end is None else -end for end in (high, low))
        return judge(low, high, self.pooled.blocks, margin)

    def caveats(self) -> list[Caveat]:
        """Return a caveat if the hosts disagree on the sign."""
        place = "on the average over the cases" if self.case == AVERAGE else f"in {self.case}"
        named = f"{self.name} {place}" if self.case else self.name
        return sign_caveats(self.pooled, arm=self.arm, baseline=self.baseline, metric=named)


def over_hosts(by_host: ByHost, confidence: float) -> list[OverHosts]:
    """Return every effect of any host, by case, in the order of the first host that has it.

    Arms are matched by name. The intervals of several arms hold simultaneously (Holm); a host's own intervals
    have the confidence of the pooled one.
    """
    named: dict[tuple[str, str], NameAndBetter] = {}
    methods: dict[tuple[str, str], Method] = {}
    found: dict[tuple[str, str], dict[Pair, dict[str, Ratios]]] = {}
    stalled: dict[tuple[str, Pair], list[str]] = {}
    decided: dict[tuple[str, str, Pair], list[Verdict | None]] = {}
    for host, case, pair, comparison in _comparisons(by_host):
        if comparison.stalled:
            stalled.setdefault((case, pair), []).append(host)
        for key, effect in comparison.effects.items():
            named.setdefault((case, key), (effect.name, effect.percent.better))
            if methods.get((case, key)) is not Method.ANYTIME:  # a resumed study
                methods[case, key] = effect.spread.method
            of_pair = found.setdefault((case, key), {}).setdefault(pair, {})
            of_pair[host] = effect.log_ratios
            decided.setdefault((case, key, pair), []).append(_own_verdict(comparison, key))
    result = []
    for (case, key), by_pair in found.items():
        poolings = [partial(_pooled, ratios, methods[case, key]) for ratios in by_pair.values()]
        for pair, pooled in zip(by_pair, simultaneous(poolings, confidence), strict=True):
            held = stalled.get((case, pair), ())
            absent = _absent(by_host, pooled)
            own = _only(decided[case, key, pair])
            result.append(OverHosts(case, *pair, key, *named[case, key], pooled, absent, held, own))
    return result


def average_over_hosts(by_host: ByHost, key: str, confidence: float) -> list[OverHosts]:
    """Return the pooled average over the cases on each host, for each pair of arms.

    Only cases of every host are included; otherwise hosts would differ in their cases.
    """
    named: dict[Pair, NameAndBetter] = {}
    method = Method.STUDENT
    found: dict[Pair, dict[str, dict[str, Ratios]]] = {}
    decided: dict[Pair, list[Verdict | None]] = {}
    stalled: dict[Pair, dict[str, None]] = {}
    for host, case, pair, comparison in _comparisons(by_host):
        if comparison.stalled:
            stalled.setdefault(pair, {})[host] = None
        effect = comparison.effects.get(key)
        if effect is not None and all(case in cases for cases in by_host.values()):
            named.setdefault(pair, (effect.name, effect.percent.better))
            method = Method.ANYTIME if method is Method.ANYTIME else effect.spread.method
            found.setdefault(pair, {}).setdefault(host, {})[case] = effect.log_ratios
            decided.setdefault(pair, []).append(_own_verdict(comparison, key))
    return [
        OverHosts(
            *(AVERAGE, *pair, key, *named[pair], pooled, _absent(by_host, pooled)),
            stalled=list(stalled.get(pair, ())),
            own=_only(decided[pair]),
        )
        for pair, pooled in _averages(found, confidence, method)
    ]


def average_over_parts(by_host: ByHost, key: str, confidence: float) -> list[OverHosts]:
    """Return the averages over the statements (tables, waits) of every host, by case."""
    found: dict[str, dict[Pair, dict[str, dict[str, Ratios]]]] = {}
    better = Better.NEITHER
    for host, case, pair, comparison in _comparisons(by_host):
        for own, effect in comparison.effects.items():
            of, _, part = own.partition(":")
            if of == key and part:
                better = effect.percent.better
                of_host = found.setdefault(case, {}).setdefault(pair, {}).setdefault(host, {})
                of_host[part] = effect.log_ratios
    return [
        OverHosts(case, *pair, key, AVERAGE, better, pooled, _absent(by_host, pooled))
        for case, by_pair in found.items()
        for pair, pooled in _averages(by_pair, confidence, Method.STUDENT)
    ]


def _own_verdict(comparison: Comparison, key: str) -> Verdict | None:
    """Return the verdict of the comparison; None for another metric or without a decision."""
    is_primary = comparison.primary is not None and comparison.primary.key == key
    return comparison.verdict if is_primary and comparison.decision is not None else None


def _only(verdicts: Sequence[Verdict | None]) -> Verdict | None:
    """Return the verdict of a single comparison; for several, the noise floor is unknown."""
    return verdicts[0] if len(verdicts) == 1 else None


def _averages(
    found: Mapping[Pair, Mapping[str, Mapping[str, Ratios]]], confidence: float, method: Method
) -> list[tuple[Pair, Pooled]]:
    """Return pooled averages of the parts that all hosts have. ``found``: pair → host → part → ratios."""
    everywhere = {pair: _everywhere(of_hosts) for pair, of_hosts in found.items()}
    pairs = [pair for pair, of_hosts in everywhere.items() if all(of_hosts.values())]
    poolings = [partial(_pooled_average, everywhere[pair], method) for pair in pairs]
    return list(zip(pairs, simultaneous(poolings, confidence), strict=True))


def simultaneous(poolings: Sequence[Callable[[float], Pooled]], confidence: float) -> list[Pooled]:
    """Return pooled effects of several arms on one metric with simultaneous intervals (Holm)."""
    alone = [pooling(confidence) for pooling in poolings]
    if len(poolings) < 2:
        return alone
    levels = holm_confidences([pooled.p_value for pooled in alone], confidence)
    return [pooling(level) for pooling, level in zip(poolings, levels, strict=True)]


def _comparisons(by_host: ByHost) -> Iterable[tuple[str, str, Pair, Comparison]]:
    for host, cases in by_host.items():
        for case, comparisons in cases.items():
            for comparison in comparisons:
                yield host, case, (comparison.baseline.name, comparison.arm.name), comparison


def _everywhere(of_hosts: Mapping[str, Mapping[str, Ratios]]) -> dict[str, dict[str, Ratios]]:
    """Return only the cases that all hosts have."""
    common = set.intersection(*(set(cases) for cases in of_hosts.values()))
    return {host: {c: d for c, d in cases.items() if c in common} for host, cases in of_hosts.items()}


def _pooled(of_hosts: Mapping[str, Ratios], method: Method, confidence: float) -> Pooled:
    spreads = {host: summarize(list(d.values()), confidence, method) for host, d in of_hosts.items()}
    return pool([HostEffect(host, spread) for host, spread in spreads.items()], confidence)


def _pooled_average(
    of_hosts: Mapping[str, Mapping[str, Ratios]], method: Method, confidence: float
) -> Pooled:
    found = {host: combine(cases, confidence, method) for host, cases in of_hosts.items()}
    return pool([HostEffect(host, of.spread) for host, of in found.items() if of], confidence)


def _absent(by_host: ByHost, pooled: Pooled) -> list[str]:
    there = {of.host for of in pooled.hosts}
    return [host for host in by_host if host not in there]


CellRatios = Mapping[tuple[str, str], Mapping[int, float]]
"""(case, part) → block → log ratio."""


@dataclass(frozen=True)
class PooledCell:
    """A cell of a published table. ``published`` is that of the first file.

    ``over`` is of the hosts with a ratio; None with fewer than two. ``is_asked_for``: whether it should have
    one.
    """

    published: OwnCell
    over: OverHosts | None
    is_asked_for: bool


@dataclass(frozen=True)
class PooledTable:
    """A pooled table. ``of_changes``: the table has changes, and only these are pooled."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[PooledCell]]
    of_changes: bool


def pooled_tables(hosts: Mapping[str, Sequence[StudyFindings]], confidence: float) -> list[PooledTable]:
    """Return the pooled tables; empty for a single host, or if hosts have different tables."""
    every = [study for of_host in hosts.values() for study in of_host]
    shapes = [[(t.title, t.columns, len(t.rows)) for t in study.published] for study in every]
    if len(hosts) < 2 or any(shape != shapes[0] for shape in shapes):
        return []
    by_place = len({len(study.cases) for study in every}) == 1
    found = {host: [_file(study, by_place=by_place) for study in of_host] for host, of_host in hosts.items()}
    return [_table(n, table, found, confidence) for n, table in enumerate(every[0].published)]


_File = tuple[int, Sequence[Sequence[Sequence[Changed | None]]]]
"""Number of blocks, and changes of the figures."""


def _file(study: StudyFindings, *, by_place: bool) -> _File:
    """Return the blocks and changes of one file. Cases are matched by position, else by name."""
    names = [str(n) if by_place else case.study.case for n, case in enumerate(study.cases)]
    blocks = (trial.block for case in study.cases for trial in case.trials)
    return 1 + max(blocks, default=-1), changes_beside(study.cases, names)


def _table(n: int, table: OwnTable, files: Mapping[str, Sequence[_File]], confidence: float) -> PooledTable:
    of_changes = any(cell.is_change for row in table.rows for cell in row)
    rows = []
    for r, row in enumerate(table.rows):
        cells = []
        for c, cell in enumerate(row):
            by_host = {
                host: [(blocks, found[n][r][c]) for blocks, found in of_host]
                for host, of_host in files.items()
            }
            asked = cell.is_asked_for and (cell.is_change or not of_changes)
            there = asked and any(changed for of_host in by_host.values() for _, changed in of_host)
            cells.append(PooledCell(cell, _over(by_host, confidence) if there else None, asked))
        rows.append(cells)
    return PooledTable(table.title, table.columns, rows, of_changes)


def _over(by_host: Mapping[str, Sequence[tuple[int, Changed | None]]], confidence: float) -> OverHosts | None:
    """Return the pooled effect; None with fewer than two hosts. ``by_host``: (blocks, change) per file."""
    found = {host: ratios for host, files in by_host.items() if (ratios := _of_host(files))}
    if len(found) < 2:
        return None
    common = set.intersection(*(set(ratios) for ratios in found.values()))
    effects = []
    for host, ratios in found.items():
        combined = combine({str(name): ratios[name] for name in sorted(common)}, confidence)
        if combined is None:
            return None
        effects.append(HostEffect(host, combined.spread))
    better = next(changed.better for files in by_host.values() for _, changed in files if changed)
    absent = [host for host in by_host if host not in found]
    return OverHosts("", "", "", "", "", better, pool(effects, confidence), absent)


def _of_host(files: Sequence[tuple[int, Changed | None]]) -> CellRatios:
    """Return the ratios of a machine's files, numbered consecutively; empty if a file has none."""
    if any(changed is None for _, changed in files):
        return {}
    found: dict[tuple[str, str], dict[int, float]] = {}
    begin = 0
    for blocks, changed in files:
        for name, ratios in changed.ratios.items() if changed else ():
            found.setdefault(name, {}).update({begin + block: d for block, d in ratios.items()})
        begin += blocks
    common = set.intersection(*(set(changed.ratios) for _, changed in files if changed))
    return {name: ratios for name, ratios in found.items() if name in common}
