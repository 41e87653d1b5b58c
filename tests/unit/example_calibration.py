"""A calibration as stored in the noise history."""

from __future__ import annotations

from typing import Any

from pgdyno.lab.noise_history import machine_of

HOST = {
    "machine": "a1b2",
    "processor": "EPYC",
    "cores": 2,
    "memory_bytes": 8 << 30,
    "kernel": "Linux 6.1.0",
    "architecture": "x86_64",
    "load_average": [0.1, 0.2, 0.3],
}


def calibration(at: float, merits: dict[float, float], host: dict[str, Any] = HOST) -> dict[str, Any]:
    rows = [{"schedule": "slices", "slice_s": s, "sd_root_min": merit} for s, merit in merits.items()]
    best = min(merits, key=lambda s: merits[s])
    return {
        "kind": "calibration",
        "id": f"calibration {at}",
        "at_unix_s": at,
        "machine": machine_of(host),
        "server": "18.4",
        "workload": "pgbench",
        "clients": 2,
        "results": rows,
        "best": {"slices": best},
    }
