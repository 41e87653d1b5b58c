"""How often the caveat autocorrelated-blocks is raised: of blocks that do, and of others."""

from __future__ import annotations

import numpy as np

from bench.noise import Noise, autocorrelated, heavy_tails, normal
from pgdyno.analysis.comparison.comparison_caveats import AUTOCORRELATION_ALARM
from pgdyno.analysis.statistics.autocorrelation import is_autocorrelated

BLOCKS = (10, 20, 40, 60)

KINDS: dict[str, Noise] = {
    "independent, Gaussian": normal(0.025),
    "independent, heavy tails": heavy_tails,
    **{f"autocorrelation {share}": autocorrelated(share) for share in (0.1, 0.3, 0.5, 0.7)},
}


def raised(noise: Noise, blocks: int, paths: int, seed: int) -> float:
    """The share of studies with one comparison."""
    drawn = noise(np.random.default_rng(seed), paths, blocks)
    return sum(is_autocorrelated(of, AUTOCORRELATION_ALARM) for of in drawn) / paths


def rows(paths: int, seed: int) -> list[list[str]]:
    """A row a kind, a column a number of blocks."""
    return [
        [name, *(f"{100 * raised(noise, blocks, paths, seed):.0f}%" for blocks in BLOCKS)]
        for name, noise in KINDS.items()
    ]
