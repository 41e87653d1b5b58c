"""The verdict of an existing effect. Simulations in tests/oracle cover identical arms."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from program import PGBENCH, SLICES, Program

from pgdyno.analysis.study_findings import find_study
from pgdyno.results.reader import Evidence


def test_an_effect_that_is_there_is_found_and_reported(program: Program, server: str, tmp_path: Path) -> None:
    # Each commit of this arm waits 50 ms before its flush, whatever the disk does: two clients then commit at
    # most 40 times a second. A false "undecided" would need blocks whose ratios differ by a factor of ten.
    slow, evidence = f"{server},commit_delay=50000,commit_siblings=0", tmp_path / "e.sqlite"
    # A trend above the margin within such short windows would hold the verdict back.
    sizes = (*SLICES, "--clients", "2", "--margin", "50%", "--blocks", "30")
    ended = program.succeed("compare", *PGBENCH, *sizes, "--evidence", evidence, server, slow)
    found = ended.case
    (comparison,) = found["comparisons"]
    assert comparison["verdict"] == "slower"
    effect = comparison["effects"]["tps"]
    change = effect["percent"]
    # It stops on its verdict, long before its maximum of thirty blocks.
    n = len(comparison["blocks"])
    assert found["study"]["ended_because"] == "verdict" and 5 <= n < 30
    assert comparison["blocks"] == list(range(n)) and effect["summary"]["method"] == "anytime"
    assert change["low"] <= change["value"] <= change["high"] < 0
    assert ended.trials == [{"ok": n}] * 2
    assert found["arms"][1]["arm"]["settings_requested"]["commit_delay"] == "50000"
    # The report is one file with this verdict, and the results file gives the same numbers again.
    html = evidence.with_suffix(".html").read_text()
    assert "slower" in html
    assert "http://" not in html.replace("http://www.w3.org", "")
    with Evidence(evidence) as opened:
        again = find_study(opened).first.comparisons[0]
    assert again.verdict == "slower"
    assert again.effects["tps"].percent.value == change["value"]
    with closing(sqlite3.connect(evidence)) as plain:
        assert plain.execute("pragma integrity_check").fetchone() == ("ok",)
    assert sorted(path.name for path in tmp_path.glob("e.*")) == ["e.html", "e.sqlite"]
