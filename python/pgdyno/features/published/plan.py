"""Tables of a published experiment: published values, and the measured metric for each of them.

A reference is merged from table, column, row and cell; later ones override earlier ones. A file therefore
states values common to a whole column once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from pgdyno.errors import StudyFileError
from pgdyno.study.study_file import FeatureTable, StudyFile
from pgdyno.study.study_file_reader import Errors, Path, level_errors
from pgdyno.study.values import Scalar, StudyTable, frozen, level_name


class Reference(StudyTable):
    """The measured value that corresponds to a published one."""

    metric: str | None = Field(
        default=None,
        description="Key of the metric, such as tpm or tps. Without it, no measured value is shown.",
    )
    levels: Mapping[str, Scalar] = Field(
        default_factory=dict,
        description="Levels by factor. A factor that makes cases and is not named means the mean over its "
        "levels.",
    )
    source_levels: Mapping[str, Scalar] = Field(
        default_factory=dict,
        description="Levels of the source by factor, where a fit has replaced them. The fit writes them.",
    )
    statements: tuple[str, ...] = Field(
        default=(),
        description="For metrics per statement: prefixes of the statements. [default: all statements]",
    )
    relation: str | None = Field(default=None, description="For metrics per table: the table.")
    show: Literal["value", "change"] | None = Field(
        default=None, description="The value, or its change in percent of the baseline. [default: value]"
    )
    mean: Literal["values", "changes"] | None = Field(
        default=None,
        description="The arithmetic of a change over several cases or statements: change of the arithmetic "
        "mean of the values, or arithmetic mean of the changes. [default: values]",
    )
    against: Mapping[str, Scalar] = Field(
        default_factory=dict, description="For a change: levels of the reference arm. [default: the baseline]"
    )
    unit: str | None = Field(default=None, description="Unit of the published number, such as ms, GB or %.")


class Column(Reference):
    """A column with its heading."""

    title: str = Field(description="Heading of the column.")


class Cell(Reference):
    """A published number or text; in the file, a plain number or text is also allowed."""

    value: float | None = Field(default=None, description="The number as published.")
    text: str | None = Field(default=None, description="A text, or the number as printed.")
    corrected: float | None = Field(
        default=None, description="The correct number, if the published one is wrong."
    )
    note: str = Field(default="", description="Note on the cell, for example the reason for a correction.")
    dropped: bool = Field(default=False, description="The fit dropped the levels of this figure.")

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, given: Any) -> Any:
        if isinstance(given, str):
            return {"text": given}
        if isinstance(given, int | float) and not isinstance(given, bool):
            return {"value": given}
        return frozen(given)


class Row(Reference):
    """A row: a cell for every column."""

    mean_of_rows: bool = Field(
        default=False,
        description="Each change in this row is the arithmetic mean of the changes above it in its column.",
    )
    cells: tuple[Cell, ...] = Field(description="One cell per column: a number, a text or a table.")


class Note(StudyTable):
    """A note on a table; in the file, a plain text is also allowed.

    A note on what was measured here names the metric from which it follows.
    """

    text: str = Field(description="The note.")
    metric: str = Field(default="", description="Key of the metric on which the note depends.")
    above: float = Field(default=0, description="The note holds if a measured value is above this.")

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, given: Any) -> Any:
        return {"text": given} if isinstance(given, str) else frozen(given)

    def text_for(self, largest: float | None) -> str:
        """Return the text if it holds; else empty. ``largest``: largest measured value of the metric."""
        return self.text if not self.metric or (largest is not None and largest > self.above) else ""


class PublishedTable(Reference):
    """A published table."""

    title: str = Field(description="Title of the table.")
    notes: tuple[Note, ...] = Field(default=(), description="Notes on the table: texts or tables.")
    chart: bool | Literal["bars"] = Field(
        default=False,
        description='Show the table as charts, too: lines of the columns over the rows (true), or "bars".',
    )
    columns: tuple[Column, ...] = Field(min_length=1, description="Columns in order.")
    rows: tuple[Row, ...] = Field(min_length=1, description="Rows in order.")

    def figures(self) -> tuple[tuple[Cell, ...], ...]:
        """Return the rows of cells, each cell with its merged reference."""
        return tuple(
            tuple(
                _merged(self, column, row, cell) for column, cell in zip(self.columns, row.cells, strict=True)
            )
            for row in self.rows
        )

    def rows_averaged(self, row: int, column: int) -> tuple[int, ...]:
        """Return the rows of whose changes a figure is the mean; empty for a figure of its own."""
        if not self.rows[row].mean_of_rows:
            return ()
        figures = self.figures()
        return tuple(r for r in range(row) if is_change(figures[r][column]))


class Published(StudyTable):
    """The published results."""

    notes: tuple[str, ...] = Field(
        default=(), description="Notes on the published values, for example corrections and omissions."
    )
    not_repeated: tuple[str, ...] = Field(
        default=(),
        description="Published figures, charts and settings without a counterpart in the report, each with "
        "the reason.",
    )
    tables: tuple[PublishedTable, ...] = Field(min_length=1, description="The published tables.")


def is_change(cell: Cell) -> bool:
    """Return True for a published change with a measured counterpart, also if a fit dropped its levels."""
    return cell.value is not None and cell.show == "change" and (cell.metric is not None or cell.dropped)


def _merged(*parts: Reference) -> Cell:
    """Merge references; the last one is the cell."""
    by_factor = ("levels", "against", "source_levels")
    names = [name for name in Reference.model_fields if name not in by_factor]
    merged = {
        name: next((value for part in reversed(parts) if (value := getattr(part, name))), None)
        for name in names
    }
    merged["statements"] = merged["statements"] or ()
    levels = {
        which: {factor: level_name(value) for part in parts for factor, value in getattr(part, which).items()}
        for which in by_factor
    }
    return parts[-1].model_copy(update={**merged, **levels})  # type: ignore[return-value]


def errors_of(file: StudyFile) -> Errors:
    """Yield the errors in references, and in the number of the cells."""
    if not isinstance(file.published, Published):
        return
    for t, table in enumerate(file.published.tables):
        path: Path = ("published", "tables", t)
        yield from _reference(file, path, table)
        for n, note in enumerate(table.notes):
            yield from _metric((*path, "notes", n), note.metric)
        for c, column in enumerate(table.columns):
            yield from _reference(file, (*path, "columns", c), column)
        for r, row in enumerate(table.rows):
            at: Path = (*path, "rows", r)
            yield from _reference(file, at, row)
            if len(row.cells) != len(table.columns):
                yield StudyFileError(
                    (*at, "cells"), f"has {len(row.cells)} cells for {len(table.columns)} columns"
                )
            for c, cell in enumerate(row.cells):
                yield from _reference(file, (*at, "cells", c), cell)
        if all(len(row.cells) == len(table.columns) for row in table.rows):
            yield from _means_of_rows(path, table)


def _means_of_rows(path: Path, table: PublishedTable) -> Errors:
    for r, row in enumerate(table.rows):
        for c, figure in enumerate(table.figures()[r] if row.mean_of_rows else ()):
            if figure.metric is not None and figure.value is not None and not table.rows_averaged(r, c):
                yield StudyFileError(
                    (*path, "rows", r, "cells", c), "has no changes above it of which it is the mean"
                )


def _metric(path: Path, key: str | None) -> Errors:
    from pgdyno.features.published.metric_names import unknown_metric  # noqa: PLC0415  # most studies name no metric

    if key and (message := unknown_metric(key)):
        yield StudyFileError((*path, "metric"), message)


def _reference(file: StudyFile, path: Path, reference: Reference) -> Errors:
    yield from _metric(path, reference.metric)
    yield from level_errors(file, (*path, "levels"), reference.levels)
    yield from level_errors(file, (*path, "against"), reference.against)
    for factor in reference.against:
        if factor in file.case_factors:
            yield StudyFileError((*path, "against", factor), "makes cases: name a factor of compare")


TABLE = FeatureTable("published", Published)
