"""Names of the probes (docs/reference/telemetry.md)."""

from __future__ import annotations

from typing import Literal

ProbeName = Literal[
    "blocks",
    "checkpoints",
    "database",
    "host",
    "io",
    "locks",
    "pgstattuple",
    "profile",
    "relations",
    "replication",
    "statements",
    "waits",
    "wal",
    "wraparound",
]

DEFAULT_PROBES: tuple[ProbeName, ...] = (
    "blocks",
    "checkpoints",
    "database",
    "host",
    "io",
    "locks",
    "relations",
    "replication",
    "waits",
    "wal",
    "wraparound",
)
"""All but those that cost: statements must be loaded by the server, and slows every statement down a little;
pgstattuple reads whole tables; profile needs perf, and the right to use it."""
