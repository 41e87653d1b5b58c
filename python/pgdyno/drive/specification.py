"""The specification of ``drive`` (docs/engine.md), for one block of a study or for a single run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pgdyno.study.plan import Driving, Slice

CONNECT_TIMEOUT_S = 60.0
"""2000 connections of a server that forks for each, on a busy machine, are seconds; a minute is a fault."""

DRAIN_TIMEOUT_S = 30.0
"""How long an in-flight transaction may take at the end of a slice. TPC-C's own limits are 5 to 80 s for
a share of 90 %; a transaction that hangs longer is cancelled and counted as failed."""

INTERVAL_S = 1.0


def drive_specification(
    driving: Driving, seed: int, slices: Sequence[Slice], targets: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    """``targets`` are (name, conninfo); the slices' ``arm`` is an index into them."""
    return {
        "targets": [{"name": name, "conninfo": conninfo} for name, conninfo in targets],
        "workload": driving.workload.to_drive(),
        "clients": driving.clients,
        "threads": driving.threads,
        "io": "auto",
        "seed": seed,
        "pacing": driving.pacing,
        "rate": None if driving.rate is None else driving.rate.model_dump(),
        "retries_max": driving.retries_max,
        "slices": [{"target": s.arm, "role": s.role, "duration_s": s.duration_s} for s in slices],
        "discard_s": driving.discard_s,
        "interval_s": INTERVAL_S,
        "barriers": True,
        "connect_timeout_s": CONNECT_TIMEOUT_S,
        "drain_timeout_s": DRAIN_TIMEOUT_S,
    }
