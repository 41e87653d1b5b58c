"""Throughput by number of clients: the fitted law of each arm, and differences between arms.

Computed if ``clients`` is a factor with enough levels. A curve is fitted to the means over the passes that
have all numbers of clients. Intervals are over passes. Two curves are compared on the same passes, so common
effects of a pass cancel. Ratios at each number of clients need no model: paired by pass, Student's interval,
corrected (Holm) over all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from pgdyno.analysis.findings.factor_effects import FactorialCell, FactorialDesign, Levels
from pgdyno.analysis.statistics.bootstrap import BOOTSTRAP_SEED
from pgdyno.analysis.statistics.effect import Method, own_level, simultaneous, summarize
from pgdyno.analysis.statistics.usl import (
    Floats,
    LackOfFit,
    Law,
    fit_curves,
    fit_without_bounds,
    lack_of_fit,
    resampled,
    weights,
)
from pgdyno.analysis.telemetry.metrics import NOPM, TPM, TPS, Metric
from pgdyno.estimate import Better, Estimate
from pgdyno.study.cases import label_of
from pgdyno.study.stopping_rule import VERDICT_BLOCKS_MIN

FACTOR = "clients"

NUMBERS_MIN = 4
"""Minimum number of client levels: three parameters fit any three of them."""

DRAWS = 1999


def curve_name(context: Levels) -> str:
    """Return ``18, scale 100``; "all arms" if only the number of clients varies."""
    return label_of(context) or "all arms"


def baseline_of(design: FactorialDesign, levels: Levels, swept: str = FACTOR) -> Levels:
    """Return the same combination with the first levels of the compared factors.

    If only ``swept`` is compared, with the first levels of the factors that create cases.
    """
    others = [factor for factor in design.factors if factor.name != swept]
    varying = [factor for factor in others if factor.compared] or others
    return {**levels, **{factor.name: factor.levels[0] for factor in varying}}


@dataclass(frozen=True)
class Sweep:
    """Logs of throughput of shape (passes, numbers of clients), without gaps."""

    levels: Levels
    clients: Floats
    passes: Sequence[int]
    logs: Floats
    left_out: Sequence[str]

    @property
    def name(self) -> str:
        """Name of the combination."""
        return curve_name(self.levels)

    def only(self, passes: Sequence[int]) -> Sweep:
        """Return the sweep with only these passes."""
        rows = [self.passes.index(number) for number in passes]
        return Sweep(self.levels, self.clients, passes, self.logs[rows], self.left_out)


def sweep_of(design: FactorialDesign, context: Levels, levels: Sequence[str]) -> Sweep | None:
    """Return the sweep of a combination; None if it has too few numbers of clients.

    A number of clients with at most half as many blocks as another is omitted, so that the others keep their
    passes.
    """
    cells: list[FactorialCell] = []
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
    """Law fitted to the means with bounds, and the laws of the resampled means without and with bounds.

    The draws of two sweeps with the same passes correspond.
    """

    law: Law
    free: Law | None
    bounded: Law | None

    @classmethod
    def of(cls, sweep: Sweep) -> Laws:
        """Fit the laws. With fewer than VERDICT_BLOCKS_MIN passes there are no draws, so no intervals."""
        law = fit_curves(sweep.clients, sweep.logs.mean(axis=0))
        passes = len(sweep.passes)
        if passes < VERDICT_BLOCKS_MIN:
            return cls(law, None, None)
        means = resampled(sweep.logs, weights(passes, DRAWS, BOOTSTRAP_SEED))
        return cls(law, fit_without_bounds(sweep.clients, means), fit_curves(sweep.clients, means))


REACH = 2.0
"""Limit of a reported maximum, as a multiple of the largest measured number of clients."""

SCALED = {NOPM.key, TPM.key, TPS.key}
"""Metrics to which the law applies: throughput that the server determines."""

PER_CENT, PER_MILLION = 1e2, 1e6


@dataclass(frozen=True)
class Curve:
    """Curve of one combination of the other factors. ``measured``: number of clients → its level.

    ``knee`` and ``peak`` are None without a maximum within REACH. An end of their intervals that depends on a
    knee beyond it is infinite. ``left_out`` are numbers of clients without complete blocks.
    """

    name: str
    levels: Levels
    passes: Sequence[int]
    measured: Mapping[int, Estimate]
    left_out: Sequence[str]
    law: Law
    fitting: LackOfFit
    rate_of_one: Estimate
    sigma: Estimate  # %
    kappa: Estimate  # per million
    contention: Estimate  # contention's share of a transaction's time at the most clients, %
    coherency: Estimate  # coherency's share
    knee: Estimate | None  # clients
    peak: Estimate | None

    @property
    def clients(self) -> list[int]:
        """The measured numbers of clients, ascending."""
        return list(self.measured)

    @property
    def clients_max(self) -> int:
        """The largest measured number of clients."""
        return self.clients[-1]


@dataclass(frozen=True)
class CurveDifference:
    """Difference of a curve from its baseline: λ and peak in percent, σ in points, κ per million.

    ``ratios`` are percent by number of clients. ``peak`` is None if unknown.
    """

    name: str
    baseline: str
    rate_of_one: Estimate
    sigma: Estimate
    kappa: Estimate
    peak: Estimate | None
    ratios: Mapping[int, Estimate]


@dataclass(frozen=True)
class Scalability:
    """Scalability of a study. ``without_curve``: combinations with too few numbers of clients for a curve."""

    metric: Metric
    curves: Sequence[Curve]
    differences: Sequence[CurveDifference]
    without_curve: Sequence[str]

    def curve(self, name: str) -> Curve:
        """Return the curve with this name."""
        return next(curve for curve in self.curves if curve.name == name)


def scalability_of(design: FactorialDesign, confidence: float) -> Scalability | None:
    """Return the scalability; None if the clients do not vary enough, or the load is fixed."""
    levels = next((factor.levels for factor in design.factors if factor.name == FACTOR), ())
    if len(levels) < NUMBERS_MIN or design.metric.key not in SCALED:
        return None
    made, without_curve = {}, []
    for context in design.contexts(FACTOR):
        sweep = sweep_of(design, context, levels)
        if sweep is None:
            without_curve.append(curve_name(context))
        else:
            made[curve_name(context)] = sweep
    pairs = [
        (name, of)
        for name, sweep in made.items()
        if (of := curve_name(baseline_of(design, sweep.levels))) in made and of != name
    ]
    return Scalability(
        metric=design.metric,
        curves=[_curve(sweep, design.metric, confidence) for sweep in made.values()],
        differences=_differences([(made[name], made[of]) for name, of in pairs], confidence, design.method),
        without_curve=without_curve,
    )


def _curve(sweep: Sweep, metric: Metric, confidence: float) -> Curve:
    laws, n = Laws.of(sweep), len(sweep.passes)
    n_max = float(sweep.clients[-1])
    reach = REACH * n_max

    def estimate(unit: str, better: Better, of: Callable[[Law], Floats], draws: Law | None) -> Estimate:
        value = float(of(laws.law)[0])
        low, high = (None, None) if draws is None else _ends(of(draws), value, confidence)
        low = None if low is None else max(0.0, low)
        return Estimate(value, unit, n, better, low, high, confidence)

    def knee_of(law: Law) -> Floats:
        return np.asarray(np.where(law.knee > reach, np.inf, law.knee))

    knee = estimate(FACTOR, Better.MORE, knee_of, laws.free)
    peak = estimate(metric.unit, Better.MORE, lambda of: _peak(of, reach), laws.bounded)
    shows = bool(np.isfinite(knee.value))
    return Curve(
        name=sweep.name,
        levels=sweep.levels,
        passes=sweep.passes,
        measured=_measured(sweep, metric, confidence),
        left_out=sweep.left_out,
        law=laws.law,
        fitting=lack_of_fit(sweep.clients, sweep.logs, laws.law),
        rate_of_one=estimate(metric.unit, Better.MORE, lambda of: of.rate_of_one, laws.free),
        sigma=estimate("%", Better.LESS, lambda of: PER_CENT * of.sigma, laws.free),
        kappa=estimate("per million", Better.LESS, lambda of: PER_MILLION * of.kappa, laws.free),
        contention=estimate("%", Better.LESS, lambda of: _shares(of, n_max)[0], laws.bounded),
        coherency=estimate("%", Better.LESS, lambda of: _shares(of, n_max)[1], laws.bounded),
        knee=knee if shows else None,
        peak=peak if shows else None,
    )


def _peak(law: Law, reach: float) -> Floats:
    """Return the peak; infinite if the knee is beyond ``reach``."""
    return np.asarray(np.where(law.knee > reach, np.inf, law.at(np.minimum(law.knee, reach))))


def _peaks_least(b: Law, a: Law, reach: float) -> Floats:
    """Return the lower bound of b's peak over a's, %. A peak of a beyond ``reach`` is unbounded."""
    with np.errstate(divide="ignore"):
        return np.asarray(PER_CENT * (b.at(np.minimum(b.knee, reach)) / _peak(a, reach) - 1))


def _peaks_most(b: Law, a: Law, reach: float) -> Floats:
    """Return the upper bound."""
    return np.asarray(PER_CENT * (_peak(b, reach) / a.at(np.minimum(a.knee, reach)) - 1))


def _shares(law: Law, clients: float) -> tuple[Floats, Floats]:
    """Return the shares of σ and κ in 1 + σ(N − 1) + κN(N − 1), proportional to a transaction's time; %."""
    contention, coherency = law.sigma * (clients - 1), law.kappa * clients * (clients - 1)
    whole = 1 + contention + coherency
    return PER_CENT * contention / whole, PER_CENT * coherency / whole


