"""Outlier trials: their covariates, the rate of false alarms, and the estimate without the extreme block."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
from golden_reports import STEAL
from pydantic import TypeAdapter
from report_forms import report_of
from synthetic_study import Synthetic

from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.statistics.intervals import robust_sd
from pgdyno.analysis.telemetry.trial_telemetry import TrialTelemetry
from pgdyno.features.outliers.findings import (
    ALPHAS,
    COVARIATES,
    FALSE_ALARM,
    LIMITS,
    SIZES,
    OutlierTrials,
    causes,
    find_outlier_trials,
    limit,
    outlier_scores,
    outliers_of,
)
from pgdyno.features.outliers.section import outlier_trials
from pgdyno.results.records import TrialStatus
from pgdyno.units import Better

NOISE_PAGE = (Path(__file__).parents[5] / "docs" / "explanation" / "noise.md").read_text("utf-8")


def found(wanted: Synthetic) -> Findings:
    return report_of(wanted).findings.first


def test_a_value_is_compared_with_the_other_values_only() -> None:
    # The median of 1, 2, 3, 4, 5 is 3 and their MAD 1, computed by hand.
    far = outlier_scores([1.0, 2.0, 3.0, 4.0, 5.0, 103.0])[-1]
    assert (far.median, far.off) == (3.0, 100.0)
    assert far.score == pytest.approx(100 / 1.4826)
    first = outlier_scores([0.0, 1.0, 3.0, 7.0, 2.0, 9.0])[0]
    assert first.score == pytest.approx(
        -3.0 / scipy.stats.median_abs_deviation([1, 3, 7, 2, 9], scale="normal"), rel=1e-4
    )


def test_few_values_or_equal_ones_have_no_score() -> None:
    assert [one.score for one in outlier_scores([1.0, 2.0, 3.0, 100.0])] == [None] * 4
    assert [one.score for one in outlier_scores([1.0] * 5 + [2.0])][-1] is None
    assert outlier_scores([4.0])[0].off == 0.0
    assert outlier_scores([]) == []


def test_scores_do_not_depend_on_the_unit() -> None:
    values = np.random.default_rng(3).normal(10, 1, 9)
    scores = [one.score for one in outlier_scores(list(values))]
    assert [one.score for one in outlier_scores(list(5 - 1000 * values))] == pytest.approx(
        [-s for s in scores if s]
    )


def simulated_limits(n: int, resamples: int, seed: int) -> list[float]:
    """The row of LIMITS for ``n`` values."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((resamples, n))
    largest = np.zeros(resamples)
    for i in range(n):
        others = np.delete(values, i, axis=1)
        largest = np.maximum(largest, np.abs(values[:, i] - np.median(others, axis=1)) / robust_sd(others))
    return [float(np.quantile(largest, 1 - alpha)) for alpha in ALPHAS]


@pytest.mark.parametrize("n", [5, 10, 20])
def test_the_limits_are_those_of_the_simulation(n: int) -> None:
    resamples = 20_000
    again = simulated_limits(n, resamples, seed=99)
    row = LIMITS[SIZES.index(n)]
    # The share beyond a quantile has this relative error (4 standard errors). The tails fall at least as fast
    # as 1 / score, so the error of the score is not larger. The table has ten times as many resamples.
    for alpha, given, one in zip(ALPHAS, row, again, strict=True):
        tolerance = 4 * np.sqrt(alpha * (1 - alpha) / resamples) / alpha
        assert given == pytest.approx(one, rel=0.01 + tolerance)


def test_more_values_narrow_a_limit_and_more_groups_widen_it() -> None:
    assert [limit(n, 3) for n in (5, 8, 9, 10, 1000)] == [24.8, 12.3, 12.3, 9.0, 4.3]
    assert [limit(10, groups) for groups in (1, 2, 3, 4, 5, 10)] == [6.5, 8.0, 9.0, 9.7, 10.4, 12.7]
    assert limit(10, 100) > 12.7


def alarms(blocks: int, studies: int, tails: float) -> int:
    """The number of studies with an outlier, with noise of Student's t with ``tails`` degrees of freedom."""
    rng, found = np.random.default_rng(5), 0
    for _ in range(studies):
        drift, a, b = (scale * rng.standard_t(tails, blocks) for scale in (0.08, 0.015, 0.015))
        scores = [
            one.score or 0.0 for of in (drift + a, drift + b, b - a) for one in outlier_scores(list(of))
        ]
        found += max(map(abs, scores)) > limit(blocks, 3)
    return found


def test_the_limit_depends_on_the_number_of_cases() -> None:
    cases = [Synthetic(blocks=10, slices=2, levels={"clients": str(n)}, seed=n) for n in (1, 8)]
    every = report_of(*cases).findings.cases
    assert {one.within_arm.limit for of in every for one in outliers_of(of).trials} == {limit(10, 2 * 3)}


# 12 is long: 6, whose scores have the heavier tails, has the same bound.
@pytest.mark.parametrize("blocks", [6, pytest.param(12, marks=pytest.mark.long)])
def test_few_studies_without_outliers_name_a_trial(blocks: int) -> None:
    assert alarms(blocks, 400, tails=1e9) <= scipy.stats.binom.ppf(0.999, 400, FALSE_ALARM)


def test_noise_with_heavy_tails_gives_more_outliers_as_documented() -> None:
    (percent,) = re.findall(r"(\d+)% of studies with ten blocks name one", NOISE_PAGE)
    low, high = scipy.stats.binom.ppf([0.001, 0.999], 400, int(percent) / 100)
    assert low <= alarms(10, 400, tails=5) <= high


