"""Gates: their conditions, false alarms, exit statuses, messages and summaries."""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy
from report_forms import HOSTILE, analyze_once, case_in, matching, report_of
from synthetic_study import Synthetic, write_study

from pgdyno.analysis.comparison import Verdict, effects_by_arm, judge
from pgdyno.analysis.statistics.intervals import Method, t_quantile, with_error
from pgdyno.analysis.statistics.pooled_quantiles import BLOCKS_MIN
from pgdyno.analysis.study_findings import MetricVerdict
from pgdyno.analysis.telemetry.metrics import NOPM
from pgdyno.caveats import Caveat
from pgdyno.cli.main import run_command
from pgdyno.features.gates import section
from pgdyno.features.gates.conditions import (
    EXIT_STATUSES,
    Gate,
    GateCondition,
    GateOutcome,
    GateWord,
    Reason,
    evaluate,
    gate,
    parse_condition,
)
from pgdyno.features.gates.section import outcome, reasons, to_summary, why_inconclusive
from pgdyno.features.hosts import sections
from pgdyno.features.hosts.sections import read_hosts
from pgdyno.measure import study_runner
from pgdyno.report.document import FileReport
from pgdyno.report.markdown_format import escaped
from pgdyno.results.records import ENGINE, StudyEnd, TrialStatus
from pgdyno.units import Better, Estimate
from requested_study import requested_by

SLOWER = Synthetic(effects=(1, 0.9), blocks=8, slices=4)
FASTER = replace(SLOWER, effects=(1, 1.1))
SAME = replace(SLOWER, effects=(1, 1), noise=0.004)
UNDECIDED = replace(SLOWER, effects=(1, 1), noise=0.08, seed=2)
NO_BLOCK = replace(SLOWER, blocks=3, stalled=[(block, 1) for block in range(3)])
FOUR = {"levels": {"clients": "4"}}
NINE = {"levels": {"clients": "9"}}
FAILED_8 = {(block, 1): TrialStatus.FAILED for block in range(8)}
NO_TRIAL = [replace(SAME, **FOUR), replace(SAME, **NINE, statuses=FAILED_8)]
SOME_STALLED = [replace(SAME, **FOUR), replace(SAME, **NINE, stalled=[(2, 1), (5, 1)])]
SINGLE_BLOCK = [replace(SAME, **FOUR), replace(SAME, **NINE, warm_up_times={7: 2})]
OVERLOADED = replace(SAME, fixed_rate_per_s=3000.0, skipped=(0.0, 0.1))
# The effect changes within the windows.
WARMING_UP = replace(FASTER, cold=(0.0, 0.3))
# The latency limit did not hold at the capacity found.
MISSED = replace(SAME, latencies=(90.0, 90.0), capacity="p99 < 25ms", slices=1)
CASES = tuple(
    replace(SAME, levels={"clients": f"{n}"}, seed=n, slices=2, effects=(1, 1, 1), names="ABC", noise=0.01)
    for n in range(1, 7)
)
SLOW_CASES = [replace(case, effects=(1, 1, 0.9), noise=0.005) for case in CASES[:3]]
# Trials that the user or the engine stopped do not prevent a verdict.
STOPPED = replace(
    FASTER,
    statuses={(3, 0): TrialStatus.FAILED, (3, 1): TrialStatus.FAILED, (4, 1): TrialStatus.INTERRUPTED},
    stopped_by={(3, 0): ENGINE, (3, 1): ENGINE},
)


@pytest.fixture(autouse=True)
def _each_file_of_a_host_is_analyzed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    analyze_once(monkeypatch, sections)


def summary_of(built: FileReport, found: Gate | None = None, files: Sequence[str] = ()) -> str:
    return to_summary(built, built.findings.verdicts_on(), found, files)


def gate_of(wanted: Synthetic | Sequence[Synthetic], conditions: str) -> Gate:
    findings = report_of(*([wanted] if isinstance(wanted, Synthetic) else wanted)).findings
    return gate(findings, [parse_condition(text) for text in conditions.split()])


