"""The spread of values of which some may be far off: what a standard deviation would be of the others."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

SD_OF_MAD = 1.4826
"""Of a normal distribution: its standard deviation by its median absolute deviation."""


def robust_sd(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """1.4826 · median |x − median x| over the last axis, in the unit of the values; shape: theirs without it.

    Rousseeuw and Croux, "Alternatives to the median absolute deviation", JASA 1993. NaN where there is none.
    """
    middle = np.median(values, axis=-1, keepdims=True)
    return np.asarray(SD_OF_MAD * np.median(np.abs(values - middle), axis=-1))
