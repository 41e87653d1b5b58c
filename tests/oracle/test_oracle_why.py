"""Named parts of simulated breakdowns of time, and the page that reports them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench.why import BLOCKS, EFFECTS, LOADS, PATHS, SEED, Load, naming, query_row, significant
from scipy import stats


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_the_simulation_names_the_parts_that_the_breakdown_names(load: Load) -> None:
    every = load.draw(np.random.default_rng(SEED), 12, 0.1)
    blocks = np.array([5, 6, 9] * 4)
    wholes = every.sum(axis=-1)
    found = significant((every[:, :, 1] - every[:, :, 0]) / wholes[..., :1], blocks)
    for times, n, named in zip(every, blocks, found, strict=True):
        parts = {part.key for part in load.break_down(times[:n]).parts if part.significant}
        assert parts == {key for key, is_named in zip(load.shares, named, strict=True) if is_named}
    assert found.any() and not found.all()


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_a_part_without_a_difference_is_rarely_named(load: Load) -> None:
    for effect in EFFECTS:
        found = naming(load, effect)
        wrong = found.share_of_others(load, load.changed if effect else ())
        assert wrong * PATHS <= stats.binom.ppf(0.9999, PATHS, 0.05)
        assert effect or BLOCKS > found.blocks.mean() > 5


def test_rows_of_the_page_on_why_equal_the_simulation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "why.md").read_text("utf-8")
    for effect in EFFECTS[1:]:
        found = [(load, naming(load, effect)) for load in LOADS]
        named = [f"{of.share_of(load, load.changed[0]):.1%}" for load, of in found]
        wrong = max(of.share_of_others(load, load.changed) for load, of in found)
        assert named[1] == named[2], "under a fixed load, too, the speed of the machine cancels"
        row = f"| {effect:.0%} | {named[0]} | {named[1]} | ≤ {wrong:.1%} |"
        assert row in page, "see `python -m bench why`"


def test_one_of_many_statements_is_named_after_the_first_analysis() -> None:
    *_, named, wrong = query_row(0.5, 5, 400)
    assert float(named.rstrip("%")) > 50
    assert float(wrong.rstrip("%")) <= 5
