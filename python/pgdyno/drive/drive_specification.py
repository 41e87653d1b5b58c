"""Specification of the engine's ``drive``, for one block of a study or for a single run.

See docs/reference/engine-protocol.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pgdyno.study.plan import Driving, Slice

CONNECT_TIMEOUT_S = 30.0
"""Of one client: to connect, to prepare, to measure its round trip. A few connect at a time, so that on a
busy machine each takes a fraction of a second; half a minute is a fault."""

DRAIN_TIMEOUT_S = 30.0
"""How long an in-flight transaction may take at the end of a slice. TPC-C's own limits are 5 to 80 s for
a share of 90 %; a transaction that hangs longer is cancelled and counted as failed."""

INTERVAL_S = 1.0


@dataclass(frozen=True)
class Pinning:
    """Which cores are whose in a duet: the two halves, and the postmaster's process of each target."""

    halves: Sequence[Sequence[int]]
    postmaster_pids: Sequence[int]


def drive_specification(
    driving: Driving,
    seed: int,
    slices: Sequence[Slice],
    targets: Sequence[tuple[str, str]],
    drivings: Sequence[Driving] | None = None,
    *,
    interval_s: float = INTERVAL_S,
    pinning: Pinning | None = None,
) -> dict[str, Any]:
    """``targets`` are (name, conninfo); the slices' ``arm`` is an index into them.

    ``drivings`` has one for each target, where they are not all driven as ``driving`` says; ``discard_s``
    is the whole run's. ``interval_s``: how often it tells what it has done. ``pinning``: of a duet.
    """
    drivings = [driving] * len(targets) if drivings is None else drivings
    if any(one.discard_s != driving.discard_s for one in drivings):
        raise ValueError("discard_s is the run's, the same for all its targets")
    common = _of_a_target(driving)
    if any(one.threads != driving.threads for one in drivings):
        # A target that leaves them to the engine cannot say so where the run names a number.
        common["threads"] = None
    return {
        "targets": [
            {"name": name, "conninfo": conninfo, **_different(_of_a_target(own), common), **server}
            for (name, conninfo), own, server in zip(
                targets, drivings, _servers(pinning, len(targets)), strict=True
            )
        ],
        **common,
        "io": "auto",
        "seed": seed,
        "slices": [_slice(piece) for piece in slices] if pinning is None else _pairs(slices, pinning),
        "discard_s": driving.discard_s,
        "interval_s": interval_s,
        "barriers": True,
        "connect_timeout_s": CONNECT_TIMEOUT_S,
        "drain_timeout_s": DRAIN_TIMEOUT_S,
    }


def _of_a_target(driving: Driving) -> dict[str, Any]:
    """What may differ between the targets of one run."""
    return {
        "workload": driving.workload.to_drive(),
        "clients": driving.clients,
        "threads": driving.threads,
        "pacing": driving.pacing,
        "rate": None if driving.rate is None else driving.rate.model_dump(),
        "retries_max": driving.retries_max,
    }


def _slice(piece: Slice) -> dict[str, Any]:
    bound = {} if piece.transactions is None else {"transactions": piece.transactions}
    return {"target": piece.arm, "role": piece.role, "duration_s": piece.duration_s, **bound}


def _servers(pinning: Pinning | None, targets: int) -> list[dict[str, int]]:
    if pinning is None:
        return [{} for _ in range(targets)]
    return [{"postmaster_pid": pid} for pid in pinning.postmaster_pids]


def _pairs(slices: Sequence[Slice], pinning: Pinning) -> list[dict[str, Any]]:
    """Those of a round are one slice of both targets."""
    found = []
    for (role, _), pair in itertools.groupby(slices, key=lambda piece: (piece.role, piece.round)):
        sides = [(piece.arm, piece.half, piece.duration_s) for piece in pair]
        cores = [list(pinning.halves[half]) for _, half, _ in sides if half is not None]
        driven = {"targets": [arm for arm, _, _ in sides], "cores": cores}
        found.append({**driven, "role": role, "duration_s": sides[0][2]})
    return found


def _different(own: dict[str, Any], common: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in own.items() if value != common[key]}