def _measured(sweep: Sweep, metric: Metric, confidence: float) -> dict[int, Estimate]:
    found = {}
    for clients, logs in zip(sweep.clients, sweep.logs.T, strict=True):
        values = dict(zip(sweep.passes, np.exp(logs).tolist(), strict=True))
        level = own_level(values, metric.unit, metric.better, confidence)
        assert level is not None
        found[int(clients)] = level
    return found


def _ends(values: Floats, value: float, confidence: float) -> tuple[float, float]:
    """Return the interval of the draws, with equal tails, extended to include the estimate.

    There is no interpolation, because draws may be infinite. A bound can place the estimate outside the
    draws.
    """
    shares = [(1 - confidence) / 2, (1 + confidence) / 2]
    low, high = np.quantile(values, shares, method="nearest")
    return min(float(low), value), max(float(high), value)


def _differences(
    pairs: Sequence[tuple[Sweep, Sweep]], confidence: float, method: Method
) -> list[CurveDifference]:
    """Return the difference of each curve from its baseline, on common passes.

    Holm's family of the ratios is all numbers of clients of all curves.
    """
    matched = [both for one, baseline in pairs if (both := _of_the_same_passes(one, baseline)) is not None]
    flat = [(i, clients, d) for i, both in enumerate(matched) for clients, d in _ratios(*both).items()]
    summaries = simultaneous([partial(summarize, d, method=method) for _, _, d in flat], confidence)
    ratios: list[dict[int, Estimate]] = [{} for _ in matched]
    for (i, clients, _), summary in zip(flat, summaries, strict=True):
        ratios[i][clients] = summary.percent(Better.MORE)
    return [_difference(*both, of, confidence) for both, of in zip(matched, ratios, strict=True)]


