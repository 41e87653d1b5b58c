"""The exact distribution of TPC-C's non-uniform random numbers (clause 2.1.6).

    NURand(A, x, y) = (((random(0, A) | random(x, y)) + C) mod (y - x + 1)) + x

Let a(v) and b(v) be the numbers of ways in which the two uniform integers are v. The pairs whose OR is a
subset of the bits of v are those where both are, so with F the sum over subsets (the zeta transform of the
lattice of bit sets) F[OR](v) = F[a](v) · F[b](v), and the Möbius transform inverts F. That takes bits ·
2^bits additions in whole numbers, 17 · 131 072 for the items, in place of A · (y - x + 1) = 8e8 pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NURand:
    """The parameters of one field: A and the range x..y of the specification."""

    a: int
    low: int
    high: int

    def probability(self, c: int) -> npt.NDArray[np.float64]:
        """The probability of low, low + 1, …, high, for the constant C = ``c``."""
        values = self.high - self.low + 1
        either = or_of_uniforms(self.a, self.low, self.high)
        folded = np.bincount((np.arange(either.size) + c) % values, weights=either, minlength=values)
        return folded / ((self.a + 1) * values)


C_LAST = NURand(255, 0, 999)
C_ID = NURand(1023, 1, 3000)
ITEM = NURand(8191, 1, 100_000)


def or_of_uniforms(a: int, low: int, high: int) -> Counts:
    """In how many of the (a + 1)(high - low + 1) pairs i of 0..a, j of low..high is i | j each value. Shape:
    (2^bits,)."""
    bits = max(a, high).bit_length()
    first = np.zeros(1 << bits, dtype=np.int64)
    first[: a + 1] = 1
    second = np.zeros(1 << bits, dtype=np.int64)
    second[low : high + 1] = 1
    return _over_subsets(_over_subsets(first, bits, 1) * _over_subsets(second, bits, 1), bits, -1)


def _over_subsets(counts: Counts, bits: int, sign: int) -> Counts:
    """The zeta transform (``sign`` 1) or its inverse (-1): one pass for each bit, from without it to with
    it."""
    result = counts.copy()
    for bit in range(bits):
        halves = result.reshape(-1, 2, 1 << bit)
        halves[:, 1, :] += sign * halves[:, 0, :]
    return result