def places(found: Gate) -> tuple[list[tuple[str, str, str]], list[tuple[str, str, str]]]:
    """Condition, case and arm of what is met, and of what cannot be evaluated."""
    met = [(one.condition.text, one.of.case, one.of.arm) for one in found.met]
    not_evaluable = [(one.condition.text, one.of.case, one.of.arm) for one in found.not_evaluable if one.of]
    return met, not_evaluable


def status(
    path: Path, wanted: Synthetic | Sequence[Synthetic], conditions: str, more: tuple[str, ...] = ()
) -> int:
    (path / "e.sqlite").unlink(missing_ok=True)
    write_study(path / "e.sqlite", *([wanted] if isinstance(wanted, Synthetic) else wanted))
    asked = [part for text in conditions.split() for part in ("--fail-if", text)]
    return run_command(["report", str(path / "e.sqlite"), *asked, *more])


def on_hosts(path: Path, *studies: Synthetic | Sequence[Synthetic]) -> list[Path]:
    """Write the studies of several hosts to a new directory."""
    folder = Path(tempfile.mkdtemp(dir=path))
    paths = [folder / f"{n}.sqlite" for n in range(len(studies))]
    for n, (of_host, study) in enumerate(zip(paths, studies, strict=True)):
        host = {"machine": f"{n}", "processor": f"{n}", "cores": 2, "memory_bytes": 1e9}
        cases = [study] if isinstance(study, Synthetic) else study
        write_study(of_host, *(replace(case, host=host, seed=case.seed + n) for case in cases))
    return paths


@pytest.mark.parametrize(
    ("wanted", "conditions", "expected"),
    [
        (SLOWER, "slower", 3),
        (SLOWER, "faster", 0),
        (SLOWER, "faster undecided slower", 3),
        (SLOWER, "not-same", 3),
        (SLOWER, "slower:nopm", 3),
        (SLOWER, "slower:p99", 4),
        (SLOWER, "undecided:p99", 3),
        (replace(SLOWER, blocks=BLOCKS_MIN, slices=2), "slower:p99 slower:p99:5%", 3),
        (replace(FASTER, blocks=BLOCKS_MIN, slices=2), "slower:p99 slower:p99:5%", 0),
        (SLOWER, "slower:latency.payment.p50", 3),
        (SLOWER, "slower:server_cpu", 3),
        (FASTER, "slower slower:p50 slower:server_cpu", 0),
        (FASTER, "faster:p50", 3),
        (FASTER, "not-same", 3),
        (SAME, "slower faster not-same undecided", 0),
        (UNDECIDED, "slower", 4),
        (UNDECIDED, "not-same", 4),
        (UNDECIDED, "slower undecided", 3),
        (UNDECIDED, "undecided", 3),
        (UNDECIDED, "slower:60%", 0),
        (SLOWER, "slower:5%", 3),
        (SLOWER, "slower:20%", 0),
        (SLOWER, "slower:10%", 4),
        (SLOWER, "slower:p50:5%", 3),
        (NO_BLOCK, "slower", 1),
        (NO_BLOCK, "slower undecided", 3),
        (SLOWER, "slower:wal.bytes_per_tx", 1),  # it was not probed
        *((NO_TRIAL, condition, 1) for condition in ("slower", "not-same", "slower:p99", "slower:average")),
        *((SOME_STALLED, condition, 1) for condition in ("slower", "faster", "slower:p99", "slower:average")),
        (SOME_STALLED, "slower:p50", 1),
        (SINGLE_BLOCK, "slower:average", 1),
        (SOME_STALLED, "undecided", 3),
        (SOME_STALLED[1], "slower not-same slower:50%", 1),
        (replace(OVERLOADED, skipped=(0.0, 0.6)), "slower", 1),
        (OVERLOADED, "not-same:p99", 1),
        (OVERLOADED, "slower:p99", 1),
        *(
            (replace(FASTER, statuses={(3, arm): failed}), condition, expected)
            for failed in (TrialStatus.FAILED, TrialStatus.EXCLUDED)
            for arm in (0, 1)
            for condition, expected in (("slower", 1), ("undecided", 3))
        ),
        (WARMING_UP, "faster", 1),
        (WARMING_UP, "undecided", 3),
        (replace(WARMING_UP, cold=(0.3, 0.3), slices=10), "faster", 3),
        (MISSED, "slower", 1),
        (MISSED, "undecided", 3),
        (replace(MISSED, latencies=(1.0, 1.0)), "slower", 0),
        (STOPPED, "faster", 3),
        (SLOW_CASES, "slower:average faster", 3),
        ([replace(case, noise=0.001, slices=10) for case in CASES[:3]], "slower:average", 0),
    ],
)
def test_a_true_condition_ends_with_status_3(
    wanted: Synthetic | Sequence[Synthetic], conditions: str, expected: int
) -> None:
    found = gate_of(wanted, conditions)
    assert EXIT_STATUSES[found.outcome] == expected
    assert all([outcome(found), *reasons(found)])  # every outcome can be explained


