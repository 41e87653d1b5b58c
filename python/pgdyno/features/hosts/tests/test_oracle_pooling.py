"""Pooling over hosts compared with known results: a published meta-analysis, scipy, the hosts of the 2022
study.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from pgdyno.analysis.statistics.averages import combine
from pgdyno.analysis.statistics.intervals import LogRatioSummary, Method, student
from pgdyno.features.hosts.findings import sign_caveats
from pgdyno.features.hosts.pooling import (
    WHOLE,
    HostEffect,
    common_parts,
    inconsistency,
    paule_mandel,
    pool,
    pool_groups,
)
from pgdyno.units import Better

BCG = [
    # vaccinated: cases, others; not vaccinated: cases, others
    *((4, 119, 11, 128), (6, 300, 29, 274), (3, 228, 11, 209), (62, 13536, 248, 12619)),
    *((33, 5036, 47, 5761), (180, 1361, 372, 1079), (8, 2537, 10, 619), (505, 87886, 499, 87892)),
    *((29, 7470, 45, 7232), (17, 1699, 65, 1600), (186, 50448, 141, 27197), (5, 2493, 3, 2338)),
    (27, 16886, 29, 17825),
]
"""Thirteen trials of a vaccine: Colditz et al., JAMA 1994; the worked example of the literature on random
effects. Q and I² below are those of the R package metafor's documentation."""


def bcg() -> tuple[np.ndarray, np.ndarray]:
    """Log relative risks and their variances."""
    a, b, c, d = np.array(BCG, float).T
    return np.log(a / (a + b) / (c / (c + d))), 1 / a - 1 / (a + b) + 1 / c - 1 / (c + d)


def host(name: str, mean: float, error: float, n: int = 10) -> HostEffect:
    sd = error * math.sqrt(n)
    return HostEffect(name, LogRatioSummary(mean, n, sd, None, None, 0.95, None))


def hosts(means: np.ndarray, variances: np.ndarray) -> list[HostEffect]:
    return [
        host(f"host {i}", float(d), math.sqrt(v))
        for i, (d, v) in enumerate(zip(means, variances, strict=True))
    ]


def test_the_example_of_the_literature_is_reproduced() -> None:
    # Q(12) = 152.2330, I² = 92.12 %; 0.3180 is the τ² at which Q is 12.
    means, variances = bcg()
    assert 12 / (1 - inconsistency(means, variances)) == pytest.approx(152.2330, abs=5e-5)
    assert inconsistency(means, variances) == pytest.approx(0.9212, abs=5e-5)
    assert paule_mandel(means, variances) == pytest.approx(0.3180, abs=5e-4)


def test_tau_is_the_root_that_scipy_finds_and_the_interval_that_of_the_formula() -> None:
    means, variances = bcg()

    def excess(tau2: float) -> float:
        w = 1 / (variances + tau2)
        return float(np.sum(w * (means - np.average(means, weights=w)) ** 2)) - (len(means) - 1)

    root = optimize.brentq(excess, 0, 10, xtol=1e-14)
    found = pool(hosts(means, variances), 0.95)
    assert found.tau is not None and found.over_hosts.low is not None and found.over_hosts.high is not None
    assert found.tau**2 == pytest.approx(root, rel=1e-9)
    # Hartung and Knapp's method as a regression on a constant: weighted least squares with its own residual
    # variance.
    w = np.sqrt(1 / (variances + root))
    line, rest, *_ = np.linalg.lstsq(w[:, None], w * means, rcond=None)
    error = math.sqrt(float(rest[0]) / 12 / float(np.sum(w**2)))
    reach = stats.t.ppf(0.975, 12) * error
    assert found.over_hosts.mean == pytest.approx(float(line[0]))
    assert (found.over_hosts.low, found.over_hosts.high) == pytest.approx(
        (found.over_hosts.mean - reach, found.over_hosts.mean + reach), rel=1e-6
    )
    assert found.percent(Better.MORE).n == 13


