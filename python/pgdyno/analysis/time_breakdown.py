"""Breakdown of a transaction's time by statement and by resource, and the change by an arm.

docs/explanation/why.md describes each part.

For a closed loop, the whole is the time that a client spends on a transaction: clients × time / transactions
(Little, "A proof for the queuing formula L = λW", Operations Research 1961), which is clients / throughput.
For a fixed load it is the mean latency. Each of two decompositions adds up to it in every trial:

- by statement: execution of each statement that clients send, planning if it is tracked, and the remainder
  outside of statements: parsing, commit, protocol, network, driver.
- by resource: on CPU, runnable (waiting for CPU), waits of several kinds, driver.

Differences are B − A in µs by block. Their intervals have the method and confidence of the verdict, with
Holm's correction over the parts of a decomposition. They add up to the difference of the wholes, because they
do in every block. The differences of a block are multiplied by one factor, so that the whole of its baseline
is the same in all blocks. As in the ratio of throughputs or latencies, variations of the machine's speed
cancel. Levels are means of the measured times, so that an arm has the same levels in all comparisons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import numpy as np

from pgdyno.analysis.finding_fields import ArmName, about, in_json
from pgdyno.analysis.statistics.intervals import Method, simultaneous, summarize, with_error
from pgdyno.analysis.telemetry.samples import RUNNING
from pgdyno.analysis.telemetry.trial_telemetry import (
    CLIENT,
    OTHER,
    RESOURCES,
    WORKER_CPU,
    WORKER_RUNNABLE,
    ClientTime,
)
from pgdyno.results.records import Arm, Trial, TrialStatus
from pgdyno.study.plan import VERDICT_BLOCKS_MIN
from pgdyno.units import US_PER_S, Better, Estimate

STATEMENTS_MAX = 10
"""Number of statements with their own part: those with the most time in either arm."""

STATEMENT_SHARE_MIN = 0.005
"""Minimum share of the whole for a statement with its own part."""

STATEMENT, PLANNING, OTHER_STATEMENTS, OUTSIDE = "statement", "planning", "statements", "outside"
CPU, RUNNABLE, EXECUTING, DRIVER, LAG = "cpu", "runnable", "executing", "driver", "lag"
UNEXPLAINED, UNKNOWN, REMAINDER = "unexplained", "unknown", "remainder"
"""Residuals of the whole: UNEXPLAINED is neither work nor a wait; UNKNOWN applies without wait-event samples;
REMAINDER applies to a fixed load, where transactions do not wait for idle clients."""

WAITS = (*(resource for resource in RESOURCES if resource != CLIENT), OTHER)
"""Resources of waits, except CLIENT, which is added to idle time."""


@dataclass(frozen=True)
class Timed:
    """Times of one trial per executed transaction: the whole, and values of its probes."""

    trial: Trial
    clients: int
    whole_us: float
    lag_us: float | None  # for a fixed load: wait for a client
    time: ClientTime

    @property
    def per_backend_us(self) -> float:
        """Time per transaction for an average of one backend: Little's law."""
        return US_PER_S * counted_s(self.trial) / self.trial.counts.executed


Parts = dict[str, float]
Split = Mapping[int, Parts]
"""Parts of the whole by trial."""


def by_statement(every: Sequence[Timed]) -> Split:
    """Return the parts by statement; empty if a trial has no times of statements."""
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
    by_text = one.time.statements or {}
    parts = {f"{STATEMENT}:{text}": by_text.get(text, 0.0) for text in own}
    parts[OTHER_STATEMENTS] = one.time.others_us + sum(us for text, us in by_text.items() if text not in own)
    parts[PLANNING] = one.time.planning_us or 0.0
    parts[LAG] = one.lag_us or 0.0
    parts[OUTSIDE] = one.whole_us - sum(parts.values())
    return parts


