"""Defaults of options in a file of the user, and the command that shows them."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    commands={"config": ("command", "Show the defaults of options, and those that your file changes.")},
    defaults=("defaults:defaults_of",),
    examinations=("defaults:record_defaults",),
    caveats=("caveats.toml",),
)
