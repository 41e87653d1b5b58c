"""Studies that repeat disturbed blocks: errors and lengths. ``python -m bench disturbed-blocks`` prints them.

Blocks have recorded noise, and that of a simulated disturbance. They run, and are repeated, by the rules of
the feature ``disturbed_blocks``. Each study is simulated with and without repetitions, for the same time.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bench.noise import Floats, recorded
from bench.stopping import SEED, apply_stopping_rule, table
from pgdyno.analysis.statistics.intervals import Method
from pgdyno.features.disturbed_blocks.repetition import OBSERVED_S_MIN, excesses, may_repeat
from pgdyno.measure.server_probes import Row

STUDIES = 1000
RUNS = 30
"""Runs of blocks in 20 minutes, with the recorded time of a block."""

EFFECTS = (0.0, 0.02, 0.05)


@dataclass(frozen=True)
class Disturbance:
    """Other programs on the machine.

    ``share``: of the runs of blocks. ``runs``: mean length. They use 10% to 60% of the CPU. Times that share,
    ``noise`` is the SD that they add to the log ratio, and ``bias`` the loss of the second arm. ``steal``:
    correlation of a block's steal with its log ratio, if the servers themselves cause the steal.
    """

    name: str
    share: float
    runs: float = 1.0
    noise: float = 0.0
    bias: float = 0.0
    steal: float = 0.0


DISTURBANCES = (
    Disturbance("none", 0.0),
    Disturbance("1 block in 10", 0.1, noise=0.15),
    Disturbance("1 block in 10, the second arm loses more", 0.1, noise=0.15, bias=0.1),
    Disturbance("1 block in 10, in episodes of 4 blocks", 0.1, runs=4, noise=0.15),
    Disturbance("3 blocks in 10", 0.3, noise=0.15),
    Disturbance("always", 1.0, noise=0.15),
    Disturbance("steal that the arms cause", 0.0, steal=0.5),
)


@dataclass(frozen=True)
class Simulated:
    """Simulated studies. ``noise``: of the blocks that count. ``ended``: runs until the end of each block."""

    noise: Floats
    ended: Floats


def simulate(of: Disturbance, studies: int, *, repeated: bool) -> Simulated:
    """Return studies of RUNS blocks. With repetitions, those that end after RUNS runs are for nothing."""
    rng = np.random.default_rng(SEED)
    usual = recorded("slices")(rng, studies, 2 * RUNS)
    noise, ended = np.zeros((studies, RUNS)), np.zeros((studies, RUNS))
    for study in range(studies):
        runs = _runs(of, usual[study], rng)
        total, counts, disturbed = 0, Counter[int](), set[int]()
        for block in range(RUNS):
            again = True
            while again:
                noise[study, block], row = next(runs)
                total += 1
                counts[block] += 1
                if again := repeated and any(excesses([row])):
                    disturbed.add(block)
                    again = may_repeat(counts, block, len(disturbed))
            ended[study, block] = total
    return Simulated(noise, ended)


def _runs(of: Disturbance, usual: Floats, rng: np.random.Generator) -> Iterator[tuple[float, Row]]:
    """Yield the noise of each run of a block, and its covariates."""
    sd, disturbed = float(usual.std()), rng.random() < of.share
    begins = 1.0 if of.share == 1 else min(1.0, of.share / (1 - of.share) / of.runs)
    for d in usual:
        cpu = rng.uniform(0.1, 0.6) if disturbed else rng.uniform(0, 0.03)
        added = rng.normal(0, of.noise) * cpu - of.bias * cpu if disturbed else 0.0
        steal = 0.0
        if of.steal:
            steal = 0.04 + 0.01 * (of.steal * d / sd + math.sqrt(1 - of.steal**2) * rng.normal())
        row: Row = {
            "elapsed_s": OBSERVED_S_MIN,
            "cpu_share": cpu,
            "io_bytes_per_s": 0.0,
            "steal_share": steal,
            "largest": "",
        }
        yield float(d) + added, row
        disturbed = rng.random() < (1 - 1 / of.runs if disturbed and of.share < 1 else begins)


@dataclass(frozen=True)
class Outcome:
    """Results of simulated studies, as shares. ``right``: correct verdicts by effect, within RUNS runs.

    ``alarms``: studies without an effect that find one. ``coverage`` of the true effect at the stop: the
    minimum over the effects. ``runs``: median number of runs until *same*, infinite without one.
    """

    repetitions: float
    alarms: float
    coverage: float
    right: tuple[float, ...]
    runs: float


def outcome(simulated: Simulated) -> Outcome:
    """Apply the stopping rule. The true effect is that of undisturbed blocks."""
    studies, alarms, covered, right, until = len(simulated.noise), 0.0, [], [], []
    for effect in EFFECTS:
        stopped = apply_stopping_rule(simulated.noise, 1 / (1 + effect) - 1, Method.ANYTIME)
        runs = simulated.ended[np.arange(studies), stopped.stopped.astype(int) - 1]
        in_time = runs <= RUNS
        is_right = in_time & (stopped.verdict == (-1 if effect else 0))
        covered.append(float(stopped.covered.mean()))
        right.append(float(is_right.mean()))
        until.append(float(np.quantile(np.where(is_right, runs, np.inf), 0.5, method="inverted_cdf")))
        if not effect:
            alarms = float((in_time & (np.abs(stopped.verdict) == 1)).mean())
    repetitions = float(simulated.ended[:, -1].mean()) - RUNS
    return Outcome(repetitions, alarms, min(covered), tuple(right), until[0])


def main(arguments: Sequence[str]) -> int:
    """Print a row for each disturbance, with and without repetitions."""
    parser = argparse.ArgumentParser(prog="python -m bench disturbed-blocks", description=__doc__)
    parser.add_argument(
        "--studies", type=int, default=STUDIES, metavar="N", help=f"of each row [default: {STUDIES}]"
    )
    chosen = parser.parse_args(arguments)
    head = (
        "Disturbance",
        "Repetitions",
        "False alarms",
        "Coverage",
        "*Same* of equal arms",
        *(f"{effect:.0%} found" for effect in EFFECTS[1:]),
        "Runs until *same*, median",
    )
    rows = []
    for of in DISTURBANCES:
        for repeated in (False, True):
            found = outcome(simulate(of, chosen.studies, repeated=repeated))
            rows.append(
                [
                    of.name,
                    f"{found.repetitions:.1f}" if repeated else "no",
                    *(f"{100 * share:.1f}%" for share in (found.alarms, found.coverage)),
                    *(f"{100 * share:.0f}%" for share in found.right),
                    f"{found.runs:.0f}" if math.isfinite(found.runs) else f"> {RUNS}",
                ]
            )
    print(table(head, rows))
    return 0
