"""What is drawn over time: rates of long windows made coarser without a loss, WAL, checkpoints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from synthetic_study import Synthetic, write_study

from pgdyno.analysis.cycles import begun
from pgdyno.analysis.series import POINTS_MAX, throughput
from pgdyno.cli.report import read_report
from pgdyno.evidence.reader import Evidence
from pgdyno.evidence.records import Executed, Role, Series
from pgdyno.report.html import to_html
from pgdyno.report.timelines import wal_rate

MIB = 1 << 20


def test_a_long_window_keeps_its_mean_rate_in_few_points() -> None:
    warm = [(Role.WARM_UP, float(s), s + 1.0, 7) for s in range(10)]
    measured = [(Role.MEASURE, float(s), s + 1.0, s % 5) for s in range(10, 5410)]
    points = throughput(Executed(*zip(*warm, *measured, strict=True)))
    assert len(points) <= POINTS_MAX + 2
    assert {point.per_s for point in points if point.role is Role.WARM_UP} == {7.0}
    rates = [point.per_s for point in points if point.role is Role.MEASURE]
    assert np.mean(rates) == pytest.approx(2.0, rel=1e-3)
    assert points[-1].at_s == pytest.approx(5410, abs=16)


def test_a_short_window_keeps_every_interval() -> None:
    points = throughput(Executed([Role.MEASURE] * 2, [0.0, 0.5], [0.5, 0.5], [10, 9]))
    assert [(point.at_s, point.per_s) for point in points] == [(0.25, 20.0)]


def test_intervals_are_counted_over_all_kinds(tmp_path: Path) -> None:
    write_study(tmp_path / "e", Synthetic(blocks=1, slices=3))
    with Evidence(tmp_path / "e") as evidence:
        trial = evidence.trials()[0].trial
        expected = [
            (of.role, of.from_s, of.to_s, sum(counts.executed for counts in of.kinds.values()))
            for of in evidence.intervals(trial)
        ]
        assert list(zip(*evidence.executed(trial), strict=True)) == expected
    assert all(n > 0 for *_, n in expected)


def series(seconds: int) -> Series:
    at = np.arange(seconds + 1.0)
    begun = 3 + (at >= 20) + (at >= 25)
    points = np.array([at, 0 * at, 2 * MIB * at, begun, at >= 20]).T
    return Series("server", ("at_s", "late_s", "lsn_bytes", "num_timed", "num_requested"), points)


def test_wal_is_drawn_of_windows_that_are_long_enough() -> None:
    assert wal_rate(series(29)) == []
    for seconds in (30, 3600):
        points = wal_rate(series(seconds))
        assert 0 < len(points) <= POINTS_MAX
        assert [point.per_s for point in points] == pytest.approx([2.0] * len(points))


def test_a_checkpoint_is_where_a_counter_of_them_grew() -> None:
    assert begun(series(40)) == [20.0, 25.0]


def test_the_page_draws_wal_and_checkpoints(tmp_path: Path) -> None:
    write_study(tmp_path / "e", Synthetic(blocks=2, slices=20, probed=True))
    page = to_html(read_report(tmp_path / "e"))
    assert "WAL written over time" in page and "Ticks at the top" in page
    assert page.count('class="tick ') == 4  # one of each trial
    write_study(tmp_path / "short", Synthetic(blocks=2, slices=3))
    page = to_html(read_report(tmp_path / "short"))
    assert "WAL written over time" not in page and "Ticks at the top" not in page
