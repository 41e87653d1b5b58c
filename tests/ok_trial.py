"""A successful trial without data, for tests that set only what they need."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pgdyno.results.records import DriverFacts, Trial, TrialStatus

_UNKNOWN = Trial(
    trial=1,
    block=0,
    arm=0,
    attempt=1,
    status=TrialStatus.OK,
    reason="",
    log_error="",
    started_unix_s=0.0,
    ended_unix_s=None,
    epoch_unix_s=None,
    restore_s=None,
    start_s=None,
    server_cpu_s=None,
    transactions=None,
    counters={},
    driver_memory_bytes=None,
    driver=DriverFacts(),
    settings={},
    slices=[],
    failures=[],
    checks=[],
)


def ok_trial(**known: Any) -> Trial:
    """Return the trial with these fields set."""
    return replace(_UNKNOWN, **known)
