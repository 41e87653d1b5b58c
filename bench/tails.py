"""Simulation of tail latencies. ``python -m bench tails`` prints its figures.

Histograms of blocks with rare stalls, and intervals of the change of p99 over all blocks from them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from bench.noise import Floats
from bench.stopping import SEED, table, titled
from pgdyno.analysis.statistics.intervals import LogRatioSummary, Method, student
from pgdyno.analysis.statistics.pooled_quantiles import BLOCKS_MIN, BlockCounts, quantile_change
from pgdyno.analysis.telemetry.metrics import PERCENTILES
from pgdyno.study.defaults import CONFIDENCE

QUANTILE = PERCENTILES["p99"]
BLOCKS = (5, 8, 12, 20, 40)
PATHS = 2000
MERGED = 30_000
TRANSACTIONS = 10_000
WINDOW_S = 10.0
STALL_SD = 0.5
AT_ONCE = 20
"""Studies drawn together, which limits memory."""

STEP = 0.005
LOG_EDGES = np.concatenate(
    [np.arange(np.log(8), np.log(40), STEP), np.arange(np.log(40), np.log(20_000), 0.04)]
)
EDGES_MS = np.exp(LOG_EDGES)
"""Upper ends of the buckets. All latencies up to the first one are in its bucket."""


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
    "0 and 0.1": Tails((0, 0.1)),
    "0 and 0.1, 1 s": Tails((0, 0.1), stall_s=1),
    "0 and 0.1, 2 s": Tails((0, 0.1), stall_s=2),
    "0 and 0.1, 1 s, up to 60 ms longer": Tails((0, 0.1), stall_s=1, delay_ms=60),
    "0.1 and 0.1": Tails((0.1, 0.1)),
    "0.1 and 0.3": Tails((0.1, 0.3)),
    "0 and 1": Tails((0, 1)),
    "0 and 0.1, 5 s": Tails((0, 0.1), stall_s=5),
    "0 and 0.05": Tails((0, 0.05)),
}
"""Share of blocks with a stall in A and in B, and its median length if it is not 0.5 s."""


@lru_cache
def truth(tails: Tails) -> float:
    """Return the log ratio of the percentiles over all blocks, of infinitely many."""
    rng, parts = np.random.default_rng(SEED), 60
    merged = sum(tails.draw(rng, (MERGED // parts, 1)).sum(axis=(1, 2)) for _ in range(parts))
    a, b = (np.interp(QUANTILE * of[-1], of, LOG_EDGES) for of in np.asarray(merged))
    return float(b - a)


def block_counts(cumulative: Floats) -> BlockCounts:
    """Return the counts of one arm, from cumulative counts: (block, bucket)."""
    own = (cumulative < QUANTILE * TRANSACTIONS).sum(axis=-1)
    within = slice(own.min(), own.max() + 1)
    totals = np.full(len(cumulative), float(TRANSACTIONS))
    return BlockCounts(EDGES_MS[within], cumulative[:, within], totals)


@dataclass(frozen=True)
class Coverage:
    """Shares of studies. ``shown``: with an interval. ``covers``: its coverage; NaN without any.

    ``student``: coverage of Student's interval of the mean of the block ratios.
    """

    student: float
    shown: float
    covers: float


def coverage(tails: Tails, blocks: int, paths: int = PATHS) -> Coverage:
    """Return the coverage of the interval of reports, for the true change over all blocks."""
    true, rng = truth(tails), np.random.default_rng([SEED, blocks])
    before, shown, covered = 0, 0, 0
    for begin in range(0, paths, AT_ONCE):
        shares = np.diff(tails.draw(rng, (min(AT_ONCE, paths - begin), blocks)), axis=-1, prepend=0).clip(0)
        shares /= shares.sum(axis=-1, keepdims=True)
        counts = np.cumsum(rng.multinomial(TRANSACTIONS, shares), axis=-1, dtype=np.float64)
        for a, b in zip(*counts, strict=True):
            before += _covers(student(_block_ratios(a, b), CONFIDENCE), true)
            change = quantile_change(block_counts(a), block_counts(b), QUANTILE)
            summary = change.summary(CONFIDENCE, Method.STUDENT)
            shown += summary.low is not None
            covered += _covers(summary, true)
    return Coverage(before / paths, shown / paths, covered / shown if shown else np.nan)


def _block_ratios(a: Floats, b: Floats) -> list[float]:
    """Return the log ratio of the percentiles of each block."""
    index_a, index_b = ((of < QUANTILE * TRANSACTIONS).sum(axis=-1) for of in (a, b))
    return list(LOG_EDGES[index_b] - LOG_EDGES[index_a])


def _covers(summary: LogRatioSummary, true: float) -> bool:
    """Return whether the interval, which ends in the middle of a bucket, contains the true log ratio."""
    if summary.low is None or summary.high is None:
        return False
    return summary.low - STEP / 2 <= true <= summary.high + STEP / 2


def row(name: str, blocks: int) -> list[str]:
    """Return the coverage as cells."""
    of = coverage(KINDS[name], blocks)
    print(f"{name}, {blocks} blocks: {of}", file=sys.stderr, flush=True)
    covers = _percent(of.covers) if of.shown else "–"
    return [name, str(blocks), _percent(of.student), covers]


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def report(kinds: Sequence[str]) -> str:
    """Return the table in Markdown below its title."""
    head = ("Blocks with a stall, A and B", "Blocks", "Student's, of block ratios", "Shown")
    rows = [row(name, blocks) for name in kinds for blocks in BLOCKS]
    return titled(
        {
            f"Coverage of intervals of p99 (from {BLOCKS_MIN} blocks on), {PATHS:,} studies a row": table(
                head, rows
            )
        }
    )


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench tails", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", default=list(KINDS), help="rows (default: all)")
    print(report(parser.parse_args(arguments).kinds))
    return 0
