"""False alarms and detectable slowdowns of gates: ``python -m bench gates`` prints them.

Blocks are drawn from those of recorded studies (``bench/verdicts.jsonl``), around a given slowdown. Each
simulated study ends at its verdict or its budget, and the gate ``slower:LIMIT%`` judges it by the function of
``pgdyno compare --fail-if``. Studies that ``--stop budget`` gives a fixed length are simulated, too.

A short budget has blocks with fewer slices, of which none are recorded. Their noise is that of
the recorded blocks, times the ratio of SDs of the A/A blocks in ``tests/oracle/data``, cut to so many slices.
"""

from __future__ import annotations

import argparse
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.noise import Floats, bootstrap, recorded_groups, recorded_slices
from bench.stopping import SEED, apply_stopping_rule, table
from pgdyno.analysis.comparison import Verdict
from pgdyno.analysis.statistics.intervals import Method, summarize
from pgdyno.analysis.study_findings import PRIMARY, MetricVerdict
from pgdyno.features.gates.conditions import GateOutcome, evaluate, parse_condition
from pgdyno.study.defaults import CONFIDENCE, SLICE_S, block_overhead_s, fit_block_layout
from pgdyno.study.plan import block_targets
from pgdyno.units import Better

STUDIES = 2000
MINUTES = (2, 5, 10, 20)
LIMITS_PERCENT = (2, 5, 10)
POWER = 0.8
SLOWDOWNS_PERCENT = [step / 2 for step in range(1, 121)]
"""Slowdowns of which the smallest detected one is sought."""

ROUNDS_RECORDED = 20
"""Pairs of slices in a recorded block."""


@dataclass(frozen=True)
class Design:
    """Studies of a budget. ``noise``: of the blocks for which it has room, a row per study."""

    minutes: int
    method: Method
    noise: Floats

    def outcomes(self, slowdown_percent: float, limit_percent: float) -> Counter[GateOutcome]:
        """Return the outcomes of the gate, if the second arm is slower."""
        effect = -slowdown_percent / 100
        d = math.log1p(effect) + self.noise
        blocks = np.full(len(d), d.shape[1])
        if self.method is Method.ANYTIME:
            blocks = apply_stopping_rule(self.noise, effect, self.method).stopped.astype(int)
        return Counter(
            outcome(of[:n], limit_percent, self.method) for of, n in zip(d, blocks.tolist(), strict=True)
        )

    def detected_percent(self, limit_percent: float) -> float | None:
        """Return the smallest slowdown for which enough gates fail; None if there is none."""
        larger = [of for of in SLOWDOWNS_PERCENT if of > limit_percent]

        def is_detected(slowdown: float) -> bool:
            return self.outcomes(slowdown, limit_percent)[GateOutcome.FAILED] >= POWER * len(self.noise)

        at = bisect_left(larger, True, key=is_detected)
        return larger[at] if at < len(larger) else None


def outcome(d: Sequence[float] | Floats, limit_percent: float, method: Method) -> GateOutcome:
    """Return the outcome of the gate with these log ratios."""
    summary = summarize(d, CONFIDENCE, method)  # type: ignore[arg-type]
    percent = summary.percent(Better.MORE)
    of = MetricVerdict("", "A", "B", PRIMARY, "tps", Verdict.UNDECIDED, percent, summary, len(d))
    condition = parse_condition(f"slower:{limit_percent:g}%")
    return evaluate([condition], {PRIMARY: [of]}, CONFIDENCE).outcome


def designs(minutes: int, studies: int) -> list[Design]:
    """Return the studies of a budget: those that end at their verdict, and those of a fixed length."""
    found = []
    for method, stop in ((Method.ANYTIME, None), (Method.STUDENT, "budget")):
        layout = fit_block_layout(60 * minutes, 2, SLICE_S, "slices", block_targets(stop))
        block_s = block_overhead_s(2) + 2 * (layout.warmup_s + layout.rounds * SLICE_S)
        noise = bootstrap(recorded_groups("slices"))
        drawn = noise(np.random.default_rng(SEED), studies, math.floor(60 * minutes / block_s))
        found.append(Design(minutes, method, excess_of(layout.rounds) * drawn))
    return found


def excess_of(rounds: int) -> float:
    """Return the SD of blocks with fewer slices, as a multiple of that of the recorded blocks."""
    shorter, whole = (
        np.log(b[:, :n].sum(axis=1) / a[:, :n].sum(axis=1)).std(ddof=1)
        for a, b in [recorded_slices()]
        for n in (rounds, ROUNDS_RECORDED)
    )
    return float(shorter / whole)


def row(of: Design, limit_percent: float) -> list[str]:
    """Return the figures of a budget and a limit."""
    rates = [
        f"{100 * found[wanted] / len(of.noise):.1f}%"
        for found in (of.outcomes(0.0, limit_percent), of.outcomes(limit_percent, limit_percent))
        for wanted in (GateOutcome.FAILED, GateOutcome.PASSED)
    ]
    detected = of.detected_percent(limit_percent)
    return [
        f"{of.minutes} min",
        str(of.noise.shape[1]),
        f"{limit_percent:g}%",
        *rates,
        "–" if detected is None else f"{detected:g}%",
    ]


HEAD = (
    "budget",
    "blocks",
    "limit",
    "no change: fails",
    "no change: passes",
    "at the limit: fails",
    "at the limit: passes",
    f"slowdown that fails {POWER:.0%} of the gates",
)


def main(arguments: Sequence[str]) -> int:
    """Print a table for each way to stop."""
    parser = argparse.ArgumentParser(prog="python -m bench gates", description=__doc__)
    parser.add_argument("--minutes", type=int, action="append", metavar="N", help="[default: 2, 5, 10, 20]")
    parser.add_argument(
        "--studies", type=int, default=STUDIES, metavar="N", help="of each kind [default: 2000]"
    )
    chosen = parser.parse_args(arguments)
    groups = recorded_groups("slices")
    recorded, studies = (sum(map(f, groups)) for f in (lambda of: sum(map(len, of)), len))
    print(f"{chosen.studies:,} simulated studies each, of {recorded} blocks of {studies} recorded studies\n")
    both = [designs(minutes, chosen.studies) for minutes in chosen.minutes or MINUTES]
    for name, of_stop in zip(
        ("at the verdict (default)", "--stop budget"), zip(*both, strict=True), strict=True
    ):
        print(f"Studies end {name}:\n")
        print(table(HEAD, [row(of, limit) for of in of_stop for limit in LIMITS_PERCENT]), end="\n\n")
    return 0
