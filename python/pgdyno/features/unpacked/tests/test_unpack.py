"""Copies of results files with packed values as rows."""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from synthetic_study import Synthetic, write_study, write_with_aa

from pgdyno.cli.main import run_command
from pgdyno.cli.report import read_report
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Measure

PAGE = Path(__file__).parents[5] / "docs" / "how-to" / "query-the-results.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a study and its copy."""
    found = tmp_path_factory.mktemp("unpacked")
    write_study(found / "e.sqlite", Synthetic(effects=(1.0, 1.1), blocks=3, probed=True))
    assert run_command(["unpack", str(found / "e.sqlite"), str(found / "plain.sqlite")]) == 0
    return found


@pytest.fixture
def copied(folder: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(folder / "plain.sqlite")) as connection:
        yield connection


def test_every_packed_value_is_a_row(folder: Path, copied: sqlite3.Connection) -> None:
    with Evidence(folder / "e.sqlite") as evidence:
        for trial in evidence.trials():
            query = 'SELECT probe, at_s, "column", value FROM series_points WHERE trial = ?'
            expected = {
                (probe, point[0], column, value)
                for probe, of in evidence.series(trial.trial).items()
                for point in of.points.tolist()
                for column, value in zip(of.columns[1:], point[1:], strict=True)
                if not math.isnan(value)
            }
            assert set(copied.execute(query, (trial.trial,))) == expected != set()
            bins = "SELECT kind, sum(n) FROM histogram_bins WHERE trial = ? AND measure = ? GROUP BY kind"
            counted = {of.kind: of.n for of in evidence.histograms(trial.trial, Measure.LATENCY)}
            assert dict(copied.execute(bins, (trial.trial, Measure.LATENCY))) == counted
            values = "SELECT count(*) FROM reading_values WHERE trial = ?"
            n = sum(
                value is not None
                for reading in evidence.readings(trial.trial)
                for row in reading.rows or ()
                for value in row.values()
            )
            assert copied.execute(values, (trial.trial,)).fetchone() == (n,)


def test_the_documented_percentile_is_that_of_the_report(folder: Path, copied: sqlite3.Connection) -> None:
    (query,) = re.findall(r"-- name: p99\n(.*?)```", PAGE.read_text(), re.DOTALL)
    arms = {of.arm.name: of for of in read_report(folder / "e.sqlite").findings.first.arms}
    for name, p99_ms, n in copied.execute(query):
        arm = arms[name]
        shown = arm.quantiles_ms("new_order")["p99"]
        assert shown.value == pytest.approx(p99_ms, rel=0.002)
        assert n == arm.latency["new_order"].n


def test_views_leave_out_duplicates_of_arms(tmp_path: Path) -> None:
    write_with_aa(tmp_path / "aa.sqlite", [Synthetic(blocks=2)], [0.0])
    assert run_command(["unpack", str(tmp_path / "aa.sqlite"), str(tmp_path / "plain.sqlite")]) == 0
    with closing(sqlite3.connect(tmp_path / "plain.sqlite")) as connection:
        names = set(connection.execute("SELECT case_name, arm_name FROM trials"))
        every = connection.execute("SELECT count(*) FROM trial").fetchone()
        shown = connection.execute("SELECT count(*) FROM trials").fetchone()
    assert names == {("", "17"), ("", "18")} and every == (6,) and shown == (4,)


def test_a_file_is_never_overwritten_and_a_copy_is_no_results_file(
    folder: Path, copied: sqlite3.Connection, refusal: Callable[..., str]
) -> None:
    assert copied.execute("PRAGMA application_id").fetchone() == (0,)
    said = refusal(f"unpack {folder / 'e.sqlite'} {folder / 'plain.sqlite'}")
    assert "exists: name another file" in said
    assert "not a results file" in refusal(f"report {folder / 'plain.sqlite'}", status=1)
