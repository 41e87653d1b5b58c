"""How a recording of one server is cut into pairs, and what a covariate takes off."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bench.pairs import LOOP, SERVER, STEAL, TICK_S, Recording, in_pieces, taken_off, told


def recording(done: list[float], **used_s: list[float]) -> Recording:
    n = len(done)
    used = {LOOP: [1.0] * n, STEAL: [0.0] * n, SERVER: [1.0] * n, **used_s}
    return Recording([TICK_S] * n, done, used)


def test_a_piece_is_a_b_b_a_in_a_row_and_the_rest_is_left_out() -> None:
    a, b = 100.0, 110.0
    piece = [a, a, b, b, b, b, a, a]
    found = in_pieces(recording([*piece, *piece, a, a, b]), 2 * TICK_S)
    assert found["noise"] == pytest.approx([math.log(1.1)] * 2)
    assert found[SERVER] == pytest.approx([-math.log(1.1)] * 2)  # as much CPU for more transactions
    assert found[LOOP] == pytest.approx([0, 0]) and found[STEAL] == pytest.approx([0, 0])


def test_what_drifts_in_a_straight_line_is_no_difference() -> None:
    assert in_pieces(recording([1000.0 - n for n in range(80)]), TICK_S)["noise"] == pytest.approx(
        0, abs=1e-12
    )


def test_steal_is_a_share_of_the_time() -> None:
    stolen = [0.0, TICK_S / 2, 0.0, 0.0]
    found = in_pieces(recording([1.0] * 4, **{STEAL: stolen}), TICK_S)
    assert found[STEAL] == pytest.approx([0.25])


def test_what_a_covariate_explains_is_taken_off_and_a_piece_does_not_explain_itself() -> None:
    rng = np.random.default_rng(1)
    covariate, rest = rng.normal(size=1000), rng.normal(size=1000)
    left = taken_off(3 * covariate + 0.1 * rest, covariate)
    assert np.std(left) == pytest.approx(0.1, rel=0.1)
    assert np.std(taken_off(rest, covariate)) >= np.std(rest)  # that tells nothing costs a little
    once = np.array([0.0, 0.0, 1.0])
    assert taken_off(np.array([0.0, 0.0, 5.0]), once).tolist() == [0.0, 0.0, 5.0]


def test_a_recording_tells_the_noise_and_of_many_pieces_what_covariates_leave_of_it() -> None:
    rng = np.random.default_rng(2)
    speed = np.exp(rng.normal(0, 0.1, 8 * 100))
    slow = {LOOP: (0.001 / speed).tolist(), STEAL: [TICK_S / 100] * len(speed)}
    found = {figure.name: figure for figure in told(recording((100 * speed).tolist(), **slow))}
    assert found["CPU stolen meanwhile"].ours == pytest.approx(1)
    noise = found["A B B A of 0.5 s: noise"]
    # Each side is the mean of four ticks, a piece is two seconds.
    assert noise.n == 100 and noise.ours == pytest.approx(
        100 * 0.1 * (2 / 4) ** 0.5 * (2 / 60) ** 0.5, rel=0.2
    )
    assert found["A B B A of 0.5 s, less what the CPU time of a fixed loop tells: noise left"].ours < 20
    assert found["A B B A of 0.5 s, less what the CPU stolen tells: noise left"].ours == pytest.approx(100)
    of_10_s = [name for name in found if name.startswith("A B B A of 10 s")]
    assert of_10_s == ["A B B A of 10 s: noise"]  # five pieces explain nothing
