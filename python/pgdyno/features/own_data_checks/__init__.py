"""Data of the user in a study: tests before the first block, and invariants after each trial."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    requires=("dumps", "own_data"),
    prepare=("preflight:PREPARATION",),
    trial_checks=("preflight:check_after_trial",),
    caveats=("caveats.toml",),
)
