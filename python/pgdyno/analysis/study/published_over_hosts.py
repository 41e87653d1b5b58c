"""A published table with what all hosts say of its changes together, pooled as every other effect is.

A level is that of a machine, and the mean of levels of several machines is that of none: pooled is what an
arm changes, where the table has changes; else of each of its values the change from the baseline. A study
that was fitted to each machine has figures with other levels on each, so figures are matched by their place
in the tables. As everywhere, an average is over the cases and statements that every host has, and several
files of one machine are one host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgdyno.analysis.statistics.combined import combine
from pgdyno.analysis.statistics.pooling import HostEffect, pool
from pgdyno.analysis.study.over_hosts import OverHosts
from pgdyno.analysis.study.published import Changed, OwnCell, OwnTable
from pgdyno.analysis.study.study import StudyFindings, changes_beside

Ratios = Mapping[tuple[str, str], Mapping[int, float]]
"""(case, part) → block → log ratio."""


@dataclass(frozen=True)
class PooledCell:
    """``published`` as the first file has it. ``over`` is of the hosts that have a ratio, two at least; else
    None. ``is_asked_for``: whether there should be one.
    """

    published: OwnCell
    over: OverHosts | None
    is_asked_for: bool


@dataclass(frozen=True)
class PooledTable:
    """``of_changes``: whether the table has changes, which are what is pooled then."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[PooledCell]]
    of_changes: bool


def pooled_tables(hosts: Mapping[str, Sequence[StudyFindings]], confidence: float) -> list[PooledTable]:
    """None of one host, and none where hosts have other tables."""
    every = [study for of_host in hosts.values() for study in of_host]
    shapes = [[(t.title, t.columns, len(t.rows)) for t in study.published] for study in every]
    if len(hosts) < 2 or any(shape != shapes[0] for shape in shapes):
        return []
    by_place = len({len(study.cases) for study in every}) == 1
    found = {host: [_file(study, by_place=by_place) for study in of_host] for host, of_host in hosts.items()}
    return [_table(n, table, found, confidence) for n, table in enumerate(every[0].published)]


_File = tuple[int, Sequence[Sequence[Sequence[Changed | None]]]]
"""How many blocks it has, and the changes of its figures."""


def _file(study: StudyFindings, *, by_place: bool) -> _File:
    """Cases are the same by their place, or by their names where some hosts have fewer."""
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
    """``by_host``: of each of its files how many blocks it has, and its change."""
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


def _of_host(files: Sequence[tuple[int, Changed | None]]) -> Ratios:
    """The blocks of a machine's files, numbered on; of what all of them have. Empty where one has nothing."""
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
