"""Recorded series of a case by metric: read at full resolution, then reduced to what a screen shows.

Times are seconds since the start of the study. Counters are rates between samples. A sample of an arm counts
in its own slices only, if these are long enough to be resolved.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.resources import files
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pgdyno.analysis.steady_state import checkpoint_starts
from pgdyno.analysis.telemetry.samples import (
    GAUGES,
    RUNNING,
    SAMPLES,
    SERVER,
    WAITS,
    WORKER,
    Floats,
    Span,
    client_waits,
    overlap,
    own_spans,
    rates,
    resolvable,
)
from pgdyno.features.serve.index import State
from pgdyno.results.reader import Evidence
from pgdyno.results.records import SampleSeries, Trial
from pgdyno.results.results_file import open_for_reading, translated
from pgdyno.study.defaults import Schedule
from pgdyno.study.plan import Study

OWN_MIN = 0.5
"""Minimum share of a sample's time in the slices of its arm."""


@dataclass(frozen=True)
class Metric:
    """A recorded series: ``key`` is its probe, a dot, and its column."""

    key: str
    name: str
    unit: str


class Piece(NamedTuple):
    """Values of a metric in one trial, ascending in time, without missing ones."""

    arm: int
    block: int
    at_s: Floats
    values: Floats


@dataclass
class Recorded:
    """The series of a case. ``marks``: checkpoint starts by arm and block. ``warm_ups``: from, to.

    ``is_diluted``: samples of an arm include slices of others, because slices are too short.
    """

    metrics: list[Metric] = field(default_factory=list)
    pieces: dict[str, list[Piece]] = field(default_factory=dict)
    marks: list[Piece] = field(default_factory=list)
    warm_ups: dict[int, list[tuple[float, float]]] = field(default_factory=dict)  # by block
    is_diluted: bool = False

    def add_all(
        self,
        probe: str,
        trial: Trial,
        is_own: npt.NDArray[np.bool_],
        at_s: Floats,
        columns: Mapping[str, Floats],
    ) -> None:
        """Add the known values of a trial. Columns share the array of times if all values are known."""
        own_s = at_s[is_own]
        for name, values in columns.items():
            own = values[is_own] * _names().get(probe, {}).get(name, ("", "", 1.0))[2]
            known = np.isfinite(own)
            if known.any():
                piece = (own_s, own) if known.all() else (own_s[known], own[known])
                self.pieces.setdefault(f"{probe}.{name}", []).append(Piece(trial.arm, trial.block, *piece))


@cache
def _names() -> Mapping[str, Mapping[str, tuple[str, str, float]]]:
    return tomllib.loads(files(__package__).joinpath("series.toml").read_text("utf-8"))


@lru_cache(maxsize=2)
def recorded(path: Path, case: int, state: State) -> Recorded:  # noqa: ARG001  # a key of the cache
    """Return the series of a case. ``state`` is that of the file: a changed file is read again."""
    with Evidence(path, verify=False) as evidence:
        study, trials = evidence.study(case), evidence.trials(case)
        found = Recorded()
        begins = {of.trial: (of.epoch_unix_s or of.started_unix_s) - study.created_unix_s for of in trials}
        _add_intervals(found, path, case, {of.trial: of for of in trials}, begins)
        for trial in trials:
            _add_samples(found, trial, begins[trial.trial], evidence.series(trial.trial), study.plan)
    for pieces in found.pieces.values():
        pieces.sort(key=lambda piece: float(piece.at_s[0]))
    order = {key: i for i, key in enumerate(f"{probe}.{of}" for probe in _names() for of in _names()[probe])}
    keys = sorted(found.pieces, key=lambda key: (order.get(key, len(order)), key))
    found.metrics = [_metric(key) for key in keys]
    return found


