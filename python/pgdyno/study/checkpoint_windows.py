"""Windows of complete checkpoint cycles: a multiple of checkpoint_timeout, from a checkpoint on.

A window begins right after a checkpoint that is ordered then, for every arm alike, and is so long that so
many more begin in it by time; what max_wal_size asks for comes on top. As the pages that the warm-up changed
are written by the ordered one, the first cycle has nothing to write back: two cycles show it once.
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
"""PostgreSQL's default."""

SLACK_S = 3.0
"""The checkpointer looks at its clock once a second, and the last checkpoint is to be seen to begin."""

ROUNDS_MAX = 10_000


def timeout_s(text: str) -> float | None:
    """As the setting is written; a bare number is in seconds. None of what cannot be read."""
    try:
        return parse_duration_s(text.strip().strip("'"))
    except UsageError:
        return None


def likely_timeout_s(arms: Iterable[ArmSpec]) -> float:
    """The longest by the arms' own settings, as far as they say; profiles and running servers may differ."""
    given = (
        timeout_s(arm.settings[CHECKPOINT_TIMEOUT]) for arm in arms if CHECKPOINT_TIMEOUT in arm.settings
    )
    known = [seconds for seconds in given if seconds]
    return max(known, default=TIMEOUT_S)


def rounds_for(checkpoints: int, longest_timeout_s: float) -> tuple[int, float]:
    """Rounds and the seconds of each that make a window of so many cycles."""
    window_s = checkpoints * longest_timeout_s + SLACK_S
    unit_s = float(max(1, math.ceil(window_s / ROUNDS_MAX)))
    return max(2, math.ceil(window_s / unit_s)), unit_s


def with_window(study: Study, timeouts_s: Iterable[float | None]) -> Study:
    """The study with the window that its checkpoints take on servers with these timeouts."""
    known = [seconds for seconds in timeouts_s if seconds]
    if study.checkpoints is None or not known:
        return study
    rounds, unit_s = rounds_for(study.checkpoints, max(known))
    return study.model_copy(update={"rounds": rounds, "slice_s": unit_s})