def by_resource(every: Sequence[Timed]) -> tuple[Split, float | None]:
    """Return the parts by resource that every trial has, and the scale factor of the waits.

    The kernel measures the time of the clients' server processes on CPU and runnable without CPU. They wait
    for the rest of the whole. Wait-event samples show the reasons, with each process in one state. A woken
    process still shows its wait event until it gets a CPU, so samples may find more waiting than there was.
    The waits are then scaled to the measured waiting time. If samples find less, the remainder is
    unexplained: neither on CPU, nor runnable, nor in a named wait (stolen by the hypervisor, page faults).
    All trials together determine which case applies.
    """
    has_cpu = all(one.time.on_cpu_us is not None for one in every)
    has_runnable = all(one.time.runnable_us is not None for one in every)
    has_samples = all(one.time.wait_samples is not None for one in every)
    if not has_runnable and not has_samples:
        return {}, None
    clocks = clocked_resources(every)
    found: dict[int, Parts] = {}
    for one in every:
        parts = _measured(one, has_cpu=has_cpu, has_runnable=has_runnable)
        if has_samples:
            parts |= _sampled_waits(one, clocks, executing=not has_cpu)
        found[one.trial.trial] = parts
    scaled = None
    wholes = {one.trial.trial: one.whole_us for one in every}
    if has_samples and has_cpu and every[0].lag_us is None:
        scaled = _scale(found, wholes)
    for parts in found.values():
        _add_workers(parts)
    rest = UNKNOWN if not has_samples else REMAINDER if every[0].lag_us is not None else UNEXPLAINED
    _subtract_driver(found, every)
    for trial, parts in found.items():
        # If the samples cover everything, the residual is only the rounding error of a dozen numbers.
        left = wholes[trial] - sum(parts.values())
        parts[rest] = left if abs(left) > 1e-13 * wholes[trial] else 0.0
    return found, scaled


def _measured(one: Timed, *, has_cpu: bool, has_runnable: bool) -> Parts:
    parts = {LAG: one.lag_us or 0.0}
    if has_cpu:
        parts[CPU] = one.time.on_cpu_us or 0.0
    if has_runnable:
        parts[RUNNABLE] = one.time.runnable_us or 0.0
    return parts


def clocked_resources(every: Sequence[Timed]) -> list[str]:
    """Return the resources whose I/O calls the server timed in all trials: arms are measured alike."""
    return [kind for kind in WAITS if all(kind in one.time.clocked for one in every)]


def _sampled_waits(one: Timed, clocks: Sequence[str], *, executing: bool) -> Parts:
    samples = one.time.wait_samples
    assert samples is not None
    each_us = one.per_backend_us
    parts = {kind: each_us * samples.backends.get(kind, 0.0) for kind in WAITS}
    for kind in clocks:
        # The clock replaces the samples of these calls; those of other waits for the resource remain.
        of = one.time.clocked[kind]
        parts[kind] = max(0.0, parts[kind] - each_us * of.sampled) + of.us
    if one.lag_us is None:
        # An idle server process waits for its client, because the loop is closed.
        idle = one.clients - samples.active + samples.backends.get(CLIENT, 0.0)
        parts[CLIENT] = each_us * idle
    for kind in (WORKER_CPU, WORKER_RUNNABLE):  # CPU time of all processes has that of workers
        parts[kind] = 0.0 if one.time.cpu_is_of_all else each_us * samples.backends.get(kind, 0.0)
    if executing:
        parts[EXECUTING] = each_us * samples.backends.get(RUNNING, 0.0)
    return parts


def _add_workers(parts: Parts) -> None:
    """Add the time in which backends wait for parallel workers to what these do."""
    for kind, of in ((WORKER_CPU, CPU), (WORKER_RUNNABLE, RUNNABLE)):
        us = parts.pop(kind, 0.0)
        target = EXECUTING if EXECUTING in parts else of if of in parts else CPU
        if us:
            parts[target] += us


def _scale(found: Split, wholes: Mapping[int, float]) -> float | None:
    """Scale the waits of each trial to fill its whole, if they exceed it. Return the mean factor, or None."""
    kinds = (*WAITS, CLIENT, WORKER_CPU, WORKER_RUNNABLE)
    waited = {trial: sum(parts[kind] for kind in kinds) for trial, parts in found.items()}
    # In a short window, the kernel's figures may exceed the whole: the clocks are read at other moments.
    available = {
        trial: max(0.0, wholes[trial] - parts[CPU] - parts.get(RUNNABLE, 0.0))
        for trial, parts in found.items()
    }
    if sum(waited.values()) <= sum(available.values()):
        return None
    for trial, parts in found.items():
        for kind in kinds:
            parts[kind] *= available[trial] / waited[trial] if waited[trial] else 0.0
    return sum(available.values()) / sum(waited.values())


