"""When interim analyses take place, which may stop a study (docs/explanation/stopping.md).

``analysis/statistics/sequential.py`` has the intervals that stay valid under this rule, and
``analysis/comparison/interim_analysis.py`` computes the verdicts.
"""

from __future__ import annotations

from pgdyno.study.schedule import Schedule

VERDICT_BLOCKS_MIN = 5
"""Minimum number of blocks for a verdict, an interim analysis, and an interval in a report: the SD of fewer
blocks is too uncertain."""


def has_interim_analyses(schedule: Schedule, blocks_max: int | None) -> bool:
    """Return whether a study can be analyzed before its last block.

    A sequential study has complete blocks only at its end. A study of at most VERDICT_BLOCKS_MIN blocks
    has a single analysis.
    """
    return schedule is not Schedule.SEQUENTIAL and (blocks_max is None or blocks_max > VERDICT_BLOCKS_MIN)
