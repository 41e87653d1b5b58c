"""Strict parsing of study files. Errors of mistakes are in a golden file, ``study_file_errors.txt``."""

import json
import re

import pytest

from example_studies import STUDY_FILE, read_study
from pgdyno.study.study_file import StudyFile
from pgdyno.study.study_file_reader import examine_text


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