def test_a_slow_trial_is_an_outlier_with_its_steal() -> None:
    findings = found(STEAL)
    (named,) = outliers_of(findings).outliers
    assert (named.block, named.arm.name) == (7, "18")
    assert named is outliers_of(findings).trials[0]
    assert named.ratio.percent == pytest.approx(-50, abs=5)
    cause = named.causes[0]
    assert (cause.covariate.key, cause.value, cause.median) == (
        "steal",
        pytest.approx(12.0),
        pytest.approx(0.1),
    )
    assert len(findings.comparisons[0].blocks) == STEAL.blocks  # the block is not dropped
    outliers = TypeAdapter(OutlierTrials).dump_python(outliers_of(findings))
    first = outliers["trials"][0]
    assert (first["block"], first["causes"][0]["covariate"], first["causes"][0]["unit"]) == (7, "steal", "%")
    assert (outliers["without_block"][0]["arm"], outliers["without_block"][0]["block"]) == ("18", 7)


def test_a_slow_trial_of_the_baseline_is_attributed_to_the_baseline() -> None:
    (named,) = outliers_of(found(replace(STEAL, slowed={(3, 0): 0.5}, stolen={(3, 0): 0.2}))).outliers
    assert (named.block, named.arm.name, named.causes[0].covariate.key) == (3, "17", "steal")


@pytest.mark.parametrize("changed", [{"stolen": {}}, {"slowed": {(7, 1): 1.8}, "stolen": {(7, 1): 0.12}}])
def test_an_outlier_without_a_disturbance_or_that_is_fast_has_no_cause(changed: dict[str, Any]) -> None:
    (named,) = outliers_of(found(replace(STEAL, **changed))).outliers
    # The synthetic CPU time is independent of the rate, so the CPU time per transaction may differ.
    assert {cause.covariate.key for cause in named.causes} <= {"server_cpu"}


def test_a_block_that_is_slow_in_both_arms_has_no_outlier_ratio() -> None:
    findings = found(replace(STEAL, slowed={(7, 0): 0.2, (7, 1): 0.2}, stolen={(7, 0): 0.3, (7, 1): 0.3}))
    assert {(one.block, one.arm.arm) for one in outliers_of(findings).outliers} == {(7, 0), (7, 1)}
    assert all(one.within_arm.percent < -70 for one in outliers_of(findings).outliers)
    assert not any(one.ratio and one.ratio.share > 1 for one in outliers_of(findings).outliers)


def test_the_server_of_an_excluded_trial_is_no_other_program() -> None:
    excluded = {(7, 1): TrialStatus.EXCLUDED}
    findings = found(replace(STEAL, slowed={(7, 0): 0.2}, stolen={}, statuses=excluded))

    def machine(block: int) -> dict[str, float]:
        servers_s = sum(of.server_cpu_s or 0.0 for of in findings.trials if of.block == block)
        ours = {"driver_cpu_s": 1.0, "pgdyno_cpu_s": 0.5}
        return {**ours, "cpu_busy_s": servers_s + 1.5, "cpu_idle_s": 2.0, "cpu_iowait_s": 0.0}

    telemetry = {
        trial.trial: TrialTelemetry({}, [], [], {}, machine=machine(trial.block))
        for trial in findings.trials
        if trial.status is TrialStatus.OK
    }
    outliers = find_outlier_trials(
        [of.arm for of in findings.arms],
        findings.trials,
        findings.comparisons,
        findings.metrics[0],
        telemetry,
        findings.study.plan.margin,
    )
    (slow,) = [one for one in outliers.outliers if (one.block, one.arm.arm) == (7, 0)]
    assert "others" not in {cause.covariate.key for cause in slow.causes}
    assert len(outliers.trials) == 2 * STEAL.blocks - 1


def test_a_study_without_outliers_ranks_all_trials_in_a_collapsed_table() -> None:
    findings = found(replace(STEAL, slowed={}, stolen={}))
    outliers = outliers_of(findings)
    assert not outliers.outliers and len(outliers.trials) == 2 * STEAL.blocks
    ranks = [one.rank for one in outliers.trials]
    assert ranks == sorted(ranks, reverse=True)
    table = outlier_trials(findings)
    assert table.long and {row[-1] for row in table.rows} == {""}


def test_the_estimate_without_the_extreme_block_is_the_mean_of_the_others() -> None:
    findings = found(STEAL)
    (left,) = outliers_of(findings).without_block
    effect = findings.comparisons[0].primary
    rest = [d for block, d in effect.log_ratios.items() if block != 7]
    assert left.block == 7
    assert left.without.value == pytest.approx(100 * np.expm1(np.mean(rest)))
    assert (left.without.n, left.all.n) == (STEAL.blocks - 1, STEAL.blocks)
    assert left.without.better is Better.MORE


def test_five_blocks_are_too_few_for_an_estimate_without_one() -> None:
    assert not outliers_of(found(replace(STEAL, blocks=5, slowed={}))).without_block


@pytest.mark.parametrize("covariate", COVARIATES, ids=lambda one: one.key)
def test_every_covariate_is_a_cause_from_its_smallest_relevant_difference_on(covariate) -> None:  # type: ignore[no-untyped-def]
    usual = 100.0 if covariate.key == "server_cpu" else 1.0
    others = {trial: {covariate.key: usual + 0.001 * trial} for trial in range(1, 8)}
    more = {0: {covariate.key: usual + 1.1 * covariate.least}}
    less = {0: {covariate.key: usual + 0.9 * covariate.least}}
    (cause,) = causes(0, range(1, 8), {**others, **more}, slow=True)
    assert cause.covariate is covariate
    assert not causes(0, range(1, 8), {**others, **less}, slow=True)
    assert not causes(0, range(1, 8), {**others, **more}, slow=False)
    assert not causes(0, range(1, 8), {**others, 0: {}}, slow=True)
