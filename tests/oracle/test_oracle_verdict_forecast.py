"""Forecast of a verdict: its probability compared with simulated studies, and the suggested change."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from example_studies import make_study
from pgdyno.analysis.comparison import (
    Decision,
    LessNoise,
    RemainingBudget,
    Remedy,
    Verdict,
    VerdictForecast,
    decide,
    forecast_verdict,
    judge,
    less_noise_of,
    verdict_probability,
)
from pgdyno.analysis.statistics.intervals import LogRatioSummary, Method, summarize
from pgdyno.study.defaults import Schedule
from pgdyno.units import Better

MARGIN, CONFIDENCE = 0.02, 0.95


@pytest.mark.parametrize("method", list(Method))
def test_the_mean_probability_is_the_share_of_simulated_studies_with_a_verdict(method: Method) -> None:
    """Over uniform effects and log-uniform SDs, as the prior assumes."""
    rng, studies, n, further = np.random.default_rng(3), 600, 6, 12
    predicted, decided = [], 0
    for mean, log_sd in zip(
        rng.uniform(-0.3, 0.3, studies), rng.uniform(math.log(0.005), math.log(1), studies), strict=True
    ):
        d = rng.normal(mean, math.exp(log_sd), n + further)
        early = summarize(list(d[:n]), CONFIDENCE, method)
        late = summarize(list(d), CONFIDENCE, method)
        predicted.append(verdict_probability(early, MARGIN, further))
        decided += judge(late, MARGIN) is not Verdict.UNDECIDED
    low, high = stats.binom.ppf([1e-4, 1 - 1e-4], studies, float(np.mean(predicted))) / studies
    assert low <= decided / studies <= high
    assert 0.2 < np.mean(predicted) < 0.95


def test_without_further_blocks_the_probability_is_that_of_the_present_verdict() -> None:
    for d in ([0.05, 0.06, 0.05, 0.07, 0.06], [0.05, -0.06, 0.05, -0.07, 0.06]):
        summary = summarize(d, CONFIDENCE, Method.ANYTIME)
        decision = decide(summary, Better.MORE, MARGIN)
        expected = float(decision.verdict is not Verdict.UNDECIDED)
        assert verdict_probability(summary, MARGIN, 0) == expected


def noisy(mean: float, sd: float, n: int = 8) -> tuple[LogRatioSummary, Decision]:
    values = np.random.default_rng(1).normal(0, 1, n)
    d = mean + sd * (values - values.mean()) / values.std(ddof=1)
    summary = summarize(list(d), CONFIDENCE, Method.ANYTIME)
    return summary, decide(summary, Better.MORE, MARGIN)


@pytest.mark.parametrize(
    ("mean", "sd", "blocks", "can_be_duet", "remedy"),
    [
        (0.03, 0.03, 60, True, None),
        (0.03, 0.03, 6, True, Remedy.DUET),
        (0.03, 0.03, 6, False, Remedy.MINUTES),
        (0.002, 0.2, 6, True, None),
    ],
)
def test_the_cheapest_change_that_makes_a_verdict_likely_is_suggested(
    mean: float, sd: float, blocks: int, can_be_duet: bool, remedy: Remedy | None
) -> None:
    less_noise = (LessNoise.DUET,) if can_be_duet else (LessNoise.QUIETER_MACHINE,)
    remaining = RemainingBudget(blocks, 60.0, 8 * 60.0, 60.0 * (8 + blocks), less_noise)
    summary, decision = noisy(mean, sd)
    found = forecast_verdict(summary, decision, make_study(), remaining)
    assert found is not None and found.remedy is remedy
    if remedy is Remedy.MINUTES:
        assert decision.blocks_needed is not None and found.minutes == 8 + decision.blocks_needed


@pytest.mark.parametrize(
    ("schedule", "clients", "cores", "expected"),
    [
        ("slices", 4, 2, (LessNoise.DUET, LessNoise.QUIETER_MACHINE)),
        ("slices", 4, 1, (LessNoise.FEWER_CLIENTS, LessNoise.QUIETER_MACHINE)),
        ("duet", 64, 8, (LessNoise.FEWER_CLIENTS, LessNoise.QUIETER_MACHINE)),
        ("blocks", 8, 8, (LessNoise.SLICES, LessNoise.QUIETER_MACHINE)),
    ],
)
def test_less_noise_is_advised_by_the_conditions_of_the_study(
    schedule: str, clients: int, cores: int, expected: tuple[LessNoise, ...]
) -> None:
    study = make_study().model_copy(update={"schedule": Schedule(schedule)})
    assert less_noise_of(study, clients, cores) == expected
    with_window = study.model_copy(update={"transactions": 1000})
    assert LessNoise.SLICES not in less_noise_of(with_window, clients, cores)


def test_a_decided_comparison_and_one_of_few_blocks_have_no_forecast() -> None:
    remaining = RemainingBudget(10, 60.0, 60.0, 660.0, (LessNoise.DUET,))
    for summary, decision in (noisy(0.1, 0.001), noisy(0.0, 0.03, n=3)):
        assert forecast_verdict(summary, decision, make_study(), remaining) is None
    summary, decision = noisy(0.03, 0.03)
    found = forecast_verdict(summary, decision, make_study(), remaining)
    assert found == forecast_verdict(summary, decision, make_study(), remaining)
    assert isinstance(found, VerdictForecast)


def test_a_comparison_that_only_the_noise_floor_leaves_undecided_has_no_forecast() -> None:
    summary, decision = noisy(0.1, 0.001)
    under_floor = replace(decision, verdict=Verdict.UNDECIDED, blocks_needed=7)
    remaining = RemainingBudget(10, 60.0, 60.0, 660.0, (LessNoise.DUET,))
    assert forecast_verdict(summary, under_floor, make_study(), remaining) is None
