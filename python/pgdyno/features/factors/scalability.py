"""Throughput by number of clients: the fitted law, findings and section.

- Universal Scalability Law: throughput as a function of the number of clients, and its maximum.
- Throughput by number of clients: the fitted law of each arm, and differences between arms.
- Scalability section: throughput by number of clients, with the fitted Universal Scalability Law (USL).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.finding_fields import Hidden, MetricKey, about, in_json
from pgdyno.analysis.statistics.intervals import (
    BOOTSTRAP_SEED,
    Method,
    f_beyond,
    own_level,
    simultaneous,
    summarize,
)
from pgdyno.analysis.study_findings import StudyFindings
from pgdyno.analysis.telemetry.metrics import NOPM, TPM, TPS, Metric
from pgdyno.features.factors.effects import (
    FactorialCell,
    FactorialDesign,
    Levels,
    design_of,
    effects_in,
    factors_section,
)
from pgdyno.report import result_tables
from pgdyno.report.document import Section, Table
from pgdyno.report.json_format import Result
from pgdyno.report.plot import Axis, Dots, Mark, Panel, Point, arm_class, linear, logarithmic, plot, trace
from pgdyno.report.result_tables import enumeration, with_no_break_spaces
from pgdyno.study.cases import label_of
from pgdyno.study.plan import VERDICT_BLOCKS_MIN, Study
from pgdyno.units import ABSENT, Better, Estimate, bracketed, given_percent, group_digits, signed, significant

# ----------------------------------------------------------------------
# Universal Scalability Law: throughput as a function of the number of clients, and its maximum.
#
# X(N) = λN / (1 + σ(N − 1) + κN(N − 1))
#
# λ is the throughput of one client, σ the serialized share of the work (contention), κ the cost of agreement
# per pair of clients (coherency). (Gunther, "Guerrilla Capacity Planning", Springer 2007, and "A general
# theory of computational scalability based on rational functions", arXiv:0808.1431.) The maximum, or knee, is
# at N* = sqrt((1 − σ) / κ).
#
# The fit is least squares of ln X, because errors of throughput are relative, with σ and κ at least 0. With T
# = N / X, a = 1/λ, b = σ/λ, c = κ/λ the law is linear, T = a + b(N − 1) + cN(N − 1). So the Gauss-Newton step
# on ln T is a linear least-squares problem in a, b, c. The bounds are enforced by solving for all four sets
# of zero parameters and taking the best feasible solution. Thousands of resamples are fitted at once.
# Intervals of the parameters come from resamples without the bounds, truncated to them: if κ is 0, estimates
# at the bound make those of σ too certain (in simulations 90% instead of 95%).
#
# ``lack_of_fit`` tests the model: it compares the residuals of the curve with the interaction of pass and
# number of clients, which no curve through the means could explain.
# ----------------------------------------------------------------------

Floats = npt.NDArray[np.float64]

ITERATIONS_MAX = 25
"""Maximum number of Gauss-Newton steps. A good start needs five, an extreme resample twenty."""

SETTLED = 1e-10
"""Relative change below which iteration stops."""

PARAMETER_SETS = ((0, 1, 2), (0, 1), (0, 2), (0,))
"""Sets of the parameters a, b, c that are not fixed at 0."""


@dataclass(frozen=True)
class Law:
    """One curve, or one per element of the arrays."""

    rate_of_one: Floats  # λ, in the throughput's unit
    sigma: Floats
    kappa: Floats

    def at(self, clients: Floats | float) -> Floats:
        """Return the throughput. Shapes broadcast."""
        n = np.asarray(clients, dtype=np.float64)
        return np.asarray(self.rate_of_one * n / (1 + self.sigma * (n - 1) + self.kappa * n * (n - 1)))

    @property
    def knee(self) -> Floats:
        """N*, at least 1; infinite if throughput has no maximum."""
        with np.errstate(divide="ignore", invalid="ignore"):
            knee = np.sqrt(np.maximum(0.0, 1 - self.sigma) / np.maximum(0.0, self.kappa))
        return np.asarray(
            np.where(self.sigma >= 1, 1.0, np.maximum(1.0, np.nan_to_num(knee, nan=np.inf, posinf=np.inf)))
        )

    @property
    def parameters(self) -> int:
        """Number of parameters of the first curve that are not at their bound."""
        return 1 + int(np.ravel(self.sigma)[0] > 0) + int(np.ravel(self.kappa)[0] > 0)


def fit_curves(clients: Floats, logs: Floats) -> Law:
    """Fit curves to ln X. ``logs``: (curves, numbers of clients), at least three numbers of clients."""
    return _law(_best(clients, logs, PARAMETER_SETS, 0.0)[0])


def fit_without_bounds(clients: Floats, logs: Floats) -> Law:
    """Fit curves with σ and κ also below 0. A curve without a positive λ is fitted with the bounds."""
    best, least = _best(clients, logs, PARAMETER_SETS[:1], -math.inf)
    lost = ~np.isfinite(least)
    if lost.any():
        best[lost] = _best(clients, np.atleast_2d(logs)[lost], PARAMETER_SETS, 0.0)[0]
    return _law(best)


def _best(
    clients: Floats, logs: Floats, sets: Sequence[Sequence[int]], bound: float
) -> tuple[Floats, Floats]:
    """Return a, b, c of the best curves and their errors, with the sets of free parameters."""
    terms, times = _line(clients, logs)
    best, least = np.zeros((len(times), 3)), np.full(len(times), np.inf)
    for free in sets:
        for solution in _steps(terms[:, free], times):
            whole = np.zeros_like(best)
            whole[:, free] = solution
            error = _error(terms, whole, times)
            better = (solution >= bound).all(axis=1) & (whole[:, 0] > 0) & (error < least)
            best[better], least[better] = whole[better], error[better]
    return best, least


def _line(clients: Floats, logs: Floats) -> tuple[Floats, Floats]:
    """Return the factors of a, b and c, and ln T."""
    n = np.asarray(clients, dtype=np.float64)
    terms = np.stack([np.ones_like(n), n - 1, n * (n - 1)], axis=1)
    return terms, np.asarray(np.log(n) - np.atleast_2d(logs))


def _law(solution: Floats) -> Law:
    a, b, c = solution.T
    return Law(1 / a, b / a, c / a)


def _steps(terms: Floats, times: Floats) -> list[Floats]:
    """Return the start (least squares of relative errors) and the solution after each step."""
    found = [_solved(terms / np.exp(times)[:, :, None], np.ones_like(times))]
    for _ in range(ITERATIONS_MAX):
        fitted = np.maximum(found[-1] @ terms.T, np.exp(times) * 1e-6)  # keeps too large steps in the domain
        left = times - np.log(fitted)
        found.append(_solved(terms / fitted[:, :, None], 1 + left))
        if np.max(np.abs(found[-1] @ terms.T / fitted - 1)) < SETTLED:
            break
    return found


def _solved(weighted: Floats, wanted: Floats) -> Floats:
    """Solve least squares for each curve. Columns are scaled, because N(N − 1) is a thousand times 1."""
    scale = np.sqrt((weighted**2).sum(axis=1, keepdims=True))
    q, r = np.linalg.qr(weighted / scale)
    right = np.einsum("bki,bk->bi", q, wanted)
    return np.asarray(np.linalg.solve(r, right[:, :, None])[:, :, 0] / scale[:, 0, :])


def _error(terms: Floats, solution: Floats, times: Floats) -> Floats:
    fitted = solution @ terms.T
    with np.errstate(divide="ignore", invalid="ignore"):
        error = ((times - np.log(fitted)) ** 2).sum(axis=1)
    return np.asarray(np.where(np.isfinite(error), error, np.inf))


@dataclass(frozen=True)
class LackOfFit:
    """``left`` is ln(measured / fitted) at each number of clients. ``f`` is None with too few passes."""

    left: Hidden[Floats]
    f: float | None
    p_value: float | None


def lack_of_fit(clients: Floats, logs: Floats, law: Law) -> LackOfFit:
    """Test the fit. ``logs``: (passes, numbers of clients). F = MS(lack of fit) / MS(pure error).

    Passes share their drift, which shifts a whole curve and does not change its shape. So the pure error is
    the interaction of passes and numbers of clients (Draper and Smith, "Applied Regression Analysis", 1998,
    section 2.1, with blocks). The test assumes the same error for all numbers of clients.
    """
    passes, numbers = logs.shape
    means = logs.mean(axis=0)
    left = np.asarray(means - np.log(law.at(clients)))
    df = numbers - law.parameters
    if passes < 2 or df < 1:
        return LackOfFit(left, None, None)
    pure = logs - means - logs.mean(axis=1, keepdims=True) + means.mean()
    df_pure = (passes - 1) * (numbers - 1)
    error = float((pure**2).sum()) / df_pure
    found = passes * float((left**2).sum()) / df
    if error < 1e-24:  # only rounding errors, as in synthetic data
        return LackOfFit(left, None, None)
    return LackOfFit(left, found / error, f_beyond(found / error, df, df_pure))


def weights(passes: int, draws: int, seed: int) -> Floats:
    """Return weights of shape (draws, passes) for the passes' deviations from their mean.

    Each draw is a possible other mean of the passes. Each pass has a normal weight. A common divisor
    represents the uncertainty of the SD of so few passes. For any linear function of the values, the draws
    have Student's t distribution with passes − 1 degrees of freedom. It is centered at the function's mean
    and scaled by its standard error over the passes. Values may be correlated. (The multiplier bootstrap,
    studentized: van der Vaart and Wellner, "Weak Convergence and Empirical Processes", 1996, section 2.9.)
    The curve's parameters follow the draws. An ordinary bootstrap of so few passes would be too certain.
    """
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal((draws, passes))
    scale = np.sqrt((passes - 1) / rng.chisquare(passes - 1, draws))
    return np.asarray(normal * scale[:, None] / np.sqrt(passes * (passes - 1)))


def resampled(logs: Floats, weight: Floats) -> Floats:
    """Return resampled means (draws, numbers of clients). ``logs``: (passes, numbers of clients)."""
    means = logs.mean(axis=0)
    return np.asarray(means + weight @ (logs - means))


# ----------------------------------------------------------------------
# Throughput by number of clients: the fitted law of each arm, and differences between arms.
#
# Computed if ``clients`` is a factor with enough levels. A curve is fitted to the means over the passes that
# have all numbers of clients. Intervals are over passes. Two curves are compared on the same passes, so
# common effects of a pass cancel. Ratios at each number of clients need no model: paired by pass, the study's
# interval, corrected (Holm) over all of them.
# ----------------------------------------------------------------------

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
        if cell is None or cell.stalled or cell.is_biased or 2 * len(cell.logs) <= most:
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
    law: Hidden[Law]
    fitting: LackOfFit
    rate_of_one: Estimate
    sigma: Annotated[Estimate, about("In percent.")]
    kappa: Annotated[Estimate, about("Per million.")]
    contention: Annotated[Estimate, about("Share of a transaction's time at the most clients, in percent.")]
    coherency: Annotated[Estimate, about("Share of a transaction's time at the most clients, in percent.")]
    knee: Annotated[Estimate | None, about("Number of clients at the maximum; null without one.")]
    peak: Annotated[Estimate | None, about("The maximum; null without one.")]

    @in_json
    def fitted(self) -> dict[int, float]:
        """Value of the fitted law by number of clients."""
        return {clients: float(self.law.at(clients)[0]) for clients in self.clients}

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

    metric: MetricKey
    curves: Sequence[Curve]
    differences: Sequence[CurveDifference]
    without_curve: Annotated[Sequence[str], about("Arms without a curve.")]


def scalability_in(cases: Sequence[Findings]) -> Scalability | None:
    """Return the scalability of a study; None unless its number of clients varies enough."""
    design = design_of(cases)
    return None if design is None else scalability_of(design, cases[0].study.plan.confidence)


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
        curves=[_curve(sweep, design, confidence) for sweep in made.values()],
        differences=_differences([(made[name], made[of]) for name, of in pairs], confidence, design.method),
        without_curve=without_curve,
    )


def _curve(sweep: Sweep, design: FactorialDesign, confidence: float) -> Curve:
    metric, laws, n = design.metric, Laws.of(sweep), len(sweep.passes)
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
        measured=_measured(sweep, metric, confidence, design.method),
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


def _measured(sweep: Sweep, metric: Metric, confidence: float, method: Method) -> dict[int, Estimate]:
    found = {}
    for clients, logs in zip(sweep.clients, sweep.logs.T, strict=True):
        values = dict(zip(sweep.passes, np.exp(logs).tolist(), strict=True))
        level = own_level(values, metric.unit, metric.better, confidence, method)
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


# ----------------------------------------------------------------------
# Scalability section: throughput by number of clients, with the fitted Universal Scalability Law (USL).
# ----------------------------------------------------------------------

CURVES_MAX = 6
"""Maximum number of curves in a chart; the tables have all."""

STEPS = 60
"""Number of points at which the line of a curve is computed."""


def curves(found: Scalability) -> list[Panel]:
    """Return a chart of the throughput and, with several curves, one of the ratios to the baseline."""
    shown = found.curves[:CURVES_MAX]
    if not shown:
        return []
    panels = [Panel(f"{found.metric.name}, with the fitted curve", _throughput(shown, found.metric.unit))]
    compared = {curve.name: number for number, curve in enumerate(shown)}
    differences = [of for of in found.differences if of.name in compared]
    if differences:
        panels.append(Panel("measured change vs. the baseline", _ratio_panel(differences, compared)))
    return panels


def _clients_axis(every: Iterable[Iterable[int]]) -> Axis:
    clients = sorted({n for one in every for n in one})
    labels = [(float(n), group_digits(n, 0)) for n in clients]
    return Axis(clients[0] / 1.15, clients[-1] * 1.15, labels, "clients", log=True)


def _throughput(shown: Sequence[Curve], unit: str) -> Markup:
    ends = [end for of in shown for level in of.measured.values() for end in _interval_ends(level)]
    marks: list[Mark] = []
    for number, of in enumerate(shown):
        at = np.geomspace(of.clients[0], of.clients_max, STEPS)
        law = [(n, float(rate)) for n, rate in zip(at, of.law.at(at), strict=True)]
        dots = _dots(of.name, of.measured, "value_text", "interval_text")
        color = arm_class(number)
        marks += [trace(law, f"curve {color}"), Dots(dots, color, of.name, joined=False)]
    x, y = _clients_axis(of.clients for of in shown), logarithmic(ends, unit)
    return plot("Throughput by number of clients", x, y, marks)


def _ratio_panel(differences: Sequence[CurveDifference], numbers: Mapping[str, int]) -> Markup:
    ends = [end for of in differences for ratio in of.ratios.values() for end in _interval_ends(ratio)]
    marks = [
        Dots(
            _dots(of.name, of.ratios, "signed_text", "signed_interval_text"),
            arm_class(numbers[of.name]),
            of.name,
            aside=4.0 * (i - (len(differences) - 1) / 2),
        )
        for i, of in enumerate(differences)
    ]
    x, y = _clients_axis(of.ratios for of in differences), linear([0.0, *ends], unit="%")
    return plot("Change by number of clients", x, y, marks)


def _dots(name: str, by_clients: Mapping[int, Estimate], value: str, interval: str) -> list[Point]:
    """Return the dots of a curve; ``value`` and ``interval`` are the texts of their titles."""
    return [
        Point(
            n,
            of.value,
            f"{name}, {n} clients: {getattr(of, value)} ({getattr(of, interval)})",
            *_interval_ends(of),
        )
        for n, of in by_clients.items()
    ]


def _interval_ends(estimate: Estimate) -> tuple[float, float]:
    """Return the interval, or the value twice if there are fewer passes than VERDICT_BLOCKS_MIN."""
    if estimate.low is None or estimate.high is None or estimate.n < VERDICT_BLOCKS_MIN:
        return estimate.value, estimate.value
    return estimate.low, estimate.high


LAW = "X(N) = λN / (1 + σ(N − 1) + κN(N − 1))"

UNFIT_P = 0.01
"""Significance level of the lack-of-fit test: one in a hundred curves that follow the USL is rejected."""

ROWS_MAX = 14
"""Rows shown on a terminal; HTML collapses a longer table."""


def sections(findings: StudyFindings) -> Iterator[Section]:
    """Yield the effects of the factors, and the scalability."""
    plan = findings.first.study.plan
    if effects := effects_in(findings.cases):
        yield factors_section(effects, plan)
    if found := scalability_in(findings.cases):
        yield scalability_section(found, plan)


def scalability_section(found: Scalability, plan: Study) -> Section:
    """Return the section: sentences, tables and charts."""
    made = [parameters(found, plan), curve_difference_table(found, plan), ratios(found, plan), points(found)]
    sentences = scalability_sentences(found, plan)
    return Section(
        "scalability",
        "Scalability",
        sentences,
        [table for table in made if table.rows],
        plots=partial(curves, found),
        brief=[f"Clients at peak throughput: {'; '.join(map(_brief, found.curves))}."]
        if found.curves
        else [],
        order=50,
    )


def _brief(curve: Curve) -> str:
    """Return the clients at the maximum with their interval: ``17: 22 [20, 23] (200,540 tx/s)``."""
    if curve.knee is None or curve.peak is None:
        return f"{curve.name}: {_beyond(curve)}"
    within = "" if curve.knee.low is None else f" {_interval(curve.knee, _clients, _beyond(curve))}"
    return f"{curve.name}: {_clients(curve.knee.value)}{within} ({curve.peak.value_text})"


def scalability_sentences(found: Scalability, plan: Study) -> list[str]:
    """Return a sentence for each curve, then one on arms without a curve."""
    lines = [curve_sentence(curve, plan) for curve in found.curves]
    if found.without_curve:
        lines.append(
            f"{enumeration(found.without_curve)}: no curve, because too few numbers of clients have valid "
            "blocks."
        )
    return lines


def curve_sentence(curve: Curve, plan: Study) -> str:
    """Return the maximum of the throughput, its causes, and the fit of the curve."""
    parts = [f"{curve.name}: {_end(curve, plan)}"]
    if not fits(curve):
        clients, left = max(zip(curve.clients, curve.fitting.left, strict=True), key=lambda at: abs(at[1]))
        parts.append(
            f"The curve does not fit: at {clients} clients, the measured throughput deviates by "
            f"{signed(100 * math.expm1(left), 1, '%')}, more than the noise between passes explains (F test, "
            f"{_p(curve.fitting.p_value)}). Use the measured values, not the parameters."
        )
    elif curve.fitting.p_value is None:
        parts.append("The fit cannot be tested with a single pass.")
    if curve.left_out:
        parts.append(f"Excluded: {enumeration(curve.left_out)} clients, without enough valid blocks.")
    return " ".join(parts)


def fits(curve: Curve) -> bool:
    """Return False if the lack-of-fit test rejects the curve. A fit that cannot be tested counts as good."""
    return curve.fitting.p_value is None or curve.fitting.p_value >= UNFIT_P


def _end(curve: Curve, plan: Study) -> str:
    largest = curve.clients_max
    if curve.knee is None or curve.peak is None:
        return (
            f"throughput has no maximum within {group_digits(REACH * largest, 0)} clients, twice the largest "
            f"measured number.{_losses(curve)}"
        )
    knee, peak = curve.knee, curve.peak
    ci = f"{given_percent(plan.confidence)} CI "
    of_knee = (
        f" ({ci}{_interval(knee, _clients, _beyond(curve))})" if knee.low is not None else " (no CI yet)"
    )
    of_peak = f" ({ci}{_interval(peak, _unsigned(peak))})" if peak.low is not None else ""
    claim = (
        f"throughput is highest with about {_clients(knee.value)} clients{of_knee}: "
        f"{peak.value_text}{of_peak}."
    )
    if knee.value > largest:
        claim += f" This is an extrapolation: at most {largest} clients were measured."
    elif knee.value < curve.clients[0]:
        claim += f" This is an extrapolation: at least {curve.clients[0]} clients were measured."
    return f"{claim}{_losses(curve)}"


def _losses(curve: Curve) -> str:
    """Return the shares of σ and κ at the largest number of clients; empty without an interval or a fit."""
    if curve.contention.low is None or not fits(curve):
        return ""
    return (
        f" At {curve.clients_max} clients, the curve attributes {curve.contention.value_text} "
        f"{curve.contention.interval_text} of the transaction time to contention (σ) and "
        f"{curve.coherency.value_text} {curve.coherency.interval_text} to coherency (κ)."
    )


def _clients(number: float) -> str:
    return group_digits(number, 1 if number < 10 else 0)


def _beyond(curve: Curve) -> str:
    """Return the text of a knee beyond the range of the fit."""
    return f"more than {group_digits(REACH * curve.clients_max, 0)}"


def _unsigned(estimate: Estimate) -> Callable[[float], str]:
    return partial(group_digits, decimals=estimate.decimals)


def _interval(estimate: Estimate, number: Callable[[float], str], beyond: str = "∞") -> str:
    """Return the interval, with ``beyond`` as an infinite end."""
    assert estimate.low is not None and estimate.high is not None
    high = number(estimate.high) if math.isfinite(estimate.high) else beyond
    return bracketed(number(estimate.low), high)


def _p(p_value: float | None) -> str:
    if p_value is None:
        return ABSENT
    return "p < 0.0001" if p_value < 1e-4 else f"p = {significant(p_value, 2)}"


def parameters(found: Scalability, plan: Study) -> Table:
    """Return the fitted parameters, one row per curve."""
    rows = [
        [
            curve.name,
            *(_cell(of, _unsigned(of)) for of in (curve.rate_of_one, curve.sigma, curve.kappa)),
            ABSENT if curve.knee is None else _cell(curve.knee, _clients, _beyond(curve)),
            ABSENT if curve.peak is None else _cell(curve.peak, _unsigned(curve.peak)),
            _p(curve.fitting.p_value).removeprefix("p = ").removeprefix("p "),
            str(len(curve.passes)),
        ]
        for curve in found.curves
    ]
    unit = found.metric.unit
    numeric = (f"λ, {unit}", "σ, %", "κ, per million", "knee, clients", f"peak, {unit}", "fit, p", "passes")
    return Table(
        title=f"Universal Scalability Law: {LAW}",
        columns=("arm", *numeric),
        rows=rows,
        note=(
            "λ: throughput of one client. σ: contention, the serial share of the work. κ: coherency, the "
            f"cost per pair of clients. {ABSENT}: no maximum within twice the measured number of clients. "
            "A small p (F test of lack of fit) means that the curve does not fit. The CIs are over passes, "
            f"{given_percent(plan.confidence)} each, not corrected{_as_if_fixed(plan)}."
        ),
        numeric=frozenset(numeric),
        dispensable=("passes", numeric[0], numeric[5], numeric[2], numeric[1]),
        breaks_first=True,
    )


def _as_if_fixed(plan: Study) -> str:
    return ", and assume a number of passes fixed in advance" if plan.needs_anytime_intervals else ""


def _cell(estimate: Estimate, number: Callable[[float], str], beyond: str = "∞") -> str:
    """Return the value with its interval, for a column with the unit in its head."""
    value = number(estimate.value)
    if estimate.low is None:
        return value
    return f"{value} {with_no_break_spaces(_interval(estimate, number, beyond))}"


def curve_difference_table(found: Scalability, plan: Study) -> Table:
    """Return the differences of the parameters, one row per curve compared with its baseline."""
    numeric = ("λ, %", "σ, points", "κ, per million", "peak, %", "passes")
    rows = []
    for of in found.differences:
        cells = [_signed(of.rate_of_one), _signed(of.sigma), _signed(of.kappa)]
        cells.append(ABSENT if of.peak is None else _signed(of.peak))
        rows.append([of.name, of.baseline, *cells, str(of.rate_of_one.n)])
    return Table(
        title="Differences of the parameters",
        columns=("arm", "baseline", *numeric),
        rows=rows,
        note=f"Paired by pass; CIs of {given_percent(plan.confidence)}, not corrected.",
        numeric=frozenset(numeric),
        dispensable=("passes", numeric[2], numeric[0], numeric[1]),
        breaks_first=True,
    )


def _signed(estimate: Estimate) -> str:
    return _cell(estimate, lambda value: signed(value, estimate.decimals, ""))


def ratios(found: Scalability, plan: Study) -> Table:
    """Return the measured ratios, one row per curve and number of clients."""
    rows = [
        [
            of.name if i == 0 else "",
            group_digits(clients, 0),
            result_tables.with_interval(ratio, plan.confidence),
            str(ratio.n),
        ]
        for of in found.differences
        for i, (clients, ratio) in enumerate(of.ratios.items())
    ]
    baselines = enumeration(list(dict.fromkeys(of.baseline for of in found.differences)))
    return Table(
        title=f"Change of throughput vs. {baselines} at each number of clients, %",
        columns=("arm", "clients", "change, %", "passes"),
        rows=rows,
        note=(
            "Measured, not fitted. The CIs are corrected (Holm); a CI without a confidence level has "
            f"{given_percent(plan.confidence)}."
        ),
        numeric=frozenset({"clients", "change, %", "passes"}),
        dispensable=("passes",),
        long=len(rows) > ROWS_MAX,
    )


def points(found: Scalability) -> Table:
    """Return measured and fitted throughput for each number of clients."""
    rows = []
    for curve in found.curves:
        for i, (clients, level) in enumerate(curve.measured.items()):
            fitted = float(curve.law.at(clients)[0])
            rows.append(
                [
                    curve.name if i == 0 else "",
                    group_digits(clients, 0),
                    result_tables.level_text(level),
                    significant(fitted, 4),
                    signed(100 * math.expm1(float(curve.fitting.left[i])), 1, ""),
                ]
            )
    unit = found.metric.unit
    numeric = ("clients", f"measured, {unit}", f"fitted, {unit}", "measured / fitted − 1, %")
    return Table(
        title="Measured and fitted throughput",
        columns=("arm", *numeric),
        rows=rows,
        note="Geometric means over the passes.",
        numeric=frozenset(numeric),
        long=True,
    )


RESULT = Result(
    "scalability",
    Scalability | None,
    "If the number of clients varies enough.",
    lambda of: scalability_in(of.cases),
)
