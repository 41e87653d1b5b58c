"""Charts over time: rates of long windows downsampled without loss, WAL, checkpoints."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from itertools import groupby, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_forms import report_of
from synthetic_study import Synthetic, written_study

from pgdyno.analysis.steady_state import checkpoint_starts
from pgdyno.analysis.telemetry.samples import POINTS_MAX, ThroughputPoint, throughput_points
from pgdyno.report.html_format import to_html
from pgdyno.report.plot import (
    LETTER_WIDTH,
    LINE_HEIGHT,
    ROW_LABEL_SCALE,
    TICKS_MIN,
    Axis,
    Dots,
    Point,
    Row,
    Scale,
    estimates,
    label_width,
    linear,
    log_ticks,
    logarithmic,
    nice_ticks,
    plot,
)
from pgdyno.report.why_section import TICK_DISTANCE_MIN, checkpoint_ticks, wal_rate, wal_rates
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Executed, SampleSeries
from pgdyno.study.schedule import Role
from pgdyno.units import Better

MIB = 1 << 20


def test_a_long_window_keeps_its_mean_rate_in_few_points() -> None:
    second = np.arange(5410.0)
    n = np.where(second < 10, 7, second % 5)
    points = throughput_points(Executed(second >= 10, second, second + 1, n))
    assert len(points) <= POINTS_MAX + 2
    assert {point.per_s for point in points if point.role is Role.WARM_UP} == {7.0}
    rates = [point.per_s for point in points if point.role is Role.MEASURE]
    assert np.mean(rates) == pytest.approx(2.0, rel=1e-3)
    assert points[-1].at_s == pytest.approx(5410, abs=16)


def test_a_short_window_keeps_every_interval() -> None:
    measured, from_s, to_s, n = [True] * 2, [0.0, 0.5], [0.5, 0.5], [10, 9]
    points = throughput_points(Executed(*map(np.array, (measured, from_s, to_s, n))))
    assert points == [ThroughputPoint(0.25, 20.0, Role.MEASURE)]


def test_a_point_is_of_one_role_and_has_the_rate_of_its_intervals_together() -> None:
    rng = np.random.default_rng(1)
    took_s = rng.uniform(0.0, 1.5, 1000).round(1)  # some have zero duration
    to_s = np.cumsum(took_s)
    measured, n = np.repeat(rng.random(50) < 0.5, 20), rng.poisson(100.0, 1000).astype(float)
    lasting = [row for row in zip(measured, to_s - took_s, to_s, n, strict=True) if row[1] < row[2]]
    together = math.ceil(len(lasting) / POINTS_MAX)
    slices = [list(rows) for _, rows in groupby(lasting, key=lambda row: row[0])]
    parts = [rows[i : i + together] for rows in slices for i in range(0, len(rows), together)]
    expected = [
        (
            (part[0][1] + part[-1][2]) / 2,
            sum(row[3] for row in part) / sum(row[2] - row[1] for row in part),
            Role.MEASURE if part[0][0] else Role.WARM_UP,
        )
        for part in parts
    ]
    points = throughput_points(Executed(measured, to_s - took_s, to_s, n))
    assert together > 1 and {len(part) for part in parts} > {together}
    assert [point.role for point in points] == [role for *_, role in expected]
    assert np.array([(p.at_s, p.per_s) for p in points]) == pytest.approx(
        np.array([e[:2] for e in expected]), rel=1e-12
    )


def test_no_streamed_interval_gives_no_point() -> None:
    none = np.array([])
    assert throughput_points(Executed(none > 0, none, none, none)) == []


def test_intervals_are_counted_over_all_kinds() -> None:
    with Evidence(written_study(Synthetic(blocks=1, slices=3))) as evidence:
        trial = evidence.trials()[0].trial
        expected = [
            (of.role is Role.MEASURE, of.from_s, of.to_s, sum(n.executed for n in of.kinds.values()))
            for of in evidence.intervals(trial)
        ]
        executed = evidence.executed(trial)
        assert list(zip(*(column.tolist() for column in executed), strict=True)) == expected
    assert all(n > 0 for *_, n in expected)


def series(seconds: int) -> SampleSeries:
    at = np.arange(seconds + 1.0)
    begun = 3 + (at >= 20) + (at >= 25)
    points = np.array([at, 0 * at, 2 * MIB * at, begun, at >= 20]).T
    return SampleSeries("server", ("at_s", "late_s", "lsn_bytes", "num_timed", "num_requested"), points)


def test_wal_is_drawn_of_windows_that_are_long_enough() -> None:
    assert wal_rate(series(29)) == []
    for seconds in (30, 3600):
        points = wal_rate(series(seconds))
        assert 0 < len(points) <= POINTS_MAX
        assert [point.per_s for point in points] == pytest.approx([2.0] * len(points))


@pytest.mark.parametrize(("mib_per_s", "panels"), [(0.05, 0), (0.2, 2)])
def test_wal_is_drawn_of_workloads_that_write(mib_per_s: float, panels: int) -> None:
    findings = report_of(Synthetic(blocks=2, slices=20, probed=True)).findings.first
    points = series(40).points * np.array([1, 1, mib_per_s / 2, 1, 1])
    of = {trial.trial: replace(series(40), points=points) for trial in findings.trials}
    own = replace(findings, telemetry=replace(findings.telemetry, series=of))
    assert len(wal_rates(own)) == panels


def test_a_checkpoint_is_where_a_counter_of_them_grew() -> None:
    assert checkpoint_starts(series(40)) == [20.0, 25.0]


def test_overlapping_checkpoints_are_one_tick_with_their_number() -> None:
    hour = Scale(0, 3600, 0.0, 360.0)
    drawn = "".join(checkpoint_ticks([10.0, 300.0, 301.0, 319.0, 600.0], hour, "arm0"))
    assert drawn.count("<line ") == 3
    assert "checkpoint started by 10 s" in drawn and "checkpoint started by 600 s" in drawn
    assert "3 checkpoints started by 300 to 319 s" in drawn
    every_second = checkpoint_ticks(np.arange(3600.0).tolist(), hour, "arm0")
    assert len(every_second) <= 360 / TICK_DISTANCE_MIN
    assert checkpoint_ticks([], hour, "arm0") == []


def test_the_page_draws_wal_and_checkpoints() -> None:
    page = to_html(report_of(Synthetic(blocks=2, slices=20, probed=True)))
    assert "WAL written over time" in page and "Ticks at the top" in page
    assert page.count('class="tick ') == 4  # one of each trial
    page = to_html(report_of(Synthetic(blocks=2, slices=3)))
    assert "WAL written over time" not in page and "Ticks at the top" not in page


def test_labels_of_an_axis_do_not_overlap_and_its_zero_has_a_line_of_its_own() -> None:
    x = Axis(0.0, 100.0, [(float(at), f"label {at}") for at in range(0, 101, 5)])
    y = linear([-1.0, 1.0], unit="%")
    drawn = plot("a chart", x, y, [Dots([Point(50.0, 0.5, "a dot", -0.5, 1.5)], "arm0", "a")])
    places = [float(at) for at in re.findall(r'<text x="([\d.]+)"[^>]*>label ', drawn)]
    assert 2 < len(places) < 10
    assert min(b - a for a, b in pairwise(places)) > LETTER_WIDTH * len("label 5")
    assert drawn.count('class="zero"') == 1 and drawn.count('class="grid"') == len(y.ticks) - 1
    assert "<title>a dot</title>" in drawn and drawn.count(">a</text>") == 1


TEXT = re.compile(r'<text x="([-\d.]+)" y="([-\d.]+)" class="([^"]*)">([^<]*)</text>')
NAMES = st.lists(st.text("aW0%, _=", min_size=1, max_size=60).filter(str.strip), min_size=1, max_size=12)


def require_legible(drawn: str) -> list[tuple[float, float, float, float]]:
    """Assert that no text overlaps another or leaves the picture, with letters of the widest usual font.

    Return left, right, top and bottom of each text.
    """
    width, height = map(float, re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn)[0])
    boxes: list[tuple[float, float, float, float]] = []
    for x, y, kind, words in TEXT.findall(drawn):
        wide = label_width(unescape(words)) * (1 if "small" in kind else ROW_LABEL_SCALE)
        left = float(x) - (wide / 2 if "middle" in kind else wide if "end" in kind else 0)
        right, top, bottom = left + wide, float(y) - 8, float(y) + 2
        assert left >= -0.2 and right <= width + 0.2 and top >= 0 and bottom <= height, words
        for other in boxes:
            apart = right <= other[0] + 0.2 or other[1] <= left + 0.2
            assert apart or bottom <= other[2] or other[3] <= top, words
        boxes.append((left, right, top, bottom))
    return boxes


@settings(max_examples=50)  # each draws up to 12 long names
@given(
    st.lists(st.floats(1e-3, 1e7), min_size=2, max_size=9, unique=True),
    st.sampled_from((linear, logarithmic)),
    NAMES,
    st.lists(st.floats(0.0, 1.0), min_size=12, max_size=12),
)
def test_labels_neither_overlap_nor_leave_the_picture(
    values: list[float], axis: Callable[[list[float]], Axis], names: list[str], ends: list[float]
) -> None:
    x = Axis(
        0.0, max(1.0, len(names) - 1.0), [(float(n), name[:12]) for n, name in enumerate(names)], max(names)
    )
    low, high = min(values), max(values)
    lines = [
        Dots([Point(0.0, low), Point(0.5, low + end * (high - low))], "arm1", name)
        for name, end in zip(names, ends, strict=False)
    ]
    drawn = str(plot("a chart", x, axis(values), lines))
    require_legible(drawn)
    # Each name is behind a piece of its line.
    assert drawn.count('class="curve arm1"') == 2 * len(names)


@settings(max_examples=50)
@given(NAMES)
def test_the_label_of_a_row_is_beside_its_mark(names: list[str]) -> None:
    rows = [Row(name, float(n), "", "arm1") for n, name in enumerate(names)]
    drawn = str(estimates("a chart", rows, (-1.0, 12.0), 0.02, Better.MORE))
    require_legible(drawn)
    dots = [tuple(map(float, of)) for of in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', drawn)]
    labels = [(float(x), float(y)) for x, y, kind, _ in TEXT.findall(drawn) if kind == "end"]
    assert len(dots) == len(rows)
    for at, y in dots:  # one or two lines, at the left of the dot
        assert 1 <= sum(right < at and abs(baseline - 4 - y) < LINE_HEIGHT for right, baseline in labels) <= 2


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(2, 7))
def test_a_linear_axis_has_at_least_three_ticks_within_it(low: float, extent: float, wanted: int) -> None:
    ticks = nice_ticks(low, low + extent, wanted)
    assert TICKS_MIN <= len(ticks) <= 4 * wanted
    assert all(low - 1e-6 * extent <= tick <= low + (1 + 1e-6) * extent for tick in ticks)


@given(st.floats(1e-4, 1e6), st.floats(1.01, 1e6))
def test_a_logarithmic_axis_has_at_least_three_ticks_with_different_labels(low: float, factor: float) -> None:
    ticks = log_ticks(low, low * factor)
    assert len(ticks) >= TICKS_MIN
    assert all(low * 0.998 <= tick <= low * factor * 1.002 for tick in ticks)
    labels = [shown for _, shown in logarithmic([low, low * factor]).ticks]
    assert len(set(labels)) == len(labels)
    assert [float(shown.replace(",", "")) for shown in labels] == pytest.approx(
        [tick for tick, _ in logarithmic([low, low * factor]).ticks]
    )
