"""Scripts from the statements of a running database: parse, find the columns of parameters, draw values."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    requires=("own_data",),
    commands={
        "workload": ("command", "Make scripts from the statements of a running database."),
    },
)
