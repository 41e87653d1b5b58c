"""Simulation of named causes. ``python -m bench simulated-why`` prints its figures.

The time of a transaction consists of parts, and two of them differ between the arms. Each study ends at its
verdict. Its parts are tested as the product does (``Load.break_down``), for all studies at a time.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.noise import Floats
from bench.stopping import SEED, apply_stopping_rule, table, titled
from pgdyno.analysis.statistics.intervals import Method, critical_value
from pgdyno.analysis.telemetry.samples import RUNNING
from pgdyno.analysis.telemetry.trial_telemetry import CLIENT, ClientTime, WaitSamples
from pgdyno.analysis.time_breakdown import (
    CPU,
    DRIVER,
    OTHER_STATEMENTS,
    OUTSIDE,
    RUNNABLE,
    STATEMENT,
    UNEXPLAINED,
    Waterfall,
    break_down_time,
)
from pgdyno.results.records import Arm, Counts, Slice, Trial, TrialStatus
from pgdyno.study.defaults import CONFIDENCE
from pgdyno.study.schedule import Role
from pgdyno.units import US_PER_S

PATHS = 4000
BLOCKS = 40
CLIENTS = 8
WHOLE_US = 1000.0
EXECUTED = 1_000_000
"""Transactions of a trial: no noise comes from counting."""

PART_SD = 0.04
"""Log SD of each part of an arm in a block. The ratio of the wholes then has an SD of about 2.5%."""

SPEED_SD = 0.05
"""Log SD between blocks of the machine's speed, which both arms share."""

LATENCY_SD = 0.3
"""The same under a fixed load, whose latency depends on the utilization."""

RESOURCES: Mapping[str, float] = {
    CPU: 0.30,
    "wal": 0.25,
    CLIENT: 0.15,
    RUNNABLE: 0.12,
    "lwlock": 0.06,
    "io": 0.04,
    DRIVER: 0.04,
    "lock": 0.02,
    UNEXPLAINED: 0.02,
}
STATEMENTS: Mapping[str, float] = {
    **{
        f"{STATEMENT}:{i}": share
        for i, share in enumerate((0.17, 0.25, 0.12, 0.1, 0.06, 0.08, 0.05, 0.04, 0.03, 0.02))
    },
    OTHER_STATEMENTS: 0.02,
    OUTSIDE: 0.06,
}
"""Shares of the baseline's whole, by part."""

QUERIES = 200
QUERY_SD = 0.03
"""Log SD of the mean time of a statement of an arm in a block."""

LARGER = 0.8
"""Share of the difference of the part that changes more."""

ARMS = [Arm(arm, name, name, {}, {}, [], {}, CLIENTS, {}) for arm, name in enumerate("AB")]


@dataclass(frozen=True)
class Load:
    """A load with these parts. ``changed``: the parts that differ between the arms, larger change first."""

    name: str
    shares: Mapping[str, float]
    changed: tuple[str, str]
    is_fixed: bool = False

    def draw(self, rng: np.random.Generator, paths: int, effect: float) -> Floats:
        """Return the time of each part in µs: (study, block, arm, part). ``effect``: that of EFFECTS."""
        levels = WHOLE_US * np.array([list(self.shares.values())] * 2)
        for key, share in zip(self.changed, (LARGER, 1 - LARGER), strict=True):
            levels[1, list(self.shares).index(key)] -= share * effect * WHOLE_US
        speed = rng.normal(0, LATENCY_SD if self.is_fixed else SPEED_SD, (paths, BLOCKS, 1, 1))
        noise = rng.normal(0, PART_SD, (paths, BLOCKS, *levels.shape))
        return np.asarray(levels * np.exp(speed + noise))

    def break_down(self, times: Floats) -> Waterfall:
        """Return the breakdown of one study."""
        trials, by_trial, latency = [], {}, {}
        for block, of_block in enumerate(times):
            for arm, of_arm in enumerate(of_block):
                parts = dict(zip(self.shares, of_arm.tolist(), strict=True))
                whole_us = sum(parts.values())
                one = trial(block, arm, whole_us * EXECUTED / CLIENTS / US_PER_S)
                trials.append(one)
                by_trial[one.trial] = _client_time(parts, whole_us / CLIENTS)
                latency[one.trial] = (whole_us, 0.0)
        fixed = latency if self.is_fixed else None
        found = break_down_time(ARMS, trials, by_trial, fixed, {1: CONFIDENCE}, Method.ANYTIME)[1]
        waterfall = found.by_statement if OUTSIDE in self.shares else found.by_resource
        assert waterfall is not None
        return waterfall