def _add_intervals(
    found: Recorded, path: Path, case: int, trials: Mapping[int, Trial], begins: Mapping[int, float]
) -> None:
    query = files(__package__).joinpath("sql", "intervals.sql").read_text("utf-8")
    with translated(path), closing(open_for_reading(path, verify=False)) as connection:
        # One trial at a time: the intervals of days are too many for objects of Python.
        for number, rows in groupby(connection.execute(query, (case,)), itemgetter(0)):
            own = np.array(list(rows), dtype=np.float64)  # None is NaN
            trial = trials.get(number)
            if trial is None:
                continue
            begin, (from_s, to_s) = begins[trial.trial], (own[:, 1], own[:, 2])
            columns = {name: own[:, column] for column, name in enumerate(("p50", "p95", "p99", "max"), 4)}
            columns["tps"] = own[:, 3] / (to_s - from_s)
            every_s = begin + (from_s + to_s) / 2
            found.add_all("driver", trial, np.ones(len(own), dtype=bool), every_s, columns)
            if not (is_measured := own[:, 8] > 0).all():
                cold = ~is_measured
                span = begin + float(from_s[cold].min()), begin + float(to_s[cold].max())
                found.warm_ups.setdefault(trial.block, []).append(span)


def _add_samples(
    found: Recorded, trial: Trial, begin: float, series: Mapping[str, SampleSeries], plan: Study
) -> None:
    for probe, of in series.items():
        (is_own, is_alone), at_s = _is_own(of, trial, plan), begin + of.points[:, 0]
        found.is_diluted |= not is_alone
        between = is_own[1:], (at_s[:-1] + at_s[1:]) / 2  # the first sample has no rate
        if probe == WAITS:
            found.add_all(probe, trial, *between, {name: values[1:] for name, values in _waits(of).items()})
        else:
            gauges = {name: of.column(name) for name in of.columns[2:] if name in GAUGES}
            found.add_all(probe, trial, is_own, at_s, gauges)
            found.add_all(probe, trial, *between, rates(of).per_s)
        if probe == SERVER and (starts := np.array(checkpoint_starts(of))).size:
            found.marks.append(Piece(trial.arm, trial.block, begin + starts, np.ones(len(starts))))


def _is_own(of: SampleSeries, trial: Trial, plan: Study) -> tuple[npt.NDArray[np.bool_], bool]:
    """Return which samples lie in the slices of the arm, and whether they have no slice of another arm.

    All of a duet are its own. If samples do not resolve slices, those from the first slice to the last.
    """
    spans = own_spans(trial.slices)
    if not spans or len(of.points) < 2 or plan.schedule is Schedule.DUET:
        return np.ones(len(of.points), dtype=bool), True
    within, is_resolved = resolvable(of, spans)
    return overlap(of, within) >= OWN_MIN, is_resolved or plan.schedule is not Schedule.SLICES


def _waits(of: SampleSeries) -> dict[str, Floats]:
    """Return the mean number of client backends by state, and of all that wait."""
    samples = of.column(SAMPLES)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = {name: np.nan_to_num(of.column(name)) / samples for name in client_waits(of)}
    waiting = [values for name, values in found.items() if name.removeprefix(WORKER) != RUNNING]
    return {"waiting": np.sum(waiting, axis=0), **found} if waiting else found


def _metric(key: str) -> Metric:
    probe, _, column = key.partition(".")
    if column in (named := _names().get(probe, {})):
        return Metric(key, *named[column][:2])
    if probe == WAITS:
        return Metric(key, f"Backends: {column}", "")
    words = column.replace("_", " ")
    if column in GAUGES:
        return Metric(key, words, "")
    return Metric(key, words.removesuffix(" s"), "s/s" if column.endswith("_s") else "per s")


# ----------------------------------------------------------------------
# Reduction to what a screen shows.
# ----------------------------------------------------------------------

TIME_STEP_S = 0.01
"""Resolution of times in a page."""


@dataclass(frozen=True)
class Line:
    """An arm in a chart. ``x``: the first time, then differences, in TIME_STEP_S. ``y``: null between blocks.

    ``n``, ``low``, ``median`` and ``high`` are of all values in the window, before the reduction.
    """

    arm: int
    x: Sequence[int]
    y: Sequence[float | None]
    n: int
    low: float
    median: float
    high: float


@dataclass(frozen=True)
class Chart:
    """A metric in a window of time."""

    key: str
    name: str
    unit: str
    lines: Sequence[Line]


@dataclass(frozen=True)
class Window:
    """Values of a request: from, to, number of points, arms and blocks (None: all)."""

    from_s: float = -math.inf
    to_s: float = math.inf
    points: int = 600
    arms: Collection[int] | None = None
    blocks: Collection[int] | None = None

    def has(self, of: Piece) -> bool:
        """Return whether an arm and a block are shown."""
        return (self.arms is None or of.arm in self.arms) and (self.blocks is None or of.block in self.blocks)


