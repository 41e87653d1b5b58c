"""The command ``servers``: installed and downloadable PostgreSQL servers."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__, commands={"servers": ("command", "List installed and downloadable PostgreSQL servers.")}
)
