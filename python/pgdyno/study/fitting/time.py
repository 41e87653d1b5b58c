"""How the minutes are shared out: blocks, windows, warm-ups."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pgdyno.study.sizing import BLOCKS_WANTED

BLOCKS_MIN = 2
"""One block has no spread at all."""

BLOCKS_BETTER = 5
"""Fewer give no verdict (docs/explanation/method.md)."""

DRIVEN_SHARE = 0.5
"""Of the time, that more than BLOCKS_BETTER blocks must leave for driving: a restore for each is not free."""

WINDOW_MIN_S = 10.0
"""Of a whole trial: connections, caches and the first WAL files settle in the first seconds."""

SLICES_MIN = 4
"""Of an arm in a block: two rounds and their mirror images."""

WARMUP_MIN_S = 2.0


@dataclass(frozen=True)
class Wanted:
    """What the file asks for, and what there is to share out. ``slice_s``: None where trials are not cut.

    ``least_s`` is the shortest window that the file allows; ``aa_share`` what A/A blocks take
    beside the others.
    """

    time_s: float
    turns: int  # trials of one block of every case that are driven one after the other
    fixed_s: float  # of them, beside being driven
    window_s: float
    warmup_s: float
    slice_s: float | None
    blocks_max: int | None
    least_s: float = 0.0
    aa_share: float = 0.0

    @property
    def window_min_s(self) -> float:
        """Never above what the file asks for; with slices an even number of them."""
        if self.slice_s is None:
            return min(self.window_s, max(WINDOW_MIN_S, self.least_s))
        pairs = math.ceil(max(SLICES_MIN, self.least_s / self.slice_s) / 2)
        return min(self.window_s, 2 * pairs * self.slice_s)

    def pass_s(self, window_s: float) -> float:
        """One block of every case with such windows."""
        return (1 + self.aa_share) * (self.fixed_s + self.driven_s(window_s))

    def driven_s(self, window_s: float) -> float:
        """Of it what the clients drive, without the A/A blocks."""
        return self.turns * (window_s + self.warmup_of(window_s))

    def warmup_of(self, window_s: float) -> float:
        """The same share of the window as in the file, in whole seconds; WARMUP_MIN_S at least."""
        if window_s >= self.window_s:
            return self.warmup_s
        share_s = float(round(window_s * self.warmup_s / self.window_s))
        return min(self.warmup_s, max(WARMUP_MIN_S, share_s))


@dataclass(frozen=True)
class Layout:
    """Blocks of every case, and the window and warm-up of each trial in them."""

    blocks: int
    window_s: float
    warmup_s: float


def lay_out(wanted: Wanted, least: int) -> Layout | None:
    """As many blocks as are worth it, at least so many; None: they do not fit even with the shortest windows.

    Windows stay as they are where BLOCKS_WANTED blocks of them fit, or as many as the file asks for.
    """
    most = wanted.blocks_max or BLOCKS_WANTED
    whole = math.floor(wanted.time_s / wanted.pass_s(wanted.window_s))
    if whole >= max(least, min(most, BLOCKS_WANTED)):
        return Layout(min(whole, most), wanted.window_s, wanted.warmup_s)
    for blocks in range(max(least, BLOCKS_WANTED), least - 1, -1):
        window_s = _window_s(wanted, wanted.time_s / blocks)
        if window_s is None:
            continue
        driven_s = blocks * wanted.driven_s(window_s)
        if blocks <= BLOCKS_BETTER or driven_s >= DRIVEN_SHARE * wanted.time_s:
            return Layout(blocks, window_s, wanted.warmup_of(window_s))
    return None


def shortest(wanted: Wanted) -> Layout:
    """BLOCKS_MIN blocks of the shortest windows, whether they fit or not."""
    window_s = wanted.window_min_s
    return Layout(BLOCKS_MIN, window_s, wanted.warmup_of(window_s))


def _window_s(wanted: Wanted, pass_s: float) -> float | None:
    """The longest window with which one block of every case takes no longer than that."""
    if wanted.pass_s(wanted.window_s) <= pass_s:
        return wanted.window_s
    if wanted.pass_s(wanted.window_min_s) > pass_s:
        return None
    step = 1.0 if wanted.slice_s is None else 2 * wanted.slice_s
    low, high = 0, math.ceil((wanted.window_s - wanted.window_min_s) / step)
    while high - low > 1:
        middle = (low + high) // 2
        fits = wanted.pass_s(wanted.window_min_s + middle * step) <= pass_s
        low, high = (middle, high) if fits else (low, middle)
    return wanted.window_min_s + low * step
