"""Outlier trials: named with what was different, rarely without a reason, and never dropped."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy
from synthetic_study import Synthetic, write_study

from pgdyno.analysis.causes.covariates import COVARIATES, causes
from pgdyno.analysis.findings.case_findings import Findings
from pgdyno.analysis.findings.study_findings import find_study
from pgdyno.analysis.statistics.distributions import robust_sd
from pgdyno.analysis.statistics.outliers import ALPHAS, FALSE_ALARM, LIMITS, SIZES, limit, outlier_scores
from pgdyno.estimate import Better
from pgdyno.report.case_report import case_report
from pgdyno.report.json_case_format import case_entry
from pgdyno.results.reader import Evidence

NOISE_PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "noise.md").read_text("utf-8")
STEAL = Synthetic(blocks=10, slices=2, slowed={(7, 1): 0.5}, stolen={(7, 1): 0.12})


def found(tmp_path: Path, wanted: Synthetic) -> Findings:
    path = tmp_path / "study.sqlite"
    write_study(path, wanted)
    with Evidence(path) as evidence:
        return find_study(evidence).first


def test_a_value_is_held_against_the_others_alone() -> None:
    # Of 1, 2, 3, 4, 5 the median is 3 and the MAD 1: computed by hand.
    far = outlier_scores([1.0, 2.0, 3.0, 4.0, 5.0, 103.0])[-1]
    assert (far.usual, far.off) == (3.0, 100.0)
    assert far.score == pytest.approx(100 / 1.4826)
    ours = outlier_scores([0.0, 1.0, 3.0, 7.0, 2.0, 9.0])[0]
    assert ours.score == pytest.approx(
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
    """What LIMITS has of ``n`` values."""
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
    # The share beyond a quantile has this relative error (4 standard errors); as the tails fall at least as
    # fast as 1 / score, the score's own is no larger. The table was made of ten times as many.
    for alpha, given, one in zip(ALPHAS, row, again, strict=True):
        spread = 4 * np.sqrt(alpha * (1 - alpha) / resamples) / alpha
        assert given == pytest.approx(one, rel=0.01 + spread)


def test_more_values_narrow_a_limit_and_more_groups_widen_it() -> None:
    assert [limit(n, 3) for n in (5, 8, 9, 10, 1000)] == [24.8, 12.3, 12.3, 9.0, 4.3]
    assert [limit(10, groups) for groups in (1, 2, 3, 4, 5, 10)] == [6.5, 8.0, 9.0, 9.7, 10.4, 12.7]
    assert limit(10, 100) > 12.7


def alarms(blocks: int, studies: int, tails: float) -> int:
    """Studies of two arms that name a trial, of noise by Student's t with so many degrees of freedom."""
    rng, found = np.random.default_rng(5), 0
    for _ in range(studies):
        drift, a, b = (scale * rng.standard_t(tails, blocks) for scale in (0.08, 0.015, 0.015))
        scores = [
            one.score or 0.0 for of in (drift + a, drift + b, b - a) for one in outlier_scores(list(of))
        ]
        found += max(map(abs, scores)) > limit(blocks, 3)
    return found


def test_the_limit_is_for_all_cases_of_a_study(tmp_path: Path) -> None:
    cases = [Synthetic(blocks=10, slices=2, levels={"clients": str(n)}, seed=n) for n in (1, 8)]
    write_study(tmp_path / "e", *cases)
    with Evidence(tmp_path / "e") as evidence:
        every = find_study(evidence).cases
    assert {one.own.limit for of in every for one in of.outliers.trials} == {limit(10, 2 * 3)}


@pytest.mark.parametrize("blocks", [6, 12])
def test_of_clean_studies_few_name_a_trial(blocks: int) -> None:
    assert alarms(blocks, 400, tails=1e9) <= scipy.stats.binom.ppf(0.999, 400, FALSE_ALARM)


def test_of_heavier_tails_more_stands_out_as_the_guide_says() -> None:
    (percent,) = re.findall(r"(\d+)% of studies with ten blocks name one", NOISE_PAGE)
    low, high = scipy.stats.binom.ppf([0.001, 0.999], 400, int(percent) / 100)
    assert low <= alarms(10, 400, tails=5) <= high


def test_a_slow_trial_is_named_with_the_steal_it_had(tmp_path: Path) -> None:
    findings = found(tmp_path, STEAL)
    (named,) = findings.outliers.named
    assert (named.block, named.arm.name) == (7, "18")
    assert named is findings.outliers.trials[0]
    assert named.ratio is not None
    assert named.ratio.off_percent == pytest.approx(-50, abs=5)
    cause = named.causes[0]
    assert (cause.covariate.key, cause.value, cause.usual) == (
        "steal",
        pytest.approx(12.0),
        pytest.approx(0.1),
    )
    assert len(findings.comparisons[0].blocks) == STEAL.blocks  # and it counts


