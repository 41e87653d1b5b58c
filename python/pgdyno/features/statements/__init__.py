"""Scripts from the statements of a running database and from the transactions of its log."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    requires=("own_data", "statement_parameters"),
    commands={"workload": ("command", "Make scripts from the statements of a running database.")},
)
