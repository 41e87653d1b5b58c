"""Simulated gates (``python -m bench gates``) have the error rates and the power of the theory."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bench import gates
from bench.gates import Design
from bench.noise import normal
from scipy.stats import nct, t

from pgdyno.analysis.statistics.intervals import Method
from pgdyno.features.gates.conditions import GateOutcome

STUDIES, BLOCKS, SD = 600, 12, 0.03


def design(method: Method) -> Design:
    return Design(0, method, normal(SD)(np.random.default_rng(1), STUDIES, BLOCKS))


@pytest.mark.parametrize("slowdown_percent", [2.0, 5.0, 8.0, 11.0])
def test_a_fixed_length_has_the_power_of_the_t_test(slowdown_percent: float) -> None:
    distance = math.log1p(-slowdown_percent / 100) - math.log1p(-0.05)
    expected = nct.cdf(-t.ppf(0.975, BLOCKS - 1), BLOCKS - 1, distance / (SD / math.sqrt(BLOCKS)))
    failed = design(Method.STUDENT).outcomes(slowdown_percent, 5)[GateOutcome.FAILED] / STUDIES
    assert failed == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / STUDIES) + 1e-3)


@pytest.mark.parametrize("method", Method)
def test_a_gate_at_its_limit_neither_fails_nor_passes_often(method: Method) -> None:
    found = design(method).outcomes(5, 5)
    most = STUDIES * 0.025 + 4 * math.sqrt(STUDIES * 0.025)
    assert found[GateOutcome.FAILED] <= most and found[GateOutcome.PASSED] <= most
    assert found.total() == STUDIES


def test_the_detected_slowdown_is_the_smallest_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "SLOWDOWNS_PERCENT", [5.0, 6.0, 7.0, 8.0, 9.0, 10.0])
    of = design(Method.STUDENT)
    found = of.detected_percent(5)
    assert found is not None and found < 10
    assert of.outcomes(found, 5)[GateOutcome.FAILED] >= 0.8 * STUDIES
    assert of.outcomes(found - 1, 5)[GateOutcome.FAILED] < 0.8 * STUDIES
    monkeypatch.setattr(gates, "SLOWDOWNS_PERCENT", [5.5])
    assert of.detected_percent(5) is None


def test_blocks_with_fewer_slices_have_more_noise() -> None:
    assert gates.excess_of(gates.ROUNDS_RECORDED) == 1 < gates.excess_of(10)
