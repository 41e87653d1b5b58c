"""A successful trial without data, for tests that set only what they need."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pgdyno.results.records import Trial, TrialStatus

_UNKNOWN = Trial(
    trial=1,
    block=0,
    arm=0,
    attempt=1,
    status=TrialStatus.OK,
    started_unix_s=0.0,
    ended_unix_s=None,
    slices=[],
)


def ok_trial(**known: Any) -> Trial:
    """Return the trial with these fields set."""
    return replace(_UNKNOWN, **known)
