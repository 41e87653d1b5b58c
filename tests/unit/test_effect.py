"""Effects and verdicts: invariants, and the rules of docs/explanation/method.md."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_forms import plain

from pgdyno.analysis.comparison import Effect, Verdict, blocks_needed, decide, judge
from pgdyno.analysis.statistics.intervals import (
    LogRatioSummary,
    Method,
    own_level,
    percent_of,
    student,
    summarize,
    t_quantile,
    with_error,
)
from pgdyno.analysis.telemetry.percentiles import Latencies, LatencyMs, curve_ms, merge
from pgdyno.results.codec import pairs_from
from pgdyno.results.records import Pairs
from pgdyno.study.plan import SAME_BLOCKS_MIN, VERDICT_BLOCKS_MIN
from pgdyno.units import Better, Estimate, given_number, given_percent, group_digits, share_text

rates = st.lists(
    st.tuples(st.floats(1, 1e6), st.floats(1, 1e6)).map(lambda pair: (pair[0], pair[1])),
    min_size=2,
    max_size=20,
)
MIRRORED = {
    Verdict.FASTER: Verdict.SLOWER,
    Verdict.SLOWER: Verdict.FASTER,
    Verdict.SAME: Verdict.SAME,
    Verdict.UNDECIDED: Verdict.UNDECIDED,
}


def log_ratios(pairs: list[tuple[float, float]]) -> list[float]:
    return [math.log(b / a) for a, b in pairs]


@given(rates, st.floats(0.001, 1000))
def test_the_effect_is_invariant_to_the_speed_of_the_machine(
    pairs: list[tuple[float, float]], factor: float
) -> None:
    here = student(log_ratios(pairs), 0.95)
    there = student(log_ratios([(a * factor, b * factor) for a, b in pairs]), 0.95)
    assert (there.mean, there.low, there.high) == pytest.approx((here.mean, here.low, here.high), abs=1e-9)


@given(rates)
def test_swapping_the_arms_mirrors_effect_and_verdict(pairs: list[tuple[float, float]]) -> None:
    here = student(log_ratios(pairs), 0.95)
    there = student([-d for d in log_ratios(pairs)], 0.95)
    assert (there.mean, there.low, there.high) == pytest.approx(
        (-here.mean, -here.high, -here.low), abs=1e-12
    )
    assert decide(there, Better.MORE, 0.02).verdict is MIRRORED[decide(here, Better.MORE, 0.02).verdict]


@given(rates)
def test_the_ratio_of_the_arms_levels_is_the_effect(pairs: list[tuple[float, float]]) -> None:
    a, b = (
        own_level({i: pair[arm] for i, pair in enumerate(pairs)}, "NOPM", Better.MORE, 0.95, Method.STUDENT)
        for arm in (0, 1)
    )
    effect = student(log_ratios(pairs), 0.95)
    assert 100 * (b.value / a.value - 1) == pytest.approx(percent_of(effect.mean), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("low_percent", "high_percent", "blocks", "verdict"),
    [
        (2.9, 5.5, 12, Verdict.FASTER),
        (0.1, 9.0, 5, Verdict.FASTER),
        (-5.5, -2.9, 12, Verdict.SLOWER),
        (-1.0, 1.0, 12, Verdict.SAME),
        (0.5, 1.5, 12, Verdict.SAME),  # significant, but within the margin
        (-1.5, -0.5, 12, Verdict.SAME),
        # The one-sided tests reject at 0.816 of the half-width: t(0.95, 11) / t(0.975, 11).
        (-2.39, 2.44, 12, Verdict.SAME),
        (-2.43, 2.44, 12, Verdict.UNDECIDED),  # the margin's lower end is 1 / 1.02 − 1 = −1.96%
        (-1.0, 2.8, 12, Verdict.UNDECIDED),
        (-2.1, -0.1, 12, Verdict.SAME),
        (-9.0, 9.0, 12, Verdict.UNDECIDED),
        (0.0, 5.0, 12, Verdict.UNDECIDED),  # it touches zero and does not exclude it
        (0.5, 2.7, 12, Verdict.FASTER),
        (2.9, 5.5, VERDICT_BLOCKS_MIN - 1, Verdict.UNDECIDED),
        (-0.1, 0.1, VERDICT_BLOCKS_MIN - 1, Verdict.UNDECIDED),
    ],
)
def test_the_verdict_follows_from_interval_and_margin(
    low_percent: float, high_percent: float, blocks: int, verdict: Verdict
) -> None:
    of = with_ends(math.log1p(low_percent / 100), math.log1p(high_percent / 100), blocks)
    assert judge(of, 0.02) is verdict


def with_ends(low: float, high: float, blocks: int) -> LogRatioSummary:
    """Student's interval with these ends."""
    sd = (high - low) / 2 / t_quantile(0.975, blocks - 1) * math.sqrt(blocks)
    return with_error((low + high) / 2, sd, blocks, 0.95, Method.STUDENT)


