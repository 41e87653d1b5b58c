"""The time that a transaction takes, in parts that add up to it in every trial: by statement and by resource.

``why.py`` compares them; docs/explanation/why.md says what each part is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgdyno.analysis.telemetry.client_time import CLIENT, ClientTime
from pgdyno.analysis.telemetry.sampled import RUNNING
from pgdyno.evidence.records import Trial
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
