"""Universal Scalability Law: throughput as a function of the number of clients, and its maximum.

    X(N) = λN / (1 + σ(N − 1) + κN(N − 1))

λ is the throughput of one client, σ the serialized share of the work (contention), κ the cost of agreement
per pair of clients (coherency). (Gunther, "Guerrilla Capacity Planning", Springer 2007, and "A general theory
of computational scalability based on rational functions", arXiv:0808.1431.) The maximum, or knee, is at N* =
sqrt((1 − σ) / κ).

The fit is least squares of ln X, because errors of throughput are relative, with σ and κ at least 0. With T =
N / X, a = 1/λ, b = σ/λ, c = κ/λ the law is linear, T = a + b(N − 1) + cN(N − 1). So the Gauss-Newton step on
ln T is a linear least-squares problem in a, b, c. The bounds are enforced by solving for all four sets of
zero parameters and taking the best feasible solution. Thousands of resamples are fitted at once. Intervals of
the parameters come from resamples without the bounds, truncated to them: if κ is 0, estimates at the bound
make those of σ too certain (in simulations 90% instead of 95%).

``lack_of_fit`` tests the model: it compares the residuals of the curve with the interaction of pass and
number of clients, which no curve through the means could explain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pgdyno.analysis.statistics.distributions import f_beyond

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
    terms, times = _line(clients, logs)
    best = np.zeros((len(times), 3))
    least = np.full(len(times), np.inf)
    for free in PARAMETER_SETS:
        for solution in _steps(terms[:, free], times):
            whole = np.zeros_like(best)
            whole[:, free] = solution
            error = _error(terms, whole, times)
            better = (solution >= 0).all(axis=1) & (whole[:, 0] > 0) & (error < least)
            best[better], least[better] = whole[better], error[better]
    return _law(best)


def fit_without_bounds(clients: Floats, logs: Floats) -> Law:
    """Fit curves with σ and κ also below 0. A curve without a positive λ is fitted with the bounds."""
    terms, times = _line(clients, logs)
    best, least = np.zeros((len(times), 3)), np.full(len(times), np.inf)
    for solution in _steps(terms, times):
        error = _error(terms, solution, times)
        better = (solution[:, 0] > 0) & (error < least)
        best[better], least[better] = solution[better], error[better]
    lost = ~np.isfinite(least)
    if lost.any():
        kept = fit_curves(clients, np.atleast_2d(logs)[lost])
        best[lost] = np.stack([np.ones(lost.sum()), kept.sigma, kept.kappa], axis=1)
        best[lost] /= kept.rate_of_one[:, None]
    return _law(best)


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

    left: Floats
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
