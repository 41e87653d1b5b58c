"""The noise floor of an average over cases: what arms that are the same show in it, by the hidden A/A blocks.

The average is the mean over k cases of the mean of their n_c blocks (``combined``). Of arms that are the same
each of these has the mean 0 and the variance s_c² of the case's A/A blocks, so that the average has
Σ s_c² / n_c / k². That takes the blocks of a pass for independent: where they share a part of their noise,
the floor should be higher than this one. The interval, which rests on the passes, knows of it; and as an
effect must be beyond both, the floor takes verdicts away and gives none.

Cases with the same load and layout share their A/A blocks. Where there is one such pool of m blocks, the
average over its error is Student's with m degrees of freedom exactly; of several pools with as many as
Satterthwaite gives ("An approximate distribution of estimates of variance components", Biometrics 1946).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from pgdyno.analysis.comparison.noise import FLOOR_BLOCKS_MIN, Noise
from pgdyno.analysis.statistics import students_t


def floor_of_average(
    noises: Mapping[str, Noise], blocks: Mapping[str, int], confidence: float
) -> float | None:
    """As a log ratio. ``noises`` and ``blocks`` of each case that is in the average; None where the noise of
    one of them is not known, or there is none.
    """
    variances: dict[object, float] = {}
    free: dict[object, int] = {}
    for case, noise in noises.items():
        if noise.sd is None or noise.n < FLOOR_BLOCKS_MIN or blocks[case] < 1:
            return None
        pool = (tuple(noise.log_ratios), tuple(noise.before))
        variances[pool] = variances.get(pool, 0.0) + noise.sd**2 / blocks[case] / len(noises) ** 2
        free[pool] = noise.n
    whole = sum(variances.values())
    if not whole:
        return 0.0 if noises else None
    freedom = whole**2 / sum(variances[pool] ** 2 / free[pool] for pool in variances)
    return students_t.quantile((1 + confidence) / 2, freedom) * math.sqrt(whole)
