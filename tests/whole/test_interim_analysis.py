"""Interim analysis after a block: the same numbers as in the report, for the progress display."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from report_forms import report_of
from synthetic_study import Synthetic, written_study

from example_studies import make_study
from pgdyno.analysis import comparison as comparing
from pgdyno.analysis.comparison import Verdict
from pgdyno.analysis.measurement_noise import interim_result
from pgdyno.analysis.statistics.intervals import Method, student
from pgdyno.analysis.steady_state import Rise, WarmUpBias, trending
from pgdyno.analysis.study_findings import StudyFindings
from pgdyno.caveats import Caveat
from pgdyno.cli.report import read_report
from pgdyno.features.gates.conditions import GateOutcome, gate, parse_condition
from pgdyno.measure.progress import InterimVerdicts, Progress
from pgdyno.measure.study_runner import Budget, interim_analysis_of
from pgdyno.measure.trial import Lab
from pgdyno.report.answer import case_report
from pgdyno.results.reader import Evidence
from pgdyno.results.records import StudyEnd, TrialStatus
from pgdyno.study.cases import UNLIMITED_S

STOPPING = Synthetic(stops_on_verdict=True, ended=StudyEnd.VERDICT)


def found_in(*cases: Synthetic) -> StudyFindings:
    return report_of(*cases).findings


@pytest.mark.parametrize(
    "wanted",
    [
        STOPPING,
        Synthetic(stops_on_verdict=True, effects=(1.0, 1.0, 0.97), names=("17", "18", "19"), noise=0.03),
        Synthetic(stops_on_verdict=True, fixed_rate_per_s=500.0),
        Synthetic(stops_on_verdict=True, blocks=4),
        Synthetic(stops_on_verdict=True, cold=(0.0, 0.3)),
        Synthetic(stops_on_verdict=True, capacity="p99 < 25ms", latencies=(1.0, 90.0), slices=1),
    ],
    ids=["two arms", "three arms", "a fixed rate", "few blocks", "an arm still warms up", "a missed limit"],
)
def test_an_interim_analysis_has_the_numbers_of_the_report(wanted: Synthetic) -> None:
    reported = found_in(wanted).first.comparisons
    with Evidence(written_study(wanted)) as evidence:
        seen = interim_result(evidence, 0)
    assert [(of.primary, of.decision) for of in seen.comparisons] == [
        (of.primary, of.decision) for of in reported
    ]
    assert seen.is_decided == all(of.verdict is not Verdict.UNDECIDED and not of.may_trend for of in reported)


def test_an_effect_with_a_trend_in_the_windows_is_undecided_with_a_reason() -> None:
    for cold, is_trending in (((0.0, 0.3), True), ((0.3, 0.3), False)):
        found = found_in(replace(STOPPING, effects=(1.0, 1.3), cold=cold)).first
        (comparison,) = found.comparisons
        assert comparison.is_trending == comparison.is_held_back == is_trending
        assert (comparison.verdict is Verdict.UNDECIDED) == is_trending
        assert ("effect-trend" in {caveat.kind for caveat in found.caveats}) == is_trending
        # The window of 4 s is too short, and so is the budget for eight blocks of 60 s.
        remedy = "Longer windows may decide: --window 60s --minutes 20."
        assert (remedy in case_report(found).headlines[0].more) == is_trending
        of_two_cases = case_report(replace(found, cases=2)).headlines[0].more
        assert (remedy.replace("20", "40") in of_two_cases) == is_trending
        without_end = found.study.plan.model_copy(update={"budget_s": UNLIMITED_S})
        of_repeats = case_report(replace(found, study=replace(found.study, plan=without_end)))
        assert (remedy in of_repeats.headlines[0].more) == is_trending


@pytest.mark.parametrize(("effect", "is_trending"), [(50.0, False), (0.02, False), (1.5, True), (0.7, True)])
def test_a_trend_that_cannot_reverse_an_effect_holds_back_no_verdict(
    effect: float, is_trending: bool
) -> None:
    found = found_in(replace(STOPPING, effects=(1.0, effect), cold=(0.0, 0.15), noise=0.01)).first
    (comparison,) = found.comparisons
    trend = found.steady_states[1].effect_trend
    assert trend is not None and trend.p_value is not None and trend.p_value < 1e-3
    assert comparison.is_trending == trending([None, trend], 0.02)[1] == is_trending
    decided = Verdict.FASTER if effect > 1 else Verdict.SLOWER
    assert comparison.verdict is (Verdict.UNDECIDED if is_trending else decided)


def test_a_warm_up_is_extended_only_if_a_trend_is_surer_than_what_holds_back_a_verdict() -> None:
    for blocks, is_sure in ((5, False), (12, True)):
        with Evidence(written_study(replace(STOPPING, blocks=blocks, cold=(0.0, 0.1)))) as evidence:
            found = interim_result(evidence, 0)
        assert found.comparisons[0].verdict is Verdict.UNDECIDED and found.comparisons[0].is_trending
        assert found.extends_warm_up == is_sure


def test_blocks_before_the_longest_warm_up_do_not_count() -> None:
    extended = replace(STOPPING, slices=10, warm_up_times={5: 2, **dict.fromkeys(range(6, 12), 4)})
    found = found_in(extended).first
    superseded = {one.block for one in found.trials if one.status is TrialStatus.SUPERSEDED}
    assert superseded == set(range(6))
    assert list(found.comparisons[0].blocks) == list(range(6, 12))
    assert found.comparisons[0].verdict is not Verdict.UNDECIDED
    assert found.caveats.count(Caveat.of("warm-up-extended", longest="12 s", blocks=6)) == 1


def test_an_interrupted_block_with_a_longer_warm_up_supersedes_nothing() -> None:
    statuses = {(11, arm): TrialStatus.INTERRUPTED for arm in (0, 1)}
    extended = replace(STOPPING, blocks=12, warm_up_times={11: 2}, statuses=statuses)
    (comparison,) = found_in(extended).first.comparisons
    assert list(comparison.blocks) == list(range(11))


def test_an_effect_of_arms_that_still_rise_differently_has_no_verdict_and_a_caveat() -> None:
    for cold, is_biased in (((0.4, 0.0), True), ((0.4, 0.4), False)):
        found = found_in(replace(STOPPING, slices=10, effects=(1.0, 1.1), cold=cold)).first
        (comparison,) = found.comparisons
        assert (comparison.verdict is Verdict.UNDECIDED) == is_biased
        assert ("warm-up-bias" in {caveat.kind for caveat in found.caveats}) == is_biased


def test_a_bias_whose_rise_does_not_end_in_the_windows_is_given_by_its_limit() -> None:
    bias = WarmUpBias(0.009, 0.05, Rise(0.1, 2.0), Rise(0.2, 2.0), p_value=1e-6, window_s=4.0, load_s=7.0)
    assert bias.text == "+0.9%"
    begun = replace(bias, load_s=4.0)  # lacks 4.4 and 9.0% as log ratios; twice their sum and error is 0.37
    assert begun.text == "up to 45%"


def test_a_verdict_that_differs_at_the_final_rates_is_held_back_also_by_a_small_bias(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alike = Synthetic(effects=(1.0, 1.0), blocks=8, noise=0.004)
    conditions = [parse_condition("slower:5%")]
    assert found_in(alike).first.comparisons[0].verdict is Verdict.SAME
    assert gate(found_in(alike), conditions).outcome is GateOutcome.PASSED
    bias = WarmUpBias(0.009, 0.05, Rise(0.1, 2.0), Rise(0.2, 2.0), p_value=1e-6, window_s=4.0, load_s=7.0)
    assert not bias.exceeds(alike.margin)
    monkeypatch.setattr(comparing, "warm_up_biases", lambda *_: [None, bias])
    findings = read_report(written_study(alike)).findings
    assert findings.first.comparisons[0].is_held_back
    assert "warm-up-bias" in {caveat.kind for caveat in findings.first.caveats}
    more = case_report(findings.first).headlines[0].more
    assert "depends on the length of the warm-up" in more and "more block" not in more
    assert gate(findings, conditions).outcome is GateOutcome.NOT_EVALUABLE
    with Evidence(written_study(alike)) as evidence:
        seen = interim_result(evidence, 0)
    assert not seen.is_decided and not seen.extends_warm_up


def test_a_study_continues_while_an_effect_may_change_within_the_windows() -> None:
    slightly = replace(STOPPING, effects=(1.0, 1.3), cold=(0.0, 0.04))
    (comparison,) = found_in(slightly).first.comparisons
    assert comparison.verdict is Verdict.FASTER and comparison.may_trend
    with Evidence(written_study(slightly)) as evidence:
        assert not interim_result(evidence, 0).is_decided


def test_a_failure_before_the_longest_warm_up_still_withholds_the_verdict() -> None:
    extended = replace(
        STOPPING,
        warm_up_times=dict.fromkeys(range(6, 12), 2),
        blocks=12,
        statuses={(2, 1): TrialStatus.FAILED},
    )
    (comparison,) = found_in(extended).first.comparisons
    assert comparison.failed == [2] and comparison.verdict is Verdict.UNDECIDED


def test_a_failure_prevents_every_verdict_from_the_fifth_block_on() -> None:
    failed = {(1, 1): TrialStatus.FAILED, (3, 1): TrialStatus.EXCLUDED, (2, 0): TrialStatus.INTERRUPTED}
    for blocks, is_lost in ((4, False), (5, True)):
        with Evidence(written_study(replace(STOPPING, blocks=blocks, statuses=failed))) as evidence:
            found = interim_result(evidence, 0)
        assert (found.is_lost, found.is_decided) == (is_lost, False)
    (failures,) = found.comparisons[0].failures.values()
    assert (failures.count, failures.n) == (2, 5)
    with Evidence(written_study(STOPPING)) as evidence:
        assert not interim_result(evidence, 0).is_lost


def test_each_case_has_its_own_interim_analyses() -> None:
    clear = Synthetic(stops_on_verdict=True, slices=10, seed=2, levels={"clients": "1"})
    noisy = Synthetic(stops_on_verdict=True, levels={"clients": "8"}, effects=(1.0, 1.03), noise=0.2)
    look = interim_analysis_of(written_study(clear, noisy))
    said: list[Progress] = []
    labs = [cast(Lab, SimpleNamespace(case=case, watch=said.append, study=make_study())) for case in (0, 1)]
    budget = Budget(600.0, 240.0, {0: 20.0, 1: 12.0})
    assert [look(lab, budget).is_decided for lab in labs] == [True, False]
    decided, undecided = (cast(InterimVerdicts, one).standings[0] for one in said)
    assert (decided.verdict, decided.blocks_needed) == (Verdict.FASTER, None)
    assert undecided.verdict is Verdict.UNDECIDED and (undecided.blocks_needed or 0) > 0
    assert decided.forecast is None and undecided.forecast is not None
    assert [cast(InterimVerdicts, one).block_s for one in said] == [20.0, 12.0]


def test_the_forecast_has_the_blocks_that_are_left_whatever_was_superseded() -> None:
    noisy = Synthetic(stops_on_verdict=True, effects=(1.0, 1.03), noise=0.02, blocks=12)
    path = written_study(replace(noisy, warm_up_times=dict.fromkeys(range(6, 12), 2)))
    said: list[Progress] = []
    study = make_study(blocks_max=12)
    lab = cast(Lab, SimpleNamespace(case=0, watch=said.append, study=study))
    for left in ({0: 0}, {0: 400}):
        interim_analysis_of(path)(lab, Budget(10_000.0, 240.0, {0: 20.0}, left))
    none_left, many_left = (cast(InterimVerdicts, one).standings[0].forecast for one in said)
    assert none_left is not None and many_left is not None
    assert none_left.probability == 0 < many_left.probability


def test_every_metric_of_a_study_that_stops_on_its_verdict_has_the_wider_interval() -> None:
    comparison = found_in(STOPPING).first.comparisons[0]
    assert {of.summary.method for of in comparison.effects.values() if of.summary.low is not None} == {
        Method.ANYTIME
    }
    primary = comparison.primary
    assert primary is not None and primary.summary.low is not None
    once = student(list(primary.log_ratios.values()), 0.95)
    assert once.low is not None
    assert primary.summary.mean - primary.summary.low > 1.4 * (once.mean - once.low)


def test_the_average_over_the_cases_has_it_too() -> None:
    cases = [
        Synthetic(stops_on_verdict=True, levels={"clients": n}, blocks=6, seed=int(n)) for n in ("1", "8")
    ]
    average = found_in(*cases).over_cases[0].average
    assert average is not None and average.summary.method is Method.ANYTIME


def test_an_undecided_study_reports_the_number_of_blocks_needed_by_its_interval() -> None:
    wanted = Synthetic(effects=(1.0, 1.03), noise=0.03, blocks=8)
    needed = {}
    for stops in (True, False):
        of = Synthetic(**{**vars(wanted), "stops_on_verdict": stops})
        decision = found_in(of).first.comparisons[0].decision
        assert decision is not None and decision.detectable_percent is not None
        needed[stops] = (decision.blocks_needed or 0, decision.detectable_percent)
    assert needed[True][0] > needed[False][0] and needed[True][1] > 1.3 * needed[False][1]
