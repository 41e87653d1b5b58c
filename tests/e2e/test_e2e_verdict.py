"""Verdicts: an existing effect is found, and a missing one is not."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from program import TINY, Program, Running

from pgdyno.analysis.study_findings import find_study
from pgdyno.results.reader import Evidence

BLOCKS = 5
"""The minimum for a verdict."""


COMMON = (*TINY, "--clients", "2", "--evidence", "e.sqlite")

SURE = ("--confidence", "99.9%", "--margin", "50%")
"""The probability of a false alarm is 1 - confidence, here 1 in 1000, and lower with the wide margin: an
interval within it is "same".
"""


@pytest.fixture(scope="module")
def both(
    cache: Path, server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Running, Running]]:
    """Two concurrent comparisons, which saves time. The effect of the first is large, and the arms of the
    second are disturbed equally.
    """
    # Each commit of this arm waits 20 ms before its flush, whatever the disk does: two clients then commit at
    # most 100 times a second. A false "undecided" would need blocks whose ratios differ by a factor of ten.
    slow = f"{server},commit_delay=20000,commit_siblings=0"
    programs = [Program(cache, tmp_path_factory.mktemp(name)) for name in ("effect", "none")]
    yield (
        # On a busy machine the effect changes within such short windows. A change above the margin holds the
        # verdict back.
        programs[0].start("compare", *COMMON, "--blocks", "30", "--margin", "50%", server, slow),
        programs[1].start("compare", *COMMON, "--blocks", str(BLOCKS), *SURE, server, server),
    )
    for program in programs:
        program.end()
    assert programs[0].survivors() == []


def test_an_effect_that_is_there_is_found_and_reported(both: tuple[Running, Running]) -> None:
    ended, evidence = both[0].ended(), both[0].out.with_name("e.sqlite")
    assert ended.status == 0, ended.err
    found = ended.case
    (comparison,) = found["comparisons"]
    assert comparison["verdict"] == "slower"
    effect = comparison["effects"]["tps"]
    change = effect["percent"]
    # It stops on its verdict, long before its maximum of thirty blocks.
    n = len(comparison["blocks"])
    assert found["study"]["ended_because"] == "verdict" and BLOCKS <= n < 30
    assert comparison["blocks"] == list(range(n)) and effect["summary"]["method"] == "anytime"
    assert change["low"] <= change["value"] <= change["high"] < 0
    assert ended.trials == [{"ok": n}] * 2
    assert found["arms"][1]["arm"]["settings_requested"]["commit_delay"] == "20000"
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
    assert sorted(path.name for path in evidence.parent.glob("e.*")) == ["e.html", "e.sqlite"]


def test_no_effect_is_found_for_identical_arms(both: tuple[Running, Running]) -> None:
    # Five blocks allow a verdict, so this could fail.
    ended = both[1].ended()
    assert ended.status == 0, ended.err
    (comparison,) = ended.case["comparisons"]
    assert comparison["verdict"] in ("same", "undecided")
    assert comparison["blocks"] == list(range(BLOCKS))
    change = comparison["effects"]["tps"]["percent"]
    assert change["low"] < 0 < change["high"] or abs(change["value"]) < 50
