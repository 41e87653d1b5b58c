"""How `python -m bench verdict` counts: studies kept of other calls, and those drawn from their blocks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bench.verdict import PAGE, Ran, Wanted, kept_in, page, report

from pgdyno.analysis.comparison.verdict import Verdict

WANTED = Wanted((0.0, 0.05), 2, 25.0, "duet", 0.5, "update", "15")


def rows(text: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("| ").split("|")] for line in text.splitlines() if "|" in line
    ]


def test_only_studies_that_were_run_alike_are_counted_together(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    one = Ran(0.05, Verdict.SLOWER, 2.0, (-0.05, -0.04))
    other = replace(WANTED, schedule="slices")
    kept.write_text(one.line(WANTED) + one.line(other), "utf-8")
    assert kept_in(kept, WANTED) == [one]
    assert kept_in(kept, replace(WANTED, effects=(0.0, 0.02), trials=9)) == [one]
    assert kept_in(tmp_path / "none", WANTED) == []


def test_studies_drawn_from_blocks_end_the_sooner_the_quieter_these_are() -> None:
    def drawn(noise: float) -> list[list[str]]:
        alike = Ran(0.0, Verdict.UNDECIDED, 25.0, (noise, -noise) * 25)
        return rows(report([alike, Ran(0.05, Verdict.SLOWER, 2.5, (-0.04, -0.05) * 2 + (-0.045,))], WANTED))[
            -2:
        ]

    # Half a minute a block; five blocks are the least that a verdict takes.
    none, five = drawn(0.002)
    assert none == ["none", "55", "0.50", "100.0%", "100.0%", "0.0%", "2.5", "2.5"]
    assert five == ["5%", *none[1:]]
    none, five = drawn(0.2)
    assert none[4] == "0.0%"
    assert none[6:] == five[6:] == ["> 25", "> 25"]


def test_where_fewer_blocks_fit_than_a_verdict_takes_nothing_is_drawn() -> None:
    told = rows(report([Ran(0.05, Verdict.UNDECIDED, 2.0, (-0.05, -0.04))], replace(WANTED, minutes_max=2.0)))
    assert told[-2:] == [["none"] + ["–"] * 7, ["5%"] + ["–"] * 7]


def test_the_page_has_the_recorded_studies() -> None:
    assert PAGE.read_text("utf-8") == page(), "run `python -m bench verdict --record --trials 0`"
