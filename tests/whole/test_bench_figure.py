"""Figures of `python -m bench`: ratios and limits, earlier ratios, stored and simulated studies, dialects."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from bench import dialects, ratios
from bench.dialects import GROUPS, NOT_MEASURED, Measured, Setup, line_of, recorded, study_of
from bench.figure import Sense, alone, compared, interval_of_median, limited, markdown
from bench.verdict import Options, StudyRun, report, runs_in

from pgdyno.analysis.comparison import Verdict
from pgdyno.workloads.tpcc.dialects import DEVIATIONS, DIALECTS, SPEC


def test_the_ratio_is_the_median_of_the_pairs_not_the_ratio_of_the_medians() -> None:
    figure = compared("cpu", "µs/tx", [(1.0, 2.0), (30.0, 40.0), (5.0, 50.0)], "pgbench")
    assert (figure.ours, figure.theirs, figure.ratio, figure.n) == (5.0, 40.0, 0.5, 3)


@pytest.mark.parametrize(
    ("sense", "ours", "holds"),
    [("at most", 69.0, True), ("at most", 71.0, False), ("at least", 69.0, False), ("at least", 71.0, True)],
)
def test_a_ratio_holds_on_the_right_side_of_its_bound(sense: Sense, ours: float, holds: bool) -> None:
    assert compared("rate", "tx/s", [(ours, 100.0)], "peer", bound=0.7, sense=sense).holds is holds


def test_the_interval_of_a_median_has_the_ranks_of_the_sign_test() -> None:
    # Ranks 2 and 9 of ten, 6 and 15 of twenty, 1 and 6 of six (tables of the sign test).
    assert interval_of_median([float(n) for n in range(1, 11)]) == (2, 9)
    assert interval_of_median([float(n) for n in range(20, 0, -1)]) == (6, 15)
    assert interval_of_median([3.0, 1.0, 2.0, 6.0, 5.0, 4.0]) == (1, 6)
    assert interval_of_median([1.0] * 5) is None
    assert interval_of_median([]) is None


def test_a_ratio_of_many_pairs_has_an_interval() -> None:
    figure = compared("rate", "tx/s", [(n, 10.0) for n in range(1, 8)], "off")
    assert figure.interval == (0.1, 0.7)
    assert "| 0.400 [0.100, 0.700] |" in markdown([figure])


def test_the_table_shows_figures_without_a_comparison() -> None:
    figures = [limited("memory", "MiB", [31.0], 30.0), alone("whole", "s", [12345.0], "not measured here")]
    assert markdown(figures).splitlines()[2:] == [
        "| memory | 31 | 30 (limit) | MiB | 1.033 | at most 1 | NO | 1 |",
        "| whole | 12,345 | not measured here | s | – | – | – | 1 |",
    ]


@pytest.mark.parametrize(
    ("sense", "earlier", "limit"),
    [
        ("at most", [1.0, 1.1, 1.05, 1.0, 1.0], 1.1**3),
        ("at least", [1.0, 0.9, 1.0, 1.0, 1.0], 0.9**3),
        ("at most", [0.5] * 5, 0.5),
        ("at most", [9.0, *[0.5] * 10], 0.5),  # only the last ten count
        ("at most", [0.5] * 4, None),
    ],
)
def test_a_ratio_may_be_beyond_the_worst_earlier_one_by_twice_their_range(
    sense: Sense, earlier: list[float], limit: float | None
) -> None:
    assert ratios.limit(earlier, sense) == (None if limit is None else pytest.approx(limit))


def test_only_ratios_of_the_same_idle_machine_and_name_are_compared(tmp_path: Path) -> None:
    one = ratios.Ratio("restore", 1.1, "at most", "0123abc", "here", 0.5, "2026-11-27T07:00:00+00:00")
    others = [replace(one, ratio=9.0, machine="elsewhere"), replace(one, ratio=9.0, load=2.0)]
    kept = [one, *others, replace(one, name="load"), one, one, one]
    path = tmp_path / "history.jsonl"
    path.write_text("".join(f"{json.dumps(asdict(of))}\n" for of in [*kept, replace(one, ratio=1.2)]))
    earlier = ratios.read_history(path, "here")
    assert earlier == {"restore": [1.1, 1.1, 1.1, 1.1, 1.2], "load": [1.1]}
    assert ratios.read_history(tmp_path / "none", "here") == {}
    now = [replace(one, ratio=ratio) for ratio in (1.42, 1.43, 0.1)]
    now += [replace(one, ratio=9.0, name="load"), replace(one, ratio=0.5, sense="at least")]
    text, worse = ratios.compared(now, earlier)
    assert [row[-2] for row in rows(text)[2:]] == ["holds", "WORSE", "holds", "not compared", "WORSE"]
    assert worse == ["restore", "restore"]


OPTIONS = Options((0.0, 0.05), 2, 25.0, "duet", 0.5, "update", "15")


def rows(text: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("| ").split("|")] for line in text.splitlines() if "|" in line
    ]


def test_only_studies_with_the_same_options_are_counted_together(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    one = StudyRun(0.05, Verdict.SLOWER, 2.0, (-0.05, -0.04), "", ({"steal": 1.5}, {"steal": 0.0}))
    other = replace(OPTIONS, schedule="slices")
    old = {key: value for key, value in json.loads(one.line(OPTIONS)).items() if key != "covariates"}
    kept.write_text(one.line(OPTIONS) + one.line(other) + json.dumps(old) + "\n", "utf-8")
    both = [one, replace(one, covariates=())]
    assert runs_in(kept, OPTIONS) == both
    assert runs_in(kept, replace(OPTIONS, effects=(0.0, 0.02), trials=9)) == both
    assert runs_in(tmp_path / "none", OPTIONS) == []


def test_simulated_studies_end_sooner_with_less_noise() -> None:
    def drawn(noise: float) -> list[list[str]]:
        undecided = StudyRun(0.0, Verdict.UNDECIDED, 25.0, (noise, -noise) * 25)
        return rows(
            report([undecided, StudyRun(0.05, Verdict.SLOWER, 2.5, (-0.04, -0.05) * 2 + (-0.045,))], OPTIONS)
        )[-2:]

    # Half a minute per block. *Same* needs at least 15 blocks, another verdict five.
    none, five = drawn(0.002)
    assert none == ["none", "55", "0.50", "0.0%", "100.0%", "0.0%", "7.5", "7.5"]
    assert five == ["5%", "55", "0.50", "100.0%", "100.0%", "0.0%", "2.5", "2.5"]
    none, five = drawn(0.2)
    assert none[4] == "0.0%"
    assert none[6:] == five[6:] == ["> 25", "> 25"]


def test_nothing_is_simulated_if_too_few_blocks_fit_for_a_verdict() -> None:
    table = rows(
        report([StudyRun(0.05, Verdict.UNDECIDED, 2.0, (-0.05, -0.04))], replace(OPTIONS, minutes_max=2.0))
    )
    assert table[-2:] == [["none"] + ["–"] * 7, ["5%"] + ["–"] * 7]


def test_every_deviation_and_dialect_is_in_one_group() -> None:
    named = [name for group in GROUPS.values() for name in group]
    assert sorted([*named, *NOT_MEASURED, SPEC]) == sorted([*DEVIATIONS, *DIALECTS])


def test_the_study_of_a_group_has_one_deviation_or_dialect_per_arm() -> None:
    for group, names in GROUPS.items():
        study = study_of(group, Setup(2, 4, "18"), minutes=1, rounds=4, seed=1)
        workloads = [study.driving(arm).workload for arm in range(len(study.arms))]
        assert len(workloads) == len(names) + 1
        assert not workloads[0].deviations
        calls = {one.calls for one in workloads}
        assert calls == {"statements" if group == "statements" else "procedures"}


def test_arms_of_one_setup_are_counted_together(tmp_path: Path) -> None:
    path, old, new = tmp_path / "r.jsonl", Setup(1, 4, "15"), Setup(4, 8, "15")
    one = Measured("no-rollback", "procedures", (0.01, 0.02, 0.03), "2026-11-24")
    path.write_text(line_of(one, old) + 2 * line_of(one, new), "utf-8")
    setup, measured = recorded(path)
    assert (setup, measured) == (new, [one, one])
    assert dialects.report(measured).splitlines()[-1].split(" | ")[-1].startswith("6")
    assert "no-rollback" not in dialects.report([Measured("no-rollback", "procedures", (0.01,), "")])