@pytest.mark.parametrize(
    ("ends", "better", "expected"),
    [
        ((-0.015, -0.005), Better.MORE, (Verdict.SAME, Verdict.SLOWER)),
        ((-0.015, -0.005), Better.LESS, (Verdict.SAME, Verdict.FASTER)),
        ((-0.015, 0.005), Better.MORE, (Verdict.SAME, None)),
        ((-0.030, -0.005), Better.MORE, (Verdict.SLOWER, Verdict.SLOWER)),
        ((-0.030, 0.005), Better.MORE, (Verdict.UNDECIDED, None)),
    ],
)
def test_a_difference_is_reported_also_within_the_margin(
    ends: tuple[float, float], better: Better, expected: tuple[Verdict, Verdict | None]
) -> None:
    decision = decide(with_ends(*ends, 12), better, 0.02)
    assert (decision.verdict, decision.difference) == expected
    # The noise floor takes a difference back, and leaves equivalence.
    below = decision.without_difference()
    assert below.difference is None
    assert below.verdict is (Verdict.SAME if expected[0] is Verdict.SAME else Verdict.UNDECIDED)


@pytest.mark.parametrize("mean", [0.0, 0.01])
@pytest.mark.parametrize(
    ("method", "blocks", "verdict"),
    [
        (Method.STUDENT, VERDICT_BLOCKS_MIN, Verdict.SAME),
        (Method.ANYTIME, SAME_BLOCKS_MIN - 1, Verdict.UNDECIDED),
        (Method.ANYTIME, SAME_BLOCKS_MIN, Verdict.SAME),
    ],
)
def test_a_study_with_interim_analyses_needs_more_blocks_for_the_same_than_for_a_difference(
    method: Method, blocks: int, verdict: Verdict, mean: float
) -> None:
    decision = decide(with_error(mean, 1e-5, blocks, 0.95, method), Better.MORE, 0.02)
    assert decision.verdict is verdict
    assert decision.blocks_needed == (None if verdict is Verdict.SAME else SAME_BLOCKS_MIN - blocks)


@pytest.mark.parametrize(
    ("bootstrap", "disputed"), [((-0.002, 0.002), False), ((-0.03, -0.02), True), (None, False)]
)
def test_a_bootstrap_disputes_the_verdict_of_a_single_analysis(
    bootstrap: tuple[float, float] | None, disputed: bool
) -> None:
    d = [0.002, -0.002] * 6  # too few blocks for the same after interim analyses
    summary = summarize(d, 0.95, Method.ANYTIME)
    effect = Effect("tps", "tps", dict(enumerate(d)), summary, summary.percent(Better.MORE), bootstrap)
    assert effect.is_disputed(0.02) is disputed


def test_without_an_interval_nothing_is_decided() -> None:
    decision = decide(student([0.5], 0.95), Better.MORE, 0.02)
    assert (decision.verdict, decision.detectable_percent) == (Verdict.UNDECIDED, None)
    assert decision.blocks_needed == VERDICT_BLOCKS_MIN - 1


