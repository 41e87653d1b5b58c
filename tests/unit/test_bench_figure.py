"""Figures of benchmarks: paired ratios, limits, and the table."""

from __future__ import annotations

import pytest
from bench.figure import Sense, alone, compared, interval_of_median, limited, markdown


def test_the_ratio_is_the_median_of_the_pairs_not_the_ratio_of_the_medians() -> None:
    figure = compared("cpu", "µs/tx", [(1.0, 2.0), (30.0, 40.0), (5.0, 50.0)], "pgbench")
    assert (figure.ours, figure.theirs, figure.ratio, figure.n) == (5.0, 40.0, 0.5, 3)


@pytest.mark.parametrize(
    ("sense", "ours", "holds"),
    [("at most", 69.0, True), ("at most", 71.0, False), ("at least", 69.0, False), ("at least", 71.0, True)],
)
def test_a_ratio_holds_on_the_right_side_of_its_bound(sense: Sense, ours: float, holds: bool) -> None:
    assert compared("rate", "tx/s", [(ours, 100.0)], "peer", bound=0.7, sense=sense).holds is holds


def test_the_interval_of_a_median_has_the_ranks_of_the_sign_test() -> None:
    # Ranks 2 and 9 of ten, 6 and 15 of twenty, 1 and 6 of six (tables of the sign test).
    assert interval_of_median([float(n) for n in range(1, 11)]) == (2, 9)
    assert interval_of_median([float(n) for n in range(20, 0, -1)]) == (6, 15)
    assert interval_of_median([3.0, 1.0, 2.0, 6.0, 5.0, 4.0]) == (1, 6)
    assert interval_of_median([1.0] * 5) is None
    assert interval_of_median([]) is None


def test_a_ratio_of_many_pairs_has_an_interval() -> None:
    figure = compared("rate", "tx/s", [(n, 10.0) for n in range(1, 8)], "off")
    assert figure.interval == (0.1, 0.7)
    assert "| 0.400 [0.100, 0.700] |" in markdown([figure])


def test_the_table_shows_figures_without_a_comparison() -> None:
    figures = [limited("memory", "MiB", [31.0], 30.0), alone("whole", "s", [12345.0], "not measured here")]
    assert markdown(figures).splitlines()[2:] == [
        "| memory | 31 | 30 (limit) | MiB | 1.033 | at most 1 | NO | 1 |",
        "| whole | 12,345 | not measured here | s | – | – | – | 1 |",
    ]
