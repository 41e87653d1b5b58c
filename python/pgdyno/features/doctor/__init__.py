"""Sources of measurement noise on this machine: the command doctor, and examinations around a study."""

from __future__ import annotations

from pgdyno.feature import Feature

FEATURE = Feature(
    __name__,
    commands={"doctor": ("command", "Find sources of measurement noise on this machine, with remedies.")},
    examinations=("checks:examine",),
    caveats=("caveats.toml",),
)
