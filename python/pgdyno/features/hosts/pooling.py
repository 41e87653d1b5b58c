"""Effects pooled over hosts (random-effects model).

Hosts are the groups of ``pool_groups``; cases or statements are their parts, which it averages on each host.

A host is a machine with its own study. Blocks on one host share its disk, its memory and its neighbors. More
blocks improve the estimate for this host but not for other hosts, so the pooled interval is based on the
number of hosts. Each host's effect is a random draw, d_i = μ + u_i + e_i, where u_i varies between hosts
(variance τ²) and e_i within one (the host's standard error s_i).

τ² is estimated by Paule and Mandel's method ("Consensus values and weighting factors", J. Res. NBS 1982;
DerSimonian and Kacker, Contemp. Clin. Trials 2007): the τ² at which Σ (d_i − μ)² / (s_i² + τ²) is k − 1. It
is preferred to REML for three reasons. Its equation has one root, which bisection finds. It assumes no
distribution of the u_i. Veroniki et al. (Research Synthesis Methods 2016) find the two about equally good.

The interval is Hartung's and Knapp's (Statistics in Medicine 2001; Sidik and Jonkman 2002): Student's t with
k − 1 degrees of freedom on the weighted variance of the hosts, because the normal interval is far too narrow
with few hosts. If the hosts agree better than random draws would, this variance is almost 0 and the interval
much too narrow. So its factor q is at least 1 (Röver, Knapp and Friede, BMC Med. Res. Methodol. 2015), and
the interval is never narrower than the fixed-effect one. No library of the project has these methods, and
statsmodels would bring pandas for forty lines.

Two hosts give an interval of 12.7 standard errors on each side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pgdyno.analysis.finding_fields import in_json
from pgdyno.analysis.statistics.averages import LogRatios, combine
from pgdyno.analysis.statistics.intervals import LogRatioSummary, Method, summarize, with_error
from pgdyno.units import Better, Estimate

HALVINGS = 200
"""Maximum number of bisections for τ²: more than the bits of a float, so the root is exact."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class HostEffect:
    """Effect of one arm on one metric in one host's study, as log ratios."""

    host: str
    summary: LogRatioSummary

    @property
    def error(self) -> float | None:
        """Standard error of the host's mean; None for a single block."""
        sd = self.summary.sd
        return None if sd is None else sd / math.sqrt(self.summary.n)


@dataclass(frozen=True)
class Pooled:
    """Mean over hosts on the log scale, with its basis.

    ``weighted`` is False if a host has no standard error for a weight (a single block, or equal blocks). Then
    every host has the same weight and the interval is Student's on the hosts' means. ``tau`` and ``i2`` are
    None, because variance within and between hosts cannot be separated. ``over_hosts.n`` is the number of
    hosts; one host alone has no interval there.
    """

    hosts: Sequence[HostEffect]
    weights: Sequence[float]  # shares that add up to 1
    over_hosts: LogRatioSummary
    weighted: bool
    tau: float | None  # standard deviation of the effect between hosts, on the log scale
    i2: float | None  # share of the variance between hosts beyond their standard errors

    @in_json
    def blocks(self) -> int:
        """The number of blocks on all hosts."""
        return sum(host.summary.n for host in self.hosts)

    @in_json
    def signs_differ(self) -> bool:
        """True if the effect is positive on one host and negative on another."""
        return len({math.copysign(1, of.summary.mean) for of in self.hosts if of.summary.mean}) > 1

    @property
    def effect(self) -> LogRatioSummary:
        """The effect; n is the number of hosts. For a single host: its own effect; n is in blocks."""
        return self.hosts[0].summary if len(self.hosts) == 1 else self.over_hosts

    @property
    def p_value(self) -> float | None:
        """P-value of the two-sided test of no change in ``effect``."""
        return self.effect.p_value

    def percent(self, better: Better) -> Estimate:
        """Return (B − A) / A in percent, with the n of ``effect``."""
        return self.effect.percent(better)


Groups = Mapping[str, Mapping[str, LogRatios]]
"""Host → case, statement or other part → log ratios. A single part without a name is not an average."""

WHOLE = ""
"""Name of a single part."""


def common_parts(groups: Groups) -> Groups:
    """Return only the parts that all groups have; empty if they have none in common."""
    common = set.intersection(*(set(parts) for parts in groups.values()))
    if not common:
        return {}
    return {
        group: {part: d for part, d in parts.items() if part in common} for group, parts in groups.items()
    }