INVALID = ("", "slow", "slower:", ":p99", "slower:nope", "slower:wal.bytes", "SLOWER", "slower:5")
INVALID = (*INVALID, "slower:-5%", "slower:0%", "slower:100%", "slower:5%:p99", "undecided:5%")
INVALID = (*INVALID, "slower:statement.calls")  # no direction of it is better
INVALID = (*INVALID, "slower:latency.all.p99.9", "slower:latency.all.p42", "slower:wal.unknown")


def shown_as(low: float, high: float, better: Better = Better.MORE, **more: object) -> MetricVerdict:
    """A comparison of eight blocks with this interval in percent and a margin of 2%."""
    ends = (math.log1p(end / 100) for end in (low, high))
    lower, upper = ends
    sd = (upper - lower) / 2 / t_quantile(0.975, 7) * math.sqrt(8)
    summary = with_error((lower + upper) / 2, sd, 8, 0.95, Method.STUDENT)
    verdict = judge(summary, 0.02, better)
    given = {"verdict": verdict, "percent": summary.percent(better), "summary": summary, "blocks": 8, **more}
    return MetricVerdict(**{"case": "", "baseline": "17", "arm": "18", "metric": "m", "name": "m", **given})


F, P, E = GateOutcome.FAILED, GateOutcome.PASSED, GateOutcome.NOT_EVALUABLE
OPEN = GateOutcome.INCONCLUSIVE  # an open question
WORDS = ("slower", "faster", "not-same", "undecided", "slower:5%", "faster:5%", "not-same:5%")
TRUTH = {
    "far below": ((-12, -6), (F, P, F, P, F, P, F)),
    "below 0, on both sides of the limit": ((-7, -3), (F, P, F, P, OPEN, P, OPEN)),
    "below 0, above the limit": ((-4.5, -2.2), (F, P, F, P, P, P, P)),
    "undecided, wide": ((-15, 1.7), (OPEN, OPEN, OPEN, F, OPEN, P, OPEN)),
    "undecided, very wide": ((-15, 17), (OPEN, OPEN, OPEN, F, OPEN, OPEN, OPEN)),
    "undecided, beyond the limit on the other side": ((-4.98, 5.22), (OPEN, OPEN, OPEN, F, P, OPEN, OPEN)),
    "undecided, within the limits": ((-4, 3), (OPEN, OPEN, OPEN, F, P, P, P)),
    "the same": ((-1, 1), (P, P, P, P, P, P, P)),
    "the same, although it excludes 0": ((0.1, 0.9), (P, P, P, P, P, P, P)),
    "above 0, below the limit": ((2.2, 4.5), (P, F, F, P, P, P, P)),
    "above 0, on both sides of the limit": ((3, 7), (P, F, F, P, P, OPEN, OPEN)),
    "far above": ((6, 12), (P, F, F, P, P, F, F)),
}


@pytest.mark.parametrize("name", TRUTH)
def test_each_condition_is_met_ruled_out_or_inconclusive_by_the_interval(name: str) -> None:
    (low, high), expected = TRUTH[name]
    for better in (Better.MORE, Better.LESS):
        # Where less is better, slower is a rise.
        word_of = {"slower": "faster", "faster": "slower"} if better is Better.LESS else {}
        for text, outcome_expected in zip(WORDS, expected, strict=True):
            word, colon, limit = text.partition(":")
            condition = parse_condition(word_of.get(word, word) + colon + limit)
            found = evaluate([condition], {"": [shown_as(low, high, better)]}, 0.95)
            assert found.outcome is outcome_expected, (text, better)


