"""The main job: an effect that is there is found, one that is not there is not."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from program import Program

from pgdyno.analysis.findings import find
from pgdyno.evidence.reader import Evidence

BLOCKS = 5
"""The fewest that allow a verdict."""


@pytest.fixture
def evidence(tmp_path: Path) -> Path:
    return tmp_path / "e.sqlite"


def test_an_effect_that_is_there_is_found_and_reported(program: Program, server: str, evidence: Path) -> None:
    # Each commit of this arm waits 20 ms before its flush, whatever the disk does: two clients then commit at
    # most 100 times a second. A false "undecided" would need blocks whose ratios differ by a factor of ten.
    slow = f"{server},commit_delay=20000,commit_siblings=0"
    ended = program.compare(server, slow, "--blocks", str(BLOCKS), "--evidence", evidence, "--json")
    assert ended.status == 0, ended.err
    found = ended.json()
    assert found["verdict"] == "slower"
    comparison = found["comparisons"][0]
    effect = comparison["effects"]["nopm"]
    assert comparison["blocks"] == list(range(BLOCKS))
    assert effect["low"] <= effect["value"] <= effect["high"] < 0
    assert [arm["trials"] for arm in found["arms"]] == [{"ok": BLOCKS}] * 2
    assert found["arms"][1]["settings_requested"]["commit_delay"] == "20000"
    # The report is one file that says so, and the evidence gives the same numbers once more.
    html = evidence.with_suffix(".html").read_text()
    assert "slower" in html
    assert "http://" not in html.replace("http://www.w3.org", "")
    with Evidence(evidence) as opened:
        again = find(opened).comparisons[0]
    assert again.verdict == "slower"
    assert again.effects["nopm"].percent.value == effect["value"]
    with closing(sqlite3.connect(evidence)) as plain:
        assert plain.execute("pragma integrity_check").fetchone() == ("ok",)
    assert sorted(path.name for path in evidence.parent.glob("e.*")) == ["e.html", "e.sqlite"]


def test_no_effect_is_found_where_there_is_none(program: Program, server: str, evidence: Path) -> None:
    # The chance of a false alarm is 1 - confidence, here 1 in 1000, and less still with the wide margin: an
    # interval within it is "same". Five blocks allow a verdict, so the test could fail.
    sure = ["--confidence", "99.9%", "--margin", "50%", "--blocks", str(BLOCKS)]
    ended = program.compare(server, server, *sure, "--evidence", evidence, "--json")
    assert ended.status == 0, ended.err
    found = ended.json()
    assert found["verdict"] in ("same", "undecided")
    assert found["comparisons"][0]["blocks"] == list(range(BLOCKS))
    effect = found["comparisons"][0]["effects"]["nopm"]
    assert effect["low"] < 0 < effect["high"] or abs(effect["value"]) < 50
