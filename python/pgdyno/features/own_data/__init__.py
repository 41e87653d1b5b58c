"""Data of the user: databases, dumps, backups, and scripts that draw from their columns."""

from __future__ import annotations

from pgdyno.feature import Feature


def feature() -> Feature:
    """Return the hooks."""
    from pgdyno.features.own_data import source
    from pgdyno.server.cache_directory import Leftovers

    return Feature("own_data", leftovers=(Leftovers("data", source.unfinished, source.sweep),))
