"""Student's t distribution: the two functions of it that intervals and tests need.

They are those of ``scipy.special``, to the last bit what ``scipy.stats.t`` gives: that one takes most of a
second to load and a hundred times as long for each of the thousands of numbers in a report.
"""

from __future__ import annotations

from functools import lru_cache

import scipy  # its parts load when first used


@lru_cache(maxsize=4096)
def quantile(probability: float, freedom: float) -> float:
    """Below which a value is with this probability."""
    return float(scipy.special.stdtrit(freedom, probability))


def beyond(value: float, freedom: float) -> float:
    """The probability of a larger value."""
    return float(scipy.special.stdtr(freedom, -value))
