"""The command ``cache``: list and prune the cache of servers and datasets."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__, commands={"cache": ("command", "List and prune the cache of servers and datasets.")}
)
