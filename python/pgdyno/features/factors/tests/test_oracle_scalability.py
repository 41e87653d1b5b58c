"""Universal Scalability Law compared with a published fit, scipy, and known parameters, and by simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import curve_fit, least_squares

from pgdyno.analysis.statistics.intervals import Method
from pgdyno.analysis.telemetry.metrics import TPS
from pgdyno.features.factors import scalability as factors_scalability
from pgdyno.features.factors.effects import Factor, FactorialCell, FactorialDesign
from pgdyno.features.factors.scalability import Scalability, scalability_of
from pgdyno.study.defaults import Schedule

# SPEC SDM91 on a Sun SPARCcenter 2000, an example of Gunther's, as R's package usl has it. It fits, by least
# squares of X itself, α = 0.0277285 ± 0.0091217, β = 0.0001044 ± 0.0000199, γ = 89.9952330 ± 14.2134894, with
# the maximum at 96.52.
LOADS = np.array([1, 18, 36, 72, 108, 144, 216.0])
SDM91 = np.array([64.9, 995.9, 1652.4, 1853.2, 1828.9, 1775.0, 1702.2])

CLIENTS = np.array([1, 2, 4, 8, 16, 32.0])


def law(rate_of_one: float, sigma: float, kappa: float) -> factors_scalability.Law:
    return factors_scalability.Law(*(np.array([value]) for value in (rate_of_one, sigma, kappa)))


def throughput(n: np.ndarray, rate_of_one: float, sigma: float, kappa: float) -> np.ndarray:
    return law(rate_of_one, sigma, kappa).at(n)


def test_the_law_equals_the_published_fit() -> None:
    found, covariance = curve_fit(throughput, LOADS, SDM91, p0=(60, 0.02, 1e-4))
    assert found == pytest.approx([89.995233, 0.0277285, 0.0001044], rel=1e-3)
    assert np.sqrt(np.diag(covariance)) == pytest.approx([14.2134894, 0.0091217, 0.0000199], rel=5e-3)
    assert law(*found).knee[0] == pytest.approx(96.52, abs=0.005)


def test_the_fit_of_the_published_data_by_relative_errors_equals_scipys() -> None:
    known, _ = curve_fit(lambda n, *of: np.log(throughput(n, *of)), LOADS, np.log(SDM91), p0=(60, 0.02, 1e-4))
    found = factors_scalability.fit_curves(LOADS, np.log(SDM91))
    assert (found.rate_of_one[0], found.sigma[0], found.kappa[0]) == pytest.approx(known, rel=1e-5)


@pytest.mark.parametrize("sigma", [0, 0.02, 0.3, 0.95])
@pytest.mark.parametrize("kappa", [0, 1e-5, 2e-3, 0.05])
def test_a_fit_without_noise_returns_its_parameters(sigma: float, kappa: float) -> None:
    for fit in (factors_scalability.fit_curves, factors_scalability.fit_without_bounds):
        found = fit(CLIENTS, np.log(throughput(CLIENTS, 812.0, sigma, kappa)))
        assert found.rate_of_one[0] == pytest.approx(812)
        assert (found.sigma[0], found.kappa[0]) == pytest.approx((sigma, kappa), abs=1e-8)


def test_no_fit_within_the_bounds_is_better() -> None:
    rng = np.random.default_rng(0)
    truths = [(1000, rng.choice([0, 0.05, 0.5]), rng.choice([0, 1e-4, 1e-2])) for _ in range(60)]
    logs = np.array([np.log(throughput(CLIENTS, *of)) + rng.normal(0, 0.1, 6) for of in truths])
    found = factors_scalability.fit_curves(CLIENTS, logs)
    assert (found.sigma == 0).any() and (found.kappa == 0).any()
    for i, values in enumerate(logs):
        mine = values - np.log(throughput(CLIENTS, found.rate_of_one[i], found.sigma[i], found.kappa[i]))

        def left(of: Sequence[float], values: np.ndarray = values) -> np.ndarray:
            return np.log(throughput(CLIENTS, math.exp(of[0]), of[1], of[2])) - values

        bounds = ([-np.inf, 0, 0], np.inf)
        starts = [(7, 0.01, 1e-3), (7, 0.4, 1e-5)]
        costs = [2 * least_squares(left, start, bounds=bounds, xtol=1e-12).cost for start in starts]
        assert (mine**2).sum() <= min(costs) * (1 + 1e-6)


def test_a_law_without_coherency_has_no_knee_and_one_that_is_all_contention_has_it_at_one() -> None:
    assert law(10, 0.1, 0).knee[0] == math.inf
    assert law(10, 1, 0).knee[0] == law(10, 1.2, 0.1).knee[0] == 1
    assert law(10, 0.36, 0.01).knee[0] == pytest.approx(8)


def measured(
    rng: np.random.Generator, truth: tuple[float, float, float], passes: int, noise: float = 0.03
) -> np.ndarray:
    """Return values with drift between passes, which shifts a whole curve."""
    drift = rng.normal(0, 0.08, (passes, 1))
    return np.log(throughput(CLIENTS, *truth)) + drift + rng.normal(0, noise, (passes, len(CLIENTS)))


STUDIES = 120


@pytest.mark.parametrize(
    "truth", [(1000, 0.05, 1e-3), pytest.param((1000, 0.1, 0.0), marks=pytest.mark.long)]
)
def test_intervals_have_their_nominal_coverage(truth: tuple[float, float, float]) -> None:
    rng = np.random.default_rng(3)
    covered = {"rate_of_one": 0, "sigma": 0, "kappa": 0}
    drawn = factors_scalability.weights(6, 400, 1)
    for _ in range(STUDIES):
        logs = measured(rng, truth, passes=6)
        draws = factors_scalability.fit_without_bounds(CLIENTS, factors_scalability.resampled(logs, drawn))
        for (name, n), value in zip(covered.items(), truth, strict=True):
            low, high = np.quantile(getattr(draws, name), [0.025, 0.975])
            covered[name] = n + bool(low <= value <= high)
    for name, n in covered.items():
        assert n >= stats.binom.ppf(1e-4, STUDIES, 0.95), name


def test_draws_of_a_mean_have_students_distribution() -> None:
    logs = measured(np.random.default_rng(4), (1000, 0.05, 1e-3), passes=6)
    draws = factors_scalability.resampled(logs, factors_scalability.weights(6, 40_000, 1))[:, 0]
    known = stats.ttest_1samp(logs[:, 0], 0.0).confidence_interval(0.95)
    low, high = np.quantile(draws, [0.025, 0.975])
    assert (low, high) == pytest.approx((known.low, known.high), abs=0.03 * (known.high - known.low))


def test_lack_of_fit_is_found_if_present_and_rarely_otherwise() -> None:
    rng, studies, found = np.random.default_rng(5), 120, [0, 0]
    bent = np.array([0, 0, 0, 0.15, 0, 0])
    for _ in range(studies):
        for i, shape in enumerate((0.0, bent)):
            logs = measured(rng, (1000, 0.05, 1e-3), passes=6) + shape
            fitting = factors_scalability.lack_of_fit(
                CLIENTS, logs, factors_scalability.fit_curves(CLIENTS, logs.mean(axis=0))
            )
            found[i] += fitting.p_value < 0.05
    assert found[0] <= stats.binom.ppf(1 - 1e-4, studies, 0.05)
    assert found[1] >= stats.binom.ppf(1e-4, studies, 0.9)


def test_lack_of_fit_with_a_curve_of_one_parameter_is_the_analysis_of_variance_by_hand() -> None:
    # X = λN: the residual is the deviation of ln X − ln N from its mean. Three passes, the second twice as
    # fast throughout, which is no error of the shape.
    clients = np.array([1, 2, 4, 8.0])
    left = np.array([[0.1, 0, 0, 0], [0, 0.1, 0, 0], [0, 0, 0.1, 0.2]])
    logs = np.log(clients) + left + np.array([[0], [math.log(2)], [0]])
    found = factors_scalability.lack_of_fit(
        clients,
        logs,
        factors_scalability.Law(np.exp([logs.mean() - np.log(clients).mean()]), *np.zeros((2, 1))),
    )
    means = left.mean(axis=0)
    pure = left - means - left.mean(axis=1, keepdims=True) + left.mean()
    f = (3 * ((means - means.mean()) ** 2).sum() / 3) / ((pure**2).sum() / 6)
    assert found.f == pytest.approx(f) and found.p_value == pytest.approx(stats.f.sf(f, 3, 6))


@cache
def scalability(faster: float, sigma: float = 0.05, kappa: float = 1e-3, seed: int = 6) -> Scalability:
    """17 and 18 in common blocks: 18 is faster by this factor at any number of clients."""
    rng, passes = np.random.default_rng(seed), 8
    shared = measured(rng, (1000, sigma, kappa), passes)
    cells = []
    for server, gain in (("17", 0.0), ("18", math.log(faster))):
        own = shared + gain + rng.normal(0, 0.005, shared.shape)
        for i, clients in enumerate(CLIENTS):
            logs = {number: float(own[number, i]) for number in range(passes)}
            cells.append(
                FactorialCell(
                    {"server": server, "clients": f"{clients:g}"}, int(clients), None, logs, stalled=False
                )
            )
    numbers = tuple(f"{clients:g}" for clients in CLIENTS)
    factors = (Factor("server", ("17", "18"), True), Factor("clients", numbers, False))
    return scalability_of(FactorialDesign(factors, cells, TPS, Schedule.SLICES, Method.STUDENT), 0.95)


def test_a_server_that_is_faster_at_any_number_of_clients_differs_in_nothing_but_that() -> None:
    (of,) = scalability(1.1).differences
    assert (of.name, of.baseline) == ("18", "17")
    for estimate, truth in ((of.rate_of_one, 10), (of.peak, 10), (of.sigma, 0), (of.kappa, 0)):
        assert estimate.low < truth < estimate.high
    for ratio in of.ratios.values():
        assert ratio.low < 10 < ratio.high
    judged_at = [
        1 - 0.05 / (6 - rank) for rank in range(6)
    ]  # all of them are there, so Holm goes to the last
    assert sorted(ratio.confidence for ratio in of.ratios.values()) == pytest.approx(sorted(judged_at))
    # Pass effects cancel in the ratio, whereas a single curve is far less certain.
    curve = scalability(1.1).curves[1]
    own = 100 * (curve.rate_of_one.high - curve.rate_of_one.low) / curve.rate_of_one.value
    assert of.rate_of_one.high - of.rate_of_one.low < own / 5


def test_a_knee_is_reported_if_visible_and_within_twice_the_measured_range() -> None:
    curve = scalability(1.0).curves[0]
    assert curve.knee.low < math.sqrt(0.95 / 1e-3) < curve.knee.high
    assert curve.peak.value == pytest.approx(curve.law.at(curve.knee.value)[0])
    none = scalability(1.0, sigma=0.05, kappa=0.0).curves[0]
    assert none.knee is None and none.peak is None


def test_three_numbers_of_clients_or_a_fixed_load_give_no_curve() -> None:
    factors = (Factor("server", ("17", "18"), True), Factor("clients", ("1", "2", "3"), False))
    assert scalability_of(FactorialDesign(factors, (), TPS, Schedule.SLICES, Method.STUDENT), 0.95) is None