def test_within_a_limit_means_on_both_sides_and_the_reason_names_the_limit_in_the_interval() -> None:
    one = shown_as(-1, 4, percent=Estimate(1, "%", 8, Better.MORE, -20, 4))
    found = evaluate([parse_condition("not-same:5%")], {"": [one]}, 0.95)
    assert found.outcome is OPEN
    assert why_inconclusive(found.inconclusive[0], found) == "; the CI contains −5%"


@pytest.mark.parametrize("state", ["partial", "no value"])
@pytest.mark.parametrize("text", WORDS)
def test_a_biased_or_missing_value_rules_no_condition_out(state: str, text: str) -> None:
    more: dict[str, object] = {"verdict": Verdict.UNDECIDED}
    more |= {"percent": None, "summary": None} if state == "no value" else {state: True}
    found = evaluate([parse_condition(text)], {"": [shown_as(-1, 1, **more)]}, 0.95)
    assert found.outcome is (F if text == "undecided" else E)


@pytest.mark.parametrize("text", WORDS)
def test_a_percentile_with_too_few_blocks_for_an_interval_is_inconclusive(text: str) -> None:
    bare = Estimate(-12, "%", 8, Better.LESS)
    one = shown_as(-12, -6, verdict=Verdict.UNDECIDED, percent=bare, no_interval_below=40)
    found = evaluate([parse_condition(text)], {"": [one]}, 0.95)
    assert found.outcome is (F if text == "undecided" else OPEN)
    assert {of.reason for of in found.inconclusive} <= {Reason.TOO_FEW_BLOCKS}


@pytest.mark.parametrize(
    ("text", "ends", "floor", "expected"),
    [
        ("slower", (-6, -3), 0.06, Reason.NOISE_FLOOR),
        ("faster", (-6, -3), 0.06, Reason.UNDECIDED),
        ("slower:5%", (-8, -6), 0.03, Reason.NOISE_FLOOR),
        ("slower:5%", (-4, -3), 0.03, Reason.NOISE_FLOOR),
        ("slower:5%", (-8, -6), 0.01, F),
        ("slower:5%", (-4, -3), 0.01, P),
    ],
)
def test_an_effect_near_its_limit_is_inconclusive_below_the_noise_floor(
    text: str, ends: tuple[float, float], floor: float, expected: GateOutcome | Reason
) -> None:
    more: dict[str, object] = {"floor": floor}
    if ":" not in text:
        more |= {"verdict": Verdict.UNDECIDED, "taken_back": Verdict.SLOWER}
    found = evaluate([parse_condition(text)], {"": [shown_as(*ends, **more)]}, 0.95)
    reasons_found = [one.reason for one in found.inconclusive]
    assert ([found.outcome] if isinstance(expected, GateOutcome) else reasons_found) == [expected]


@pytest.mark.parametrize("text", ["slower", "not-same", "slower:5%"])
def test_a_difference_that_is_not_significant_among_all_comparisons_is_inconclusive(text: str) -> None:
    weak = shown_as(-16, -5.1) if ":" in text else shown_as(-16, -0.1)
    alone = evaluate([parse_condition(text)], {"": [weak]}, 0.95)
    others = [shown_as(-1, 1, case=f"{n}") for n in range(9)] if ":" not in text else []
    others += [shown_as(-5.5, -4.6, case=f"{n}") for n in range(9)] if ":" in text else []
    among = evaluate([parse_condition(text)], {"": [weak, *others]}, 0.95)
    assert alone.outcome is F and among.outcome is OPEN and among.family == 10
    assert Reason.NOT_SIGNIFICANT in [one.reason for one in among.inconclusive if one.of == weak]


def test_an_interval_of_few_blocks_decides_nothing() -> None:
    few = shown_as(-12, -6, blocks=4, verdict=Verdict.UNDECIDED)
    for text in WORDS:
        expected = F if text == "undecided" else OPEN
        assert evaluate([parse_condition(text)], {"": [few]}, 0.95).outcome is expected


