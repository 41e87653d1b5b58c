"""What is sampled again and again: rows of one probe, gathered into matrices that the evidence can keep."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

AT, LATE = "at_s", "late_s"

STEP_S = 1.0
POINTS_MAX = 21_600
"""Samples of a series: six hours of seconds. A hundred columns of them are 17 MB before they are packed, in
each trial; and no chart can show more."""


def step_for(window_s: float) -> float:
    """Seconds between the samples of a run of this length: one, up to six hours; then as many whole ones as
    it takes to stay within ``POINTS_MAX``.
    """
    return max(STEP_S, float(math.ceil(window_s / (POINTS_MAX * STEP_S))))


class Ending(StrEnum):
    """Why a series ends."""

    SERVER_LOST = "server-lost"
    """The connection ended: by a shutdown, a crash, an administrator or the network. A server that shuts down
    says farewell, but the farewell is lost when the socket is closed before it is read.
    """
    NOT_CONNECTED = "not-connected"
    QUERY_FAILED = "query-failed"
    PROBE_FAILED = "probe-failed"
    SAMPLER_FAILED = "sampler-failed"


@dataclass(frozen=True)
class Chunk:
    """Samples in a row: ``points`` has shape (n, len(columns)), ascending in ``at_s``; NaN: not there.

    The first two columns are ``at_s``, when the sample was taken, and ``late_s``, by how much it was late:
    what was due in between was not taken. ``ending`` says why the series ends here, and ``reason`` has the
    error's words; n may be 0 then.
    ``target`` is the number that the caller gave.
    """

    target: int
    probe: str
    columns: tuple[str, ...]
    points: npt.NDArray[np.float64]
    ending: Ending | None = None
    reason: str = ""


@dataclass
class Gathering:
    """Samples of one probe of one target, until they are taken as a chunk.

    ``absent`` stands for a name that this sample does not have and another one has.
    """

    target: int
    probe: str
    absent: float = math.nan
    _rows: list[tuple[float, float, Mapping[str, float]]] = field(default_factory=list)
    _failing: tuple[Ending, str] | None = None

    def add(self, at_s: float, late_s: float, values: Mapping[str, float]) -> None:
        """One more sample."""
        self._rows.append((at_s, late_s, values))
        self._failing = None

    def take(self) -> Chunk | None:
        """What was gathered since the last time, if anything."""
        return self._chunk() if self._rows else None

    def fail(self, ending: Ending, reason: str) -> Chunk | None:
        """What was gathered, and why there is no more for now; None while the reason is still the same."""
        if (ending, reason) == self._failing:
            return None
        self._failing = ending, reason
        return self._chunk(ending, reason)

    def _chunk(self, ending: Ending | None = None, reason: str = "") -> Chunk:
        names = tuple(dict.fromkeys(name for _, _, values in self._rows for name in values))
        points = np.empty((len(self._rows), 2 + len(names)), dtype=np.float64)
        for row, (at_s, late_s, values) in zip(points, self._rows, strict=True):
            row[:] = [at_s, late_s, *(values.get(name, self.absent) for name in names)]
        self._rows = []
        return Chunk(self.target, self.probe, (AT, LATE, *names), points, ending, reason)
