"""Absurd numbers in every place where a user may enter one: one line of error, never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgdyno.cli.main import run_command
from pgdyno.features.fitting.rules import quantity

NUMBERS = ("nan", "1e309", "-1e309", "1e300", "1e30", "-1", "", "9" * 5000, "²")
PLACES = (
    *("--clients={}", "--minutes={}", "--margin={}", "--warehouses={}", "--rate={}", "--capacity=p99<{}ms"),
    *("--capacity=p{}<20ms", "--slice={}", "--slice={}h", "--warmup={}h", "--warmup=1s..{}h"),
    *("--window={}", "--window={}h", "--window=checkpoints:{}", "--transactions={}", "--blocks={}"),
    *("--threads={}", "--seed={}"),
    *("--workload=pgbench --scale={}", "--workload=pgbench -b select-only@{}"),
)


@pytest.mark.parametrize("place", PLACES)
def test_an_absurd_number_is_rejected_in_one_line(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the number is accepted, the command fails on the location of the results file, which is invalid."""
    for number in NUMBERS:
        words = [word.format(number) for word in place.split()]
        status = run_command(["compare", "17", "18", *words, "--evidence", str(tmp_path / "no" / "e")])
        told = capsys.readouterr().err
        assert (status, told.count("pgdyno: ")) == (2, 1), (number[:9], told)
        assert "Traceback" not in told


@pytest.mark.parametrize("server", ["9" * 5000, "18." + "9" * 5000])
def test_a_version_with_thousands_of_digits_is_not_a_server(
    server: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGDYNO_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert run_command(["compare", server, server, "-q"]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("text", ["1e309", "1e300TB", "inf", "nan", "-1e309", ""])
def test_a_setting_that_is_not_a_number_is_not_scaled(text: str) -> None:
    assert quantity("shared_buffers", text) is None
