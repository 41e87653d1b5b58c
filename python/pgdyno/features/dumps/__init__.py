"""Dumps of databases: the changes of their text, and facts that a copy shares with its origin."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(__name__)
