"""Spellings of pgbench in compare, and times with units."""

from __future__ import annotations

import pytest

from pgdyno.cli.compare import with_our_spellings
from pgdyno.errors import UsageError
from pgdyno.study.values import parse_minutes


@pytest.mark.parametrize(
    ("words", "named"),
    [
        *((words, "--window 60s") for words in ("-T 60", "-T60", "--time 5m", "--time=60")),
        *((words, "--minutes 5") for words in ("-T 60", "--time=60")),
        ("--max-tries=3", "retries"),
        ("--random-seed 5", "--seed"),
        *((words, "remove it") for words in ("-i", "-n", "-v", "--no-vacuum", "-P 5", "-P5", "--progress=5")),
    ],
)
def test_options_with_another_meaning_name_ours(words: str, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        with_our_spellings(["17", "18", *words.split()], {})


def test_options_of_a_script_of_sysbench_are_left_alone() -> None:
    words = "17 -S -N -t 50 -- --time=5 -T"
    spelled = "17 --builtin select-only --builtin simple-update -t 50 -- --time=5 -T"
    assert with_our_spellings(words.split(), {"--time": "is refused"}) == spelled.split()


@pytest.mark.parametrize(
    ("text", "minutes"), [("5", 5.0), ("5m", 5.0), ("300s", 5.0), ("5min", 5.0), ("1h", 60.0), ("0.5", 0.5)]
)
def test_minutes_may_have_a_unit(text: str, minutes: float) -> None:
    assert parse_minutes(text) == minutes