def test_the_two_hosts_of_the_2022_study_report_half_a_percent_plus_or_minus_fifty() -> None:
    # UPDATE, −3.35% on one host and +4.41% on the other, one run each: t(0.975, 1) = 12.7062, and half their
    # distance on the log scale is 3.861 points.
    found = pool([HostEffect(name, student([math.log(r)], 0.95)) for name, r in UPDATE_2022], 0.95)
    assert found.over_hosts.low is not None and found.over_hosts.high is not None
    assert 100 * (found.over_hosts.high - found.over_hosts.low) / 2 == pytest.approx(49.06, abs=0.01)
    assert found.percent(Better.LESS).value == pytest.approx(0.455, abs=0.001)
    assert found.signs_differ
    assert not found.weighted and found.tau is None and found.i2 is None
    # On the published percentages: 0.53 ± 49.3.
    plain = pool([HostEffect(name, student([100 * (r - 1)], 0.95)) for name, r in UPDATE_2022], 0.95)
    assert (plain.over_hosts.low, plain.over_hosts.high) == pytest.approx(
        (0.53 - 49.3, 0.53 + 49.3), abs=0.01
    )


UPDATE_2022 = [("i5", 0.9665), ("xeon", 1.0441)]


def test_hosts_with_nothing_to_weigh_them_by_are_students_sample() -> None:
    means = [0.1, 0.02, -0.03, 0.05]
    found = pool([HostEffect(str(i), student([d], 0.95)) for i, d in enumerate(means)], 0.9)
    known = student(means, 0.9)
    assert (found.over_hosts.mean, found.over_hosts.low, found.over_hosts.high) == pytest.approx(
        (known.mean, known.low, known.high)
    )
    assert found.p_value == pytest.approx(known.p_value)


def test_hosts_of_equal_precision_are_students_sample_too_where_they_differ() -> None:
    means = [0.30, 0.02, -0.13, 0.05]
    found = pool([host(str(i), d, 0.01) for i, d in enumerate(means)], 0.95)
    known = student(means, 0.95)
    assert (found.over_hosts.low, found.over_hosts.high) == pytest.approx((known.low, known.high))
    assert found.tau == pytest.approx(math.sqrt(np.var(means, ddof=1) - 0.01**2))


@given(mean=st.floats(-1, 1), error=st.floats(1e-4, 1), k=st.integers(2, 12), n=st.integers(2, 100))
def test_pooling_identical_hosts_changes_nothing(mean: float, error: float, k: int, n: int) -> None:
    found = pool([host(f"host {i}", mean, error, n) for i in range(k)], 0.95)
    assert found.over_hosts.mean == pytest.approx(mean, abs=1e-12)
    assert found.tau == 0 and found.i2 == 0 and not found.signs_differ
    assert found.blocks == k * n
    # The hosts agree better than expected by chance. The interval is still not narrower than the fixed-effect
    # one.
    assert found.over_hosts.low is not None and found.over_hosts.high is not None
    fixed = stats.norm.ppf(0.975) * error / math.sqrt(k)
    assert (found.over_hosts.high - found.over_hosts.low) / 2 >= fixed
    assert (found.over_hosts.high - found.over_hosts.low) / 2 == pytest.approx(
        stats.t.ppf(0.975, k - 1) * error / math.sqrt(k)
    )


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(1e-3, 1)), min_size=2, max_size=8))
def test_the_pooled_interval_is_never_narrower_than_the_fixed_effect_one(
    given_hosts: list[tuple[float, float]],
) -> None:
    found = pool([host(str(i), d, s) for i, (d, s) in enumerate(given_hosts)], 0.95)
    assert found.over_hosts.low is not None and found.over_hosts.high is not None
    fixed = stats.norm.ppf(0.975) / math.sqrt(sum(s**-2 for _, s in given_hosts))
    assert (found.over_hosts.high - found.over_hosts.low) / 2 >= fixed * (1 - 1e-9)
    assert (
        min(d for d, _ in given_hosts) - 1e-9
        <= found.over_hosts.mean
        <= max(d for d, _ in given_hosts) + 1e-9
    )
    assert sum(found.weights) == pytest.approx(1)


