"""Specification of the engine's ``drive`` command, for a block of a study or a single run.

See docs/reference/engine-protocol.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pgdyno.study.plan import Driving
from pgdyno.study.schedule import PlannedSlice

CONNECT_TIMEOUT_S = 30.0
"""Maximum time of one client to connect, prepare and measure its round trip. Few clients connect at a time,
so on a busy machine each takes a fraction of a second; 30 s indicate a fault."""

DRAIN_TIMEOUT_S = 30.0
"""Maximum time of an in-flight transaction at the end of a slice. TPC-C's own limits are 5 to 80 s for 90% of
transactions. Transactions that take longer are canceled and counted as failed."""

INTERVAL_S = 1.0


@dataclass(frozen=True)
class Pinning:
    """CPU pinning of a duet: both CPU partitions, and the process ID of each target's postmaster."""

    cpu_partitions: Sequence[Sequence[int]]
    postmaster_pids: Sequence[int]


def drive_specification(
    driving: Driving,
    seed: int,
    slices: Sequence[PlannedSlice],
    targets: Sequence[tuple[str, str]],
    drivings: Sequence[Driving] | None = None,
    *,
    interval_s: float = INTERVAL_S,
    pinning: Pinning | None = None,
) -> dict[str, Any]:
    """Return the specification of a run.

    ``targets`` are (name, conninfo); ``arm`` of a slice is an index into them. ``drivings`` has one entry per
    target if they differ. ``discard_s`` is common to the run. ``interval_s`` is the interval of the engine's
    reports. ``pinning`` is set for a duet. Raises ValueError if the targets differ in ``discard_s``.
    """
    drivings = [driving] * len(targets) if drivings is None else drivings
    if any(one.discard_s != driving.discard_s for one in drivings):
        raise ValueError("discard_s must be the same for all targets of a run")
    common = _target_keys(driving)
    if any(one.threads != driving.threads for one in drivings):
        # A target cannot select the engine's default while the run specifies a number.
        common["threads"] = None
    return {
        "targets": [
            {"name": name, "conninfo": conninfo, **_overrides(_target_keys(own), common), **server}
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


def _target_keys(driving: Driving) -> dict[str, Any]:
    """Return the keys that may differ between the targets of a run."""
    return {
        "workload": driving.workload.to_drive(),
        "clients": driving.clients,
        "threads": driving.threads,
        "pacing": driving.pacing,
        "rate": None if driving.rate is None else driving.rate.model_dump(),
        "retries_max": driving.retries_max,
    }


def _slice(piece: PlannedSlice) -> dict[str, Any]:
    bound = {} if piece.transactions is None else {"transactions": piece.transactions}
    return {"target": piece.arm, "role": piece.role, "duration_s": piece.duration_s, **bound}


def _servers(pinning: Pinning | None, targets: int) -> list[dict[str, int]]:
    if pinning is None:
        return [{} for _ in range(targets)]
    return [{"postmaster_pid": pid} for pid in pinning.postmaster_pids]


def _pairs(slices: Sequence[PlannedSlice], pinning: Pinning) -> list[dict[str, Any]]:
    """Return the slices of a duet: the two slices of each round become one of both targets."""
    found = []
    for (role, _), pair in itertools.groupby(slices, key=lambda piece: (piece.role, piece.round)):
        sides = [(piece.arm, piece.cpu_partition, piece.duration_s) for piece in pair]
        cores = [list(pinning.cpu_partitions[side]) for _, side, _ in sides if side is not None]
        driven = {"targets": [arm for arm, _, _ in sides], "cores": cores}
        found.append({**driven, "role": role, "duration_s": sides[0][2]})
    return found


def _overrides(own: dict[str, Any], common: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in own.items() if value != common[key]}
