"""Strict parsing of study files: errors have the path of the key."""

import json
import re

import pytest

from example_studies import MISTAKES, STUDY_FILE, read_study, with_mistake
from pgdyno.errors import UsageError
from pgdyno.study.cases import cases_of
from pgdyno.study.study_file import StudyFile
from pgdyno.study.study_file_reader import examine_text


@pytest.mark.parametrize("name", MISTAKES)
def test_every_error_has_its_file(name: str) -> None:
    """Their sentences are in a golden file, ``study_file_errors.txt``."""
    with pytest.raises(UsageError, match=r"^x\.toml: "):
        read_study(with_mistake(name), "x.toml")


def test_a_password_has_no_place_in_a_file() -> None:
    text = 'title = "t"\ncompare = ["clients"]\nserver = "host=x password=y"\nfactors.clients = [1, 2]\n'
    _, problems = examine_text(
        text + 'workload = {kind = "tpcc", warehouses = 1}\nrun = {budget = "5min"}', "x"
    )
    assert problems == ["x: server: must not contain a password: put it in ~/.pgpass"]
    # Also in an excluded level, or written with escapes.
    text = (
        'title = "t"\ncompare = ["clients"]\nfactors.clients = [1, 2]\n'
        'factors.server = {a = "18", b = "host=x pass\\u0077ord=y"}\nexclude = [{server = "b"}]\n'
    )
    _, problems = examine_text(
        text + 'workload = {kind = "tpcc", warehouses = 1}\nrun = {budget = "5min"}', "x"
    )
    assert problems == ["x: factors.server.b: must not contain a password: put it in ~/.pgpass"]


def test_a_whole_file_has_nothing_wrong_and_says_what_it_means() -> None:
    file, problems = examine_text(STUDY_FILE, "x.toml")
    assert file is not None and problems == []
    assert file.run.warmup_s == 300 and file.run.window_s == 3600
    case = cases_of(file)[0]
    assert case.study.warmup_s == 300
    assert case.study.rounds * case.study.slice_s == 3600
    assert case.study.blocks_max == 3
    assert case.study.retries_max == 3
    assert dict(case.study.arms[1].settings) == {
        "shared_buffers": "1GB",
        "jit": "on",
        "random_page_cost": "1.1",
        "pg_x.track": "all",
    }


def test_a_file_goes_through_json_and_back() -> None:
    file = read_study(STUDY_FILE, "x.toml")
    assert StudyFile.of(json.loads(file.model_dump_json(by_alias=True))) == file


LITERALS = [
    "-1",
    "2.5",
    "nan",
    "true",
    '""',
    '"a,b"',
    "[]",
    "[1]",
    "[[1]]",
    "[{}]",
    "{}",
    "{a = {b = {c = 1}}}",
    "2020-01-01",
]


@pytest.mark.parametrize("literal", LITERALS)
def test_any_value_is_accepted_or_an_error_and_never_a_crash(literal: str) -> None:
    lines = STUDY_FILE.splitlines()
    for n, line in enumerate(lines):
        key, equals, _ = line.partition(" = ")
        if equals:
            text = "\n".join([*lines[:n], f"{key} = {literal}", *lines[n + 1 :]])
            _, problems = examine_text(text, "x.toml")
            assert all(re.fullmatch(r"x\.toml: .+", problem) for problem in problems), problems
