"""Builds from source, and extensions built into a private copy of a server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pgdyno.feature import Feature

if TYPE_CHECKING:
    from pgdyno.server.build_store import OpenSource
    from pgdyno.server.cache_directory import Leftovers


def _servers() -> Iterable[OpenSource]:
    from pgdyno.features.builds.extensions import MadeServers

    yield MadeServers


def _leftovers() -> Iterable[Leftovers]:
    from pgdyno.features.builds import source
    from pgdyno.server.cache_directory import Leftovers

    yield Leftovers("builds", source.unfinished, source.sweep)


FEATURE = Feature("builds", servers=_servers, leftovers=_leftovers)