LOADS = (
    Load("closed loop, by resource", RESOURCES, ("wal", "lwlock")),
    Load("closed loop, by statement", STATEMENTS, (f"{STATEMENT}:1", f"{STATEMENT}:4")),
    Load("fixed load, by statement", STATEMENTS, (f"{STATEMENT}:1", f"{STATEMENT}:4"), is_fixed=True),
)
EFFECTS = (0.0, 0.05, 0.10)
"""Time that the arm saves, as a share of the whole."""


def trial(block: int, arm: int, counted_s: float) -> Trial:
    """Return a trial with EXECUTED transactions in one slice."""
    piece = Slice(
        0, Role.MEASURE, 0.0, 0.0, counted_s, counted_s, 0.0, 0.0, {"transaction": Counts(ok=EXECUTED)}
    )
    return Trial(
        trial=2 * block + arm,
        block=block,
        arm=arm,
        attempt=1,
        status=TrialStatus.OK,
        started_unix_s=0.0,
        ended_unix_s=counted_s,
        slices=[piece],
    )


def _client_time(parts: Mapping[str, float], per_backend_us: float) -> ClientTime:
    """Return the times that the breakdown divides into these parts."""
    if OUTSIDE in parts:
        texts = {key.partition(":")[2]: us for key, us in parts.items() if key.startswith(STATEMENT + ":")}
        return ClientTime(statements=texts, others_us=parts[OTHER_STATEMENTS])
    waits = {key: parts[key] / per_backend_us for key in ("wal", "lwlock", "io", "lock")}
    running = (parts[CPU] + parts[RUNNABLE] + parts[UNEXPLAINED]) / per_backend_us
    return ClientTime(
        on_cpu_us=parts[CPU],
        runnable_us=parts[RUNNABLE],
        driver_us=parts[DRIVER],
        wait_samples=WaitSamples({RUNNING: running, **waits}, 50.0),
    )


def significant(d: Floats, blocks: Floats) -> Floats:
    """Return whether each part differs significantly, by Holm's method: (study, part).

    ``d``: differences by (study, block, part). The first ``blocks`` of a study count.
    """
    n = blocks.astype(int)[:, np.newaxis]
    counts = (np.arange(d.shape[1]) < n)[..., np.newaxis]
    mean = (d * counts).sum(axis=1) / n
    sd = np.sqrt((((d - mean[:, np.newaxis]) * counts) ** 2).sum(axis=1) / (n - 1))
    t = np.abs(mean) / sd * np.sqrt(n)
    family = d.shape[2]
    reach = np.array(
        [
            [
                critical_value(k, 1 - (1 - CONFIDENCE) / (family - rank), Method.ANYTIME)
                for rank in range(family)
            ]
            for k in range(d.shape[1] + 1)
        ]
    )
    order = np.argsort(-t, axis=1)
    rejected = np.logical_and.accumulate(np.take_along_axis(t, order, axis=1) > reach[n[:, 0]], axis=1)
    found = np.zeros(t.shape, bool)
    np.put_along_axis(found, order, rejected, axis=1)
    return found


@dataclass(frozen=True)
class Naming:
    """Results of many studies.

    ``blocks`` at the verdict, or of all blocks if undecided. ``named``: (study, part). ``low`` to
    ``high``: interval of the share of the part that changes most in the difference of the wholes.
    """

    blocks: Floats
    named: Floats
    low: Floats
    high: Floats

    def share_of(self, load: Load, key: str) -> float:
        """Return the share of studies that name a part."""
        return float(self.named[:, list(load.shares).index(key)].mean())

    def share_of_others(self, load: Load, changed: Sequence[str]) -> float:
        """Return the share of studies that name any part that does not change."""
        others = [i for i, key in enumerate(load.shares) if key not in changed]
        return float(self.named[:, others].any(axis=1).mean())


