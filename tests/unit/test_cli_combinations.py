"""Conflicting options are rejected, and none is silently ignored."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_study import Synthetic, write_study

from pgdyno.cli import study_execution
from pgdyno.cli.main import run_command

REFUSED = {
    "compare 17 18 --transactions 10 --window 10s": "--transactions and --window exclude",
    "compare 17 18 --transactions 10 --window checkpoints:2": "--transactions and --window exclude",
    "compare 17 18 --transactions 10 --slice 1s": "--slice cannot be combined with --transactions 10",
    "compare 17 18 --transactions 10 --schedule duet": "use the schedule blocks",
    "compare 17 18 --into-existing": "--into-existing requires a DSN",
    "compare --sweep jit=on,off": "--sweep requires exactly one ARM",
    "compare 17 18 --sweep jit=on,off": "--sweep requires exactly one ARM",
    "compare 17 --sweep jit": "must be SETTING=VALUE,VALUE…",
    "compare 17 --sweep jit=on": "has one value",
    "compare 17 --sweep jit=on,": "has an empty value",
    "compare 17 --sweep jit=on,off,on": "has the value on twice",
    'compare 17 --sweep search_path="a,b",c': "18,search_path=a,b",
    "compare 17 --sweep jit=on,off --sweep JIT=off,on": "--sweep jit is given twice",
    "compare 17,jit=on --sweep jit=on,off": "remove it from the arm",
    "compare host=x --sweep jit=on,off": "a running server",
    "compare 17 --sweep a=1,2,3,4,5 --sweep b=1,2,3,4": "gives 20 arms",
    "compare --resume e.sqlite --sweep jit=on,off": "--sweep cannot be combined with --resume",
    "compare 17 18 --arrivals poisson": "--arrivals",
    "compare 17 18 --capacity p99<20ms --rate 9": "--capacity and --rate exclude",
    "compare 17 18 --workload pgbench --pacing keying-and-thinking": "pacing",
    "compare 17 18 --workload pgbench --warehouses 2": "--warehouses",
    "compare 17 18 --scale 2": "--scale",
    "compare 17 18 --workload pgbench --script a.lua": "(got --workload pgbench): use --file",
    "compare 17 18 --workload sysbench --file a.sql": "(got --workload sysbench): use --script",
    "report e.sqlite --csv e.csv": "--csv takes no file (got e.csv): use --csv > e.csv",
    "report e.sqlite --md --json": "--md and --json both",
    "report e.sqlite --as published --json": "--as published cannot be combined with --json",
    "report e.sqlite --as published --csv": "--as published cannot be combined with --csv",
    "report e.sqlite --as published --html p.html": "--as published cannot be combined with --html",
    "report e.sqlite --as published --fail-if slower": "--as published cannot be combined with --fail-if",
    "history . --newest 3": "--newest 3 requires --fail-if",
    "study plan mine.toml --minutes 5": "--minutes 5 requires --fit",
    "compare 17 18 --slice auto": "--slice auto was removed",
    "load host=/nowhere --workload pgbench --seed 1": "--seed 1 requires --workload tpcc",
}


@pytest.mark.parametrize("words", REFUSED)
def test_mutually_exclusive_options_are_rejected(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(study_execution, "start_study", lambda *_: pytest.fail("it measured"))
    write_study(tmp_path / "e.sqlite", Synthetic(blocks=2, slices=2))
    assert run_command(words.split()) == 2
    told = capsys.readouterr()
    assert REFUSED[words] in told.err
    assert told.err.count("\n") == 1
    assert not (tmp_path / "p.html").exists()