def _subtract_driver(found: Split, every: Sequence[Timed]) -> None:
    """Subtract the driver's CPU time from the waits for the client, if these are larger."""
    own = {one.trial.trial: one.time.driver_us or 0.0 for one in every}
    if every[0].lag_us is None and sum(parts.get(CLIENT, 0.0) for parts in found.values()) > sum(
        own.values()
    ):
        for trial, parts in found.items():
            parts[DRIVER] = own[trial]
            parts[CLIENT] -= own[trial]


def counted_s(trial: Trial) -> float:
    """Return the total length of the counted parts of the measured slices."""
    return sum(piece.counted_s for piece in trial.measured)


UNIT = "µs"

ALWAYS_REPORTED = {UNEXPLAINED}
"""Parts that are reported even if they are 0, because this is a result."""


@dataclass(frozen=True)
class TimePart:
    """One part. ``key`` is its name (for a statement, followed by a colon and its text).

    ``a_us`` and ``b_us`` are means over blocks, as measured. ``difference`` is B − A, with an interval at the
    confidence of Holm's test; blocks are scaled to one speed. ``share`` describes a significant part of a
    significant whole; its interval is no test.
    """

    key: str
    a_us: float
    b_us: float
    difference: Estimate
    p_value: float | None
    by_block: Annotated[Mapping[int, float], about("Difference in µs by block (from 0).")]
    share: Annotated[
        Estimate | None, about("Percent of the difference of the whole; null if not significant.")
    ] = None

    @in_json
    def significant(self) -> bool:
        """True if the interval excludes 0 and is based on enough blocks."""
        low, high = self.difference.low, self.difference.high
        return (
            low is not None
            and high is not None
            and self.difference.n >= VERDICT_BLOCKS_MIN
            and low * high > 0
        )


@dataclass(frozen=True)
class Waterfall:
    """A decomposition. ``parts`` add up to ``total`` in A, in B, and in the difference."""

    total: TimePart
    parts: Sequence[TimePart]
    consequences: Annotated[Sequence[str], about("Keys of parts that are no causes, such as queueing.")]


@dataclass(frozen=True)
class TimeBreakdown:
    """Breakdown of one arm against the baseline. A decomposition is None without data.

    ``latency``: the whole is the mean latency. ``samples`` is the number of wait-event samples in both arms.
    ``scaled`` is the factor of the sampled waits, which limits them to the waiting time that the kernel
    measured; None without scaling. ``cpu_is_of_all``: the server's CPU time includes processes without a
    client. ``twice``: names of arms in which statements inside functions are counted twice.
    """

    baseline: ArmName
    arm: ArmName
    latency: Annotated[
        bool, about("Whether the whole is the mean latency, else clients × time / transactions.")
    ]
    by_statement: Waterfall | None
    by_resource: Waterfall | None
    samples: Annotated[float, about("Number of wait-event samples in both arms.")]
    clocks: Annotated[Sequence[str], about("Resources whose I/O calls are timed by the clock of the server.")]
    scaled: Annotated[float | None, about("Factor that fits sampled waits to the kernel's figure.")]
    cpu_is_of_all: Annotated[bool, about("Whether CPU time includes processes without a client.")]
    twice: Annotated[Sequence[str], about("Arms in which nested statements are counted twice.")]


Pairs = Mapping[int, tuple[Timed, Timed]]
"""block → (baseline, arm)."""

Latency = Mapping[int, tuple[float, float]]
"""trial → (mean latency, mean lag) in µs, for a fixed load."""


def break_down_time(
    arms: Sequence[Arm],
    trials: Sequence[Trial],
    times: Mapping[int, ClientTime],
    latency: Latency | None,
    confidences: Mapping[int, float],
    method: Method,
) -> dict[int, TimeBreakdown]:
    """Return the breakdown of each arm after the first, against the first.

    ``times`` is by trial. ``latency`` is None for a closed loop. ``confidences`` are those of the verdicts,
    by arm.
    """
    timed: dict[tuple[int, int], Timed] = {}
    clients = {arm.arm: arm.clients for arm in arms}
    for trial in trials:
        if trial.status is TrialStatus.OK and trial.trial in times and trial.counts.executed:
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
        whole_us = clients * US_PER_S * counted_s(trial) / trial.counts.executed
        return Timed(trial, clients, whole_us, None, time)
    known = latency.get(trial.trial)
    return None if known is None else Timed(trial, clients, known[0], known[1], time)


