"""The tables of the source, with what all hosts say together beside each figure that was published."""

from __future__ import annotations

from pgdyno.analysis.findings.pooled_hosts import PooledCell, PooledTable
from pgdyno.estimate import ABSENT, counted
from pgdyno.report.published import as_printed
from pgdyno.report.tables import Table
from pgdyno.report.tables_of_hosts import pooled_text


def pooled_beside(table: PooledTable, confidence: float, hosts: int) -> Table | None:
    """As published, a column of what all hosts say together after each that they have changes of. None where
    they have none.
    """
    asked = [any(row[n].is_asked_for for row in table.rows) for n in range(len(table.columns))]
    if not any(cell.over for row in table.rows for cell in row):
        return None
    head = "pooled" if table.of_changes else "pooled change, %"
    columns: list[str] = []
    numeric: set[str] = set()
    for title, is_asked in zip(table.columns, asked, strict=True):
        columns.append(title)
        if is_asked:
            columns.append(f"{title}, {head}")
            numeric |= {title, columns[-1]}
    rows = []
    for row in table.rows:
        cells = []
        for cell, is_asked in zip(row, asked, strict=True):
            cells += [as_printed(cell.published), *([_pooled(cell, confidence)] if is_asked else [])]
        rows.append(cells)
    note = (
        f"Pooled over {hosts} hosts: (B − A) / A in percent of the baseline, with an interval that rests on "
        "the number of hosts. Levels are those of a machine and are not pooled: they stand in each host's "
        f"own table. {ABSENT}: not on two hosts, or the baseline itself."
    )
    return Table(f"{table.title}: {counted(hosts, 'host')}", columns, rows, note, frozenset(numeric))


def _pooled(cell: PooledCell, confidence: float) -> str:
    if cell.over is None:
        return ABSENT if cell.is_asked_for else ""
    few = f"; {counted(len(cell.over.pooled.hosts), 'host')}" if cell.over.absent else ""
    return f"{pooled_text(cell.over, confidence)}{few}"
