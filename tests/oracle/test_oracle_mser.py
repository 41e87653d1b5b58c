"""Recorded noise of a real machine: stationary parts are found steady, with few false caveats."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.stats

from pgdyno.analysis.statistics.series import is_steady
from pgdyno.analysis.steady_state import (
    ALARM_OF_EFFECTS,
    ALARM_OF_TRENDS,
    Observed,
    effect_trend,
    surely,
    trend_of_trials,
)

Floats = npt.NDArray[np.float64]

RECORDED = json.loads((Path(__file__).parent / "data/aa_noise.json").read_text())["blocks"]
SLICE_S = 0.5
WARM = 10
"""Number of slices of each recorded trial that may still belong to its warm-up."""

STUDIES = 300


def cut(rng: np.random.Generator, block: dict[str, list[int]], n: int) -> tuple[Floats, Floats]:
    """Return a piece of both arms, reversed with probability 1/2, so that any drift has a random sign."""
    pairs = np.array([block["a"], block["b"]], dtype=np.float64)
    at = int(rng.integers(WARM, pairs.shape[1] - n + 1))
    piece = pairs[:, at : at + n]
    first, second = piece[:, ::-1] if rng.random() < 0.5 else piece
    return first, second


def alarms(rng: np.random.Generator, blocks: int, slices: int) -> bool:
    """Return whether a study of such pieces gets a caveat about its rates or its effect."""
    chosen = rng.choice(len(RECORDED), blocks, replace=False)
    at_s = 2 * SLICE_S * np.arange(slices)
    pieces = [cut(rng, RECORDED[i], slices) for i in chosen]
    arms = [[Observed(at_s, piece[arm]) for piece in pieces] for arm in (0, 1)]
    trends = [trend_of_trials(arm, 0.95) for arm in arms]
    effect = effect_trend(arms[1], arms[0], 0.95)
    return any(surely([one and one.p_value for one in trends], ALARM_OF_TRENDS)) or any(
        surely([effect and effect.p_value], ALARM_OF_EFFECTS)
    )


def test_recorded_noise_raises_a_caveat_in_at_most_5_percent_of_studies() -> None:
    rng = np.random.default_rng(20261122)
    limit = scipy.stats.binom.ppf(0.999, STUDIES, 0.05)
    assert sum(alarms(rng, 6, 20) for _ in range(STUDIES)) <= limit


def test_recorded_noise_looks_steady_soon() -> None:
    rng = np.random.default_rng(20261122)
    ends = []
    for _ in range(STUDIES):
        both = cut(rng, RECORDED[rng.integers(len(RECORDED))], 40)
        steady = (n for n in range(5, 41) if all(is_steady(of[:n]) for of in both))
        ends.append(next(steady, 41))
    assert np.median(ends) <= 12
    assert sum(end > 40 for end in ends) <= scipy.stats.binom.ppf(0.999, STUDIES, 0.05)
