"""Tables of a published experiment: printed figures, and our metric for each of them.

A reference is put together of what table, column, row and cell say, the later over the earlier, so that a
file says once what is the same for a whole column.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from pgdyno.study.values import Part, Scalar, frozen, level_name


class Reference(Part):
    """Where our own figure is found that belongs to a published one."""

    metric: str | None = Field(
        default=None, description="The metric's key, such as tpm or tps. Without it nothing of ours is shown."
    )
    levels: Mapping[str, Scalar] = Field(
        default_factory=dict,
        description="Levels by factor. A factor that makes cases and is not named: the mean over its levels.",
    )
    statements: tuple[str, ...] = Field(
        default=(),
        description="What the statements begin with, of metrics per statement. Without it: all of them.",
    )
    relation: str | None = Field(default=None, description="The table, of metrics per table.")
    show: Literal["value", "change"] | None = Field(
        default=None,
        description="The value itself, or its change in percent of the baseline; a change over several cases "
        "or statements is the geometric mean of their ratios. [default: value]",
    )
    against: Mapping[str, Scalar] = Field(
        default_factory=dict,
        description="Of a change: levels of the arm that it is in percent of. [default: the baseline]",
    )
    unit: str | None = Field(default=None, description="Of the published number, such as ms, GB or %.")


class Column(Reference):
    """A column with its heading."""

    title: str = Field(description="The column's heading.")


class Cell(Reference):
    """A published number or text. A bare number or text is one, too."""

    value: float | None = Field(default=None, description="The number as published.")
    text: str | None = Field(default=None, description="A text, or the number as it was printed.")
    corrected: float | None = Field(default=None, description="What the number should have been.")
    note: str = Field(default="", description="What is to be known of it, such as why it is corrected.")

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

    cells: tuple[Cell, ...] = Field(description="One for every column: a number, a text or a table.")


class PublishedTable(Reference):
    """One table as it was published."""

    title: str = Field(description="The table's title.")
    notes: tuple[str, ...] = Field(default=(), description="What is to be known of the whole table.")
    columns: tuple[Column, ...] = Field(min_length=1, description="In their order.")
    rows: tuple[Row, ...] = Field(min_length=1, description="In their order.")

    def figures(self) -> tuple[tuple[Cell, ...], ...]:
        """Row by row, each cell with its whole reference."""
        return tuple(
            tuple(
                _merged(self, column, row, cell) for column, cell in zip(self.columns, row.cells, strict=True)
            )
            for row in self.rows
        )


class Published(Part):
    """What the source printed."""

    notes: tuple[str, ...] = Field(
        default=(), description="What is to be known of its figures: corrections, what is missing."
    )
    tables: tuple[PublishedTable, ...] = Field(min_length=1, description="Its tables.")


def _merged(*parts: Reference) -> Cell:
    """The last one is the cell."""
    names = [name for name in Reference.model_fields if name not in ("levels", "against")]
    said = {
        name: next((value for part in reversed(parts) if (value := getattr(part, name))), None)
        for name in names
    }
    said["statements"] = said["statements"] or ()
    levels, against = (
        {factor: level_name(value) for part in parts for factor, value in getattr(part, which).items()}
        for which in ("levels", "against")
    )
    return parts[-1].model_copy(update={**said, "levels": levels, "against": against})  # type: ignore[return-value]
