"""Slopes per hour in long windows of an arm, and the caveat that there was no steady state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from synthetic_telemetry import arm, trial

from pgdyno.analysis.steady_state import Drift, drift_caveats, drifts_of_arm
from pgdyno.analysis.telemetry.samples import ThroughputPoint
from pgdyno.analysis.telemetry.trial_telemetry import TrialTelemetry
from pgdyno.caveats import Code
from pgdyno.results.records import SampleSeries, TrialStatus
from pgdyno.study.schedule import Role

HOUR_S = 3600


def points(start_per_s: float, per_hour: float, seconds: int = HOUR_S) -> list[ThroughputPoint]:
    """One minute of slow warm-up, then a line."""
    warm = [ThroughputPoint(float(s), 1.0, Role.WARM_UP) for s in range(60)]
    return warm + [
        ThroughputPoint(60.0 + s, start_per_s + per_hour * s / HOUR_S, Role.MEASURE) for s in range(seconds)
    ]


def server_series(lsn_bytes_per_s: float) -> dict[str, SampleSeries]:
    at = np.arange(float(HOUR_S))
    columns = ("at_s", "late_s", "lsn_bytes", "frozen_xid_age")
    return {
        "server": SampleSeries("server", columns, np.array([at, 0 * at, lsn_bytes_per_s * at, 100 * at]).T)
    }


def grew(mib: float, elapsed_s: float = HOUR_S) -> TrialTelemetry:
    return TrialTelemetry({"database.growth": mib}, [], [], {}, elapsed_s=elapsed_s)


def drifts(rate: list[ThroughputPoint], **others: Any) -> list[Drift]:
    """Return the slopes of one trial with this rate, ``series`` and ``telemetry``."""
    series, telemetry = ({1: others[name]} if name in others else {} for name in ("series", "telemetry"))
    return drifts_of_arm(arm(0, "15"), [trial(1)], {1: rate}, series, telemetry, 0.95)


def by_key(found: list[Drift]) -> dict[str, Drift]:
    return {drift.key: drift for drift in found}


def test_one_long_trial_has_slopes_with_intervals_of_its_own() -> None:
    of = {"series": server_series(1 << 20), "telemetry": grew(250.0, 1800)}
    found = by_key(drifts(points(1000.0, -100.0), **of))
    rate = found["tps"]
    assert rate.estimate.value == pytest.approx(-100)
    assert rate.percent is not None and rate.percent.value == pytest.approx(-100 / 950 * 100, rel=1e-3)
    assert rate.estimate.unit == "tx/s per hour"
    assert found["wal.bytes"].estimate.value == pytest.approx(3600)
    assert found["wraparound.age"].estimate.value == pytest.approx(360_000)
    size = found["database.growth"].estimate
    assert (size.value, size.low, size.n) == (500.0, None, 1)


def test_several_trials_are_a_sample_and_others_do_not_count() -> None:
    trials = [trial(1, 0), trial(2, 1), trial(3, 2, arm=1), replace(trial(4, 3), status=TrialStatus.FAILED)]
    rates = {i: points(1000.0, slope) for i, slope in ((1, -100.0), (2, -50.0), (3, 9.0), (4, 900.0))}
    telemetry = {1: grew(100.0), 2: grew(140.0), 3: grew(9.0), 4: grew(9.0)}
    found = by_key(drifts_of_arm(arm(0, "15"), trials, rates, {}, telemetry, 0.95))
    assert found["tps"].estimate.value == pytest.approx(-75) and found["tps"].estimate.n == 2
    size = found["database.growth"].estimate
    assert size.value == pytest.approx(120) and size.n == 2 and size.low is not None
    assert list(found) == ["tps", "database.growth"]


def test_short_windows_have_no_slopes() -> None:
    assert drifts(points(1000.0, -100.0, 300), telemetry=grew(1.0, 300)) == []


def test_a_rate_that_significantly_falls_by_more_than_the_margin_is_not_steady() -> None:
    falling = drifts(points(1000.0, -100.0))
    (caveat,) = drift_caveats(arm(0, "15"), falling, HOUR_S, 0.02)
    assert caveat.code == Code.NO_STEADY_STATE and "−10.5" in caveat.text
    assert drift_caveats(arm(0, "15"), falling, HOUR_S, 0.2) == []
    assert drift_caveats(arm(0, "15"), drifts(points(1000.0, -1.0)), HOUR_S, 0.02) == []
    noise = 50 * np.random.default_rng(5).normal(size=HOUR_S + 60)
    level = [replace(point, per_s=1000 + dev) for point, dev in zip(points(0, 0), noise, strict=True)]
    steady = drifts(level)
    assert steady and drift_caveats(arm(0, "15"), steady, HOUR_S, 0.0001) == []