def test_a_slow_trial_of_the_baseline_is_the_baselines(tmp_path: Path) -> None:
    (named,) = found(tmp_path, replace(STEAL, slowed={(3, 0): 0.5}, stolen={(3, 0): 0.2})).outliers.named
    assert (named.block, named.arm.name, named.causes[0].covariate.key) == (3, "17", "steal")


def test_without_a_difference_nothing_is_made_up(tmp_path: Path) -> None:
    findings = found(tmp_path, replace(STEAL, stolen={}))
    (named,) = findings.outliers.named
    # Its server used as much CPU a transaction as its rate says, which is all that there is to be seen.
    assert {cause.covariate.key for cause in named.causes} <= {"server_cpu"}


def test_a_fast_trial_is_not_explained_by_more_of_what_disturbs(tmp_path: Path) -> None:
    fast = replace(STEAL, slowed={(7, 1): 1.8}, stolen={(7, 1): 0.12})
    (named,) = found(tmp_path, fast).outliers.named
    assert "steal" not in {cause.covariate.key for cause in named.causes}


def test_a_block_that_is_slow_as_a_whole_leaves_the_ratio_alone(tmp_path: Path) -> None:
    findings = found(
        tmp_path, replace(STEAL, slowed={(7, 0): 0.2, (7, 1): 0.2}, stolen={(7, 0): 0.3, (7, 1): 0.3})
    )
    assert {(one.block, one.arm.arm) for one in findings.outliers.named} == {(7, 0), (7, 1)}
    assert all(one.own.off_percent < -70 for one in findings.outliers.named)
    assert not any(one.ratio and one.ratio.share > 1 for one in findings.outliers.named)


def test_a_clean_study_names_none_and_ranks_all(tmp_path: Path) -> None:
    outliers = found(tmp_path, replace(STEAL, slowed={}, stolen={})).outliers
    assert not outliers.named
    assert len(outliers.trials) == 2 * STEAL.blocks
    ranks = [one.rank for one in outliers.trials]
    assert ranks == sorted(ranks, reverse=True)


def test_what_is_left_without_the_farthest_block_is_the_mean_of_the_others(tmp_path: Path) -> None:
    findings = found(tmp_path, STEAL)
    (left,) = findings.outliers.without
    effect = findings.comparisons[0].primary
    assert effect is not None
    rest = [d for block, d in effect.log_ratios.items() if block != 7]
    assert left.block == 7
    assert left.without.value == pytest.approx(100 * np.expm1(np.mean(rest)))
    assert (left.without.n, left.all.n) == (STEAL.blocks - 1, STEAL.blocks)
    assert left.without.better is Better.MORE


def test_five_blocks_are_too_few_to_do_without_one(tmp_path: Path) -> None:
    assert not found(tmp_path, replace(STEAL, blocks=5, slowed={})).outliers.without


def test_reports_say_which_trial_and_why(tmp_path: Path) -> None:
    report = case_report(found(tmp_path, STEAL))
    table = next(table for table in report.results if table.title == "Outlier trials")
    assert table.rows[0][:2] == ["8", "18"]
    assert "CPU time stolen by the hypervisor 12% (otherwise 0.10%)" in table.rows[0][-1].replace(
        "\u00a0", " "
    )
    assert "Without block 8, which has the most extreme ratio" in table.note
    told = case_entry(report).anomalies
    assert (told.trials[0].block, told.trials[0].causes[0].what) == (7, "steal")
    assert told.without[0].block == 7


def test_nothing_named_is_a_folded_table(tmp_path: Path) -> None:
    report = case_report(found(tmp_path, replace(STEAL, slowed={}, stolen={})))
    table = next(table for table in report.results if table.title == "Outlier trials: none")
    assert table.long
    assert {row[-1] for row in table.rows} == {""}


@pytest.mark.parametrize("covariate", COVARIATES, ids=lambda one: one.key)
def test_every_covariate_can_explain_and_needs_its_least_difference(covariate) -> None:  # type: ignore[no-untyped-def]
    usual = 100.0 if covariate.key == "server_cpu" else 1.0
    others = {trial: {covariate.key: usual + 0.001 * trial} for trial in range(1, 8)}
    more = {0: {covariate.key: usual + 1.1 * covariate.least}}
    less = {0: {covariate.key: usual + 0.9 * covariate.least}}
    (cause,) = causes(0, range(1, 8), {**others, **more}, slow=True)
    assert cause.covariate is covariate
    assert not causes(0, range(1, 8), {**others, **less}, slow=True)
    assert not causes(0, range(1, 8), {**others, **more}, slow=False)
    assert not causes(0, range(1, 8), {**others, 0: {}}, slow=True)
