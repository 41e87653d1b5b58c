"""Named parts of simulated breakdowns of time, and the page that reports them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from bench.simulated_why import (
    EFFECTS,
    LARGER,
    LOADS,
    PATHS,
    SEED,
    Load,
    Naming,
    naming,
    query_row,
    share_interval,
    significant,
)
from scipy import stats

Namings = Mapping[str, Mapping[float, Naming]]
"""Simulated studies by name of the load and effect."""


@pytest.fixture(scope="module")
def namings() -> Namings:
    return {load.name: {effect: naming(load, effect) for effect in EFFECTS} for load in LOADS}


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_the_simulation_names_the_parts_that_the_breakdown_names(load: Load) -> None:
    every = load.draw(np.random.default_rng(SEED), 12, 0.1)
    blocks = np.array([5, 6, 9] * 4)
    wholes = every.sum(axis=-1)
    d = (every[:, :, 1] - every[:, :, 0]) / wholes[..., :1]
    found = significant(d, blocks)
    ends = np.transpose(
        share_interval(d[..., list(load.shares).index(load.changed[0])], d.sum(axis=-1), blocks)
    )
    for times, n, named, expected in zip(every, blocks, found, 100 * ends, strict=True):
        parts = {part.key: part for part in load.break_down(times[:n]).parts if part.significant}
        assert parts.keys() == {key for key, is_named in zip(load.shares, named, strict=True) if is_named}
        if load.changed[0] in parts:
            share = parts[load.changed[0]].share
            assert share is not None and (share.low, share.high) == pytest.approx(expected)
    assert found.any() and not found.all()


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_a_part_without_a_difference_is_rarely_named(namings: Namings, load: Load) -> None:
    for effect, found in namings[load.name].items():
        wrong = found.share_of_others(load, load.changed if effect else ())
        assert wrong * PATHS <= stats.binom.ppf(0.9999, PATHS, 0.05)


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_the_interval_of_the_share_of_a_named_part_covers(namings: Namings, load: Load) -> None:
    for effect in EFFECTS[1:]:
        found = namings[load.name][effect]
        named = found.named[:, list(load.shares).index(load.changed[0])]
        missed = (found.low > LARGER) | (found.high < LARGER)
        assert (missed & named).sum() <= stats.binom.ppf(0.9999, named.sum(), 0.05)


def test_rows_of_the_page_on_why_equal_the_simulation(namings: Namings) -> None:
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "why.md").read_text("utf-8")
    for effect in EFFECTS[1:]:
        found = [(load, namings[load.name][effect]) for load in LOADS]
        named = [f"{of.share_of(load, load.changed[0]):.1%}" for load, of in found]
        wrong = max(of.share_of_others(load, load.changed) for load, of in found)
        assert named[1] == named[2], "under a fixed load, too, the speed of the machine cancels"
        row = f"| {effect:.0%} | {named[0]} | {named[1]} | ≤ {wrong:.1%} |"
        assert row in page, "see `python -m bench simulated-why`"


def test_one_of_many_statements_is_named_after_the_first_analysis() -> None:
    *_, named, wrong = query_row(0.5, 5, 400)
    assert float(named.rstrip("%")) > 50
    assert float(wrong.rstrip("%")) <= 5
