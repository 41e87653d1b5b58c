"""Names of the probes (docs/reference/telemetry.md), those of a command, and codes for missing values."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, get_args

from pgdyno.errors import UsageError

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


ALL_BY_DEFAULT = "default"
"""Value of ``--probe`` that stands for the default probes, so that others can be added."""


def requested_probes(names: Sequence[str] | None, *, profile: bool = False) -> Sequence[str]:
    """Return the probes of ``names``, plus "profile" if asked. Raises UsageError for an unknown name."""
    if profile:
        return tuple(dict.fromkeys((*requested_probes(names), "profile")))
    known = get_args(ProbeName)
    if not names:
        return DEFAULT_PROBES
    for name in names:
        if name not in (*known, ALL_BY_DEFAULT) and list(names) != ["none"]:
            raise UsageError(
                f"--probe must be one of {', '.join(known)}, {ALL_BY_DEFAULT}, or none alone (got {name!r})"
            )
    if list(names) == ["none"]:
        return ()
    each = (DEFAULT_PROBES if name == ALL_BY_DEFAULT else (name,) for name in names)
    return tuple(dict.fromkeys(probe for of in each for probe in of))


class Absence(StrEnum):
    """Code of the reason for which a probe has no values. The reason itself is text."""

    VERSION = "version"
    """This PostgreSQL version does not have them."""
    SHARED_SERVER = "shared-server"
    """The server counts the work of several arms together."""
    RESET = "reset"
    """The statistics were reset during the measurement."""
    OTHER = "other"
