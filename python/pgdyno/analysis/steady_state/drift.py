"""Drift within long windows: slopes per hour of rate, WAL, ages and sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgdyno.analysis.statistics.effect import student
from pgdyno.analysis.statistics.slopes import SPAN_S_MIN, Slope, growth, mean_slope, trend
from pgdyno.analysis.steady_state.stationarity import ALARM_OF_TRENDS
from pgdyno.analysis.telemetry.samples import SERVER
from pgdyno.analysis.telemetry.throughput_series import ThroughputPoint
from pgdyno.analysis.telemetry.trial_telemetry import TrialTelemetry
from pgdyno.caveats import Caveat, Code, Parameter
from pgdyno.estimate import Better, Estimate, group_digits
from pgdyno.results.records import Arm, SampleSeries, Trial, TrialStatus
from pgdyno.study.schedule import Role
from pgdyno.units import PER_MIB, S_PER_HOUR

RATE = "tps"

SIZES: Mapping[str, tuple[str, str]] = {
    "database.growth": ("size of the database", "MiB"),
    "relations.growth": ("size of tables with their indexes", "MiB"),
    "relations.indexes_growth": ("size of indexes", "MiB"),
    "relations.dead_growth": ("dead tuples", "tuples"),
}
"""Quantities read only at the ends of a window: change per time, without an interval for one trial."""


@dataclass(frozen=True)
class Drift:
    """Drift of one quantity. ``estimate`` is per hour, ``percent`` in percent of its mean per hour.

    n is the number of trials, or of parts if there is only one trial.
    """

    key: str
    name: str
    estimate: Estimate
    percent: Estimate | None = None
    slope: Slope | None = None


def drifts_of_arm(
    arm: Arm,
    trials: Sequence[Trial],
    points: Mapping[int, Sequence[ThroughputPoint]],
    series: Mapping[int, Mapping[str, SampleSeries]],
    telemetry: Mapping[int, TrialTelemetry],
    confidence: float,
) -> list[Drift]:
    """Return the drifts of an arm's ok trials with long windows. The mappings are by trial ID."""
    mine = [trial for trial in trials if trial.arm == arm.arm and trial.status is TrialStatus.OK]
    rates = [_rate(points.get(trial.trial, ()), confidence) for trial in mine]
    found = _drift(RATE, "transactions per second", "tx/s", Better.MORE, rates, confidence)
    sampled = [series.get(trial.trial, {}).get(SERVER) for trial in mine]
    wal = [_growth(of, "lsn_bytes", PER_MIB, confidence) for of in sampled]
    found += _drift("wal.bytes", "WAL written", "MiB", Better.NEITHER, wal, confidence, relative=False)
    ages = [_growth(of, "frozen_xid_age", 1.0, confidence) for of in sampled]
    found += _drift(
        "wraparound.age", "age of datfrozenxid", "xids", Better.LESS, ages, confidence, relative=False
    )
    known = [telemetry[trial.trial] for trial in mine if trial.trial in telemetry]
    return found + [drift for key in SIZES for drift in _sizes(key, known, confidence)]


def drift_caveats(
    arm: Arm, found: Sequence[Drift], window_s: float, margin: float, asked: int = 1
) -> list[Caveat]:
    """Return a caveat if the rate changed significantly, by more than the margin during the window.

    The level is ALARM_OF_TRENDS for the whole study (Bonferroni): ``asked`` is the number of arms in all
    cases.
    """
    for drift in found:
        slope = drift.slope
        if drift.key != RATE or slope is None or slope.p_value is None or drift.percent is None:
            continue
        if slope.p_value > ALARM_OF_TRENDS / asked:
            continue
        if abs(drift.percent.value) / 100 * window_s / S_PER_HOUR > margin:
            percent = group_digits(drift.percent.value, drift.percent.decimals)
            names: dict[str, Parameter] = {"arm": arm.name, "slope_percent_per_hour": percent}
            return [Caveat(Code.NO_STEADY_STATE, names)]
    return []


def _rate(points: Sequence[ThroughputPoint], confidence: float) -> Slope | None:
    measured = [point for point in points if point.role is Role.MEASURE]
    return trend([point.at_s for point in measured], [point.per_s for point in measured], confidence)


def _growth(series: SampleSeries | None, column: str, scale: float, confidence: float) -> Slope | None:
    if series is None:
        return None
    return growth(series.points[:, 0], scale * series.column(column), confidence)


def _drift(
    key: str,
    name: str,
    unit: str,
    better: Better,
    slopes: Sequence[Slope | None],
    confidence: float,
    *,
    relative: bool = True,
) -> list[Drift]:
    slope = mean_slope([one for one in slopes if one is not None], confidence)
    if slope is None:
        return []
    percent = slope.percent(better) if relative else None
    return [Drift(key, name, slope.estimate(unit, better), percent, slope)]


def _sizes(key: str, trials: Sequence[TrialTelemetry], confidence: float) -> list[Drift]:
    per_hour = [
        S_PER_HOUR * of.values[key] / of.elapsed_s
        for of in trials
        if key in of.values and of.elapsed_s is not None and of.elapsed_s >= SPAN_S_MIN
    ]
    if not per_hour:
        return []
    name, unit = SIZES[key]
    summary = student(per_hour, confidence)
    unit = f"{unit} per hour"
    return [
        Drift(
            key,
            name,
            Estimate(summary.mean, unit, summary.n, Better.LESS, summary.low, summary.high, confidence),
        )
    ]