def test_a_host_alone_is_itself_and_has_no_interval_for_others() -> None:
    found = pool([host("only", 0.03, 0.01)], 0.95)
    assert found.over_hosts.mean == pytest.approx(0.03)
    assert found.over_hosts.low is None and found.p_value is None and found.i2 is None
    assert not found.signs_differ


def test_the_same_host_twice_is_rejected() -> None:
    with pytest.raises(ValueError, match="must not occur twice"):
        pool([host("same", 0.03, 0.01), host("same", 0.04, 0.01)], 0.95)


def test_an_effect_of_nothing_has_no_sign_to_differ_in() -> None:
    assert not pool([host("a", 0.0, 0.01), host("b", 0.02, 0.01)], 0.95).signs_differ
    assert pool([host("a", -1e-6, 0.01), host("b", 0.02, 0.01)], 0.95).signs_differ


@pytest.mark.parametrize(("k", "tau"), [(2, 0.03), (4, 0.0), (6, 0.06)])
def test_the_pooled_interval_has_its_nominal_coverage(k: int, tau: float) -> None:
    rng, truth, studies, blocks = np.random.default_rng(k), 0.02, 200, 10
    covered = 0
    for _ in range(studies):
        centres = rng.normal(truth, tau, k)
        noise = rng.uniform(0.01, 0.05, k)
        found = pool(
            [
                HostEffect(str(i), student(list(rng.normal(centre, sd, blocks)), 0.95))
                for i, (centre, sd) in enumerate(zip(centres, noise, strict=True))
            ],
            0.95,
        )
        assert found.over_hosts.low is not None and found.over_hosts.high is not None
        covered += found.over_hosts.low <= truth <= found.over_hosts.high
    assert covered >= stats.binom.ppf(1e-4, studies, 0.95)


def test_hosts_that_disagree_are_a_caveat_that_names_each() -> None:
    two = [HostEffect(name, student([math.log(r)], 0.95)) for name, r in UPDATE_2022]
    (caveat,) = sign_caveats(pool(two, 0.95), arm="15", baseline="10", metric="mean UPDATE time")
    assert "−3.350% on i5, +4.410% on xeon" in caveat.text
    agreeing = pool([host("a", 0.01, 0.01), host("b", 0.02, 0.01)], 0.95)
    assert sign_caveats(agreeing, arm="15", baseline="10", metric="throughput") == []


def test_groups_are_averaged_over_the_parts_that_all_have_and_then_pooled() -> None:
    rng = np.random.default_rng(3)
    ratios = {
        name: {part: dict(enumerate(rng.normal(0.1, 0.02, 6))) for part in parts}
        for name, parts in (("small", "ab"), ("large", "abc"))
    }
    groups = common_parts(ratios)
    assert {name: list(parts) for name, parts in groups.items()} == {"small": ["a", "b"], "large": ["a", "b"]}
    combined = {name: combine(parts, 0.95, Method.STUDENT) for name, parts in groups.items()}
    expected = pool([HostEffect(name, of.summary) for name, of in combined.items() if of], 0.95)
    assert pool_groups(groups, 0.95, Method.STUDENT) == expected and len(expected.hosts) == 2
    assert common_parts({"small": {"a": {0: 0.1}}, "large": {"b": {0: 0.1}}}) == {}


def test_a_single_group_of_a_single_part_keeps_its_own_effect() -> None:
    d = [0.1, 0.12, 0.08, 0.11]
    found = pool_groups({"small": {WHOLE: dict(enumerate(d))}}, 0.95, Method.STUDENT)
    assert found.effect == student(d, 0.95) and found.percent(Better.MORE).n == 4
    assert found.over_hosts.low is None  # unknown over hosts
