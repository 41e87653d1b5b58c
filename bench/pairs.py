"""What it gains that two arms are measured close in time, and what else could be taken off: from a recording.

One server is driven without a break, and the recording is cut as two servers that are alike would have been
driven in turn: A B B A, of some seconds each. What A and B differ by is the noise of such a piece: its
root mean square (the true difference is 0), in points (hundredths of the logarithm), times the square root of
the piece's minutes. Were pieces independent, half of it would mean a quarter of the time for the same
interval. Nothing is lost here to switching, restores and restarts: those are what ``pgdyno doctor
--calibrate`` measures.

A covariate is taken off with the coefficient that the other pieces have (so that a piece does not explain
itself): the CPU time that a fixed loop takes just then, the time that the machine's neighbours stole, and the
server's CPU time per transaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from bench.figure import Figure
from bench.setting import Place, Sizes
from bench.slices import CLIENTS, SCRIPT, server_alike
from pgdyno.drive.drive_specification import drive_specification
from pgdyno.drive.engine_runs import run_drive
from pgdyno.engine import Event
from pgdyno.interruption import Interruption
from pgdyno.probe.cpu_time import machine_cpu, server_cpu_s
from pgdyno.study.pgbench_parameters import PgbenchParameters
from pgdyno.study.plan import Driving
from pgdyno.study.schedule import PlannedSlice, Role

Floats = npt.NDArray[np.float64]

TICK_S = 0.25
LENGTHS_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
PIECES_MIN = 2
PIECES_TO_EXPLAIN = 20
"""Of fewer a covariate's coefficient would be chance."""

LOOP_TURNS = 40_000
"""A millisecond or two, four times a second, of a core that the server shares."""

LOOP, STEAL, SERVER = "CPU time of a fixed loop", "CPU stolen", "server CPU per transaction"


@dataclass
class Recording:
    """Tick by tick: its seconds, the transactions done, and what was used in it, in seconds."""

    took_s: list[float] = field(default_factory=list)
    done: list[float] = field(default_factory=list)
    used_s: dict[str, list[float]] = field(default_factory=lambda: {LOOP: [], STEAL: [], SERVER: []})


def figures(place: Place, sizes: Sizes) -> Iterator[Figure]:
    """One recording, and what it says."""
    with server_alike(place, sizes, "pairs") as server:
        yield from told(_recorded(server.conninfo(), server.postmaster_pid, sizes))


def told(recording: Recording) -> Iterator[Figure]:
    """The noise for every length of which the recording holds two pieces, and what of it is left."""
    for length_s in LENGTHS_S:
        differences = in_pieces(recording, length_s)
        noise = differences.pop("noise")
        if (n := len(noise)) < PIECES_MIN:
            continue
        at, root_min = f"A B B A of {length_s:g} s", (4 * length_s / 60) ** 0.5
        yield Figure(f"{at}: noise", "points × √min", n, 100 * _rms(noise) * root_min, "–")
        for name, covariate in differences.items() if n >= PIECES_TO_EXPLAIN else ():
            left = 100 * _rms(taken_off(noise, covariate)) / _rms(noise)
            yield Figure(f"{at}, less what the {name} tells: noise left", "%", n, left, "–")
    ticks = len(recording.took_s)
    for name in (LOOP, STEAL) if ticks * TICK_S >= 4 * LENGTHS_S[0] * PIECES_TO_EXPLAIN else ():
        share = 100 * sum(recording.used_s[name]) / sum(recording.took_s)
        yield Figure(f"{name} meanwhile", "% of a core", ticks, share, "–")


def in_pieces(recording: Recording, length_s: float) -> dict[str, Floats]:
    """What B and A differ by, piece by piece: ``noise``, ln of the rates; of a covariate ln of what was used
    per transaction or per loop, of steal the share of the time, which may be 0.
    """
    ticks = round(length_s / TICK_S)
    n = len(recording.took_s) // (4 * ticks)

    def both(values: list[float]) -> Floats:
        """Shape (2, n): A's sum and B's of every piece."""
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


def taken_off(noise: Floats, covariate: Floats) -> Floats:
    """What is left, of each piece by the coefficient of least squares (through 0) of all others."""
    square = covariate @ covariate - covariate**2
    product = covariate @ noise - covariate * noise
    return noise - covariate * np.divide(product, square, out=np.zeros_like(square), where=square > 0)


def _log_ratio(of_both: Floats) -> Floats:
    a, b = of_both
    return np.asarray(np.log(b / a))


def _rms(values: Floats) -> float:
    return float(np.sqrt(np.mean(values**2)))


def _recorded(conninfo: str, postmaster_pid: int, sizes: Sizes) -> Recording:
    """Raises RuntimeError, EngineError."""
    workload = PgbenchParameters.model_validate({"scale": sizes.pgbench_scale, "scripts": [{"name": SCRIPT}]})
    driving = Driving(workload=workload, clients=CLIENTS)
    slices = [
        PlannedSlice(0, Role.WARM_UP, sizes.recording_s / 60, -1),
        PlannedSlice(0, Role.MEASURE, sizes.recording_s, 0),
    ]
    asked = drive_specification(driving, 1, slices, [("server", conninfo)], interval_s=TICK_S)
    recording, before = Recording(), _used_s(postmaster_pid)

    def note(event: Event) -> None:
        nonlocal before
        if event["event"] == "interval":
            now = _used_s(postmaster_pid)  # first: what was done was counted just now
            if event["role"] == "measure":
                recording.took_s.append((event["to_ns"] - event["from_ns"]) / 1e9)
                recording.done.append(sum(counts["ok"] for counts in event["kinds"].values()))
                recording.used_s[LOOP].append(_loop_s())
                for name in now:
                    recording.used_s[name].append(now[name] - before[name])
            before = now

    run = run_drive(asked, Interruption(), note, lambda: [None])
    if not run.complete:
        raise RuntimeError(f"the engine did not go through: {run.failure}")
    return recording


def _used_s(postmaster_pid: int) -> Mapping[str, float]:
    return {STEAL: machine_cpu().steal_s, SERVER: server_cpu_s(postmaster_pid)}


def _loop_s() -> float:
    """CPU time, not time: whether it had to wait for a core is not asked."""
    begun_s, value = time.thread_time(), 0
    for turn in range(LOOP_TURNS):
        value ^= turn
    return time.thread_time() - begun_s
