"""When interim analyses take place, which may stop a study (docs/explanation/stopping.md).

``analysis/statistics/sequential.py`` has the intervals that stay valid under this rule, and
``analysis/comparison/interim_analysis.py`` computes the verdicts.
"""

from __future__ import annotations

from pgdyno.study.schedule import Schedule

FIRST_INTERIM_ANALYSIS = 5
"""Number of blocks at the first interim analysis. The SD of fewer blocks is too uncertain for a verdict."""


def has_interim_analyses(schedule: Schedule, blocks_max: int | None) -> bool:
    """Return whether a study can be analyzed before its last block.

    A sequential study has complete blocks only at its end. A study of at most FIRST_INTERIM_ANALYSIS blocks
    has a single analysis.
    """
    return schedule is not Schedule.SEQUENTIAL and (blocks_max is None or blocks_max > FIRST_INTERIM_ANALYSIS)
