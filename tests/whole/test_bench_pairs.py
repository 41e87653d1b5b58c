"""Splitting of a recording into pairs of pieces, and residuals of covariates."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bench.pairs import LOOP, SERVER, STEAL, TICK_S, Recording, in_pieces, residuals, summarized


def recording(done: list[float], **used_s: list[float]) -> Recording:
    n = len(done)
    used = {LOOP: [1.0] * n, STEAL: [0.0] * n, SERVER: [1.0] * n, **used_s}
    return Recording([TICK_S] * n, done, used)


def test_a_piece_is_a_b_b_a_and_an_incomplete_piece_is_omitted() -> None:
    a, b = 100.0, 110.0
    piece = [a, a, b, b, b, b, a, a]
    found = in_pieces(recording([*piece, *piece, a, a, b]), 2 * TICK_S)
    assert found["noise"] == pytest.approx([math.log(1.1)] * 2)
    assert found[SERVER] == pytest.approx([-math.log(1.1)] * 2)  # the same CPU time for more transactions
    assert found[LOOP] == pytest.approx([0, 0]) and found[STEAL] == pytest.approx([0, 0])


def test_linear_drift_cancels() -> None:
    assert in_pieces(recording([1000.0 - n for n in range(80)]), TICK_S)["noise"] == pytest.approx(
        0, abs=1e-12
    )


def test_steal_is_a_share_of_the_time() -> None:
    stolen = [0.0, TICK_S / 2, 0.0, 0.0]
    found = in_pieces(recording([1.0] * 4, **{STEAL: stolen}), TICK_S)
    assert found[STEAL] == pytest.approx([0.25])


def test_residuals_exclude_what_the_covariate_explains_without_the_piece_itself() -> None:
    rng = np.random.default_rng(1)
    covariate, rest = rng.normal(size=1000), rng.normal(size=1000)
    remaining = residuals(3 * covariate + 0.1 * rest, covariate)
    assert np.std(remaining) == pytest.approx(0.1, rel=0.1)
    assert np.std(residuals(rest, covariate)) >= np.std(rest)  # an unrelated covariate adds a little noise
    once = np.array([0.0, 0.0, 1.0])
    assert residuals(np.array([0.0, 0.0, 5.0]), once).tolist() == [0.0, 0.0, 5.0]


def test_a_recording_gives_the_noise_and_with_many_pieces_the_residual_noise() -> None:
    rng = np.random.default_rng(2)
    speed = np.exp(rng.normal(0, 0.1, 8 * 100))
    slow = {LOOP: (0.001 / speed).tolist(), STEAL: [TICK_S / 100] * len(speed)}
    found = {figure.name: figure for figure in summarized(recording((100 * speed).tolist(), **slow))}
    assert found["CPU stolen meanwhile"].ours == pytest.approx(1)
    noise = found["A B B A of 0.5 s: noise"]
    # Each arm is the mean of four ticks. A piece has two seconds.
    assert noise.n == 100 and noise.ours == pytest.approx(
        100 * 0.1 * (2 / 4) ** 0.5 * (2 / 60) ** 0.5, rel=0.2
    )
    assert found["A B B A of 0.5 s, less what the CPU time of a fixed loop tells: noise left"].ours < 20
    assert found["A B B A of 0.5 s, less what the CPU stolen tells: noise left"].ours == pytest.approx(100)
    of_10_s = [name for name in found if name.startswith("A B B A of 10 s")]
    assert of_10_s == ["A B B A of 10 s: noise"]  # five pieces are too few for covariates