def test_a_failure_precedes_an_error_and_an_error_an_open_question() -> None:
    kinds = {
        F: shown_as(-12, -6, case="1"),
        E: shown_as(-1, 1, case="2", partial=True, verdict=Verdict.UNDECIDED),
        OPEN: shown_as(-15, 1.7, case="3"),
        P: shown_as(-1, 1, case="4"),
    }
    order = list(kinds)
    for first in range(len(order)):
        found = evaluate([parse_condition("slower")], {"": [kinds[one] for one in order[first:]]}, 0.95)
        assert found.outcome is order[first]


def test_json_and_the_summary_name_an_inconclusive_gate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "summary.md"
    more = ("--json", "--summary", str(file))
    assert status(tmp_path, UNDECIDED, conditions="slower slower:5%", more=more) == 4
    shown = capsys.readouterr()
    found = json.loads(matching(shown.out))["gate"]
    assert found["outcome"] == "inconclusive" and found["met"] == []
    assert [one["condition"] for one in found["inconclusive"]] == ["slower", "slower:5%"]
    assert {one["reason"] for one in found["inconclusive"]} == {"undecided"}
    assert outcome(gate_of(UNDECIDED, "slower slower:5%")) in shown.err
    assert escaped(outcome(gate_of(UNDECIDED, "slower slower:5%"))) in file.read_text()


@pytest.mark.parametrize("key", ["nopm", "server_cpu", "latency.all.p50", "latency.payment.p50"])
def test_a_gate_uses_the_interval_of_the_report(key: str) -> None:
    findings = report_of(replace(SLOWER, stops_on_verdict=True)).findings
    (comparison,) = findings.first.comparisons
    (one,) = findings.verdicts_on(key)
    assert comparison.effects[key].summary.method is Method.ANYTIME
    assert one.percent == comparison.effects[key].percent and one.percent.low is not None


DURATIONS = [
    ("--fail-if slower:5%", "budget"),
    ("--fail-if=undecided --fail-if slower:p99", "budget"),
    ("--fail-if slower --fail-if undecided", "verdict"),
    ("--fail-if slower:5% --stop verdict", "verdict"),
    ("--fail-if slower:5% --stop=verdict", "verdict"),
]


