"""Names of the probes (docs/reference/telemetry.md), and codes for missing values."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

ProbeName = Literal[
    "blocks",
    "checkpoints",
    "database",
    "hardware",
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
"""All probes except expensive ones. statements requires a preloaded library, which slows every statement
slightly; pgstattuple reads whole tables; profile requires perf and the permission to use it; hardware slows
every context switch of the server."""


class Absence(StrEnum):
    """Code of the reason for which a probe has no values. The reason itself is text."""

    VERSION = "version"
    """This PostgreSQL version does not have them."""
    SHARED_SERVER = "shared-server"
    """The server counts the work of several arms together."""
    RESET = "reset"
    """The statistics were reset during the measurement."""
    OTHER = "other"
