"""SQL of the probes: one file for all versions, from which each version uses its lines."""

import re
from pathlib import Path
from typing import get_args

import pytest

from pgdyno.analysis.telemetry.counters import COUNTERS as COLUMNS
from pgdyno.measure.server_probes import PROBES, for_major, statement, statements_major
from pgdyno.server.builds import NEWEST_MAJOR, OLDEST_MAJOR
from pgdyno.study.defaults import ProbeName

FILES = sorted((Path(__file__).parents[2] / "python" / "pgdyno" / "measure" / "sql").glob("*.sql"))
IN_DEVELOPMENT = NEWEST_MAJOR + 1
"""No server of it is tested: the columns are those of its documentation."""
MAJORS = range(OLDEST_MAJOR, IN_DEVELOPMENT + 1)
EXAMPLE = """-- What it is, from 14 on.
SELECT /* pgdyno probe */
    a,  -- from 14
    b AS a,  -- to 13: with something else in it
    c,  -- 12 to 16
    d  -- a remark
FROM t
"""


@pytest.mark.parametrize(
    ("major", "columns"), [(10, "b AS a, d"), (12, "b AS a, c, d"), (14, "a, c, d"), (17, "a, d")]
)
def test_a_version_gets_its_lines(major: int, columns: str) -> None:
    assert " ".join(for_major(EXAMPLE, major).split()) == f"SELECT /* pgdyno probe */ {columns} FROM t"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_server_newer_than_all_that_is_tested_gets_the_lines_of_the_newest(file: Path) -> None:
    assert statement(file.stem, IN_DEVELOPMENT + 1) == statement(file.stem, IN_DEVELOPMENT)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_statement_carries_the_mark_within_it(file: Path) -> None:
    text = file.read_text()
    assert text.startswith("-- ")
    for major in MAJORS:
        assert re.match(r"(SELECT|WITH) /\* pgdyno probe \*/\s", for_major(text, major))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_version_comment_is_effective(file: Path) -> None:
    for line in file.read_text().splitlines():
        comment = line.partition("--")[2]
        if re.search(r"\b(from|to|until|since|before)\b \d", comment) and not line.startswith("--"):
            assert {bool(for_major(line, major)) for major in MAJORS} == {True, False}, line


def test_every_file_is_used() -> None:
    of_scripts = {"statement_texts", "statement_columns", "statement_keys"}
    assert {file.stem for file in FILES} == {
        *PROBES,
        *of_scripts,
        *("sample", "sample_waits", "extension", "clients"),
    }


@pytest.mark.parametrize(
    ("version", "major"),
    [("1.6", 10), ("1.8", 13), ("1.9", 14), ("1.10", 15), ("1.12", 18), ("1.13", 19), ("1.14", 19)],
)
def test_the_columns_of_statements_depend_on_the_extensions_version(version: str, major: int) -> None:
    assert statements_major(version) == major


@pytest.mark.parametrize(
    ("file", "columns"),
    [("wal", {"wal_fpi_bytes"}), ("statements", {"generic_plan_calls", "custom_plan_calls"})],
)
def test_19_adds_counters(file: str, columns: set[str]) -> None:
    """Names of PostgreSQL 19 as its beta lists them; written by hand, not read from a server."""
    added = set(statement(file, 19).splitlines()) - set(statement(file, 18).splitlines())
    assert {line.strip(" ,").rpartition(" AS ")[2] for line in added} == columns
    assert columns <= COLUMNS[file]
    assert set(statement(file, 18).splitlines()) <= set(statement(file, 19).splitlines())


@pytest.mark.parametrize("file", ["checkpoints", "sample"])
def test_blocks_that_backends_write_are_those_of_pg_stat_io_from_its_first_version_on(file: str) -> None:
    """16 extends a table by up to 64 blocks with one request, and pg_stat_bgwriter counts requests."""
    of_view = [major for major in MAJORS if "FROM pg_stat_io" in statement(file, major)]
    assert of_view == [major for major in MAJORS if major >= PROBES["io"].since]


def test_a_study_may_ask_for_every_probe() -> None:
    assert set(get_args(ProbeName)) == {
        *(*PROBES, "beside", "hardware", "host", "plans", "profile", "programs", "wal_records")
    }


def test_the_page_describes_every_probe_and_every_column_of_the_series() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "telemetry.md").read_text()
    query = statement("sample", NEWEST_MAJOR).partition("\nFROM ")[0]
    series = re.findall(r"^    \S.*\bAS (\w+),?$", query, re.MULTILINE)
    assert series and not [name for name in (*PROBES, *series) if f"`{name}`" not in page]
    assert not [name for name in PROBES if f"\n| `{name}` | " not in page]
