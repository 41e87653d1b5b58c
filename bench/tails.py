"""Simulation of tail latencies. ``python -m bench tails`` prints its figures.

Histograms of blocks with rare stalls, and intervals of the change of p99 from them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtr, ndtri

from bench.noise import Floats
from bench.stopping import SEED, table, titled
from pgdyno.analysis.comparison import TAIL_SD_MAX, summarize_ratios
from pgdyno.analysis.statistics.intervals import Method, student, t_quantile
from pgdyno.analysis.telemetry.metrics import ALL_KINDS, PERCENTILES, latency_key
from pgdyno.study.sizing import CONFIDENCE

PERCENTILE = "p99"
QUANTILE = PERCENTILES[PERCENTILE]
BLOCKS = (5, 8, 12, 20)
BLOCKS_OF_METHODS = (8, 20)
PATHS = 1000
PATHS_OF_METHODS = 400
MERGED = 20_000
RESAMPLES = 400
TRANSACTIONS = 10_000
WINDOW_S = 10.0
STALL_SD = 0.5
SHOWN_MIN = 50
AT_ONCE = 20
"""Studies resampled together, which limits memory."""

STEP = 0.03
EDGES_MS = np.exp(np.arange(np.log(0.3), np.log(20_000), STEP))
"""Upper ends of the buckets. Quantiles are interpolated within a bucket."""


@dataclass(frozen=True)
class Tails:
    """Two arms. ``stalled``: share of the blocks with a stall, by arm.

    A stall of ``stall_s`` delays transactions until its end, or by at most ``delay_ms``. ``common_sd`` and
    ``spread_sd`` are log SDs between blocks: of the level of both arms, and of the width of each body.
    """

    stalled: tuple[float, float]
    factor: float = 1.0
    stall_s: float = 0.5
    delay_ms: float | None = None
    common_sd: float = 0.1
    spread_sd: float = 0.02

    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
        """Return the distribution functions at EDGES_MS: (arm, study, block, bucket)."""
        common = rng.normal(0, self.common_sd, shape)
        found = []
        for share, factor in zip(self.stalled, (1.0, self.factor), strict=True):
            level = (5 * factor * np.exp(common + rng.normal(0, 0.03, shape)))[..., np.newaxis]
            spread = (0.5 * np.exp(rng.normal(0, self.spread_sd, shape)))[..., np.newaxis]
            stall_s = self.stall_s * np.exp(rng.normal(0, STALL_SD, shape)) * (rng.random(shape) < share)
            delayed = np.minimum(stall_s / WINDOW_S, 1)[..., np.newaxis]
            longest = (
                np.maximum(1e3 * stall_s, 1e-9)[..., np.newaxis] if self.delay_ms is None else self.delay_ms
            )
            body = ndtr(np.log(EDGES_MS / level) / spread)
            of = (1 - delayed) * body + delayed * np.clip((EDGES_MS - level) / longest, 0, 1)
            of[..., -1] = 1
            found.append(of)
        return np.array(found)


KINDS: Mapping[str, Tails] = {
    "none": Tails((0, 0)),
    "none, B +10%": Tails((0, 0), factor=1.1),
    "none, log SD of the level 0.4 in both arms": Tails((0, 0), common_sd=0.4),
    "none, log SD of p99 0.12 in each arm": Tails((0, 0), spread_sd=0.1),
    "0.1 and 0.1": Tails((0.1, 0.1)),
    "0.3 and 0.3": Tails((0.3, 0.3)),
    "0.5 and 0.5": Tails((0.5, 0.5)),
    "0 and 0.3": Tails((0, 0.3)),
    "0.1 and 0.3": Tails((0.1, 0.3)),
    "0.1 and 0.5": Tails((0.1, 0.5)),
    "0.1 and 0.5, 1 s, up to 60 ms longer": Tails((0.1, 0.5), stall_s=1, delay_ms=60),
    "1 and 1": Tails((1, 1)),
    "0 and 1": Tails((0, 1)),
}
"""Share of blocks with a stall in A and in B."""

KINDS_OF_METHODS = (
    "none",
    "none, log SD of p99 0.12 in each arm",
    "0.3 and 0.3",
    "0 and 0.3",
    "0.1 and 0.3",
    "0.1 and 0.5",
    "0 and 1",
)


def log_quantile(cumulative: Floats) -> Floats:
    """Return ln of the percentile in ms, from cumulative counts over buckets (last axis)."""
    rank = QUANTILE * cumulative[..., -1]
    at = (cumulative < rank[..., np.newaxis]).sum(axis=-1, keepdims=True)
    high, low = (np.take_along_axis(cumulative, np.maximum(at - by, 0), -1)[..., 0] for by in (0, 1))
    return np.asarray(np.log(EDGES_MS[at[..., 0]]) - STEP * (high - rank) / np.maximum(high - low, 1e-12))


@lru_cache
def truth(tails: Tails) -> float:
    """Return the log ratio of the percentiles of the merged distributions."""
    rng, parts = np.random.default_rng(SEED), 10
    merged = sum(tails.draw(rng, (MERGED // parts, 1)).sum(axis=(1, 2)) for _ in range(parts))
    return float(log_ratio(np.asarray(merged)))


def histograms(tails: Tails, paths: int, blocks: int) -> Floats:
    """Return cumulative counts: (arm, study, block, bucket)."""
    rng = np.random.default_rng([SEED, blocks])
    shares = np.diff(tails.draw(rng, (paths, blocks)), axis=-1, prepend=0).clip(0)
    shares /= shares.sum(axis=-1, keepdims=True)
    return np.cumsum(rng.multinomial(TRANSACTIONS, shares), axis=-1, dtype=np.float64)


def log_ratio(counts: Floats) -> Floats:
    """Return ln of the ratio of the percentiles of B and A. ``counts``: (arm, …, bucket)."""
    a, b = log_quantile(counts)
    return np.asarray(b - a)


@dataclass(frozen=True)
class RuleCoverage:
    """Coverage of the rule over many studies, as shares. ``shown``: with an interval. ``covers``: of those.

    ``false``: with an interval that does not contain the true value. ``student``: coverage without the rule.
    """

    student: float
    shown: float
    covers: float
    false: float


def rule_coverage(tails: Tails, blocks: int, paths: int = PATHS) -> RuleCoverage:
    """Return the coverage of the interval of reports."""
    true, key = truth(tails), latency_key(ALL_KINDS, PERCENTILE)
    before, shown, covered = 0, 0, 0
    for d in log_ratio(histograms(tails, paths, blocks)):
        always = student(list(d), CONFIDENCE)
        ruled = summarize_ratios(key, dict(enumerate(d)), CONFIDENCE, Method.STUDENT)
        holds = always.low is not None and always.high is not None and always.low <= true <= always.high
        before += holds
        shown += ruled.low is not None
        covered += ruled.low is not None and holds
    return RuleCoverage(
        before / paths, shown / paths, covered / shown if shown else np.nan, (shown - covered) / paths
    )


def methods(tails: Tails, blocks: int, paths: int = PATHS_OF_METHODS) -> list[str]:
    """Return the coverage of each method as cells, and the factor of the width of the last one."""
    true, t = truth(tails), t_quantile((1 + CONFIDENCE) / 2, blocks - 1)
    counts = histograms(tails, paths, blocks)
    d = log_ratio(counts)
    reach = t * d.std(axis=1, ddof=1) / np.sqrt(blocks)
    total = counts.sum(axis=2)
    estimate = log_ratio(total)
    without = log_ratio(total[:, :, np.newaxis] - counts)
    influence = (blocks - 1) * (without.mean(axis=1, keepdims=True) - without)
    squares = (influence**2).sum(axis=1)
    error = np.sqrt(squares / blocks / (blocks - 1))
    acceleration = (influence**3).sum(axis=1) / np.maximum(squares, 1e-12) ** 1.5 / 6
    low, high = _exceedance(counts)
    held = [
        np.abs(d.mean(axis=1) - true) <= reach,
        *_bootstrap(counts, estimate, acceleration, true),
        np.abs(estimate - true) <= t * error,
        (low <= true) & (true <= high),
    ]
    return [*(_percent(float(of.mean())) for of in held), f"× {np.exp(np.nanmedian(high - low) / 2):.2f}"]


def _bootstrap(counts: Floats, estimate: Floats, acceleration: Floats, true: float) -> tuple[Floats, Floats]:
    """Return whether the percentile and the BCa interval contain the true value, for each study."""
    _, paths, blocks, _ = counts.shape
    drawn = np.random.default_rng(SEED).integers(0, blocks, (RESAMPLES, blocks))
    weights = (drawn[..., np.newaxis] == np.arange(blocks)).sum(axis=1).astype(np.float64)
    plain, corrected = np.zeros(paths, bool), np.zeros(paths, bool)
    z = ndtri((1 + CONFIDENCE) / 2)
    for begin in range(0, paths, AT_ONCE):
        part = slice(begin, begin + AT_ONCE)
        resampled = np.sort(log_ratio(weights @ counts[:, part]), axis=1)
        of = estimate[part, np.newaxis]
        below = ((resampled < of).mean(axis=1) + (resampled <= of).mean(axis=1)) / 2
        bias = ndtri(below.clip(0.5 / RESAMPLES, 1 - 0.5 / RESAMPLES))
        for i, row in enumerate(resampled):
            ends = [bias[i] + sign * z for sign in (-1, 1)]
            bca = [ndtr(bias[i] + end / (1 - acceleration[begin + i] * end)) for end in ends]
            for held, shares in ((plain, ndtr([-z, z])), (corrected, bca)):
                low, high = np.quantile(row, shares)
                held[begin + i] = low <= true <= high
    return plain, corrected


def _exceedance(counts: Floats) -> tuple[Floats, Floats]:
    """Return the ends of the interval of the log ratio; NaN if no threshold is accepted."""
    blocks = counts.shape[2]
    t = t_quantile(1 - (1 - CONFIDENCE) / 4, blocks - 1)
    above = 1 - counts / counts[..., -1:]
    error = above.std(axis=2, ddof=1) / np.sqrt(blocks)
    accepted = np.abs(above.mean(axis=2) - (1 - QUANTILE)) <= t * error
    edges = np.log(EDGES_MS)
    first, last = edges[accepted.argmax(axis=-1)], edges[-1 - accepted[..., ::-1].argmax(axis=-1)]
    first[~accepted.any(axis=-1)] = np.nan
    return first[1] - last[0], last[1] - first[0]


def rule_row(name: str, tails: Tails, blocks: int, paths: int = PATHS) -> list[str]:
    """Return the coverage of the rule as cells; that of few shown intervals is omitted."""
    of = rule_coverage(tails, blocks, paths)
    covers = _percent(of.covers) if of.shown * paths >= SHOWN_MIN else "–"
    return [name, str(blocks), _percent(of.student), _percent(of.shown), covers, _percent(of.false)]


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def report() -> str:
    """Return the tables in Markdown, each below its title."""
    compared = [
        [name, str(blocks), f"{np.exp(truth(KINDS[name])):.2f}", *methods(KINDS[name], blocks)]
        for name in KINDS_OF_METHODS
        for blocks in BLOCKS_OF_METHODS
    ]
    stalls = "Blocks with a stall, A and B"
    bootstraps = ("Bootstrap, percentile", "Bootstrap, BCa")
    ruled = [rule_row(name, tails, blocks) for name, tails in KINDS.items() for blocks in BLOCKS]
    head = (stalls, "Blocks", "True ratio", "Student's", *bootstraps, "Jackknife", "Exceedance", "Its width")
    return titled(
        {
            f"Coverage of the methods, {PATHS_OF_METHODS} studies a row": table(head, compared),
            f"Coverage of the rule (SD up to {TAIL_SD_MAX:.0%}), {PATHS:,} studies a row": table(
                (stalls, "Blocks", "Student's, before", "Shown", "Covers", "False"), ruled
            ),
        }
    )


def main(arguments: Sequence[str]) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench tails", description=__doc__)
    parser.parse_args(arguments)
    print(report())
    return 0
