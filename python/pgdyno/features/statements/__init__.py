"""Scripts from the statements of a running database: parse, find the columns of parameters, draw values."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature("statements", requires=("own_data",))