def pool_groups(groups: Groups, confidence: float, method: Method) -> Pooled:
    """Return the effect over groups, each of which is the average over its parts.

    Parts have equal weights and share their blocks (``combine``). Groups are independent, and their effects
    are random (``pool``). ``groups`` must not be empty, and each needs a block.
    """
    effects = []
    for group, parts in groups.items():
        if parts.keys() == {WHOLE}:
            effects.append(HostEffect(group, summarize(list(parts[WHOLE].values()), confidence, method)))
        elif (combined := combine(parts, confidence, method)) is not None:
            effects.append(HostEffect(group, combined.summary))
    return pool(effects, confidence)


def pool_summaries(by_host: Mapping[str, LogRatioSummary], confidence: float) -> Pooled:
    """Return the effect over hosts with these results, without an interval unless each of them has one."""
    hosts = [
        HostEffect(
            host,
            of if of.confidence == confidence else with_error(of.mean, of.sd, of.n, confidence, of.method),
        )
        for host, of in by_host.items()
    ]
    pooled = pool(hosts, confidence)
    if all(host.error is not None for host in hosts):
        return pooled
    mean = pooled.over_hosts.mean
    return replace(pooled, over_hosts=with_error(mean, None, len(hosts), confidence, Method.STUDENT))


def pool(hosts: Sequence[HostEffect], confidence: float) -> Pooled:
    """Return the pooled effect of the hosts. ``hosts`` must not be empty.

    Raises ValueError if a host occurs twice.
    """
    if len({of.host for of in hosts}) != len(hosts):
        raise ValueError("a host must not occur twice")
    means = np.array([of.summary.mean for of in hosts])
    errors = [of.error for of in hosts]
    known = np.array([error for error in errors if error])
    weighted = len(known) == len(hosts)
    tau2 = paule_mandel(means, known**2) if weighted else None
    weights = np.ones(len(hosts)) if tau2 is None else 1 / (known**2 + tau2)
    mean = float(np.sum(weights * means) / np.sum(weights))
    error = _hartung_knapp(means, weights, mean, floored=weighted)
    n = len(hosts)
    return Pooled(
        hosts=hosts,
        weights=[float(weight) for weight in weights / np.sum(weights)],
        over_hosts=with_error(
            mean, None if error is None else error * math.sqrt(n), n, confidence, Method.STUDENT
        ),
        weighted=weighted,
        tau=None if tau2 is None else math.sqrt(tau2),
        i2=inconsistency(means, known**2) if weighted and len(hosts) > 1 else None,
    )


def paule_mandel(means: Floats, variances: Floats) -> float:
    """Return the variance between hosts from their means and variances: Paule and Mandel (1982).

    Q(τ²) = Σ w_i (d_i − μ)², w_i = 1 / (v_i + τ²), decreases with τ². The result is the τ² with Q = k − 1, or
    0 if Q(0) is smaller.
    """
    freedom = len(means) - 1
    if freedom < 1 or _q(means, variances) <= freedom:
        return 0.0
    # Upper bound: Q(τ²) ≤ Σ (d_i − μ)² / τ² ≤ k · range² / (4 τ²).
    low, high = 0.0, float(np.ptp(means) ** 2) * len(means)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if _q(means, variances + middle) > freedom else (low, middle)
    return (low + high) / 2


def inconsistency(means: Floats, variances: Floats) -> float:
    """Return I² = (Q − (k − 1)) / Q, at least 0: Higgins and Thompson, Statistics in Medicine 2002."""
    q = _q(means, variances)
    return max(0.0, (q - (len(means) - 1)) / q) if q > 0 else 0.0


def _q(means: Floats, variances: Floats) -> float:
    """Return Cochran's Q: the weighted sum of squares about the weighted mean."""
    mean = np.average(means, weights=1 / variances)
    return float(np.sum((means - mean) ** 2 / variances))


def _hartung_knapp(means: Floats, weights: Floats, mean: float, *, floored: bool) -> float | None:
    """Return √(q / Σ w_i), q = Σ w_i (d_i − μ)² / (k − 1). ``floored``: q is at least 1."""
    freedom = len(means) - 1
    if freedom < 1:
        return None
    q = float(np.sum(weights * (means - mean) ** 2)) / freedom
    return math.sqrt((max(1.0, q) if floored else q) / float(np.sum(weights)))
