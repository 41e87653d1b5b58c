"""Spellings of pgbench in compare, and times with units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pgdyno.cli import compare
from pgdyno.cli.compare import with_our_spellings
from pgdyno.cli.main import run_command
from pgdyno.study.cases import Request
from pgdyno.study.values import parse_minutes
from pgdyno.workloads.pgbench.parameters import PgbenchParameters


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Request]:
    found: list[Request] = []

    def record(path: Path, request: Request, **_: Any) -> int:
        found.append(request)
        return 0

    monkeypatch.setattr(compare, "run_and_report", record)
    monkeypatch.chdir(tmp_path)
    return found


def test_options_of_pgbench_with_the_same_meaning_are_accepted(requests: list[Request]) -> None:
    words = "compare 17 18 --workload pgbench -c 10 -j 2 -s 3 -M prepared -S -N -t 50 -R 100 --minutes 90s"
    assert run_command(words.split()) == 0
    study = requests[0].cases[0].study
    assert (study.clients, study.threads, study.transactions, study.budget_s) == (10, 2, 50, 90)
    assert study.rate is not None and study.rate.per_s == 100
    workload = study.workload
    assert isinstance(workload, PgbenchParameters)
    assert (workload.scale, workload.protocol) == (3, "prepared")
    assert [script.name for script in workload.scripts] == ["select-only", "simple-update"]


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
def test_options_with_another_meaning_name_ours(
    words: str, named: str, requests: list[Request], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["compare", "17", "18", *words.split()]) == 2
    assert named in capsys.readouterr().err and not requests


def test_options_of_a_script_of_sysbench_are_left_alone() -> None:
    assert with_our_spellings(["17", "-S", "--", "--time=5", "-T"], {"--time": "is refused"}) == [
        *("17", "--builtin", "select-only"),
        *("--", "--time=5", "-T"),
    ]


@pytest.mark.parametrize(
    ("text", "minutes"), [("5", 5.0), ("5m", 5.0), ("300s", 5.0), ("5min", 5.0), ("1h", 60.0), ("0.5", 0.5)]
)
def test_minutes_may_have_a_unit(text: str, minutes: float) -> None:
    assert parse_minutes(text) == minutes