def naming(load: Load, effect: float, paths: int = PATHS) -> Naming:
    """Return the named parts of studies."""
    every = load.draw(np.random.default_rng(SEED), paths, effect)
    wholes = every.sum(axis=-1)
    ended = apply_stopping_rule(np.log(wholes[..., 0] / wholes[..., 1]), 0.0, Method.ANYTIME)
    d = (every[:, :, 1] - every[:, :, 0]) / wholes[..., :1]
    low, high = share_interval(
        d[..., list(load.shares).index(load.changed[0])], d.sum(axis=-1), ended.stopped
    )
    return Naming(ended.stopped, significant(d, ended.stopped), low, high)


def share_interval(d: Floats, whole: Floats, blocks: Floats) -> tuple[Floats, Floats]:
    """Return the ends of the interval of Σ d / Σ whole by study. ``d`` and ``whole``: (study, block)."""
    n = blocks.astype(int)
    counts = np.arange(d.shape[1]) < n[:, np.newaxis]
    mean = (whole * counts).sum(axis=1) / n
    ratio = (d * counts).sum(axis=1) / n / mean
    squares = (((d - ratio[:, np.newaxis] * whole) * counts) ** 2).sum(axis=1)
    reach = np.array([critical_value(k, CONFIDENCE, Method.ANYTIME) for k in range(d.shape[1] + 1)])[n]
    half = reach * np.sqrt(squares / (n - 1) / n) / np.abs(mean)
    return ratio - half, ratio + half


def naming_row(load: Load, effect: float, paths: int = PATHS) -> list[str]:
    """Return the row of a load and effect as cells."""
    found = naming(load, effect, paths)
    largest = _percent(found.share_of(load, load.changed[0])) if effect else "–"
    wrong = _percent(found.share_of_others(load, load.changed if effect else ()))
    named = found.named[:, list(load.shares).index(load.changed[0])]
    covers = (found.low[named] <= LARGER) & (found.high[named] >= LARGER)
    share = (
        (_percent(covers.mean()), f"{100 * np.median(found.high - found.low) / 2:.1f}")
        if effect
        else ("–", "–")
    )
    blocks = [f"{found.blocks.mean():.1f}", *(f"{np.quantile(found.blocks, of):.0f}" for of in (0.5, 0.9))]
    return [load.name, f"{effect:.0%}", *blocks, largest, wrong, *share]


def query_row(change: float, blocks: int, paths: int = PATHS) -> list[str]:
    """Return how often one of QUERIES statements, which changes, is named, and any other."""
    d = np.random.default_rng(SEED).normal(0, 2**0.5 * QUERY_SD, (paths, blocks, QUERIES))
    d[..., 0] += np.log1p(change)
    found = significant(d, np.full(paths, blocks))
    shares = (found[:, 0].mean(), found[:, 1:].any(axis=1).mean())
    return [f"{change:.0%}", str(blocks), *(_percent(float(share)) for share in shares)]


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


QUERY_CASES = ((0.5, 5), (0.5, 10))


def report(paths: int = PATHS) -> str:
    """Return the tables in Markdown, each below its title."""
    return titled(
        {
            f"Named parts of {paths:,} studies a row, at the verdict": table(
                (
                    "Load",
                    "Effect",
                    "Blocks, mean",
                    "Median",
                    "90th percentile",
                    "Largest part named",
                    "A wrong part named",
                    "Its share covered",
                    "Half of the interval, points",
                ),
                [naming_row(load, effect, paths) for load in LOADS for effect in EFFECTS],
            ),
            f"One of {QUERIES} statements changes, {paths:,} studies a row": table(
                ("Change", "Blocks", "Statement named", "A wrong statement named"),
                [query_row(change, blocks, paths) for change, blocks in QUERY_CASES],
            ),
        }
    )


def main(arguments: Sequence[str]) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench simulated-why", description=__doc__)
    parser.add_argument("--paths", type=int, default=PATHS, metavar="N", help="studies a row [default: 4000]")
    print(report(parser.parse_args(arguments).paths))
    return 0
