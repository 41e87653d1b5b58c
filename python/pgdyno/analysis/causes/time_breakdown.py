"""Where the time of a transaction goes, by statement and by resource, and what an arm changes in it.

docs/explanation/why.md says what each part is.

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

from pgdyno.analysis.comparison.verdict import BLOCKS_MIN
from pgdyno.analysis.statistics.effect import Method, holm_confidences, spread_of
from pgdyno.analysis.telemetry.client_time import CLIENT, ClientTime
from pgdyno.analysis.telemetry.samples import RUNNING
from pgdyno.estimate import Better, Estimate
from pgdyno.results.records import Arm, Trial, TrialStatus
from pgdyno.units import US_PER_S

STATEMENTS_MAX = 10
"""Parts of their own: the statements with the most time in either arm."""

STATEMENT_SHARE_MIN = 0.005
"""Of the whole, for a part of its own."""

STATEMENT, PLANNING, OTHER_STATEMENTS, OUTSIDE = "statement", "planning", "statements", "outside"
CPU, READY, EXECUTING, DRIVER, LAG = "cpu", "ready", "executing", "driver", "lag"
UNEXPLAINED, UNKNOWN, REMAINDER = "unexplained", "unknown", "remainder"
"""What is left of the whole: neither working nor waiting; where nothing is known of waits; and where the load
is fixed, so that idle clients are not what a transaction waits for.
"""

WAITS = ("wal", "io", "lock", "lwlock", "ipc", "sleep", "other")
"""Kinds of waiting of ``client_time.py``, but CLIENT, which goes with idleness."""


@dataclass(frozen=True)
class Timed:
    """One trial: the whole, per executed transaction, and what its probes told."""

    trial: Trial
    clients: int
    whole_us: float
    lag_us: float | None  # of a fixed load: how long a transaction waited for a client
    time: ClientTime

    @property
    def per_backend_us(self) -> float:
        """What a transaction spends where one backend is in the mean: Little's law."""
        return US_PER_S * counted_s(self.trial) / executed(self.trial)


Parts = dict[str, float]
Split = Mapping[int, Parts]
"""By trial: the parts of its whole."""


def by_statement(every: Sequence[Timed]) -> Split:
    """Empty where a trial has no times of statements."""
    if any(one.time.statements is None for one in every):
        return {}
    largest: dict[str, float] = {}
    for one in every:
        for text, us in (one.time.statements or {}).items():
            largest[text] = max(largest.get(text, 0.0), us / one.whole_us)
    own = [text for text, share in largest.items() if share >= STATEMENT_SHARE_MIN]
    own = sorted(own, key=lambda text: -largest[text])[:STATEMENTS_MAX]
    return {one.trial.trial: _of_statements(one, own) for one in every}


def _of_statements(one: Timed, own: Sequence[str]) -> Parts:
    told = one.time.statements or {}
    parts = {f"{STATEMENT}:{text}": told.get(text, 0.0) for text in own}
    parts[OTHER_STATEMENTS] = one.time.others_us + sum(us for text, us in told.items() if text not in own)
    parts[PLANNING] = one.time.planning_us or 0.0
    parts[LAG] = one.lag_us or 0.0
    parts[OUTSIDE] = one.whole_us - sum(parts.values())
    return parts


def by_resource(every: Sequence[Timed]) -> tuple[Split, float | None]:
    """What every trial can tell of it, and by what the waits were multiplied.

    The kernel knows of the clients' server processes how long they were on a CPU and how long ready without
    one: the rest of the whole they waited. What for is known by looks, which see each of them in one state.
    A process that has been woken still looks as if it waited until a CPU is free, so looks may find more
    waiting than there was. Then the waits share what the kernel leaves, in proportion to the looks. Where
    they find less, the remainder is unexplained: neither on a CPU, nor ready, nor in a wait that has a name
    (stolen by the hypervisor, page faults). Which of both holds is decided over all trials together.
    """
    has_cpu = all(one.time.on_cpu_us is not None for one in every)
    has_ready = all(one.time.ready_us is not None for one in every)
    has_looks = all(one.time.looks is not None for one in every)
    if not has_ready and not has_looks:
        return {}, None
    found: dict[int, Parts] = {}
    for one in every:
        parts = _measured(one, has_cpu=has_cpu, has_ready=has_ready)
        if has_looks:
            parts |= _looked_at(one, executing=not has_cpu)
        found[one.trial.trial] = parts
    scaled = None
    wholes = {one.trial.trial: one.whole_us for one in every}
    if has_looks and has_cpu and every[0].lag_us is None:
        scaled = _scale(found, wholes)
    rest = UNKNOWN if not has_looks else REMAINDER if every[0].lag_us is not None else UNEXPLAINED
    _take_out_driver(found, every)
    for trial, parts in found.items():
        # Rounding is all that can be left where the looks tell everything.
        left = wholes[trial] - sum(parts.values())
        parts[rest] = left if abs(left) > 1e-9 * wholes[trial] else 0.0
    return found, scaled


def _measured(one: Timed, *, has_cpu: bool, has_ready: bool) -> Parts:
    parts = {LAG: one.lag_us or 0.0}
    if has_cpu:
        parts[CPU] = one.time.on_cpu_us or 0.0
    if has_ready:
        parts[READY] = one.time.ready_us or 0.0
    return parts


def _looked_at(one: Timed, *, executing: bool) -> Parts:
    looks = one.time.looks
    assert looks is not None
    each_us = one.per_backend_us
    parts = {kind: each_us * looks.backends.get(kind, 0.0) for kind in WAITS}
    if one.lag_us is None:
        # Whose server process does nothing waits for its client; the loop is closed.
        idle = one.clients - looks.active + looks.backends.get(CLIENT, 0.0)
        parts[CLIENT] = each_us * idle
    if executing:
        parts[EXECUTING] = each_us * looks.backends.get(RUNNING, 0.0)
    return parts


def _scale(found: Split, wholes: Mapping[int, float]) -> float | None:
    """Multiplies the waits of each trial by what makes them fill its whole, where they are too much."""
    waited = {trial: sum(parts[kind] for kind in (*WAITS, CLIENT)) for trial, parts in found.items()}
    room = {trial: wholes[trial] - parts[CPU] - parts.get(READY, 0.0) for trial, parts in found.items()}
    if sum(waited.values()) <= sum(room.values()):
        return None
    for trial, parts in found.items():
        for kind in (*WAITS, CLIENT):
            parts[kind] *= room[trial] / waited[trial] if waited[trial] else 0.0
    return sum(room.values()) / sum(waited.values())


def _take_out_driver(found: Split, every: Sequence[Timed]) -> None:
    """The driver's CPU time is a part of what the server waits for its client, where that is as much."""
    own = {one.trial.trial: one.time.driver_us or 0.0 for one in every}
    if every[0].lag_us is None and sum(parts.get(CLIENT, 0.0) for parts in found.values()) > sum(
        own.values()
    ):
        for trial, parts in found.items():
            parts[DRIVER] = own[trial]
            parts[CLIENT] -= own[trial]


def executed(trial: Trial) -> int:
    """Transactions that ended in the counted parts of its measured slices."""
    return sum(counts.executed for piece in trial.measured for counts in piece.kinds.values())


def counted_s(trial: Trial) -> float:
    """How long these parts are, together."""
    return sum(piece.counted_s for piece in trial.measured)


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
