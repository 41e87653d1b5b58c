"""True and false alarm rates of the caveats autocorrelated-blocks and skewed-blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bench.noise import Noise, autocorrelated, heavy_tails, normal, one_sided_outliers, outliers, skewed
from pgdyno.analysis.comparison_caveats import BLOCKS_ALARM
from pgdyno.analysis.statistics.series import is_autocorrelated, is_skewed

BLOCKS = (10, 20, 40, 60)

Test = Callable[[Sequence[float], float], bool]

AUTOCORRELATED: Mapping[str, Noise] = {
    "independent, Gaussian": normal(0.025),
    "independent, heavy tails": heavy_tails,
    **{f"autocorrelation {share}": autocorrelated(share) for share in (0.1, 0.3, 0.5, 0.7)},
}
SKEWED: Mapping[str, Noise] = {
    "Gaussian": normal(0.025),
    "heavy tails": heavy_tails,
    "outliers to both sides": outliers,
    **{f"skewness {value}": skewed(value) for value in (1.0, 1.75, 3.0)},
    "1 block in 10 loses about 10%": one_sided_outliers,
}


def raised(test: Test, noise: Noise, blocks: int, paths: int, seed: int) -> float:
    """Return the share of studies with one comparison that raise the caveat."""
    drawn = noise(np.random.default_rng(seed), paths, blocks)
    return sum(test(of, BLOCKS_ALARM) for of in drawn) / paths


def rows(test: Test, kinds: Mapping[str, Noise], paths: int, seed: int) -> list[list[str]]:
    """Return a row per kind of noise, with a column per number of blocks."""
    return [
        [name, *(f"{100 * raised(test, noise, blocks, paths, seed):.0f}%" for blocks in BLOCKS)]
        for name, noise in kinds.items()
    ]


def of_autocorrelation(paths: int, seed: int) -> list[list[str]]:
    """Return the alarm rates of autocorrelated-blocks."""
    return rows(is_autocorrelated, AUTOCORRELATED, paths, seed)


def of_skewness(paths: int, seed: int) -> list[list[str]]:
    """Return the alarm rates of skewed-blocks."""
    return rows(is_skewed, SKEWED, paths, seed)
