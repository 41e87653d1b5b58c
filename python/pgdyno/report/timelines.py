"""Charts over time, one per block: throughput with checkpoints, and the WAL rate of longer windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup

from pgdyno.analysis.causes.throughput_dips import Dip
from pgdyno.analysis.findings.case_findings import Findings
from pgdyno.analysis.steady_state.checkpoint_cycles import checkpoint_starts
from pgdyno.analysis.telemetry.samples import rates
from pgdyno.analysis.telemetry.throughput_series import POINTS_MAX, ThroughputPoint
from pgdyno.estimate import group_digits, significant
from pgdyno.report.charts import DOTS_MAX, Panel, arm_class
from pgdyno.report.dips_section import label
from pgdyno.report.svg import Scale, circle, drawing, element, line, nice_ticks, polyline, text, tick_labels
from pgdyno.results.records import SampleSeries, Trial
from pgdyno.study.schedule import Role
from pgdyno.units import PER_MIB

WINDOW_S_MIN = 30.0
"""Minimum window with a chart of the WAL rate: the table is enough for a shorter one."""

TICK_DISTANCE_MIN = 2.0
"""Minimum distance of ticks in pixels; nearer ones are merged. Without merging, 200 hours with a checkpoint
per second made a page of 84 MB."""


LEFT, RIGHT, TOP, BOTTOM, WIDTH, HEIGHT = 38.0, 10.0, 16.0, 122.0, 280.0, 140.0


def throughput_timelines(findings: Findings) -> list[Panel]:
    """Return the rate of each arm over time, with checkpoints and dips; all blocks have the same scale."""
    ticks = {trial: checkpoint_starts(series) for trial, series in findings.telemetry.series.items()}
    dips: dict[int, list[Dip]] = {}
    for of_arm in findings.dips.values():
        for dip in of_arm.dips:
            dips.setdefault(dip.trial, []).append(dip)
    return _panels(findings, findings.series, "tx/s", ticks, dips)


def wal_rates(findings: Findings) -> list[Panel]:
    """Return the WAL rate in MiB/s, from samples of the server per second; none for short windows."""
    return _panels(
        findings,
        {trial: wal_rate(series) for trial, series in findings.telemetry.series.items()},
        "MiB/s",
        {},
        {},
    )


def has_checkpoints(findings: Findings) -> bool:
    """Return True if any checkpoint started during measurement."""
    return any(checkpoint_starts(series) for series in findings.telemetry.series.values())


def wal_rate(series: SampleSeries) -> list[ThroughputPoint]:
    """Return the WAL rate, averaged over samples so that there are at most POINTS_MAX points."""
    if not len(series.points) or series.points[-1, 0] - series.points[0, 0] < WINDOW_S_MIN:
        return []
    step = -(-len(series.points) // POINTS_MAX)
    found = rates(SampleSeries(series.probe, series.columns, series.points[::step]))
    per_s = found.per_s.get("lsn_bytes", np.array([])) * PER_MIB
    return [
        ThroughputPoint(float(at_s), float(rate), Role.MEASURE)
        for at_s, rate in zip(found.at_s, per_s, strict=False)
        if np.isfinite(rate)
    ]


def _panels(
    findings: Findings,
    points: Mapping[int, Sequence[ThroughputPoint]],
    unit: str,
    ticks: Mapping[int, Sequence[float]],
    dips: Mapping[int, Sequence[Dip]],
) -> list[Panel]:
    by_block: dict[int, list[Trial]] = {}
    for trial in findings.trials:
        if points.get(trial.trial):
            by_block.setdefault(trial.block, []).append(trial)
    top = max((point.per_s for of_trial in points.values() for point in of_trial), default=0.0) * 1.05
    if top <= 0:
        return []
    names = {of.arm.arm: of.arm.name for of in findings.arms}
    return [
        Panel(f"block {block + 1}", _picture(trials, names, points, top, unit, ticks, dips))
        for block, trials in sorted(by_block.items())
    ]


def _picture(
    trials: Sequence[Trial],
    names: Mapping[int, str],
    points: Mapping[int, Sequence[ThroughputPoint]],
    top_rate: float,
    unit: str,
    ticks: Mapping[int, Sequence[float]],
    dips: Mapping[int, Sequence[Dip]],
) -> Markup:
    end = max(point.at_s for trial in trials for point in points[trial.trial])
    x, y = Scale(0, end, LEFT, WIDTH - RIGHT), Scale(0, top_rate, BOTTOM, TOP)
    parts = [text(LEFT - 4, TOP - 6, unit, class_="end small")]
    rates = nice_ticks(0, top_rate, 4)
    for tick, shown in zip(rates, tick_labels(rates), strict=True):
        parts += [
            line(LEFT, y(tick), WIDTH - RIGHT, y(tick), class_="grid" if tick else "zero"),
            text(LEFT - 4, y(tick) + 3, shown, class_="end small"),
        ]
    seconds = nice_ticks(0, end, 4)
    for tick, shown in zip(seconds, tick_labels(seconds), strict=True):
        parts.append(text(x(tick), BOTTOM + 13, f"{shown} s" if tick else "0", class_="middle small"))
    for trial in trials:
        color = arm_class(trial.arm)
        parts += checkpoint_ticks([at_s for at_s in ticks.get(trial.trial, ()) if at_s <= end], x, color)
        parts += [_dip(dip, x, color) for dip in dips.get(trial.trial, ())]
        for role, kind in ((Role.WARM_UP, "faint"), (Role.MEASURE, "")):
            chosen = [point for point in points[trial.trial] if point.role is role]
            parts += _one_line(chosen, x, y, names[trial.arm], unit, f"{color} {kind}".strip())
    return drawing(WIDTH, HEIGHT, f"{unit} over time", parts, "rates")


def checkpoint_ticks(moments: Sequence[float], x: Scale, color: str) -> list[Markup]:
    """Return a tick for each checkpoint; overlapping ticks are merged."""
    together: list[list[float]] = []
    for at_s in moments:
        if together and x(at_s) - x(together[-1][0]) < TICK_DISTANCE_MIN:
            together[-1].append(at_s)
        else:
            together.append([at_s])
    return [_tick(of, x(of[0]), color) for of in together]


def _tick(moments: Sequence[float], at: float, color: str) -> Markup:
    first = group_digits(moments[0], 0)
    one = f"checkpoint started by {first} s"
    several = f"{len(moments)} checkpoints started by {first} to {group_digits(moments[-1], 0)} s"
    title = element("title", one if len(moments) == 1 else several)
    return element("line", title, x1=at, y1=TOP - 9, x2=at, y2=TOP - 1, class_=f"tick {color}")


def _dip(dip: Dip, x: Scale, color: str) -> Markup:
    """Return a triangle on the axis that marks a dip."""
    at = x.inside((dip.from_s + dip.to_s) / 2)
    title = element("title", label(dip))
    corners = f"{at:g},{BOTTOM - 6:g} {at - 3.2:g},{BOTTOM - 0.5:g} {at + 3.2:g},{BOTTOM - 0.5:g}"
    return element("polygon", title, points=corners, class_=f"dot {color}")


def _one_line(
    points: Sequence[ThroughputPoint], x: Scale, y: Scale, name: str, unit: str, class_: str
) -> list[Markup]:
    if not points:
        return []
    drawn = [polyline([(x(p.at_s), y(p.per_s)) for p in points], class_=f"rate {class_}")]
    # More dots would hide the line: the others have only a tooltip.
    each = -(-len(points) // DOTS_MAX)
    radius, look = (1.7, f"dot {class_}") if each == 1 else (4.0, "hit")
    for p in points[::each]:
        title = f"{name}: {significant(p.per_s, 3)} {unit} at {group_digits(p.at_s, 1)} s"
        drawn.append(circle(x(p.at_s), y(p.per_s), radius, title, class_=look))
    return drawn