@given(st.lists(st.floats(-0.2, 0.2), min_size=2, max_size=30), st.floats(0.005, 0.1))
def test_an_undecided_comparison_needs_at_least_one_block_more_and_a_decided_one_none(
    d: list[float], margin: float
) -> None:
    decision = decide(student(d, 0.95), Better.MORE, margin)
    if decision.verdict is Verdict.UNDECIDED:
        assert decision.blocks_needed is not None and decision.blocks_needed >= max(
            1, VERDICT_BLOCKS_MIN - len(d)
        )
    else:
        assert decision.blocks_needed is None


def test_more_noise_needs_more_blocks() -> None:
    pattern = np.array([-1.0, 1.0, -1.0, 1.0, -1.0, 1.0])
    needed = [
        blocks_needed(student(list(0.01 + sd * pattern), 0.95), 0.02) for sd in (0.01, 0.02, 0.04, 0.08)
    ]
    assert needed == sorted(needed) and needed[0] < needed[-1]


def test_equal_blocks_leave_no_uncertainty() -> None:
    found = student([0.1] * 6, 0.95)
    assert (found.low, found.high, found.p_value) == pytest.approx((0.1, 0.1, 0.0))
    assert decide(found, Better.MORE, 0.02).verdict is Verdict.FASTER


histograms = st.lists(
    st.dictionaries(st.integers(0, 10**9), st.integers(1, 1000), max_size=8).map(
        lambda values: pairs_from(sorted(values.items()))
    ),
    max_size=5,
)


@given(histograms)
def test_merging_loses_nothing_and_does_not_mind_the_order(parts: list[Pairs]) -> None:
    merged = merge(parts)
    assert merged[:, 1].sum() == sum(part[:, 1].sum() for part in parts)
    assert merge(reversed(parts)).tolist() == merged.tolist()
    assert merge([merged]).tolist() == merged.tolist()


def test_a_quantile_with_too_few_values_beyond_it_is_not_given() -> None:
    pairs = pairs_from((i, 1) for i in range(1, 1001))
    known = {"p50": 500, "p90": 900, "p95": 950, "p99": 990, "p99.9": None, "max": 1000}
    assert Latencies(pairs).quantiles_ms() == {
        name: None if value is None else LatencyMs(value / 1e6) for name, value in known.items()
    }
    assert Latencies().quantile_ms(0.5) is None
    assert Latencies(pairs[:100]).quantile_ms(0.9) == LatencyMs(90 / 1e6)
    assert Latencies(pairs[:99]).quantile_ms(0.9) is None


def test_a_curve_goes_from_the_median_to_the_maximum() -> None:
    pairs = pairs_from((i * 1_000_000, 1) for i in range(1, 1001))
    curve = curve_ms(Latencies(pairs))
    assert curve[0] == (0.5, 500.0)
    assert curve[-1] == (pytest.approx(0.001), pytest.approx(999.0, abs=1.1))
    assert curve_ms(Latencies()) == []
    # 20% were skipped: the rest of the distribution is unknown.
    shares = [share for share, _ in curve_ms(Latencies(pairs, pairs_from([(1_000_000_000, 250)])))]
    assert 0.2 <= shares[-1] < 0.22


@given(histograms.map(merge), histograms.map(merge), st.floats(0.01, 1))
def test_a_quantile_with_skipped_arrivals_bounds_every_quantile_that_they_may_have(
    answered: Pairs, skipped: Pairs, quantile: float
) -> None:
    """Oracle: the quantile with each skipped arrival at its shortest possible latency, and at infinity."""
    known = Latencies(answered, skipped).quantile_ms(quantile)
    never = pairs_from([(2**63, int(skipped[:, 1].sum()))])
    shortest = Latencies(merge([answered, skipped])).quantile_ms(quantile)
    longest = Latencies(merge([answered, never])).quantile_ms(quantile)
    if known is None:
        assert shortest is None
    else:
        assert shortest is not None and longest is not None
        assert known.is_bound == (longest.value == 2**63 / 1e6)
        assert known.value == (shortest if known.is_bound else longest).value


