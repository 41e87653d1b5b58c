"""Statistics of `python -m bench verdict`: stored and simulated studies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bench.verdict import Options, StudyRun, report, runs_in

from pgdyno.analysis.comparison import Verdict

OPTIONS = Options((0.0, 0.05), 2, 25.0, "duet", 0.5, "update", "15")


def rows(text: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("| ").split("|")] for line in text.splitlines() if "|" in line
    ]


def test_only_studies_with_the_same_options_are_counted_together(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    one = StudyRun(0.05, Verdict.SLOWER, 2.0, (-0.05, -0.04))
    other = replace(OPTIONS, schedule="slices")
    kept.write_text(one.line(OPTIONS) + one.line(other), "utf-8")
    assert runs_in(kept, OPTIONS) == [one]
    assert runs_in(kept, replace(OPTIONS, effects=(0.0, 0.02), trials=9)) == [one]
    assert runs_in(tmp_path / "none", OPTIONS) == []


def test_simulated_studies_end_sooner_with_less_noise() -> None:
    def drawn(noise: float) -> list[list[str]]:
        undecided = StudyRun(0.0, Verdict.UNDECIDED, 25.0, (noise, -noise) * 25)
        return rows(
            report([undecided, StudyRun(0.05, Verdict.SLOWER, 2.5, (-0.04, -0.05) * 2 + (-0.045,))], OPTIONS)
        )[-2:]

    # Half a minute per block. A verdict needs at least five blocks.
    none, five = drawn(0.002)
    assert none == ["none", "55", "0.50", "100.0%", "100.0%", "0.0%", "2.5", "2.5"]
    assert five == ["5%", *none[1:]]
    none, five = drawn(0.2)
    assert none[4] == "0.0%"
    assert none[6:] == five[6:] == ["> 25", "> 25"]


def test_nothing_is_simulated_if_too_few_blocks_fit_for_a_verdict() -> None:
    table = rows(
        report([StudyRun(0.05, Verdict.UNDECIDED, 2.0, (-0.05, -0.04))], replace(OPTIONS, minutes_max=2.0))
    )
    assert table[-2:] == [["none"] + ["–"] * 7, ["5%"] + ["–"] * 7]
