"""Published tables with the measured values beside the published ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pgdyno.analysis.comparison.verdict import BLOCKS_MIN
from pgdyno.analysis.findings.published_tables import OwnCell, OwnTable
from pgdyno.estimate import ABSENT, NO_BREAK, counted, decimals_of, group_digits, signed
from pgdyno.report import result_tables
from pgdyno.report.result_tables import Table

HERE = "here"
AS_ABOVE = "as above"
"""Shown instead of a repeated number, which would look like a second measurement."""


def with_measured_columns(table: OwnTable, confidence: float) -> Table:
    """Return the published table with a column of measured values after each column that has any."""
    ours = [any(row[n].is_asked_for for row in table.rows) for n in range(len(table.columns))]
    columns: list[str] = []
    numeric: set[str] = set()
    for title, has_ours in zip(table.columns, ours, strict=True):
        columns.append(title)
        if has_ours:
            columns.append(f"{title}, {HERE}")
            numeric |= {title, columns[-1]}
    return Table(
        title=table.title,
        columns=columns,
        rows=[
            _row(row, ours, confidence, again=n > 0 and _is_the_same(row, table.rows[n - 1]))
            for n, row in enumerate(table.rows)
        ],
        note=_note(table),
        numeric=frozenset(numeric),
    )


def _is_the_same(row: Sequence[OwnCell], above: Sequence[OwnCell]) -> bool:
    """Return True if both rows show the same trials: two levels can become one when fitted to a machine."""
    pairs = list(zip(row, above, strict=True))
    return any(cell.ours for cell in row) and all(cell.ours == other.ours for cell, other in pairs)


def _row(row: Sequence[OwnCell], ours: Sequence[bool], confidence: float, *, again: bool) -> list[str]:
    cells = []
    for cell, has_ours in zip(row, ours, strict=True):
        cells.append(as_printed(cell))
        if has_ours:
            cells.append(AS_ABOVE if again and cell.ours else _ours(cell, confidence))
    return cells


def as_printed(cell: OwnCell) -> str:
    """Return the published text, with the correct value if it was wrong."""
    if cell.corrected is None:
        return cell.text
    right = signed(cell.corrected, decimals_of(cell.corrected, 3), cell.unit)
    return f"{cell.text} (correct: {right})"


def _ours(cell: OwnCell, confidence: float) -> str:
    if cell.ours is None:
        return ABSENT if cell.is_asked_for else ""
    if cell.is_change:
        return result_tables.with_interval(cell.ours, confidence)
    unit = "" if cell.ours.unit in ("", cell.unit) else f"{NO_BREAK}{cell.ours.unit}"
    if cell.ours.value <= 0:
        return f"{group_digits(cell.ours.value, 0)}{unit}"
    return f"{result_tables.level_text(cell.ours)}{unit}"


def _note(table: OwnTable) -> str:
    """Return the notes of the source and of cells, the reasons for missing values, and the averages."""
    every = [cell for row in table.rows for cell in row]
    notes = [*table.notes, *_notes_on_figures(table)]
    notes += [
        f"{ABSENT}: {reason}" for reason in dict.fromkeys(cell.why_not for cell in every if cell.why_not)
    ]
    notes += _averages(table)
    if any(cell.is_change and cell.ours and cell.ours.n < BLOCKS_MIN for cell in every):
        notes.append(f"Fewer than {BLOCKS_MIN} blocks: no CIs")
    notes.append(
        f"Columns “{HERE}” are measured on this machine; changes are (B − A) / A in percent of the baseline."
    )
    return " ".join(f"{sentence.rstrip('.')}." for sentence in dict.fromkeys(notes))


def _notes_on_figures(table: OwnTable) -> Iterator[str]:
    """Yield notes such as ``growth of the database, change: in percent of the newer version``."""
    for row in table.rows:
        for title, cell in zip(table.columns, row, strict=True):
            if cell.note:
                yield f"{row[0].text}, {title}: {cell.note}" if row[0].text else f"{title}: {cell.note}"


def _averages(table: OwnTable) -> Iterator[str]:
    """Yield the cases and parts that a mean covers: once for a column if all rows agree, else by row."""
    by_column = [
        {_over(row[n]) for row in table.rows if row[n].ours is not None} for n in range(len(table.columns))
    ]
    for row in table.rows:
        for title, cell, over in zip(table.columns, row, by_column, strict=True):
            if cell.ours is not None and (mean := _over(cell)):
                yield f"{title if len(over) == 1 else row[0].text or title}: {HERE} over {mean}"


def _over(cell: OwnCell) -> str:
    """Return the basis of a mean: ``2 cases and 3 statements``; empty for a single value."""
    several = [(len(cell.cases), "case"), (len(cell.parts), cell.part)]
    return " and ".join(counted(n, noun) for n, noun in several if n)