@pytest.mark.parametrize(
    ("estimate", "value", "interval"),
    [
        (Estimate(74810.7, "NOPM", 12, Better.MORE, 70045.2, 79900.4), "74,811 NOPM", "[70,045, 79,900]"),
        (Estimate(2120.0, "%", 2, Better.MORE, -90.0, math.inf), "2,120%", "[−90%, inf%]"),
        (Estimate(18.234, "µs", 12, Better.LESS, 17.02, 19.41), "18.2 µs", "[17.0, 19.4]"),
        (Estimate(0.61411, "ms", 1, Better.LESS), "0.6141 ms", "–"),
        (Estimate(-0.004, "%", 9, Better.MORE, -0.5, 0.5), "0.00%", "[−0.50%, 0.50%]"),
    ],
)
def test_an_estimate_shows_the_digits_that_its_interval_deserves(
    estimate: Estimate, value: str, interval: str
) -> None:
    assert (plain(estimate.value_text), plain(estimate.interval_text)) == (value, interval)


@pytest.mark.parametrize(
    ("estimate", "value", "interval"),
    [
        (Estimate(4.21, "%", 12, Better.MORE, 2.93, 5.52), "+4.2%", "[+2.9%, +5.5%]"),
        (Estimate(-4.0, "%", 12, Better.MORE, -31.0, 32.0), "−4%", "[−31%, +32%]"),
        (Estimate(0.0, "%", 12, Better.MORE), "0%", "–"),
        (Estimate(12.34567, "%", 9, Better.MORE, 12.3452, 12.3461), "+12.346%", "[+12.345%, +12.346%]"),
        (Estimate(236.0, "%", 2, Better.MORE, -98.0, 69_474.0), "+236%", "[−98%, +69,474%]"),
    ],
)
def test_an_effect_shows_its_sign(estimate: Estimate, value: str, interval: str) -> None:
    assert (plain(estimate.signed_text), plain(estimate.signed_interval_text)) == (value, interval)


ENDS = st.floats(0.01, 1e6) | st.floats(-1e6, -0.01)


@given(st.tuples(ENDS, ENDS, ENDS).map(sorted), st.sampled_from(["%", "µs"]))
def test_rounding_changes_no_digit_that_is_shown(ends: list[float], unit: str) -> None:
    """Oracle: the exact decimal value of each number."""
    low, value, high = ends
    estimate = Estimate(value, unit, 9, Better.MORE, low, high)
    shown = [plain(estimate.value_text), *plain(estimate.interval_text).strip("[]").split(", ")]
    texts = [of.removesuffix(unit).strip().replace(",", "").replace("−", "-") for of in shown]
    decimals = {len(text.partition(".")[2]) for text in texts}
    assert len(decimals) == 1  # the estimate and both ends agree
    half = Decimal(1).scaleb(-decimals.pop()) / 2
    for text, exact in zip(texts, (value, low, high), strict=True):
        assert abs(Decimal(text) - Decimal(exact)) <= half
    for text, end in zip(texts[1:], (low, high), strict=True):
        significant = len(text.strip("-").replace(".", "").lstrip("0"))
        assert significant >= 2 or abs(end) < 5e-3 * (high - low) or abs(end) < 0.1 * (unit == "%")


def test_the_low_end_of_a_wide_interval_is_not_rounded_to_tens() -> None:
    estimate = Estimate(110.4, "%", 5, Better.MORE, 14.99, 380.2)
    assert estimate.interval_text == "[15%, 380%]" and estimate.unsigned_ends == ("15%", "380%")


@pytest.mark.parametrize(("low", "high"), [(1.0, None), (None, 1.0), (2.0, 1.0)])
def test_an_interval_has_two_ends_in_order(low: float | None, high: float | None) -> None:
    with pytest.raises(ValueError, match="interval"):
        Estimate(1.5, "ms", 3, Better.LESS, low, high)


def test_shares_and_numbers_read_well() -> None:
    assert plain(share_text(0.0423)) == "4.2%"
    assert plain(given_percent(0.02)) == "2%"
    assert plain(given_percent(0.975)) == "97.5%"
    assert [given_number(rate) for rate in (0.1, 2.5, 40.0, 1e6)] == ["0.1", "2.5", "40", "1,000,000"]
    assert plain(group_digits(-1234567.891, 1)) == "−1,234,567.9"
