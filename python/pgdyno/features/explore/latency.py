"""Latency of a case: percentile curves by arm, and a heat map of trials and latencies, from histograms.

A results file has one histogram per trial and kind of transaction, so a trial is one column of the heat map.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from pgdyno.analysis.telemetry.percentiles import Latencies, curve_ms, merge_latencies, read_latencies
from pgdyno.features.explore.series import short
from pgdyno.features.serve.index import State
from pgdyno.results.reader import Evidence
from pgdyno.results.records import TrialStatus

CELLS_PER_DECADE = 10
"""Latency cells of the heat map per factor of ten."""

POINTS = 240
"""Points of a percentile curve."""


@dataclass(frozen=True)
class TrialLatency:
    """Latencies of a valid trial by kind. ``from_s``, ``to_s``: its measured part in the study."""

    arm: int
    block: int
    from_s: float
    to_s: float
    by_kind: Mapping[str, Latencies]

    def of(self, kind: str) -> Latencies:
        """Return the latencies of a kind; empty: of all kinds."""
        return self.by_kind.get(kind, Latencies()) if kind else merge_latencies(self.by_kind.values())


@lru_cache(maxsize=2)
def latencies(
    path: Path,
    case: int,
    state: State,  # noqa: ARG001  # a key of the cache
) -> list[TrialLatency]:
    """Return the latencies of a case, sorted by block and arm. ``state`` is that of the file."""
    found = []
    with Evidence(path, verify=False) as evidence:
        start = evidence.study(case).created_unix_s
        for trial in evidence.trials(case):
            by_kind = read_latencies(evidence, trial.trial) if trial.status is TrialStatus.OK else {}
            if by_kind and trial.measured:
                epoch = (trial.epoch_unix_s or trial.started_unix_s) - start
                span = epoch + trial.measured[0].opened_s, epoch + trial.measured[-1].drained_s
                found.append(TrialLatency(trial.arm, trial.block, *span, by_kind))
    return found


@dataclass(frozen=True)
class Curve:
    """Percentile curve of an arm over all its trials. ``beyond``: share of the slower transactions.

    ``quantiles_ms``: by name; None with too few transactions beyond it.
    """

    arm: int
    n: int
    skipped: int
    beyond: Sequence[float]
    ms: Sequence[float]
    quantiles_ms: Mapping[str, float | None]


@dataclass(frozen=True)
class Column:
    """A trial in the heat map. ``shares``: of its transactions, by cell from ``first`` on."""

    arm: int
    block: int
    from_s: float
    to_s: float
    first: int
    shares: Sequence[float]
    p50_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True)
class LatencyView:
    """Curves and heat map. Cell i is from 10^(i / ``per_decade``) ms to the next."""

    curves: Sequence[Curve]
    columns: Sequence[Column]
    per_decade: int = CELLS_PER_DECADE


def view_of(
    trials: Sequence[TrialLatency], kind: str, arms: Collection[int], blocks: Collection[int]
) -> LatencyView:
    """Return the latencies of a kind in the chosen arms and blocks."""
    chosen = [of for of in trials if of.arm in arms and of.block in blocks]
    by_arm: dict[int, list[Latencies]] = {}
    columns = []
    for trial in chosen:
        own = trial.of(kind)
        if len(own.answered):
            by_arm.setdefault(trial.arm, []).append(own)
            columns.append(_column(trial, own))
    return LatencyView([_curve(arm, merge_latencies(of)) for arm, of in sorted(by_arm.items())], columns)


def _curve(arm: int, of: Latencies) -> Curve:
    points = curve_ms(of, POINTS)
    return Curve(
        arm,
        of.n,
        of.n - int(of.answered[:, 1].sum()),
        [short(beyond) for beyond, _ in points],
        [short(ms) for _, ms in points],
        _quantiles(of),
    )


def _quantiles(of: Latencies) -> dict[str, float | None]:
    return {
        name: None if found is None or found.is_bound else short(found.value)
        for name, found in of.quantiles_ms().items()
    }


def _column(trial: TrialLatency, own: Latencies) -> Column:
    ms, n = own.answered[:, 0].astype(float) / 1e6, own.answered[:, 1].astype(float)
    cell = np.floor(np.log10(np.maximum(ms, 1e-6)) * CELLS_PER_DECADE).astype(int)
    first = int(cell.min())
    shares = np.bincount(cell - first, n) / own.n
    quantiles = _quantiles(own)
    return Column(
        trial.arm,
        trial.block,
        short(trial.from_s),
        short(trial.to_s),
        first,
        [short(share) for share in shares.tolist()],
        quantiles.get("p50"),
        quantiles.get("p99"),
    )


def kinds_of(trials: Sequence[TrialLatency]) -> list[str]:
    """Return the kinds of transactions, if there are several."""
    found = sorted({kind for of in trials for kind in of.by_kind})
    return found if len(found) > 1 else []
