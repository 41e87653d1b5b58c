"""Findings from a results file: included and excluded data, caveats, and their tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from report_forms import report_of, summarized
from synthetic_study import (
    SKIPPED_AFTER_NS,
    Synthetic,
    arms_of,
    study_of,
    write_block,
    write_study,
    written_study,
)

from pgdyno.analysis import comparison_caveats
from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.comparison import Verdict
from pgdyno.analysis.statistics.pooled_quantiles import BLOCKS_MIN
from pgdyno.analysis.study_findings import find_study
from pgdyno.analysis.telemetry.metrics import ALL_KINDS, NOPM, TPM, latency_key
from pgdyno.analysis.telemetry.percentiles import Latencies
from pgdyno.caveats import Caveat
from pgdyno.cli.report import read_findings
from pgdyno.report.result_tables import checks, latency_changes
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Check, Counts, Slice, TrialStatus
from pgdyno.results.writer import Writer
from pgdyno.study.defaults import Schedule
from pgdyno.study.plan import Rate
from pgdyno.study.schedule import Role


def findings_of(wanted: Synthetic) -> Findings:
    return read_findings(written_study(wanted)).first


def codes(findings: Findings) -> set[str]:
    return {caveat.kind for caveat in findings.caveats}


def test_an_effect_that_is_there_is_found() -> None:
    (comparison,) = findings_of(Synthetic(effects=(1.0, 1.10))).comparisons
    assert comparison.verdict is Verdict.FASTER
    assert comparison.primary is not None and comparison.primary.key == NOPM.key
    percent = comparison.primary.percent
    assert percent.low is not None and percent.high is not None and percent.low < 10 < percent.high
    assert comparison.effects["server_cpu"].percent.value < -5
    assert comparison.effects[latency_key("payment", "p99")].percent.value < -5


def test_drift_between_blocks_cancels_in_the_effect() -> None:
    findings = findings_of(Synthetic(noise=0.003, slices=10))
    primary, level = findings.comparisons[0].primary, findings.arms[0].levels["nopm"]
    assert primary is not None and primary.percent.low is not None and primary.percent.high is not None
    assert level is not None and level.low is not None and level.high is not None
    effect_width = (primary.percent.high - primary.percent.low) / 100
    assert effect_width < 0.2 * (level.high - level.low) / level.value


def test_a_failed_trial_excludes_its_block_from_the_comparison() -> None:
    statuses = {(1, 1): TrialStatus.EXCLUDED, (2, 1): TrialStatus.FAILED, (3, 1): TrialStatus.INTERRUPTED}
    findings = findings_of(Synthetic(blocks=6, statuses=statuses))
    (comparison,) = findings.comparisons
    assert (comparison.blocks, comparison.dropped) == ([0, 4, 5], [1, 2, 3])
    assert [of.trials_by_status[TrialStatus.OK] for of in findings.arms] == [6, 3]
    assert {"checks-failed-trials-excluded", "trials-failed", "interrupted"} <= codes(findings)


def test_the_reason_of_an_exclusion_contains_the_server_log() -> None:
    findings = findings_of(Synthetic(blocks=2, statuses={(0, 1): TrialStatus.EXCLUDED}))
    log_error = "ERROR: No space left on device (make room)"
    trials = [replace(trial, log_error=log_error) if trial.reason else trial for trial in findings.trials]
    (caveat,) = comparison_caveats._trial_caveats([of.arm for of in findings.arms], trials)
    assert caveat.parameters["checks"] == "condition 1: ERROR: No space left on device (make room)"


def test_an_excluded_baseline_excludes_its_block_from_every_comparison() -> None:
    wanted = Synthetic(
        effects=(1, 1.05, 0.95),
        names=("17", "18", "16"),
        blocks=6,
        statuses={(0, 0): TrialStatus.EXCLUDED, (1, 2): TrialStatus.EXCLUDED},
    )
    first, second = findings_of(wanted).comparisons
    assert (first.dropped, second.dropped) == ([0], [0, 1])


def test_the_last_attempt_counts(tmp_path: Path) -> None:
    wanted = Synthetic(blocks=6, statuses={(5, 0): TrialStatus.INTERRUPTED, (5, 1): TrialStatus.INTERRUPTED})
    write_study(tmp_path / "e", wanted)
    with Writer.resume(tmp_path / "e") as writer:
        write_block(writer, replace(wanted, statuses={}), 5, np.random.default_rng(4))
    with Evidence(tmp_path / "e") as evidence:
        findings = find_study(evidence).first
    assert findings.comparisons[0].blocks == [0, 1, 2, 3, 4, 5]
    assert "interrupted" not in codes(findings)


def test_a_study_without_a_finished_block_is_undecided() -> None:
    (comparison,) = findings_of(Synthetic(blocks=0, ended=None)).comparisons
    assert (comparison.verdict, comparison.primary, comparison.blocks) == (Verdict.UNDECIDED, None, [])


@pytest.mark.parametrize(
    ("wanted", "raised"),
    [
        (Synthetic(blocks=4, unsafe_arms=(1,)), {"few-blocks", "unsafe-settings"}),
        (Synthetic(blocks=4, failed_per_slice=100), {"failures-over-share"}),
        (Synthetic(blocks=4, schedule=Schedule.SEQUENTIAL), {"sequential"}),
        (Synthetic(blocks=4, schedule=Schedule.DUET), {"duet"}),
        (Synthetic(blocks=4, rate_per_s=100.0), {"slices-too-short"}),
    ],
)
def test_the_caveats_that_follow_from_the_evidence_are_raised(wanted: Synthetic, raised: set[str]) -> None:
    assert raised <= codes(findings_of(wanted))


def test_a_valid_study_raises_no_caveat_except_that_of_its_load() -> None:
    findings = findings_of(Synthetic(slices=10))
    assert codes(findings) == {"no-keying-and-thinking"}


def test_a_stored_caveat_replaces_the_computed_ones_of_its_kind() -> None:
    stored = Caveat.of("failures-over-share", arm="18", share="9 %", limit="1 %")
    mix = Caveat.of("not-tpcc-mix", mix="payment=1")
    findings = findings_of(Synthetic(blocks=5, failed_per_slice=100, caveats=(stored, mix)))
    assert [c for c in findings.caveats if c.kind == "failures-over-share"] == [stored]
    assert {"not-tpcc-mix", "no-keying-and-thinking"} <= codes(findings)


def test_a_debug_engine_and_a_fixed_load_are_caveats(tmp_path: Path) -> None:
    wanted = Synthetic()
    study = study_of(wanted)
    plan = study.plan.model_copy(update={"rate": Rate(per_s=500.0)})
    study = replace(study, engine={"profile": "debug"}, plan=plan)
    Writer.create(tmp_path / "e", study, arms_of(wanted)).close()
    with Evidence(tmp_path / "e") as evidence:
        found = codes(find_study(evidence).first)
    assert {"debug-engine", "throughput-fixed"} <= found
    assert "no-keying-and-thinking" not in found


def piece(position: int, new_orders: int, rolled_back: int, payments: int) -> Slice:
    kinds = {
        "new_order": Counts(ok=new_orders, rolled_back=rolled_back, failed=9),
        "payment": Counts(payments),
    }
    return Slice(
        position, Role.MEASURE, position, position + 0.5, position + 2.0, position + 2.1, 0, 0, kinds
    )


def test_nopm_counts_committed_new_orders_and_tpm_everything_that_ended_as_designed(tmp_path: Path) -> None:
    write_study(tmp_path / "e", Synthetic(blocks=1))
    with Evidence(tmp_path / "e") as evidence:
        trial = evidence.trials()[0]
    slices = [piece(0, 100, 1, 99), piece(2, 140, 2, 138)]  # 3 s counted
    assert NOPM.value(trial, slices) == pytest.approx(60 * 240 / 3)
    assert TPM.value(trial, slices) == pytest.approx(60 * (240 + 3 + 237) / 3)
    assert NOPM.value(trial, []) is None


def test_a_slice_without_its_pair_is_omitted_from_the_ratio(tmp_path: Path) -> None:
    wanted = Synthetic(blocks=1, slices=2)
    with Writer.create(tmp_path / "e", study_of(wanted), arms_of(wanted)) as writer:
        rng = np.random.default_rng(2)
        write_block(writer, wanted, 0, rng)
        extra = writer._connection.execute("SELECT trial FROM trial WHERE arm = 0").fetchone()[0]
        writer.add_slice(extra, piece(100, 1, 0, 1))  # an interrupted round: hardly any transactions
    with Evidence(tmp_path / "e") as evidence:
        primary = find_study(evidence).first.comparisons[0].primary
    assert primary is not None and abs(primary.percent.value) < 20


def test_there_is_no_verdict_if_an_arm_has_no_transactions_in_a_block() -> None:
    wanted = Synthetic(effects=(1.0, 1.10), blocks=7, stalled={(3, 1)})
    findings = findings_of(wanted)
    (comparison,) = findings.comparisons
    assert (comparison.stalled, len(comparison.blocks)) == ([3], 6)
    assert comparison.verdict is Verdict.UNDECIDED
    assert "nothing-done" in codes(findings)


P99 = latency_key(ALL_KINDS, "p99")


def test_a_tail_percentile_of_few_blocks_has_a_value_over_all_blocks_and_no_interval() -> None:
    findings = findings_of(Synthetic(blocks=8, slowed={(2, 1): 0.1}))
    effects = findings.comparisons[0].effects
    p50, p99 = effects[latency_key(ALL_KINDS, "p50")], effects[P99]
    assert p50.percent.low is not None and p50.no_interval_below is None
    assert (p99.percent.low, p99.percent.high, p99.summary.p_value) == (None, None, None)
    assert (p99.percent.n, p99.no_interval_below) == (8, BLOCKS_MIN)
    a, b = (of.quantiles_ms(ALL_KINDS)["p99"] for of in findings.arms)
    assert a is not None and b is not None
    assert p99.percent.value == pytest.approx(100 * (b.value / a.value - 1))
    table = latency_changes(findings)
    assert "[" in table.rows[-1][2] and "[" not in table.rows[-1][5]
    assert f"no interval below {BLOCKS_MIN} blocks. 8 blocks can miss an event" in table.note
    assert "fewer than 31% of the blocks (probability above 5%)" in table.note


def test_a_tail_percentile_of_many_blocks_has_an_interval_in_both_directions() -> None:
    findings = findings_of(Synthetic(effects=(1.0, 1.2), blocks=BLOCKS_MIN, slices=2))
    p99 = findings.comparisons[0].effects[P99]
    assert p99.no_interval_below is None and p99.percent.low is not None and p99.percent.high is not None
    assert p99.percent.low < p99.percent.value < p99.percent.high < 0
    assert p99.summary.p_value is not None and p99.summary.p_value < 0.05
    assert "[" in latency_changes(findings).rows[-1][5]


def overloaded(share: float) -> Synthetic:
    """A fixed rate at which the second arm does not send this share of its arrivals."""
    return Synthetic(blocks=7, fixed_rate_per_s=3000.0, skipped=(0.0, share))


def test_skipped_arrivals_count_as_longer_than_every_latency() -> None:
    """20% are skipped: the median is the 62.5th percentile of the answered ones, and p90 is unknown."""
    findings = findings_of(overloaded(0.2))
    of = findings.arms[1].latency[ALL_KINDS]
    p50, p90 = of.quantile_ms(0.5), of.quantile_ms(0.9)
    assert p50 == pytest.approx(Latencies(of.answered).quantile_ms(0.625), rel=0.01)
    assert p90 == (SKIPPED_AFTER_NS / 1e6, True)
    (comparison,) = findings.comparisons
    # The baseline has no skipped arrivals: the effect is that of the median of all.
    assert comparison.censored == [] and comparison.verdict is Verdict.SLOWER
    assert latency_key(ALL_KINDS, "p50") in comparison.effects
    assert latency_key(ALL_KINDS, "p90") not in comparison.effects
    assert "arrivals-skipped" in codes(findings)
    assert "median-not-observed" not in codes(findings)


def test_a_median_with_only_a_known_bound_gives_no_verdict() -> None:
    findings = findings_of(overloaded(0.6))
    (comparison,) = findings.comparisons
    assert (comparison.primary, comparison.censored, comparison.stalled) == (None, list(range(7)), [])
    assert comparison.verdict is Verdict.UNDECIDED
    assert {"arrivals-skipped", "median-not-observed"} <= set(codes(findings))
    of = findings.arms[1]
    assert of.levels["median_latency"] is None
    assert of.bounds == {"median_latency": pytest.approx(SKIPPED_AFTER_NS / 1e6)}
    assert findings.arms[0].bounds == {}


def test_the_mean_latency_of_an_overloaded_arm_is_not_divided_into_parts() -> None:
    few = replace(overloaded(0.001), probed=True, blocks=2)
    assert findings_of(few).time_breakdowns
    assert not findings_of(replace(overloaded(0.2), probed=True, blocks=2)).time_breakdowns


@pytest.mark.parametrize(("share", "is_caveat"), [(0.009, False), (0.011, True)])
def test_a_few_skipped_arrivals_raise_no_caveat(share: float, is_caveat: bool) -> None:
    assert ("arrivals-skipped" in codes(findings_of(overloaded(share)))) == is_caveat


def test_only_autocorrelated_blocks_raise_a_caveat() -> None:
    waves = {(block, 1): 0.8 + 0.02 * abs(block - 10) for block in range(20)}
    findings = findings_of(Synthetic(blocks=20, slices=2, slowed=waves))
    (caveat,) = [of for of in findings.caveats if of.kind == "autocorrelated-blocks"]
    assert caveat.parameters["blocks"] == 20 and "+0." in caveat.text
    order = sorted(waves, key=lambda place: (7 * place[0]) % 20)
    mixed = dict(zip(order, waves.values(), strict=True))
    assert "autocorrelated-blocks" not in codes(findings_of(Synthetic(blocks=20, slices=2, slowed=mixed)))


def test_under_a_fixed_load_the_verdict_is_about_latency_and_less_is_faster() -> None:
    findings = findings_of(Synthetic(effects=(1.0, 1.2), blocks=6, fixed_rate_per_s=500.0))
    (comparison,) = findings.comparisons
    assert comparison.verdict is Verdict.FASTER
    assert findings.primary.key == "median_latency"
    assert comparison.primary.percent.value < 0
    assert "throughput-fixed" in codes(findings)


def test_checks_are_in_the_order_of_their_numbers() -> None:
    findings = findings_of(Synthetic(blocks=2))
    told = [Check(f"condition {number}", True) for number in (1, 10, 11, 2, 9)] + [Check("mix", True)]
    trials = [replace(trial, checks=told) for trial in findings.trials]
    names = [row[0] for row in checks(replace(findings, trials=trials)).rows if row[0]]
    assert names == [*(f"condition {number}" for number in (1, 2, 9, 10, 11)), "mix"]


def test_a_narrow_terminal_breaks_no_verdict() -> None:
    names = ["on, off", "on, pglz", "off, off", "off, pglz"]
    built = report_of(Synthetic(names=names, effects=(1, 1, 2.5, 2.3), noise=0.1, blocks=6))
    for width in range(62, 100):
        rows = [line for line in summarized(built, width).splitlines() if line.startswith("on, pglz")]
        assert rows[0].split("[")[1].split()[2:3] == ["undecided"], width
