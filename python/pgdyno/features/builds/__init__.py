"""Builds from source, and extensions built into a private copy of a server."""

from __future__ import annotations

from pgdyno.feature import Feature


def feature() -> Feature:
    """Return the hooks."""
    from pgdyno.features.builds import source
    from pgdyno.features.builds.extensions import MadeServers
    from pgdyno.server.cache_directory import Leftovers

    leftovers = Leftovers("builds", source.unfinished, source.sweep)
    return Feature("builds", servers=(MadeServers,), leftovers=(leftovers,))
