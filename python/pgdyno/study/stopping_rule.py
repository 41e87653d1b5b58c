"""When interim analyses take place, which may stop a study (docs/explanation/stopping.md).

``analysis/statistics/sequential.py`` has the intervals that stay valid under this rule, and
``analysis/comparison/interim_analysis.py`` computes the verdicts.
"""

from __future__ import annotations

from pgdyno.study.schedule import Schedule

VERDICT_BLOCKS_MIN = 5
"""Minimum number of blocks for a verdict, an interim analysis, and the intervals of metrics other than that
of the verdict: with fewer blocks they are too wide to decide anything."""

INTERVAL_BLOCKS_MIN = 2
"""Minimum number of blocks for an interval of the effect: one block has no SD.

A study whose budget ends before its first interim analysis has a single analysis, so Student's interval
holds. Its quantile allows for the uncertain SD. With the noise of ``bench/noise.py``, the 95% interval of 2,
3 and 4 blocks covers in 93.5 to 96.4% of studies (recorded noise: 94.7, 95.5, 92.1%), not less than with 5
blocks (92.6 to 96.1%; 90.7%)."""


def has_interim_analyses(schedule: Schedule, blocks_max: int | None) -> bool:
    """Return whether a study can be analyzed before its last block.

    A sequential study has complete blocks only at its end. A study of at most VERDICT_BLOCKS_MIN blocks
    has a single analysis.
    """
    return schedule is not Schedule.SEQUENTIAL and (blocks_max is None or blocks_max > VERDICT_BLOCKS_MIN)
