"""The Universal Scalability Law: how throughput grows with the number of clients, and where that ends.

    X(N) = λN / (1 + σ(N − 1) + κN(N − 1))

λ is the throughput of one client, σ the share of the work that one at a time can do (contention), κ what each
pair costs to agree (coherency). (Gunther, "Guerrilla Capacity Planning", Springer 2007, and "A general theory
of computational scalability based on rational functions", arXiv:0808.1431.) The maximum is at
N* = sqrt((1 − σ) / κ), the knee.

Fitted by least squares of ln X, for errors of throughput are relative, with σ and κ at least 0. With
T = N / X, a = 1/λ, b = σ/λ, c = κ/λ the law is a line, T = a + b(N − 1) + cN(N − 1), so that Gauss's and
Newton's step on ln T is a linear least squares in a, b, c itself. The bounds are kept by trying all four sets
of what is 0, and taking the best of those whose solution keeps them. Thousands of resamples take one go.
Intervals of the parameters come from resamples without the bounds, and are cut off at them: where κ is 0,
estimates that are held there make those of σ too sure (in simulations 90 % for 95).

A fit is not worth more than its model: ``lack_of_fit`` holds what the curve leaves against the spread of
pass and number of clients, which no curve through the means could explain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pgdyno.analysis.statistics.distributions import f_beyond

Floats = npt.NDArray[np.float64]

ITERATIONS_MAX = 25
"""Of Gauss's and Newton's step: from a start that is close it takes five, from a wild resample twenty."""

SETTLED = 1e-10
"""Relative: a step that changes less is the last one."""

FREE = ((0, 1, 2), (0, 1), (0, 2), (0,))
"""Which of a, b, c are not held at 0."""


@dataclass(frozen=True)
class Law:
    """One curve, or as many as the arrays are long."""

    rate_of_one: Floats  # λ, in the throughput's unit
    sigma: Floats
    kappa: Floats

    def at(self, clients: Floats | float) -> Floats:
        """Throughput. Shapes broadcast."""
        n = np.asarray(clients, dtype=np.float64)
        return np.asarray(self.rate_of_one * n / (1 + self.sigma * (n - 1) + self.kappa * n * (n - 1)))

    @property
    def knee(self) -> Floats:
        """N*, at least 1; inf where throughput grows without end."""
        with np.errstate(divide="ignore", invalid="ignore"):
            knee = np.sqrt(np.maximum(0.0, 1 - self.sigma) / np.maximum(0.0, self.kappa))
        return np.asarray(
            np.where(self.sigma >= 1, 1.0, np.maximum(1.0, np.nan_to_num(knee, nan=np.inf, posinf=np.inf)))
        )

    @property
    def parameters(self) -> int:
        """How many of the first curve are not at their bound."""
        return 1 + int(np.ravel(self.sigma)[0] > 0) + int(np.ravel(self.kappa)[0] > 0)


def fit(clients: Floats, logs: Floats) -> Law:
    """``logs``: (curves, numbers of clients) of ln X. Three numbers of clients are the least."""
    terms, times = _line(clients, logs)
    best = np.zeros((len(times), 3))
    least = np.full(len(times), np.inf)
    for free in FREE:
        for solution in _steps(terms[:, free], times):
            whole = np.zeros_like(best)
            whole[:, free] = solution
            error = _error(terms, whole, times)
            better = (solution >= 0).all(axis=1) & (whole[:, 0] > 0) & (error < least)
            best[better], least[better] = whole[better], error[better]
    return _law(best)


def fit_without_bounds(clients: Floats, logs: Floats) -> Law:
    """σ and κ may be below 0; of a curve that would not have a positive λ then, as with the bounds."""
    terms, times = _line(clients, logs)
    best, least = np.zeros((len(times), 3)), np.full(len(times), np.inf)
    for solution in _steps(terms, times):
        error = _error(terms, solution, times)
        better = (solution[:, 0] > 0) & (error < least)
        best[better], least[better] = solution[better], error[better]
    lost = ~np.isfinite(least)
    if lost.any():
        kept = fit(clients, np.atleast_2d(logs)[lost])
        best[lost] = np.stack([np.ones(lost.sum()), kept.sigma, kept.kappa], axis=1)
        best[lost] /= kept.rate_of_one[:, None]
    return _law(best)


def _line(clients: Floats, logs: Floats) -> tuple[Floats, Floats]:
    """What a, b and c are multiplied by, and ln T."""
    n = np.asarray(clients, dtype=np.float64)
    terms = np.stack([np.ones_like(n), n - 1, n * (n - 1)], axis=1)
    return terms, np.asarray(np.log(n) - np.atleast_2d(logs))


def _law(solution: Floats) -> Law:
    a, b, c = solution.T
    return Law(1 / a, b / a, c / a)


def _steps(terms: Floats, times: Floats) -> list[Floats]:
    """The start, of relative errors, and what each step makes of it."""
    found = [_solved(terms / np.exp(times)[:, :, None], np.ones_like(times))]
    for _ in range(ITERATIONS_MAX):
        fitted = np.maximum(found[-1] @ terms.T, np.exp(times) * 1e-6)  # a step too far stays in the domain
        left = times - np.log(fitted)
        found.append(_solved(terms / fitted[:, :, None], 1 + left))
        if np.max(np.abs(found[-1] @ terms.T / fitted - 1)) < SETTLED:
            break
    return found


def _solved(weighted: Floats, wanted: Floats) -> Floats:
    """Least squares, curve by curve. Columns are scaled: N(N − 1) is a thousand times 1."""
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
    """``left`` is ln(measured / fitted) at each number of clients. None: too few passes to tell."""

    left: Floats
    f: float | None
    p_value: float | None


def lack_of_fit(clients: Floats, logs: Floats, law: Law) -> LackOfFit:
    """``logs``: (passes, numbers of clients). F = MS(lack of fit) / MS(pure error).

    Passes share their drift, which moves a whole curve and is no error of its shape; so the pure error is the
    interaction of passes and numbers of clients (Draper and Smith, "Applied Regression Analysis", 1998,
    section 2.1, with blocks). The test takes it to be alike for all numbers of clients.
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
    if error < 1e-24:  # nothing but rounding, which only synthetic data have
        return LackOfFit(left, None, None)
    return LackOfFit(left, found / error, f_beyond(found / error, df, df_pure))


def weights(passes: int, draws: int, seed: int) -> Floats:
    """(draws, passes), of the passes' deviations from their mean: what one more such mean might have been.

    A normal weight for each pass, and a common divisor that stands for how well so few passes know their own
    spread: of any linear function of the values the draws are spread as Student's t with passes − 1 degrees
    of freedom about its mean, with its standard error over the passes, whatever the values have in common.
    (The multiplier bootstrap, studentised: van der Vaart and Wellner, "Weak Convergence and Empirical
    Processes", 1996, section 2.9.) The curve's parameters follow the draws. The common bootstrap of so few
    passes would be a good deal too sure.
    """
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal((draws, passes))
    spread = np.sqrt((passes - 1) / rng.chisquare(passes - 1, draws))
    return np.asarray(normal * spread[:, None] / np.sqrt(passes * (passes - 1)))


def resampled(logs: Floats, weight: Floats) -> Floats:
    """(draws, numbers of clients): means as they might have been. ``logs``: (passes, numbers of clients)."""
    means = logs.mean(axis=0)
    return np.asarray(means + weight @ (logs - means))
