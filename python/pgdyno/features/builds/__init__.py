"""Builds from source, and extensions built into a private copy of a server."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    servers=("extensions:MadeServers",),
    leftovers=("source:LEFTOVERS",),
    prepare=("changes:PREPARATION", "jit:PREPARATION"),
    sections=("changes:sections",),
)