@pytest.mark.parametrize(("words", "stop"), DURATIONS)
def test_a_study_ends_at_its_verdict_only_if_the_verdict_decides_the_gate(
    tmp_path: Path, words: str, stop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    request = requested_by(f"compare 17 18 {words}", monkeypatch)
    assert request.cases[0].study.stop == stop
    assert "--stop budget" not in request.command


@pytest.mark.parametrize(
    "words", ["slower:tps", "slower:nopm --workload pgbench", "slower:median_latency:5%", "faster:capacity"]
)
def test_a_metric_that_the_load_does_not_have_is_refused_before_the_study(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "this load has no metric" in refusal(f"compare 17 18 --fail-if {words}")
    for fine in ("slower:tpm", "slower:tps --workload pgbench", "slower:median_latency --rate 50"):
        assert requested_by(f"compare 17 18 --fail-if {fine}", monkeypatch)


@pytest.mark.parametrize("text", INVALID)
def test_an_invalid_condition_is_rejected_before_the_study_starts(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run_command(["compare", "17", "18", "--fail-if", text, "--evidence", str(tmp_path / "e.sqlite")]) == 2
    )
    assert not list(tmp_path.iterdir())
    assert capsys.readouterr().err.count("\n") == 1


def test_json_has_the_verdicts_and_the_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(tmp_path, SLOWER, conditions="slower undecided", more=("--json",)) == 3
    found = json.loads(matching(capsys.readouterr().out))
    (verdict,) = found["verdicts"]
    assert (verdict["arm"], verdict["baseline"], verdict["metric"]) == ("18", "17", "nopm")
    (comparison,) = case_in(found)["comparisons"]
    assert verdict["verdict"] == "slower" == comparison["verdict"]
    assert verdict["percent"] == comparison["effects"]["nopm"]["percent"]
    assert found["gate"]["outcome"] == "failed" and found["gate"]["conditions"] == ["slower", "undecided"]
    (met,) = found["gate"]["met"]
    assert met["condition"] == "slower" and met["of"] == verdict
    assert found["sentences"][""]["gate"]
    assert run_command(["report", str(tmp_path / "e.sqlite"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gate"] is None


def test_json_names_what_could_not_be_evaluated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for wanted, has_value in ((SOME_STALLED, True), (NO_TRIAL, False)):
        assert status(tmp_path, wanted, "slower:p99 slower:average", ("--json",)) == 1
        found = json.loads(matching(capsys.readouterr().out))["gate"]["not_evaluable"]
        assert [(one["condition"], one["of"]["case"], one["of"]["arm"]) for one in found] == [
            ("slower:p99", "clients 9", "18"),
            ("slower:average", "average", "18"),
        ]
        assert all(bool(one["of"]["percent"]) == has_value for one in found)


def test_a_failure_counts_against_the_arm_that_failed_only() -> None:
    three = Synthetic(effects=(1.0, 1.1, 1.2), names=("17", "18", "18,fsync=off"), blocks=8)
    failed = {(3, arm): TrialStatus.FAILED for arm in range(3)}
    crashed = replace(three, statuses=failed, stopped_by={(3, 0): "18", (3, 2): "18"})
    (findings,) = report_of(crashed).findings.cases
    assert [one.verdict for one in findings.comparisons] == [Verdict.UNDECIDED, Verdict.FASTER]
    assert [one.failed for one in findings.comparisons] == [[3], []]
    lost = [of.parameters["arm"] for of in findings.caveats if of.kind == "blocks-lost-by-failure"]
    assert lost == ["18"]


def test_a_gate_does_not_pass_if_an_arm_stalled_on_one_of_several_hosts_or_has_no_value(
    tmp_path: Path,
) -> None:
    of_first = [replace(SAME, levels={"clients": f"{c}"}, seed=c) for c in (2, 4)]
    findings = read_hosts(
        on_hosts(tmp_path, of_first, [of_first[0], replace(of_first[1], stalled=[(1, 1)])])
    ).findings
    for condition, place in (("slower", "clients 4"), ("slower:average", "average")):
        found = gate(findings, [parse_condition(condition)])
        assert found.outcome is E and places(found)[1] == [(condition, place, "18")]
    single = [of_first[0], replace(of_first[1], warm_up_times={7: 2})]
    findings = read_hosts(on_hosts(tmp_path, of_first, single)).findings
    assert gate(findings, [parse_condition("slower:average")]).outcome is E
    lost = {(block, 2): TrialStatus.EXCLUDED for block in range(8)}
    wanted = replace(SAME, effects=(1, 1, 1), names=("16", "17", "18"), statuses=lost)
    found = gate(read_hosts(on_hosts(tmp_path, wanted, wanted)).findings, [parse_condition("slower")])
    assert found.outcome is E and places(found)[1] == [("slower", "", "18")]
    assert (found.lost, found.trials) == (16, 48)


def test_a_comparison_of_two_conditions_is_in_the_family_once() -> None:
    findings = report_of(SLOWER).findings
    families = [
        gate(findings, [GateCondition(GateWord.SLOWER), parse_condition(text)]).family
        for text in ("slower:nopm", "slower:average", "slower:p99")
    ]
    assert families == [1, 1, 2]


def test_one_slower_case_of_many_fails_the_gate() -> None:
    found = gate_of([*CASES[:2], replace(CASES[2], effects=(1, 1, 0.8)), *CASES[3:]], "slower")
    assert found.outcome is F and places(found) == ([("slower", "clients 3", "C")], [])


def test_a_gate_on_several_hosts_uses_the_pooled_verdict(tmp_path: Path) -> None:
    alike = on_hosts(tmp_path, *[replace(SLOWER, noise=0.002)] * 3)
    unlike = on_hosts(tmp_path, *(replace(SAME, effects=(1, 0.95 + 0.04 * n)) for n in range(4)))
    for paths, condition, expected in (
        (alike, "slower:server_cpu", 3),
        (unlike, "slower", 4),
        (unlike, "slower:30%", 0),
        (unlike, "undecided", 3),
    ):
        assert run_command(["report", *map(str, paths), "--fail-if", condition]) == expected
    built = read_hosts(alike)
    found = gate(built.findings, [GateCondition(GateWord.SLOWER), GateCondition(GateWord.FASTER)])
    assert [of.condition.word for of in found.met] == [GateWord.SLOWER]
    assert "18 vs. 17 | slower" in summary_of(built, found).partition("<details>")[0]


def of_ratios(rng: np.random.Generator, effects: np.ndarray, blocks: int, sd: float) -> list[MetricVerdict]:
    """Comparisons of shape cases × arms, computed by the functions of a study."""
    found = []
    for case, of_arms in enumerate(effects):
        values = [{b: (1.0, float(np.exp(d + rng.normal(0, sd)))) for b in range(blocks)} for d in of_arms]
        of_case = effects_by_arm(len(of_arms), {"nopm": values}, [NOPM], 0.95, Method.STUDENT)
        for arm, of in enumerate(of_case):
            effect = of["nopm"]
            verdict = judge(effect.summary, 0.002)
            known = (verdict, effect.percent, effect.summary, blocks)
            found.append(MetricVerdict(f"{case}", "A", f"{arm}", "", "NOPM", *known))
    return found


def test_a_gate_limits_the_false_alarms_over_cases_and_arms() -> None:
    """If no arm differs, a gate on faster or slower fails in at most 5% of the studies.

    The bound of 200 studies with 5 cases and 2 arms is exceeded in 1 of 1000 such tests.
    """
    rng, studies = np.random.default_rng(5), 200
    conditions = [GateCondition(GateWord.SLOWER), GateCondition(GateWord.FASTER)]
    gates = [
        evaluate(conditions, {"": of_ratios(rng, np.zeros((5, 2)), 6, 0.03)}, 0.95) for _ in range(studies)
    ]
    alarms = sum(of.outcome is GateOutcome.FAILED for of in gates)
    assert alarms <= scipy.stats.binom.ppf(0.999, studies, 0.05)
    # Without the correction there would be more false alarms.
    alone = sum(
        bool(of.met) or any(one.reason is Reason.NOT_SIGNIFICANT for one in of.inconclusive) for of in gates
    )
    assert alone > scipy.stats.binom.ppf(0.999, studies, 0.05)
    assert all(of.family == 10 for of in gates)


def test_a_difference_in_one_case_of_many_is_found() -> None:
    rng = np.random.default_rng(6)
    effects = np.zeros((5, 2))
    effects[3, 1] = -0.2
    gates = [
        evaluate([GateCondition(GateWord.SLOWER)], {"": of_ratios(rng, effects, 6, 0.03)}, 0.95)
        for _ in range(40)
    ]
    assert sum(any(of.of.case == "3" for of in one.met) for one in gates) >= 38


CAVEATS = (
    Caveat.of("shared-machine", cores=2),
    Caveat.of("debug-server", arm="18", flags="--enable-cassert"),
)


def test_the_summary_collapses_tables_and_less_serious_caveats(tmp_path: Path) -> None:
    file = tmp_path / "summary.md"
    file.write_text("of an earlier step\n")
    wanted = replace(SLOWER, caveats=CAVEATS)
    assert status(tmp_path, wanted, conditions="slower", more=("--summary", str(file))) == 3
    text = file.read_text().replace("\u00a0", " ")
    assert text.startswith("of an earlier step\n## ")
    shown, _, collapsed = text.partition("<details>")
    less_serious, most_serious = (caveat.text for caveat in CAVEATS)
    assert outcome(gate_of(wanted, "slower")) in shown
    assert "| 18 vs. 17 | slower |" in shown and "e.sqlite" in shown
    assert most_serious in shown and less_serious not in shown
    assert less_serious in collapsed and "pgdyno compare 17 18" in collapsed
    assert text.count("<details>") == text.count("</details>")
    # GitHub interprets the following lines as Markdown only after an empty line.
    assert all(part.startswith("\n\n") for part in text.split("</summary>")[1:])
    assert max(ord(letter) for letter in text) < 0x2600  # no pictures


NOISE = {
    "aa-differs": {"effect": "+5%", "interval": "[+3%, +7%]", "aa_blocks": 6, "alarm": "5%"},
    "under-noise-floor": {
        "arm": "18", "baseline": "17", "effect": "+5%", "floor": "6%", "aa_blocks": 6,
    },
}  # fmt: skip


@pytest.mark.parametrize("code", NOISE)
def test_a_caveat_about_noise_is_the_most_serious_one(code: str) -> None:
    caveat = Caveat.of(code, **NOISE[code])
    shown = summary_of(report_of(replace(SLOWER, caveats=(*CAVEATS, caveat)))).partition("<details>")[0]
    assert escaped(caveat.text) in shown
    assert not any(escaped(other.text) in shown for other in CAVEATS)


def test_the_summary_is_written_to_the_file_of_the_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_study(tmp_path / "e.sqlite", SAME)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "step.md"))
    assert run_command(["report", str(tmp_path / "e.sqlite"), "--summary", "auto"]) == 0
    assert "| 18 vs. 17 | same |" in (tmp_path / "step.md").read_text()
    with (tmp_path / "open.md").open("w") as open_file:
        through = f"/dev/fd/{open_file.fileno()}"
        assert run_command(["report", str(tmp_path / "e.sqlite"), "--summary", through]) == 0
    assert (tmp_path / "open.md").read_text() == (tmp_path / "step.md").read_text()
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    assert run_command(["report", str(tmp_path / "e.sqlite"), "--summary", "auto"]) == 2
    assert (
        run_command(["report", str(tmp_path / "e.sqlite"), "--summary", str(tmp_path / "no" / "where")]) == 2
    )


def test_names_are_escaped_in_the_summary() -> None:
    built = report_of(replace(SLOWER, names=("17", HOSTILE), title=HOSTILE))
    text = summary_of(built, gate(built.findings, [GateCondition(GateWord.SLOWER)]), [HOSTILE])
    body = text[: text.index("<details><summary>How to repeat it")]
    assert "<script" not in body.replace("\\<script", "")


def test_many_cases_do_not_make_the_summary_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(section, "ROWS_MAX", 4)
    text = summary_of(report_of(*(replace(case, blocks=1) for case in CASES)))
    assert text.partition("<details>")[0].count("\n| clients") == 4


def test_the_page_about_gates_has_existing_options_and_conditions() -> None:
    page = (Path(__file__).parents[1] / "README.md").read_text()
    options = (Path(__file__).parents[5] / "docs" / "reference" / "cli.md").read_text()
    own = page.replace("--prefix", "")  # an option of the configure script
    assert not {name for name in re.findall(r"--[a-z-]+", own) if name not in options}
    for text in re.findall(r"`((?:slower|faster|not-same|undecided)(?::[\w.%]+)*)`", page):
        parse_condition(text)
    first_cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert {word for cell in first_cells for word in re.findall(r"`([a-z-]+)`", cell)} >= {*GateWord}


@pytest.mark.parametrize(
    ("wanted", "ending", "expected"),
    [
        (SLOWER, StudyEnd.BLOCKS, 3),
        (FASTER, StudyEnd.BUDGET, 0),
        (UNDECIDED, StudyEnd.BLOCKS, 4),
        (SLOWER, StudyEnd.INTERRUPTED, 130),
        (SLOWER, StudyEnd.FAILED, 1),
        (NO_BLOCK, StudyEnd.BLOCKS, 1),
    ],
)
def test_a_gate_on_a_new_study_is_evaluated_after_all_files_are_written(
    tmp_path: Path,
    wanted: Synthetic,
    ending: StudyEnd,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(study_runner, "resume_study", lambda *_: ending)
    path, summary = tmp_path / "e.sqlite", tmp_path / "summary.md"
    write_study(path, wanted)
    asked = ["--fail-if", "slower", "--summary", str(summary)]
    assert run_command(["compare", "--resume", str(path), "--quiet", *asked]) == expected
    assert path.with_suffix(".html").exists() and "18 vs. 17" in summary.read_text()
    shown = capsys.readouterr()
    assert "All tables: pgdyno report" in shown.out
    assert (outcome(gate_of(wanted, "slower")) in shown.err) == (ending is StudyEnd.BLOCKS)
