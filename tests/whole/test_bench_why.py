"""Judgement of planted causes, from report JSON and recorded studies."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from bench.why import KINDS, Kind, Part, StudyRun, judge, main, missing, parts_of, report, runs_in

DATA = Path(__file__).parents[1] / "data"
BY_NAME = {kind.name: kind for kind in KINDS}
SLOWER = Part("", 100.0, significant=True)
HOT = BY_NAME["hot row"]


def recorded() -> dict[str, StudyRun]:
    """Studies of real servers with a block each, which is too few for a significant cause."""
    lines = (DATA / "causes.jsonl").read_text("utf-8").splitlines()
    return {one.kind: one for one in map(StudyRun.read, lines)}


def test_the_json_of_a_report_has_the_whole_and_its_resources() -> None:
    document = json.loads((DATA / "golden" / "verdict.json").read_text("utf-8"))
    whole, parts = parts_of(document)
    assert sum(part.change_us for part in parts) == pytest.approx(whole.change_us)
    assert whole.significant and {"cpu", "runnable"} <= {part.key for part in parts}
    found = judge(BY_NAME["5% more CPU"], whole, parts)
    (sentence,) = document["sentences"][""]["why"]
    assert (found.first, found.wrong) == ("cpu", ())
    assert "server CPU time" in sentence


def test_a_line_of_the_file_has_the_study_that_it_was_written_from() -> None:
    for one in recorded().values():
        assert StudyRun.read(one.line) == one


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_recorded_study_is_judged_by_its_largest_resource(kind: Kind) -> None:
    whole, *parts = recorded()[kind.name].parts
    found = judge(kind, whole, parts)
    assert not found.certain and not found.wrong
    certain = judge(kind, whole, [replace(part, significant=part.key == found.first) for part in parts])
    assert certain.first == found.first and certain.certain
    assert bool(certain.wrong) is not certain.right


CPU, LOCK, WAL, IO = (
    Part(key, us, significant=True) for key, us in {"cpu": 9.0, "lock": 80.0, "wal": 12.0, "io": 7.0}.items()
)


@pytest.mark.parametrize(
    ("parts", "first", "right", "wrong"),
    [
        pytest.param([LOCK, CPU, WAL], "lock", True, (), id="consequences are not wrong"),
        pytest.param([LOCK, IO], "lock", True, ("io",), id="another resource is wrong"),
        pytest.param([LOCK, replace(IO, change_us=-7.0)], "lock", True, (), id="against the whole"),
        pytest.param([LOCK, replace(IO, change_us=3.9)], "lock", True, (), id="too small to be named"),
        pytest.param(
            [replace(LOCK, change_us=60.0), replace(IO, change_us=4.5)],
            "lock",
            True,
            (),
            id="too small beside the whole",
        ),
        pytest.param([LOCK, replace(IO, significant=False)], "lock", True, (), id="not significant"),
        pytest.param([LOCK, replace(IO, change_us=-90.0)], "lock", True, (), id="largest, against the whole"),
        pytest.param(
            [replace(LOCK, change_us=8.0), CPU], "cpu", False, ("cpu",), id="a consequence comes first"
        ),
        pytest.param(
            [replace(LOCK, significant=False), CPU], "cpu", False, ("cpu",), id="certain before large"
        ),
        pytest.param(
            [replace(LOCK, significant=False, p_value=0.03), CPU], "lock", True, (), id="likely and larger"
        ),
        pytest.param([LOCK, Part("runnable", 90.0, significant=True)], "lock", True, (), id="queueing"),
        pytest.param([LOCK, Part("unexplained", 90.0, significant=True)], "lock", True, (), id="the rest"),
    ],
)
def test_the_judgement_of_a_report(
    parts: list[Part], first: str, right: bool, wrong: tuple[str, ...]
) -> None:
    found = judge(HOT, SLOWER, parts)
    assert (found.first, found.right, found.wrong) == (first, right, wrong)


def test_without_certainty_the_largest_in_the_direction_of_the_whole_is_first() -> None:
    parts = [replace(part, significant=False) for part in (LOCK, CPU, replace(IO, change_us=-95.0))]
    found = judge(HOT, SLOWER, parts)
    assert (found.first, found.certain, found.wrong) == ("lock", False, ())


def study(kind: Kind, number: int, *parts: Part) -> StudyRun:
    return StudyRun(kind.name, bool(number % 2), 2.0, "15.1", "slower", 6, (SLOWER, *parts), (), "2026-11-27")


def test_missing_studies_continue_each_kind_and_half_are_beside_a_busy_loop() -> None:
    kinds = (HOT, BY_NAME["slow fsync"])
    every = missing(kinds, 4, [])
    assert [number for _, number in every] == [0, 0, 1, 1, 2, 2, 3, 3]
    done: list[StudyRun] = []
    for kind, number in every:
        assert missing(kinds, 4, done)[0] == (kind, number)
        done.append(study(kind, number, LOCK))
    assert missing(kinds, 4, done) == []
    assert missing(kinds, 5, done) == [(kind, 4) for kind in kinds]


def test_studies_of_another_length_or_server_are_not_continued(tmp_path: Path) -> None:
    path = tmp_path / "causes.jsonl"
    path.write_text(study(HOT, 0, LOCK).line, "utf-8")
    assert len(runs_in(path, 2.0, "15.1")) == 1
    assert (
        runs_in(path, 1.0, "15.1")
        == runs_in(path, 2.0, "16.1")
        == runs_in(tmp_path / "none", 2.0, "15.1")
        == []
    )


def test_the_table_counts_right_and_wrong_causes() -> None:
    runs = [*(study(HOT, n, LOCK, CPU) for n in range(8)), study(HOT, 8, LOCK, IO), study(HOT, 9, CPU)]
    row = next(line for line in report([HOT], runs).splitlines() if line.startswith("| hot row"))
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells == ["hot row", "lock", "9 of 10", "9", "2 of 10", "cpu, io", "0", "yes"]
    assert "in 9 of 10, a wrong one significant in 2 of 10 (at most 5%: does NOT hold)" in report([HOT], runs)
    assert "(at most 5%: holds)" in report([HOT], runs[:8])
    assert "| NO |" in report([HOT], [*runs[:8], runs[9], runs[9]])


def test_the_help_lists_the_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert not ended.value.code and "5% more CPU" in " ".join(capsys.readouterr().out.split())
