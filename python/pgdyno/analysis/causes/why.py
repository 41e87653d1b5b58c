"""Why an arm is faster or slower: the time of a transaction in parts, for both arms, and what each part adds.

The whole of a closed loop is what a client spends on a transaction: clients × time / transactions (Little, "A
proof for the queuing formula L = λW", Operations Research 1961), which is clients / throughput. Of a load
that is fixed it is the mean latency. Two decompositions, each of which adds up to it in every trial:

- by statement: execution of each one that clients sent, planning where it is tracked, and the rest, which is
  outside of statements: parsing, commit, protocol, network, driver.
- by resource: on a CPU, ready for one, in waits of several kinds, at the driver.

Differences are B − A in µs, block by block, with an interval of the kind and confidence that the verdict has;
from there Holm's correction is over the parts of a decomposition. They add up to the difference of the
wholes, for in every block they do. The times of a block are multiplied by one factor, so that the mean of
its two wholes is the same in all blocks: as in the ratio of throughputs, how fast the machine was at the time
cancels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgdyno.analysis.causes.parts_of_time import (
    UNEXPLAINED,
    Split,
    Timed,
    by_resource,
    by_statement,
    counted_s,
    executed,
)
from pgdyno.analysis.comparison.verdict import BLOCKS_MIN
from pgdyno.analysis.statistics.effect import Method, holm_confidences, spread_of
from pgdyno.analysis.telemetry.client_time import ClientTime
from pgdyno.estimate import Better, Estimate
from pgdyno.evidence.records import Arm, Trial, TrialStatus
from pgdyno.units import US_PER_S

UNIT = "µs"

STATED = {UNEXPLAINED}
"""Parts that are told where they are 0, too: that nothing is left is a result."""


@dataclass(frozen=True)
class Part:
    """``key`` names it (a statement: its text after a colon). ``a_us`` and ``b_us`` are means over blocks;
    ``difference`` is B − A, its interval at the confidence at which Holm's test judged it.
    """

    key: str
    a_us: float
    b_us: float
    difference: Estimate
    p_value: float | None
    by_block: Mapping[int, float]

    @property
    def significant(self) -> bool:
        """Whether its interval leaves 0 out, and rests on enough blocks."""
        low, high = self.difference.low, self.difference.high
        return low is not None and high is not None and self.difference.n >= BLOCKS_MIN and low * high > 0


@dataclass(frozen=True)
class Waterfall:
    """``parts`` add up to ``whole``: in A, in B, and in the difference."""

    whole: Part
    parts: Sequence[Part]


@dataclass(frozen=True)
class Why:
    """One arm against the baseline; None: the evidence has no such decomposition.

    ``latency``: the whole is the mean latency. ``looks``: how many there were in either arm together.
    ``scaled``: by what the times of the waits that the looks found were multiplied, so that they are not more
    than what the kernel saw the server's processes wait; None where they needed no such thing.
    ``cpu_is_of_all``: the server's CPU time has that of processes without a client in it. ``twice``: names of
    arms in which statements inside of functions are counted twice.
    """

    baseline: Arm
    arm: Arm
    latency: bool
    by_statement: Waterfall | None
    by_resource: Waterfall | None
    looks: float
    scaled: float | None
    cpu_is_of_all: bool
    twice: Sequence[str]


Pairs = Mapping[int, tuple[Timed, Timed]]
"""By block: baseline and arm."""

Latency = Mapping[int, tuple[float, float]]
"""By trial, of a fixed load: mean latency and mean lag in µs."""


def explain(
    arms: Sequence[Arm],
    trials: Sequence[Trial],
    times: Mapping[int, ClientTime],
    latency: Latency | None,
    confidences: Mapping[int, float],
    method: Method = Method.STUDENT,
) -> dict[int, Why]:
    """Of each arm after the first, against it. ``times``: by trial; ``latency``: None of a closed loop;
    ``confidences``: by arm, those of its verdict.
    """
    timed: dict[tuple[int, int], Timed] = {}
    clients = {arm.arm: arm.clients for arm in arms}
    for trial in trials:
        if trial.status is TrialStatus.OK and trial.trial in times and executed(trial):
            found = _timed(trial, times[trial.trial], clients[trial.arm], latency)
            if found is not None:
                timed[trial.block, trial.arm] = found
    why = {}
    for arm in arms[1:]:
        blocks = sorted(block for block, of in timed if of == arm.arm and (block, 0) in timed)
        pairs = {block: (timed[block, 0], timed[block, arm.arm]) for block in blocks}
        if pairs:
            why[arm.arm] = _why(arms[0], arm, pairs, confidences[arm.arm], method)
    return why


def _timed(trial: Trial, time: ClientTime, clients: int, latency: Latency | None) -> Timed | None:
    if latency is None:
        whole_us = clients * US_PER_S * counted_s(trial) / executed(trial)
        return Timed(trial, clients, whole_us, None, time)
    known = latency.get(trial.trial)
    return None if known is None else Timed(trial, clients, known[0], known[1], time)


def _why(baseline: Arm, arm: Arm, pairs: Pairs, confidence: float, method: Method) -> Why:
    every = [one for pair in pairs.values() for one in pair]
    resources, scaled = by_resource(every)
    return Why(
        baseline=baseline,
        arm=arm,
        latency=every[0].lag_us is not None,
        by_statement=_waterfall(pairs, by_statement(every), confidence, method),
        by_resource=_waterfall(pairs, resources, confidence, method),
        looks=sum(one.time.looks.n for one in every if one.time.looks),
        scaled=scaled,
        cpu_is_of_all=any(one.time.cpu_is_of_all for one in every),
        twice=[
            of.name for i, of in enumerate((baseline, arm)) if any(_twice(pair[i]) for pair in pairs.values())
        ],
    )


def _twice(one: Timed) -> bool:
    """Up to 13 what ran inside of a function is not told apart."""
    version = str(one.trial.settings.get("server_version_num", ""))
    tracked = one.trial.settings.get("pg_stat_statements.track")
    return bool(one.time.statements) and tracked == "all" and version.isdigit() and int(version) < 14_00_00


def _waterfall(pairs: Pairs, split: Split, confidence: float, method: Method) -> Waterfall | None:
    if not split:
        return None
    factors = _factors(pairs)
    keys = [
        key
        for key in next(iter(split.values()))
        if key in STATED or any(parts[key] for parts in split.values())
    ]
    values = {
        key: {
            block: (factors[block] * split[a.trial.trial][key], factors[block] * split[b.trial.trial][key])
            for block, (a, b) in pairs.items()
        }
        for key in keys
    }
    unadjusted = [spread_of(_differences(of), confidence, method).p_value for of in values.values()]
    levels = holm_confidences(unadjusted, confidence)
    parts = [_part(key, values[key], level, method) for key, level in zip(keys, levels, strict=True)]
    wholes = {
        block: (factors[block] * a.whole_us, factors[block] * b.whole_us) for block, (a, b) in pairs.items()
    }
    return Waterfall(_part("", wholes, confidence, method), parts)


def _factors(pairs: Pairs) -> dict[int, float]:
    """By block: what makes the mean of its wholes that of all blocks."""
    means = {block: (a.whole_us + b.whole_us) / 2 for block, (a, b) in pairs.items()}
    usual = sum(means.values()) / len(means)
    return {block: usual / mean for block, mean in means.items()}


def _differences(values: Mapping[int, tuple[float, float]]) -> list[float]:
    return [b - a for a, b in values.values()]


def _part(key: str, values: Mapping[int, tuple[float, float]], confidence: float, method: Method) -> Part:
    spread = spread_of(_differences(values), confidence, method)
    n = len(values)
    return Part(
        key=key,
        a_us=sum(a for a, _ in values.values()) / n,
        b_us=sum(b for _, b in values.values()) / n,
        difference=Estimate(
            spread.mean, UNIT, n, Better.LESS, spread.low, spread.high, confidence=confidence
        ),
        p_value=spread.p_value,
        by_block=dict(zip(values, _differences(values), strict=True)),
    )
