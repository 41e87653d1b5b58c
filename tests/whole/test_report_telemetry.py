"""Telemetry in every report format: numbers computed by hand, without effects on others. The explanation of a
difference is the same in every format.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from report_forms import FORMS, case_in, on_terminal, only, plain, report_of, tables_of
from rich.console import Console, Group
from synthetic_study import Synthetic
from synthetic_telemetry import NO_COUNTERS, NOT_IN_15, SELECT, UPDATE

from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.comparison import Verdict
from pgdyno.analysis.time_breakdown import RUNNABLE
from pgdyno.features.gates.conditions import gate, parse_condition
from pgdyno.report.document import Headline
from pgdyno.report.study_report import StudyReport
from pgdyno.report.telemetry_tables import probe_overhead
from pgdyno.report.terminal_format import _table
from pgdyno.report.why_section import (
    NAMES,
    NO_PART,
    PANELS_MIN,
    tables,
    throughput_timelines,
    timeline_note,
    why_sentences,
)

PROBED = Synthetic(effects=(1.0, 1.1), blocks=6, probed=True)


def findings(built: StudyReport) -> Findings:
    return only(built).findings


def test_levels_and_changes_are_those_computed_by_hand() -> None:
    told = findings(report_of(PROBED)).telemetry
    levels = {
        "wal.bytes_per_tx": (1000, 900),
        "wal.fpi_per_tx": (3, 3),
        "database.hit_share": (90, 95),
        "database.deadlocks": (0, 0),
        "relation.hot_share:accounts": (50, 50),
        "relation.growth:accounts": (16, 16),
        f"statement.mean_ms:{UPDATE}": (2, 1),
        f"statement.stddev_ms:{UPDATE}": (0.5, 0.25),
        f"statement.share_of_time:{UPDATE}": (50, 100 / 3),
        "wait.share:LWLock/WALWrite": (25, 25),
    }
    for key, expected in levels.items():
        found = [told.levels[arm][key].value for arm in (0, 1)]
        assert found == pytest.approx(expected, rel=1e-3), key
    changes = {"wal.bytes_per_tx": -10, f"statement.mean_ms:{UPDATE}": -50, "database.hit_share": 100 / 18}
    for key, percent in changes.items():
        assert told.effects[1][key].percent.value == pytest.approx(percent), key
    assert "database.deadlocks" not in told.effects[1]
    # With slices of 1 s, values of the machine do not belong to an arm.
    assert not [key for arm in (0, 1) for key in told.levels[arm] if key.startswith("host.")]


@pytest.mark.parametrize(("rate_per_s", "compared"), [(3000, [UPDATE, SELECT]), (20, [SELECT])])
def test_statements_of_few_calls_and_transaction_control_have_a_mean_and_no_change(
    rate_per_s: float, compared: list[str]
) -> None:
    """At 20 transactions per second, a block has 16 calls of the UPDATE and 64 of the SELECT."""
    built = report_of(replace(PROBED, rate_per_s=rate_per_s, slices=1))
    found = findings(built).telemetry
    means = {
        key.removeprefix("statement.mean_ms:") for key in found.levels[1] if key.startswith("statement.m")
    }
    assert means == {UPDATE, SELECT, "BEGIN"}
    assert [
        text for text in (UPDATE, SELECT, "BEGIN") if f"statement.mean_ms:{text}" in found.effects[1]
    ] == (compared)
    (table,) = (table for table in tables_of(built) if table.title == "Statements")
    assert "calls" not in table.dispensable


def test_the_average_over_statements_is_a_geometric_mean_of_ratios() -> None:
    average = findings(report_of(PROBED)).telemetry.average[1]
    assert sorted(average.names) == sorted([UPDATE, SELECT])
    assert average.summary.mean == pytest.approx(0.5 * -0.6931472, rel=1e-6)  # of one half and of one


def test_telemetry_does_not_change_the_drivers_measurements() -> None:
    three = Synthetic(effects=(1.0, 1.02, 0.99), names=("16", "17", "18"), blocks=6, probed=True)

    with_probes = findings(report_of(three))
    without = findings(report_of(replace(three, probed=False)))
    assert len(with_probes.telemetry.metrics) > 20 and set(without.telemetry.metrics) == {"trial.start_s"}
    for one, other in zip(with_probes.comparisons, without.comparisons, strict=True):
        assert one.effects == other.effects and one.decision == other.decision


def test_the_probes_cost_is_a_share_of_the_machine_and_of_each_transaction() -> None:
    probed = replace(PROBED, slices=10)
    built = report_of(probed)
    cost = findings(built).telemetry.cost
    # 20 s of each of six blocks on 2 cores; 0.05 s for each of 12 trials.
    assert cost and cost.share == pytest.approx(12 * 0.05 / (6 * 20 * 2), rel=0.01)
    ok = [trial for trial in findings(built).trials if trial.arm == 1]
    assert cost.us_per_tx[1] == pytest.approx(6 * 5e4 / sum(trial.transactions or 0 for trial in ok))
    assert "0.25%" in plain(probe_overhead(findings(built)))
    without = report_of(replace(probed, probed=False))
    assert not probe_overhead(findings(without))
    assert case_in(json.loads(FORMS["json"](without)))["telemetry"]["cost"] is None


def test_a_feature_missing_in_a_version_raises_no_caveat() -> None:
    built = report_of(PROBED)
    assert all(caveat.kind != "probe-unavailable" for caveat in findings(built).caveats)
    assert findings(built).telemetry.missing == {0: {"io": NOT_IN_15}, 1: {"io": NOT_IN_15}}


@pytest.mark.parametrize(
    ("names", "is_compared"), [(("14", "15"), True), (("15.14", "16.10"), False), (("16", "18"), True)]
)
def test_a_metric_is_not_compared_between_versions_that_count_differently(
    names: tuple[str, str], is_compared: bool
) -> None:
    """Up to 15, blocks that extend a relation count as read; from 16 on, they do not."""
    built = report_of(replace(PROBED, names=names))
    told = findings(built).telemetry
    assert told.levels[0]["database.hit_share"].value == pytest.approx(90)
    assert "wal.bytes_per_tx" in told.effects[1]
    assert ("database.hit_share" in told.effects[1]) is is_compared
    (note,) = (table.note for table in tables_of(built) if table.title == "Telemetry")
    sentence = "Not compared between versions that count differently: buffer hit ratio."
    assert (sentence in note) is not is_compared


UNDECIDED = Synthetic(effects=(1.0, 1.0), noise=0.08, seed=2, blocks=8, slices=2)
INSTRUCTIONS = "hardware.user_instructions_per_tx"


def headline_of(**of: Any) -> Headline:
    (headline,) = only(report_of(replace(UNDECIDED, **of))).headlines
    return headline


@pytest.mark.parametrize(("ratio", "word"), [(1.003, "0.300% more"), (0.995, "0.500% fewer")])
def test_a_difference_in_instructions_is_reported_if_throughput_is_undecided(ratio: float, word: str) -> None:
    built = report_of(replace(UNDECIDED, instructions=(5e5, ratio * 5e5)))
    (headline,) = only(built).headlines
    assert headline.verdict is Verdict.UNDECIDED and "more blocks" in headline.more
    assert f"18 needs {word} user-mode instructions" in headline.more
    effect = findings(built).telemetry.effects[1][INSTRUCTIONS].percent
    assert effect.low is not None and effect.high is not None
    assert effect.low < 100 * (ratio - 1) < effect.high and effect.high - effect.low < 0.2
    assert findings(built).telemetry.levels[0][INSTRUCTIONS].value == pytest.approx(5e5, rel=1e-3)


@pytest.mark.parametrize(
    "of",
    [
        {"instructions": (5e5, 5e5)},  # the interval includes 0
        {"instructions": (5e5, 6e5), "blocks": 4},  # too few blocks for an interval
        {"instructions": (5e5, 6e5), "effects": (1.0, 2.0)},  # throughput is decided
        {"instructions": (5e5, 6e5), "stalled": [(2, 1)]},  # no verdict, whatever the intervals
        {"instructions": (0, 0)},
    ],
)
def test_instructions_are_not_in_the_headline(of: Mapping[str, Any]) -> None:
    assert "instructions" not in headline_of(**of).more


@pytest.mark.parametrize(("ratio", "verdict"), [(1.05, "slower"), (0.95, "faster"), (1.003, "")])
def test_instructions_have_a_separate_verdict(ratio: float, verdict: str) -> None:
    built = report_of(replace(UNDECIDED, instructions=(5e5, ratio * 5e5)))
    conditions = [
        parse_condition(f"{outcome}:{INSTRUCTIONS}") for outcome in ("slower", "faster", "not-same")
    ]
    met = {of.condition.word for of in gate(built.findings, conditions).met}
    assert met == ({verdict, "not-same"} if verdict else set())


def test_a_machine_without_counters_is_reported_once_without_other_changes() -> None:
    without, lacking = (report_of(replace(PROBED, instructions=of)) for of in ((), (0, 0)))
    assert tables_of(lacking) == tables_of(without)
    lacking, without = only(lacking), only(without)
    assert lacking.headlines == without.headlines
    (said,) = (caveat for caveat in lacking.caveats if caveat not in without.caveats)
    assert said.code == "telemetry-missing" and NO_COUNTERS in said.sentence
    assert "17 and 18" in said.sentence and len(lacking.caveats) == len(without.caveats) + 1


@pytest.mark.parametrize("width", [60, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = on_terminal(report_of(PROBED), width).splitlines()
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    assert "balance" in text and "Statements" in text


@pytest.mark.parametrize("form", ["terminal", "md", "html", "json"])
def test_long_windows_report_changes_per_hour(form: str) -> None:
    long = Synthetic(effects=(1.0, 1.1), blocks=1, slices=400, probed=True)  # of both arms 800 s
    text = FORMS[form](report_of(long))
    if form == "json":
        drifts = case_in(json.loads(text))["drifts"].values()
        per_hour = [{of["key"]: of["estimate"]["value"] for of in of_arm} for of_arm in drifts]
        # 1 and 0.9 MiB each second; 7 dead tuples in 800 s.
        assert [of["wal.bytes"] for of in per_hour] == pytest.approx([3600, 3240])
        assert [of["relations.dead_growth"] for of in per_hour] == pytest.approx([31.5, 31.5])
        assert all(of["percent"] for of_arm in drifts for of in of_arm if of["key"] == "tps")
    else:
        said = re.sub(r"\s+", " ", re.sub(r"<[^>]*>|[|]", " ", plain(text)))
        assert re.search(r"WAL written 17 \+3,600(\.0+)? .* 18 \+3,240(\.0+)? .*MiB per hour", said)


FASTER = Synthetic(effects=(1.0, 1.25), blocks=6, probed=True, noise=0.004)


@pytest.fixture(scope="module")
def built() -> StudyReport:
    return report_of(FASTER)


def test_parts_have_their_source_and_those_by_the_clock_say_so(built: StudyReport) -> None:
    assert built.only is not None
    findings, (reason,) = built.only.findings, built.only.why
    waterfall = reason.why.by_resource
    assert waterfall is not None
    parts = [replace(part, key="wal") if part.key == RUNNABLE else part for part in waterfall.parts]
    why = replace(reason.why, by_resource=replace(waterfall, parts=parts))
    table = tables(why, findings)[0]
    sources = {row[0]: row[table.columns.index("source")] for row in table.rows}
    assert sources["whole"] == "driver"
    assert sources["on CPU"] == "kernel"
    assert sources[NAMES["wal"]] == "samples"
    assert "clock of the server" not in table.note
    for factor in (0.5, None):
        timed = tables(replace(why, clocks=["wal"], scaled=factor), findings)[0]
        assert "clock of the server" in timed.note
        assert ("scaled like samples" in timed.note) == (factor is not None)
    assert [row[0] for row in timed.rows if row[-1] == "clock, samples"] == [NAMES["wal"]]
    assert "source" not in tables(reason.why, findings)[1].columns


def test_a_difference_between_arms_at_their_own_rates_is_not_explained() -> None:
    """Each arm was driven at its own capacity: another load has another latency and CPU time."""
    wanted = replace(FASTER, capacity="p99 < 20ms", slices=1)
    built = report_of(wanted)
    assert built.only is not None
    assert built.only.why == []
    of_load = [t.title for t in tables_of(built) if t.title.startswith(("Latency", "Change in", "Thr"))]
    assert len(of_load) >= 3
    assert all(", each arm at its own rate" in title for title in of_load)


def test_on_80_columns_the_table_keeps_both_arms_and_the_names_of_the_parts() -> None:
    built = report_of(replace(FASTER, effects=(1.0, 1.25, 1.25)))
    assert built.only is not None
    told = built.only.why[0].tables[0]
    long = [
        "client, network, unattributed",
        "12,345",
        "11,111",
        "−1,234 [−1,300, −1,168; 98.3%] *",
        "residual",
    ]
    table = replace(told, rows=[*told.rows, long])
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(Group(*_table(table, 80)))
    said = console.export_text()
    head = next(line for line in said.splitlines() if line.lstrip().startswith("part"))
    assert "A: 17" in head and "B − A" in head and head.count(":") == 2
    assert all(len(line) <= 80 for line in said.splitlines()[1:])
    assert "whole" in said


@pytest.mark.parametrize(("by", "cause"), [("resource", "server CPU time"), ("statement", "UPDATE")])
def test_after_a_difference_the_largest_cause_is_named_even_if_it_is_uncertain(
    built: StudyReport, by: str, cause: str
) -> None:
    assert built.only is not None
    why = built.only.why[0].why
    waterfall = getattr(why, f"by_{by}")
    uncertain = [
        replace(part, difference=replace(part.difference, low=-1e6, high=1e6)) for part in waterfall.parts
    ]
    why = replace(why, by_resource=None, by_statement=None)
    why = replace(why, **{f"by_{by}": replace(waterfall, parts=uncertain)})
    _, largest = why_sentences(why, Verdict.FASTER)
    assert largest.startswith(f"Largest {by} without certainty: ")
    assert cause in largest  # "not sampled" and "outside statements" are no causes
    assert why_sentences(why, Verdict.SAME)[1:] == [NO_PART]


@pytest.mark.parametrize(("most", "shown"), [(4, [1, 3, 5, 7]), (7, list(range(1, 8)))])
def test_a_page_has_charts_of_evenly_spaced_blocks_of_a_long_study(
    monkeypatch: pytest.MonkeyPatch, most: int, shown: list[int]
) -> None:
    monkeypatch.setattr("pgdyno.report.why_section.PANELS_MAX", most)
    findings = report_of(Synthetic(blocks=7, probed=True)).findings.first
    assert [panel.title for panel in throughput_timelines(findings)] == [f"block {of}" for of in shown]
    assert ("4 of 7 blocks are shown" in timeline_note(findings)) is (most < 7)


def test_cases_share_the_charts_of_blocks_of_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgdyno.report.why_section.PANELS_MAX", 10)
    alone = report_of(Synthetic(blocks=7, probed=True)).findings.first
    two = report_of(*(Synthetic(blocks=7, probed=True, levels={"clients": n}) for n in "18")).findings.cases
    assert [len(throughput_timelines(case)) for case in (alone, *two)] == [7, 5, 5]
    assert len(throughput_timelines(replace(alone, cases=3))) == PANELS_MIN