def span_of(found: Recorded, of: Window) -> Span:
    """Return the shown time: the window within the values of its arms and blocks, or all without any."""
    shown = [one for pieces in found.pieces.values() for one in pieces if of.has(one)]
    first = min((float(one.at_s[0]) for one in shown), default=0.0)
    last = max((float(one.at_s[-1]) for one in shown), default=1.0)
    from_s, to_s = max(of.from_s, first), min(of.to_s, last)
    return (from_s, to_s) if from_s < to_s else (first, last)


def chart(found: Recorded, metric: Metric, of: Window, span: Span) -> Chart:
    """Return a metric, reduced to two points per pixel. ``span``: the shown time."""
    lines = []
    for arm in sorted({piece.arm for piece in found.pieces[metric.key]}):
        pieces = [piece for piece in found.pieces[metric.key] if piece.arm == arm and of.has(piece)]
        if line := _line(arm, pieces, span, of.points):
            lines.append(line)
    return Chart(metric.key, metric.name, metric.unit, lines)


def _line(arm: int, pieces: Sequence[Piece], span: Span, points: int) -> Line | None:
    at_s = np.concatenate([piece.at_s for piece in pieces]) if pieces else np.array([])
    values = np.concatenate([piece.values for piece in pieces]) if pieces else np.array([])
    block = np.repeat([piece.block for piece in pieces], [len(piece.at_s) for piece in pieces])
    inside = (at_s >= span[0]) & (at_s <= span[1])
    own = values[inside]
    if not len(own):
        return None
    near = inside.copy()  # with a point on either side, so that lines reach the edges
    near[:-1] |= inside[1:]
    near[1:] |= inside[:-1]
    at_s, values, block = at_s[near], values[near], block[near]
    kept = reduced(at_s, values, span, points)
    at_s, values, block = at_s[kept], values[kept], block[kept]
    x, y = list(_broken(at_s, values, block))
    steps = np.round(np.array(x) / TIME_STEP_S).astype(int)
    return Line(
        arm,
        np.diff(steps, prepend=0).tolist(),
        y,
        len(own),
        *(short(float(one)) for one in (own.min(), np.median(own), own.max())),
    )


def _broken(at_s: Floats, values: Floats, block: npt.NDArray[np.int64]) -> Iterator[list[Any]]:
    """Yield times and values, with a null in the middle between two blocks."""
    edges = np.flatnonzero(np.diff(block)) + 1
    yield np.insert(at_s, edges, (at_s[edges - 1] + at_s[edges]) / 2).tolist()
    shown: list[Any] = [short(value) for value in values.tolist()]
    for edge in edges[::-1].tolist():
        shown.insert(edge, None)
    yield shown


def marks(found: Recorded, of: Window, span: Span) -> list[dict[str, Any]]:
    """Return the checkpoint starts in the shown time, at most one per point."""
    from_s, to_s = span
    width = (to_s - from_s) / of.points or 1.0
    shown = []
    for piece in found.marks:
        at_s = piece.at_s[(piece.at_s >= from_s) & (piece.at_s <= to_s)]
        if of.has(piece) and len(at_s):
            _, first = np.unique(np.floor((at_s - from_s) / width), return_index=True)
            shown.append({"arm": piece.arm, "block": piece.block, "at_s": at_s[first].tolist()})
    return shown


def reduced(at_s: Floats, values: Floats, span: Span, points: int) -> npt.NDArray[np.int64]:
    """Return the indices of the minimum and the maximum of each of ``points`` equal parts of the span."""
    if len(at_s) <= 2 * points:
        return np.arange(len(at_s))
    width = (span[1] - span[0]) / points or 1.0
    part = np.floor((at_s - span[0]) / width).astype(int)
    part[at_s == span[1]] = points - 1
    order = np.lexsort((values, part))
    edges = np.flatnonzero(np.diff(part[order])) + 1
    first, last = np.append(0, edges), np.append(edges, len(order)) - 1
    return np.unique(np.concatenate([order[first], order[last]]))


def short(value: float) -> float:
    """Return the value with the digits that a page shows."""
    return float(f"{value:.5g}")
