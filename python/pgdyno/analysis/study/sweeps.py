"""The numbers of clients that were run of one combination of the other factors, pass by pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pgdyno.analysis.comparison.verdict import BLOCKS_MIN
from pgdyno.analysis.statistics.effect import BOOTSTRAP_SEED
from pgdyno.analysis.statistics.usl import Floats, Law, fit, fit_without_bounds, resampled, weights
from pgdyno.analysis.study.cells import Cell, Design, Levels
from pgdyno.study.cases import label_of

FACTOR = "clients"

NUMBERS_MIN = 4
"""Of clients: three parameters fit any three of them."""

DRAWS = 1999


def name_of(context: Levels) -> str:
    """``18, scale 100``; where nothing but the clients varies there are just these."""
    return label_of(context) or "all arms"


def baseline_of(design: Design, levels: Levels, swept: str = FACTOR) -> Levels:
    """The same case with the first levels of what is compared; where only ``swept`` is compared, of what
    makes cases.
    """
    others = [factor for factor in design.factors if factor.name != swept]
    varying = [factor for factor in others if factor.compared] or others
    return {**levels, **{factor.name: factor.levels[0] for factor in varying}}


@dataclass(frozen=True)
class Sweep:
    """``logs``: (passes, numbers of clients); all there."""

    levels: Levels
    clients: Floats
    passes: Sequence[int]
    logs: Floats
    left_out: Sequence[str]

    @property
    def name(self) -> str:
        """Of the combination."""
        return name_of(self.levels)

    def only(self, passes: Sequence[int]) -> Sweep:
        """Of these passes."""
        rows = [self.passes.index(number) for number in passes]
        return Sweep(self.levels, self.clients, passes, self.logs[rows], self.left_out)


def sweep_of(design: Design, context: Levels, levels: Sequence[str]) -> Sweep | None:
    """A number of clients with half as many blocks as another, or fewer, is left out rather than cost all
    the others those passes.
    """
    cells: list[Cell] = []
    left_out = []
    found = {level: design.at({**context, FACTOR: level}) for level in levels}
    most = max((len(cell.logs) for cell in found.values() if cell is not None), default=0)
    for level, cell in found.items():
        if cell is None or cell.stalled or 2 * len(cell.logs) <= most:
            left_out.append(level)
        else:
            cells.append(cell)
    cells.sort(key=lambda cell: cell.clients)
    clients = [cell.clients for cell in cells]
    passes = sorted(set.intersection(*(set(cell.logs) for cell in cells))) if cells else []
    if len(set(clients)) < NUMBERS_MIN or len(set(clients)) < len(clients) or not passes:
        return None
    logs = np.array([[cell.logs[number] for cell in cells] for number in passes])
    return Sweep(context, np.array(clients, dtype=np.float64), passes, logs, left_out)


@dataclass(frozen=True)
class Laws:
    """Of the means with the bounds; of what they might have been without them, and with them. The draws of
    two sweeps with the same passes belong together.
    """

    law: Law
    free: Law | None
    bounded: Law | None

    @classmethod
    def of(cls, sweep: Sweep) -> Laws:
        """No draws of so few passes that there is no interval."""
        law = fit(sweep.clients, sweep.logs.mean(axis=0))
        passes = len(sweep.passes)
        if passes < BLOCKS_MIN:
            return cls(law, None, None)
        means = resampled(sweep.logs, weights(passes, DRAWS, BOOTSTRAP_SEED))
        return cls(law, fit_without_bounds(sweep.clients, means), fit(sweep.clients, means))
