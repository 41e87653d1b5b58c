"""Published tables with the measured values beside the published ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pgdyno.analysis.findings.published_tables import MeasuredCell, MeasuredTable
from pgdyno.estimate import ABSENT, NO_BREAK, counted, decimals_of, group_digits, signed
from pgdyno.report import result_tables
from pgdyno.report.result_tables import Table
from pgdyno.study.stopping_rule import VERDICT_BLOCKS_MIN

HERE = "here"
AS_ABOVE = "as above"
"""Shown instead of a repeated number, which would look like a second measurement."""


def with_measured_columns(table: MeasuredTable, confidence: float) -> Table:
    """Return the published table with a column of measured values after each column that has any."""
    measured = [any(row[n].is_requested for row in table.rows) for n in range(len(table.columns))]
    columns: list[str] = []
    numeric: set[str] = set()
    for title, has_ours in zip(table.columns, measured, strict=True):
        columns.append(title)
        if has_ours:
            columns.append(f"{title}, {HERE}")
            numeric |= {title, columns[-1]}
    return Table(
        title=table.title,
        columns=columns,
        rows=[
            _row(row, measured, confidence, again=n > 0 and _is_the_same(row, table.rows[n - 1]))
            for n, row in enumerate(table.rows)
        ],
        note=_note(table),
        numeric=frozenset(numeric),
    )


def _is_the_same(row: Sequence[MeasuredCell], above: Sequence[MeasuredCell]) -> bool:
    """Return True if both rows show the same trials: two levels can become one when fitted to a machine."""
    pairs = list(zip(row, above, strict=True))
    return any(cell.measured for cell in row) and all(
        cell.measured == other.measured for cell, other in pairs
    )


def _row(
    row: Sequence[MeasuredCell], measured: Sequence[bool], confidence: float, *, again: bool
) -> list[str]:
    cells = []
    for cell, has_ours in zip(row, measured, strict=True):
        cells.append(as_printed(cell))
        if has_ours:
            cells.append(AS_ABOVE if again and cell.measured else _measured(cell, confidence))
    return cells


def as_printed(cell: MeasuredCell) -> str:
    """Return the published text, with the correct value if it was wrong."""
    if cell.corrected is None:
        return cell.text
    right = signed(cell.corrected, decimals_of(cell.corrected, 3), cell.unit)
    return f"{cell.text} (correct: {right})"


def _measured(cell: MeasuredCell, confidence: float) -> str:
    if cell.measured is None:
        return ABSENT if cell.is_requested else ""
    if cell.is_change:
        return result_tables.with_interval(cell.measured, confidence)
    unit = "" if cell.measured.unit in ("", cell.unit) else f"{NO_BREAK}{cell.measured.unit}"
    if cell.measured.value <= 0:
        return f"{group_digits(cell.measured.value, 0)}{unit}"
    return f"{result_tables.level_text(cell.measured)}{unit}"


def _note(table: MeasuredTable) -> str:
    """Return the notes of the source and of cells, the reasons for missing values, and the averages."""
    every = [cell for row in table.rows for cell in row]
    notes = [*table.notes, *_notes_on_figures(table)]
    notes += [
        f"{ABSENT}: {reason}"
        for reason in dict.fromkeys(cell.missing_reason for cell in every if cell.missing_reason)
    ]
    notes += _averages(table)
    if any(cell.is_change and cell.measured and cell.measured.n < VERDICT_BLOCKS_MIN for cell in every):
        notes.append(f"Fewer than {VERDICT_BLOCKS_MIN} blocks: no CIs")
    notes.append(
        f"Columns “{HERE}” are measured on this machine; changes are (B − A) / A in percent of the baseline."
    )
    return " ".join(f"{sentence.rstrip('.')}." for sentence in dict.fromkeys(notes))


def _notes_on_figures(table: MeasuredTable) -> Iterator[str]:
    """Yield notes such as ``growth of the database, change: in percent of the newer version``."""
    for row in table.rows:
        for title, cell in zip(table.columns, row, strict=True):
            if cell.note:
                yield f"{row[0].text}, {title}: {cell.note}" if row[0].text else f"{title}: {cell.note}"


def _averages(table: MeasuredTable) -> Iterator[str]:
    """Yield the cases and parts that a mean covers: once for a column if all rows agree, else by row."""
    by_column = [
        {_over(row[n]) for row in table.rows if row[n].measured is not None}
        for n in range(len(table.columns))
    ]
    for row in table.rows:
        for title, cell, over in zip(table.columns, row, by_column, strict=True):
            if cell.measured is not None and (mean := _over(cell)):
                yield f"{title if len(over) == 1 else row[0].text or title}: {HERE} over {mean}"


def _over(cell: MeasuredCell) -> str:
    """Return the basis of a mean: ``2 cases and 3 statements``; empty for a single value."""
    several = [(len(cell.cases), "case"), (len(cell.parts), cell.part)]
    return " and ".join(counted(n, noun) for n, noun in several if n)
