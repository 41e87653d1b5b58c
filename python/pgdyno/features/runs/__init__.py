"""Single runs without a comparison: load, check, drive, pgbench."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    requires=("running_server",),
    commands={
        "load": ("command", "Load the data of a workload into a database."),
        "drive": ("command", "Run a workload once against a loaded database."),
        "check": ("command", "Check the consistency of the data of a workload."),
        "pgbench": ("command", "Run pgbench benchmarks with the pgdyno engine."),
    },
)
