"""Options that say nothing together are refused: none is silently left."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_study import Synthetic, write_study

from pgdyno.cli import measuring
from pgdyno.cli.main import run

REFUSED = {
    "compare 17 18 --transactions 10 --window 10s": "--transactions and --window both say",
    "compare 17 18 --transactions 10 --window checkpoints:2": "--transactions and --window both say",
    "compare 17 18 --transactions 10 --slice 1s": "--slice: a number of transactions is",
    "compare 17 18 --transactions 10 --schedule duet": "take the schedule blocks",
    "compare 17 18 --into-existing": "--into-existing needs an arm given as a DSN",
    "compare 17 18 --arrivals poisson": "--arrivals",
    "compare 17 18 --capacity p99<20ms --rate 9": "--capacity excludes --rate",
    "compare 17 18 --workload pgbench --pacing keying-and-thinking": "pacing",
    "compare 17 18 --workload pgbench --warehouses 2": "--warehouses",
    "compare 17 18 --scale 2": "--scale",
    "report e.sqlite --md --json": "--md and --json both go",
    "report e.sqlite --as published --json": "leave --json away",
    "report e.sqlite --as published --csv": "leave --csv away",
    "report e.sqlite --as published --html p.html": "leave --html away",
    "report e.sqlite --as published --fail-if slower": "leave --fail-if",
    "history . --newest 3": "--newest says what --fail-if",
    "study plan mine.toml --minutes 5": "--minutes is what --fit scales",
    "doctor --calibrations --calibrate 10m": "--calibrations shows earlier ones",
    "doctor --calibrate 10m --strict": "--strict is about",
    "doctor --calibrations --strict": "--strict is about",
    "load host=/nowhere --workload pgbench --seed 1": "--seed is for the workload tpcc",
}


@pytest.mark.parametrize("words", REFUSED)
def test_options_that_exclude_each_other_are_refused(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measuring, "start_study", lambda *_: pytest.fail("it measured"))
    write_study(tmp_path / "e.sqlite", Synthetic(blocks=2, slices=2))
    assert run(words.split()) == 2
    told = capsys.readouterr()
    assert REFUSED[words] in told.err
    assert told.err.count("\n") == 1
    assert not (tmp_path / "p.html").exists()
