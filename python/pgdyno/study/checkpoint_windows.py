"""Windows of complete checkpoint cycles: a multiple of checkpoint_timeout, starting after a checkpoint.

A window starts right after a forced checkpoint, for every arm. It is long enough for the given number of
timed checkpoints; checkpoints requested by max_wal_size come on top. The forced checkpoint writes the pages
dirtied by the warm-up, so the first cycle has nothing to write back: two cycles show the write-back once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from pgdyno.errors import UsageError
from pgdyno.study.arm_spec import ArmSpec
from pgdyno.study.plan import Study
from pgdyno.units import parse_duration_s

CHECKPOINT_TIMEOUT = "checkpoint_timeout"

TIMEOUT_S = 300.0
"""PostgreSQL's default of checkpoint_timeout."""

SLACK_S = 3.0
"""Extra time of a window: the checkpointer checks the time once a second, and the start of the last
checkpoint must be observed."""

ROUNDS_MAX = 10_000


def timeout_s(text: str) -> float | None:
    """Parse the setting; a number without a unit is in seconds. Return None if it is invalid."""
    try:
        return parse_duration_s(text.strip().strip("'"))
    except UsageError:
        return None


def likely_timeout_s(arms: Iterable[ArmSpec]) -> float:
    """Return the longest checkpoint_timeout in the settings of the arms, else the default.

    Profiles and running servers may differ.
    """
    given = (
        timeout_s(arm.known_settings[CHECKPOINT_TIMEOUT])
        for arm in arms
        if CHECKPOINT_TIMEOUT in arm.known_settings
    )
    known = [seconds for seconds in given if seconds]
    return max(known, default=TIMEOUT_S)


def rounds_for(checkpoints: int, longest_timeout_s: float) -> tuple[int, float]:
    """Return the number of rounds, and their length in seconds, of a window of ``checkpoints`` cycles."""
    window_s = checkpoints * longest_timeout_s + SLACK_S
    unit_s = float(max(1, math.ceil(window_s / ROUNDS_MAX)))
    return max(2, math.ceil(window_s / unit_s)), unit_s


def with_window(study: Study, timeouts_s: Iterable[float | None]) -> Study:
    """Return the study with the window of its checkpoint cycles for servers with these timeouts."""
    known = [seconds for seconds in timeouts_s if seconds]
    if study.checkpoints is None or not known:
        return study
    rounds, unit_s = rounds_for(study.checkpoints, max(known))
    return study.model_copy(update={"rounds": rounds, "slice_s": unit_s})
