"""Simulation of ``pgdyno bisect``. ``python -m bench bisect`` prints its figures.

Searches run with the code of the command: its choice of commits, its levels, its decisions after every block.
Only the blocks are drawn (``noise``).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from bench.noise import SCENARIOS, SD, Floats, Noise, normal
from bench.stopping import SEED, table
from pgdyno.analysis.statistics.intervals import LogRatioSummary, Method, with_error
from pgdyno.features.bisect.search import (
    CommitSearch,
    Outcome,
    are_ends_decided,
    is_precise,
    outcome_of,
    reference_of,
    search_commits,
    steps_needed,
)
from pgdyno.study.defaults import CONFIDENCE, MARGIN
from pgdyno.study.plan import VERDICT_BLOCKS_MIN

SEARCHES = 2000
COMMITS = 64
EFFECT = 0.05
BLOCKS_MAX = 240
"""Blocks of a search: two hours with blocks of half a minute."""


class End(StrEnum):
    """How a simulated search ends."""

    RIGHT = "right commit"
    WRONG = "wrong commit"
    UNDECIDED = "undecided"


@dataclass
class SimulatedSearch:
    """One search. ``effects``: the true log ratio of each commit against GOOD, which is commit 0.

    ``blocks``: number of blocks of each step so far, that of the ends first. ``draw`` returns the noise of
    that many blocks.
    """

    effects: Floats
    draw: Callable[[int], Floats]
    broken: frozenset[int] = frozenset()
    blocks: list[int] = field(default_factory=list)

    def run(self) -> CommitSearch | None:
        """Return the state at the end of the search; None if the ends stay undecided or are the same."""
        last = len(self.effects) - 1
        alpha = 1 - CONFIDENCE
        first = alpha / (1 + steps_needed(last))
        ends = self._measure(last, first, lambda found: are_ends_decided(found, MARGIN))
        reference = reference_of(ends) if is_precise(ends) else None
        if reference is None:
            return None

        def test(search: CommitSearch, commit: int) -> Outcome:
            if commit in self.broken:
                return Outcome.SKIPPED
            found = self._measure(
                commit, search.next_level, lambda one: outcome_of(one, reference) is not Outcome.UNDECIDED
            )
            return outcome_of(found, reference)

        return search_commits(CommitSearch(0, last, alpha - first), test)

    def _measure(
        self, commit: int, level: float, is_decided: Callable[[LogRatioSummary], bool]
    ) -> LogRatioSummary:
        """Return the summary after the first block with a decision, or after all blocks."""
        d = self.effects[commit] + self.draw(max(VERDICT_BLOCKS_MIN, BLOCKS_MAX - sum(self.blocks)))
        n = np.arange(1, len(d) + 1)
        means = np.cumsum(d) / n
        variances = (np.cumsum(d * d) - n * means**2) / np.maximum(n - 1, 1)
        for k in range(VERDICT_BLOCKS_MIN, len(d) + 1):
            sd = math.sqrt(max(0.0, float(variances[k - 1])))
            found = with_error(float(means[k - 1]), sd, k, 1 - level, Method.ANYTIME)
            if is_decided(found):
                break
        self.blocks.append(k)
        return found


@dataclass(frozen=True)
class Searches:
    """Results of many searches: the share of each end, and the blocks of all steps together."""

    shares: dict[End, float]
    blocks: Floats


def simulate(
    noise: Noise,
    effect: float = EFFECT,
    commits: int = COMMITS,
    searches: int = SEARCHES,
    between_builds: float = 0.0,
    broken_share: float = 0.0,
) -> Searches:
    """Run searches for a planted change at a random commit. It slows the server by ``effect``.

    ``between_builds``: SD of the effects of all other commits, which do not add up. ``broken_share``: share
    of the commits that do not build; a search that ends with a range that has the commit is right.
    """
    rng = np.random.default_rng(SEED)
    ends: list[End] = []
    blocks = np.zeros(searches)
    for i in range(searches):
        planted = int(rng.integers(1, commits + 1))
        effects = rng.normal(0, between_builds, commits + 1) - np.where(
            np.arange(commits + 1) >= planted, math.log1p(effect), 0
        )
        effects -= effects[0]
        broken = frozenset(np.flatnonzero(rng.random(commits + 1) < broken_share).tolist()) - {0, commits}
        one = SimulatedSearch(effects, lambda n: noise(rng, 1, n)[0], broken)
        found = one.run()
        if found is None or found.next_commit is not None:
            ends.append(End.UNDECIDED)
        else:
            ends.append(End.RIGHT if found.good < planted <= found.bad else End.WRONG)
        blocks[i] = sum(one.blocks)
    return Searches({end: ends.count(end) / searches for end in End}, blocks)


ROWS: Sequence[tuple[str, str, Noise, Mapping[str, float]]] = (
    ("Gaussian, SD 1%", "", normal(0.01), {}),
    ("Gaussian, SD 2.5%", "", normal(SD), {}),
    ("Gaussian, SD 4%", "", normal(0.04), {}),
    ("recorded: slices", "", SCENARIOS["recorded blocks: slices"], {}),
    ("recorded: duet", "", SCENARIOS["recorded blocks: duet"], {}),
    ("Gaussian, SD 2.5%", "effect of 10%", normal(SD), {"effect": 0.1}),
    ("Gaussian, SD 1%", "effect of 2%", normal(0.01), {"effect": 0.02}),
    ("Gaussian, SD 2.5%", "1,000 commits", normal(SD), {"commits": 1000}),
    ("Gaussian, SD 2.5%", "builds differ", normal(SD), {"between_builds": 0.005}),
    ("Gaussian, SD 2.5%", "commits do not build", normal(SD), {"broken_share": 0.1}),
)
"""Noise, what else differs from the first rows, and the arguments of ``simulate``."""


def report(searches: int = SEARCHES) -> str:
    """Return the table in Markdown."""
    lines = []
    for name, search, noise, arguments in ROWS:
        given: dict[str, Any] = dict(arguments)
        found = simulate(noise, searches=searches, **given)
        needed = [f"{float(np.quantile(found.blocks, share)):.0f}" for share in (0.5, 0.9)]
        shares = [f"{100 * found.shares[end]:.1f}%" for end in End]
        lines.append([name, search or f"5%, {COMMITS} commits", *shares, *needed])
    ends = ("Right commit", "Wrong commit", "Undecided")
    return table(("Noise of a block", "Search", *ends, "Blocks, median", "Blocks, 90th percentile"), lines)


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench bisect", description=__doc__)
    parser.add_argument("--searches", type=int, default=SEARCHES, metavar="N")
    print(report(parser.parse_args(arguments).searches))
    return 0
