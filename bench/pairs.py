"""Noise of paired measurements by the length of a piece, and the effect of covariates, from one recording.

One server is driven without a break. The recording is split as if two identical servers had run in turn: A B
B A, each of some seconds. The difference between A and B is the noise of such a piece. Its root mean square
(the true difference is 0) is in points (hundredths of the logarithm), times the square root of the piece's
minutes. If pieces are independent, half of it means a quarter of the time for the same interval. Switching,
restores and restarts are not included: an A/A study, such as ``pgdyno compare 18 18``, includes them.

A covariate is subtracted with the coefficient of the other pieces, so that a piece does not explain itself.
Covariates are the CPU time of a fixed loop, steal time, and the server's CPU time per transaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from bench.environment import Environment, Sizes
from bench.figure import Figure
from bench.slices import CLIENTS, SCRIPT, pgbench_server
from pgdyno.interruption import Interruption
from pgdyno.measure.engine_runs import drive_specification, run_drive
from pgdyno.measure.host_counters import machine_cpu, server_cpu
from pgdyno.server.engine import Event
from pgdyno.study.plan import Driving
from pgdyno.study.schedule import PlannedSlice, Role
from pgdyno.workloads.pgbench.parameters import PgbenchParameters

Floats = npt.NDArray[np.float64]

TICK_S = 0.25
LENGTHS_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
PIECES_MIN = 2
PIECES_TO_EXPLAIN = 20
"""Minimum for a covariate: with fewer pieces its coefficient is unreliable."""

LOOP_TURNS = 40_000
"""1 to 2 ms, four times per second, on a core shared with the server."""

LOOP, STEAL, SERVER = "CPU time of a fixed loop", "CPU stolen", "server CPU per transaction"


@dataclass
class Recording:
    """Duration, transactions and used seconds of each tick."""

    took_s: list[float] = field(default_factory=list)
    done: list[float] = field(default_factory=list)
    used_s: dict[str, list[float]] = field(default_factory=lambda: {LOOP: [], STEAL: [], SERVER: []})


def figures(environment: Environment, sizes: Sizes) -> Iterator[Figure]:
    """Record one server and analyze the recording."""
    with pgbench_server(environment, sizes, "pairs") as server:
        yield from summarized(_record(server.conninfo(), server.postmaster_pid, sizes))


def summarized(recording: Recording) -> Iterator[Figure]:
    """Yield the noise and its residual share per covariate, for each length with at least two pieces."""
    for length_s in LENGTHS_S:
        differences = in_pieces(recording, length_s)
        noise = differences.pop("noise")
        if (n := len(noise)) < PIECES_MIN:
            continue
        at, root_min = f"A B B A of {length_s:g} s", (4 * length_s / 60) ** 0.5
        yield Figure(f"{at}: noise", "points × √min", n, 100 * _rms(noise) * root_min, "–")
        for name, covariate in differences.items() if n >= PIECES_TO_EXPLAIN else ():
            left = 100 * _rms(residuals(noise, covariate)) / _rms(noise)
            yield Figure(f"{at}, less what the {name} tells: noise left", "%", n, left, "–")
    ticks = len(recording.took_s)
    for name in (LOOP, STEAL) if ticks * TICK_S >= 4 * LENGTHS_S[0] * PIECES_TO_EXPLAIN else ():
        share = 100 * sum(recording.used_s[name]) / sum(recording.took_s)
        yield Figure(f"{name} meanwhile", "% of a core", ticks, share, "–")


def in_pieces(recording: Recording, length_s: float) -> dict[str, Floats]:
    """Return the differences between B and A of each piece.

    ``noise`` is the log ratio of the rates. Covariates are log ratios of use per transaction or per loop.
    Steal is a difference of shares of time, because it can be 0.
    """
    ticks = round(length_s / TICK_S)
    n = len(recording.took_s) // (4 * ticks)

    def both(values: list[float]) -> Floats:
        """Return the sums of A and B of each piece, shape (2, n)."""
        quarters = np.array(values[: 4 * ticks * n]).reshape(n, 4, ticks).sum(axis=2)
        return np.array([quarters[:, 0] + quarters[:, 3], quarters[:, 1] + quarters[:, 2]])

    took_s, done = both(recording.took_s), both(recording.done)
    used_s = {name: both(values) for name, values in recording.used_s.items()}
    return {
        "noise": _log_ratio(done / took_s),
        LOOP: _log_ratio(used_s[LOOP]),
        STEAL: np.diff(used_s[STEAL] / took_s, axis=0)[0],
        SERVER: _log_ratio(used_s[SERVER] / done),
    }


def residuals(noise: Floats, covariate: Floats) -> Floats:
    """Return the leave-one-out residuals of a least-squares fit through 0."""
    square = covariate @ covariate - covariate**2
    product = covariate @ noise - covariate * noise
    return noise - covariate * np.divide(product, square, out=np.zeros_like(square), where=square > 0)


def _log_ratio(of_both: Floats) -> Floats:
    a, b = of_both
    return np.asarray(np.log(b / a))


def _rms(values: Floats) -> float:
    return float(np.sqrt(np.mean(values**2)))


def _record(conninfo: str, postmaster_pid: int, sizes: Sizes) -> Recording:
    """Record one server tick by tick. Raises RuntimeError, EngineError."""
    workload = PgbenchParameters.model_validate({"scale": sizes.pgbench_scale, "scripts": [{"name": SCRIPT}]})
    driving = Driving(workload=workload, clients=CLIENTS)
    slices = [
        PlannedSlice(0, Role.WARM_UP, sizes.recording_s / 60, -1),
        PlannedSlice(0, Role.MEASURE, sizes.recording_s, 0),
    ]
    specification = drive_specification(driving, 1, slices, [("server", conninfo)], interval_s=TICK_S)
    recording, before = Recording(), _used_s(postmaster_pid)

    def note(event: Event) -> None:
        nonlocal before
        if event["event"] == "interval":
            now = _used_s(postmaster_pid)  # first, because the transactions were counted just now
            if event["role"] == "measure":
                recording.took_s.append((event["to_ns"] - event["from_ns"]) / 1e9)
                recording.done.append(sum(counts["ok"] for counts in event["kinds"].values()))
                recording.used_s[LOOP].append(_loop_s())
                for name in now:
                    recording.used_s[name].append(now[name] - before[name])
            before = now

    run = run_drive(specification, Interruption(), note)
    if not run.complete:
        raise RuntimeError(f"the engine did not go through: {run.failure}")
    return recording


def _used_s(postmaster_pid: int) -> Mapping[str, float]:
    return {STEAL: machine_cpu().steal_s, SERVER: server_cpu(postmaster_pid).total_s}


def _loop_s() -> float:
    """Return the CPU time of a fixed loop. Waiting for a core is not included."""
    begun_s, value = time.thread_time(), 0
    for turn in range(LOOP_TURNS):
        value ^= turn
    return time.thread_time() - begun_s
