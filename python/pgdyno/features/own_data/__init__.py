"""Data of the user: databases, dumps, backups, and scripts that draw from their columns."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    commands={
        "data": ("command", "Name, list and remove data of your own for --data."),
    },
    parameters=("plan:OwnDataParameters",),
    workload_options=("options:OwnDataOptions",),
    options=("options:OtherData",),
    leftovers=("source:LEFTOVERS",),
    data=("loading:DATA",),
    prepare=("preflight:PREPARATION",),
    trial_checks=("preflight:check_after_trial",),
    caveats=("caveats.toml",),
)
