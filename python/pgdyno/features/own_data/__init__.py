"""Data of the user: databases, dumps, backups and scripts, under names and as datasets."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    requires=("dumps",),
    commands={"data": ("command", "Name, list and remove data of your own for --data.")},
    parameters=("plan:OwnDataParameters",),
    workload_options=("options:OwnDataOptions",),
    options=("options:OtherData",),
    leftovers=("source:LEFTOVERS",),
    data=("loading:DATA",),
)