def _of_the_same_passes(one: Sweep, baseline: Sweep) -> tuple[Sweep, Sweep] | None:
    passes = sorted(set(one.passes) & set(baseline.passes))
    return (one.only(passes), baseline.only(passes)) if passes else None


def _ratios(one: Sweep, baseline: Sweep) -> dict[int, list[float]]:
    """Return number of clients → ln of the ratio in each pass, if both curves have it."""
    columns = dict(zip(baseline.clients, baseline.logs.T, strict=True))
    return {
        int(clients): (logs - columns[clients]).tolist()
        for clients, logs in zip(one.clients, one.logs.T, strict=True)
        if clients in columns
    }


def _difference(
    one: Sweep, baseline: Sweep, ratios: Mapping[int, Estimate], confidence: float
) -> CurveDifference:
    x, y, n = Laws.of(one), Laws.of(baseline), len(one.passes)
    reach = REACH * min(one.clients[-1], baseline.clients[-1])

    def estimate(
        unit: str, better: Better, of: Callable[[Law, Law], Floats], draws: tuple[Law | None, Law | None]
    ) -> Estimate:
        value = float(of(x.law, y.law)[0])
        if draws[0] is None or draws[1] is None:
            return Estimate(value, unit, n, better)
        return Estimate(value, unit, n, better, *_ends(of(draws[0], draws[1]), value, confidence), confidence)

    free, bounded = (x.free, y.free), (x.bounded, y.bounded)
    shows = max(float(x.law.knee[0]), float(y.law.knee[0])) <= reach
    peaks = estimate("%", Better.MORE, lambda b, a: _peaks_least(b, a, reach), bounded)
    if peaks.low is not None and y.bounded is not None and x.bounded is not None:
        _, high = _ends(_peaks_most(x.bounded, y.bounded, reach), peaks.value, confidence)
        peaks = replace(peaks, high=high)
    return CurveDifference(
        name=one.name,
        baseline=baseline.name,
        rate_of_one=estimate(
            "%", Better.MORE, lambda b, a: PER_CENT * (b.rate_of_one / a.rate_of_one - 1), free
        ),
        sigma=estimate("points", Better.LESS, lambda b, a: PER_CENT * (b.sigma - a.sigma), free),
        kappa=estimate("per million", Better.LESS, lambda b, a: PER_MILLION * (b.kappa - a.kappa), free),
        peak=peaks if shows else None,
        ratios=ratios,
    )
