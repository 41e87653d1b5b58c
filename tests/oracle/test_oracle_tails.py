"""Intervals of tail percentiles: the exact interval of a proportion, and coverage by simulation."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bench import tails
from bench.tails import KINDS, coverage, row

from pgdyno.analysis.statistics.intervals import Method, binomial_interval
from pgdyno.analysis.statistics.pooled_quantiles import (
    BLOCKS_MIN,
    DRAWN_CONFIDENCE,
    BlockCounts,
    QuantileChange,
    missed_share,
    quantile_change,
)

STUDIES = 60


def slow_blocks(slow: int, n: int) -> BlockCounts:
    """Blocks of 100 values of 1, or of 10 if they are slow."""
    counts = np.full((n, 2), 100.0)
    counts[:slow, 0] = 0
    return BlockCounts(np.array([1.0, 10.0]), counts, counts[:, 1])


@pytest.mark.parametrize(("slow", "end"), [(1, 1), (2, 1), (5, 1), (5, 0), (12, 0)])
def test_the_ends_for_blocks_that_are_slow_or_not_are_those_of_the_exact_interval(
    slow: int, end: int
) -> None:
    """An end is that of slow blocks if its share of them exceeds the share above the quantile."""
    regular, some = slow_blocks(0, BLOCKS_MIN), slow_blocks(slow, BLOCKS_MIN)
    limit = binomial_interval(slow, BLOCKS_MIN, DRAWN_CONFIDENCE)[end]
    found = []
    for share in (limit / 1.4, 1.4 * limit):
        summary = quantile_change(regular, some, 1 - share).summary(0.95, Method.STUDENT)
        found.append((summary.low, summary.high)[end])
    assert found == [pytest.approx(math.log(10)), pytest.approx(0)]


def test_an_interval_has_the_confidence_and_the_method_on_each_side() -> None:
    change = QuantileChange(0.1, 40, (0.03, 0.2))
    one, wide = (change.summary(confidence, Method.STUDENT) for confidence in (0.95, 0.999))
    anytime = change.summary(0.95, Method.ANYTIME)
    assert one.low is not None and one.low == pytest.approx(0.1 - 2.0227 * 0.03, abs=1e-5)
    assert one.high is not None and one.high == pytest.approx(0.1 + 2.0227 * 0.2, abs=1e-4)
    assert anytime.low is not None and anytime.low < one.low
    assert wide.low is not None and wide.p_value == one.p_value and one.p_value is not None
    assert (one.low > 0, wide.low > 0) == (one.p_value < 0.05, one.p_value < 0.001) == (True, False)
    mirrored = replace(change, log_ratio=-0.1, errors=(0.2, 0.03)).summary(0.95, Method.STUDENT)
    assert (mirrored.low, mirrored.p_value) == (pytest.approx(-one.high), pytest.approx(one.p_value))


@pytest.mark.parametrize(("blocks", "share"), [(1, 0.95), (8, 0.312), (29, 0.0981), (59, 0.0495)])
def test_all_blocks_miss_an_event_of_the_named_share_with_a_probability_of_5_percent(
    blocks: int, share: float
) -> None:
    assert missed_share(blocks) == pytest.approx(share, abs=5e-4)
    assert (1 - missed_share(blocks)) ** blocks == pytest.approx(0.05)


@pytest.fixture
def truth_of_few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the true change have less precision than on the page."""
    monkeypatch.setattr(tails, "MERGED", 6000)
    monkeypatch.setattr(tails, "truth", tails.truth.__wrapped__)


@pytest.mark.usefixtures("truth_of_few_blocks")
def test_few_blocks_have_no_interval() -> None:
    of = coverage(KINDS["none"], BLOCKS_MIN - 1, 3)
    assert of.shown == 0 and math.isnan(of.covers)


@pytest.mark.usefixtures("truth_of_few_blocks")
@pytest.mark.parametrize(
    "name", ["none", "0 and 0.1", pytest.param("0 and 0.1, 2 s", marks=pytest.mark.long)]
)
def test_intervals_cover_with_and_without_rare_stalls_of_one_arm(name: str) -> None:
    """A coverage of 93% gives fewer with a probability of 0.1%; the seed is fixed."""
    of = coverage(KINDS[name], BLOCKS_MIN, STUDIES)
    assert of.shown == 1
    assert 1 - of.covers <= 0.07 + 3.1 * math.sqrt(0.07 * 0.93 / STUDIES)


@pytest.mark.long
def test_a_row_of_the_page_on_tails_equals_the_simulation() -> None:
    page = Path(__file__).parents[2] / "docs" / "explanation" / "tails.md"
    cells = row("0 and 0.1", BLOCKS_MIN)
    assert f"| {' | '.join(cells)} |" in page.read_text("utf-8").splitlines(), "see `python -m bench tails`"
