"""Data that an older server loaded, or that transactions aged."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(__name__, requires=("own_data", "own_data_checks"), data=("aging:DATA",))
