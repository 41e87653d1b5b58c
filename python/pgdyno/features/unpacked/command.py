"""``pgdyno unpack``: copy a results file with series, histograms and readings as rows, for any SQL tool."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import typer

from pgdyno.cli.console import say
from pgdyno.errors import UsageError
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Measure
from pgdyno.results.results_file import translated
from pgdyno.units import format_size


def unpack(
    evidence: Annotated[Path, typer.Argument(metavar="FILE", help="Results file of a study.")],
    output: Annotated[Path, typer.Argument(metavar="OUTPUT", help="SQLite database to write.")],
) -> None:
    """Copy a results file with series and histograms as rows.

    Views of OUTPUT: trials, series_points, histogram_bins, reading_values. `pgdyno report` does not read it.
    Example:

    \b
      pgdyno unpack results.sqlite plain.sqlite
    """
    if output.exists():
        raise UsageError(f"{output} exists: name another file, or remove it")
    with Evidence(evidence) as opened:
        unpacked(opened, output)
    say(f"{output}: {format_size(output.stat().st_size)}")


def unpacked(evidence: Evidence, output: Path) -> None:
    """Write the copy. Raises EvidenceError, DiskFullError."""
    source = f"{evidence.path.absolute().as_uri()}?mode=ro"
    with translated(output), closing(sqlite3.connect(source, uri=True)) as of:
        of.execute("VACUUM INTO ?", (str(output),))
    with translated(output), closing(sqlite3.connect(output)) as copy, copy:
        copy.executescript(files(__package__).joinpath("views.sql").read_text("utf-8"))
        trials = [trial for (trial,) in copy.execute("SELECT trial FROM trial")]
        copy.executemany("INSERT INTO series_point VALUES (?, ?, ?, ?, ?)", _points(evidence, trials))
        copy.executemany("INSERT INTO histogram_bin VALUES (?, ?, ?, ?, ?)", _bins(evidence, trials))
        copy.executemany("INSERT INTO reading_value VALUES (?, ?, ?, ?, ?, ?, ?)", _values(evidence, trials))
        for table in ("series", "histogram", "reading", "log", "checksum"):
            copy.execute(f"DROP TABLE {table}")
        copy.execute("PRAGMA application_id = 0")  # it is no results file
    with translated(output), closing(sqlite3.connect(output)) as copy:
        copy.execute("VACUUM")


def _points(evidence: Evidence, trials: list[int]) -> Iterator[tuple[Any, ...]]:
    for trial in trials:
        for probe, series in evidence.series(trial).items():
            for point in series.points.tolist():
                for column, value in zip(series.columns[1:], point[1:], strict=True):
                    if not math.isnan(value):
                        yield trial, probe, point[0], column, value


def _bins(evidence: Evidence, trials: list[int]) -> Iterator[tuple[Any, ...]]:
    for trial in trials:
        for measure in Measure:
            for one in evidence.histograms(trial, measure):
                for value_ns, n in one.pairs.tolist():
                    yield trial, one.kind, str(measure), value_ns, n


def _values(evidence: Evidence, trials: list[int]) -> Iterator[tuple[Any, ...]]:
    for trial in trials:
        for reading in evidence.readings(trial):
            for row, columns in enumerate(reading.rows or ()):
                for column, value in columns.items():
                    if value is not None:
                        yield trial, reading.probe, str(reading.moment), reading.at_s, row, column, value