def _why(baseline: Arm, arm: Arm, pairs: Pairs, confidence: float, method: Method) -> TimeBreakdown:
    every = [one for pair in pairs.values() for one in pair]
    resources, scaled = by_resource(every)
    return TimeBreakdown(
        baseline=baseline,
        arm=arm,
        latency=every[0].lag_us is not None,
        by_statement=_waterfall(pairs, by_statement(every), confidence, method),
        by_resource=_waterfall(pairs, resources, confidence, method),
        samples=sum(one.time.wait_samples.n for one in every if one.time.wait_samples),
        clocks=clocked_resources(every),
        scaled=scaled,
        cpu_is_of_all=any(one.time.cpu_is_of_all for one in every),
        twice=[
            of.name for i, of in enumerate((baseline, arm)) if any(_twice(pair[i]) for pair in pairs.values())
        ],
    )


def _twice(one: Timed) -> bool:
    """Return whether statements inside functions are counted twice, as up to PostgreSQL 13."""
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
        if key in ALWAYS_REPORTED or any(parts[key] for parts in split.values())
    ]
    values = {
        key: {
            block: (split[a.trial.trial][key], split[b.trial.trial][key]) for block, (a, b) in pairs.items()
        }
        for key in keys
    }
    parts = simultaneous([partial(_part, key, of, factors, method) for key, of in values.items()], confidence)
    wholes = {block: (a.whole_us, b.whole_us) for block, (a, b) in pairs.items()}
    total = _part("", wholes, factors, method, confidence)
    if total.significant:
        parts = [
            replace(part, share=share_of(part, total, method)) if part.significant else part for part in parts
        ]
    is_local = not any(one.trial.driver.nodes for pair in pairs.values() for one in pair)
    changes = {part.key: part.difference.value for part in parts}
    return Waterfall(total, parts, consequences(changes, driver_is_local=is_local))


def consequences(changes: Mapping[str, float], *, driver_is_local: bool) -> list[str]:
    """Return the parts that are no causes. ``changes``: by part.

    If the server's processes queue for CPU, a load generator on the same machine does so, too. Its queueing
    is in the time of the client, which therefore must change more than theirs.
    """
    found = [key for key in (RUNNABLE, LAG, UNEXPLAINED) if key in changes]
    client, queueing = changes.get(CLIENT, 0.0), changes.get(RUNNABLE, 0.0)
    is_queueing = driver_is_local and client * queueing > 0 and abs(client) <= abs(queueing)
    return [*found, *([CLIENT] if is_queueing else [])]


def share_of(part: TimePart, total: TimePart, method: Method) -> Estimate:
    """Return Σ d_part / Σ d_total over the blocks in percent, with the error of its residuals.

    Ratio estimator: Cochran, "Sampling Techniques", 1977. Noise that part and whole share cancels.
    """
    d, whole = (np.array(list(of.by_block.values())) for of in (part, total))
    ratio = float(d.sum() / whole.sum())
    sd = float(np.std(d - ratio * whole, ddof=1) / abs(whole.mean()))
    confidence = total.difference.confidence
    found = with_error(100 * ratio, 100 * sd, len(d), confidence, method)
    return Estimate(found.mean, "%", found.n, Better.LESS, found.low, found.high, confidence)


def _factors(pairs: Pairs) -> dict[int, float]:
    """Return block → the factor that makes the whole of its baseline equal to the mean of all.

    The scaled difference of the wholes is then linear in the ratio of the block. With the mean of both arms
    as the unit it would approach a constant for large ratios, and its interval would vanish.
    """
    usual = sum(a.whole_us for a, _ in pairs.values()) / len(pairs)
    return {block: usual / a.whole_us for block, (a, _) in pairs.items()}


def _part(
    key: str,
    values: Mapping[int, tuple[float, float]],
    factors: Mapping[int, float],
    method: Method,
    confidence: float,
) -> TimePart:
    by_block = {block: factors[block] * (b - a) for block, (a, b) in values.items()}
    summary = summarize(list(by_block.values()), confidence, method)
    n = len(values)
    return TimePart(
        key=key,
        a_us=sum(a for a, _ in values.values()) / n,
        b_us=sum(b for _, b in values.values()) / n,
        difference=Estimate(
            summary.mean, UNIT, n, Better.LESS, summary.low, summary.high, confidence=confidence
        ),
        p_value=summary.p_value,
        by_block=by_block,
    )
