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
    statements: tuple[str, ...] = Field(
        default=(),
        description="For metrics per statement: prefixes of the statements. [default: all statements]",
    )
    relation: str | None = Field(default=None, description="For metrics per table: the table.")
    show: Literal["value", "change"] | None = Field(
        default=None,
        description="The value, or its change in percent of the baseline. A change over several cases "
        "or statements is the geometric mean of their ratios. [default: value]",
    )
    against: Mapping[str, Scalar] = Field(
        default_factory=dict,
        description="For a change: levels of the reference arm. [default: the baseline]",
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

    cells: tuple[Cell, ...] = Field(description="One cell per column: a number, a text or a table.")


class PublishedTable(Reference):
    """A published table."""

    title: str = Field(description="Title of the table.")
    notes: tuple[str, ...] = Field(default=(), description="Notes on the table.")
    chart: bool = Field(
        default=False,
        description="Show the table as charts, too: a line for each column of values, over the rows.",
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


class Published(StudyTable):
    """The published results."""

    notes: tuple[str, ...] = Field(
        default=(), description="Notes on the published values, for example corrections and omissions."
    )
    not_repeated: tuple[str, ...] = Field(
        default=(),
        description="Published figures, tables and charts without a counterpart in the report, each with the "
        "reason.",
    )
    tables: tuple[PublishedTable, ...] = Field(min_length=1, description="The published tables.")


def _merged(*parts: Reference) -> Cell:
    """Merge references; the last one is the cell."""
    names = [name for name in Reference.model_fields if name not in ("levels", "against")]
    merged = {
        name: next((value for part in reversed(parts) if (value := getattr(part, name))), None)
        for name in names
    }
    merged["statements"] = merged["statements"] or ()
    levels, against = (
        {factor: level_name(value) for part in parts for factor, value in getattr(part, which).items()}
        for which in ("levels", "against")
    )
    return parts[-1].model_copy(update={**merged, "levels": levels, "against": against})  # type: ignore[return-value]


def errors_of(file: StudyFile) -> Errors:
    """Yield the errors in references, and in the number of the cells."""
    if not isinstance(file.published, Published):
        return
    for t, table in enumerate(file.published.tables):
        path: Path = ("published", "tables", t)
        yield from _reference(file, path, table)
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


def _reference(file: StudyFile, path: Path, reference: Reference) -> Errors:
    yield from level_errors(file, (*path, "levels"), reference.levels)
    yield from level_errors(file, (*path, "against"), reference.against)


TABLE = FeatureTable("published", Published)
