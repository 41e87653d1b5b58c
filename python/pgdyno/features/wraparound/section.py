"""Charts of a high age of datfrozenxid, and of the autovacuum workers that reduce it, in HTML.

The tables of telemetry have the age at the end of a window, and its growth per hour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.queries import SeriesResult
from pgdyno.analysis.telemetry.samples import POINTS_MAX, SERVER, ThroughputPoint
from pgdyno.report.document import Section
from pgdyno.report.plot import Panel
from pgdyno.report.why_section import WINDOW_S_MIN, panels, shown_blocks
from pgdyno.results.records import SampleSeries
from pgdyno.study.schedule import Role

AGE, WORKERS = "frozen_xid_age", "autovacuum_workers"

AGE_MIN = 1_000_000
"""Minimum age with charts, in transactions. By default autovacuum is forced at 200 million."""


@dataclass(frozen=True)
class Ages:
    """Means of consecutive samples of a trial: age of datfrozenxid in transactions, number of workers."""

    age: Sequence[ThroughputPoint]
    workers: Sequence[ThroughputPoint]


def ages_of(
    series: Mapping[str, SampleSeries], _: Mapping[str, str], __: int, ___: Sequence[SampleSeries]
) -> Ages:
    """Return at most POINTS_MAX means of each; none of a window shorter than WINDOW_S_MIN."""
    of = series.get(SERVER)
    if of is None or not len(of.points) or of.points[-1, 0] - of.points[0, 0] < WINDOW_S_MIN:
        return Ages((), ())
    return Ages(_means(of, AGE), _means(of, WORKERS))


AGES = SeriesResult("wraparound", ages_of)


def _means(of: SampleSeries, column: str) -> list[ThroughputPoint]:
    step = -(-len(of.points) // POINTS_MAX)
    starts = np.arange(0, len(of.points), step)
    n = np.diff(np.append(starts, len(of.points)))
    at_s, values = (np.add.reduceat(sums, starts) / n for sums in (of.points[:, 0], of.column(column)))
    return [
        ThroughputPoint(at, mean, Role.MEASURE)
        for at, mean in zip(at_s.tolist(), values.tolist(), strict=True)
        if np.isfinite(mean)
    ]


def sections(findings: Findings) -> Iterator[Section]:
    """Yield the charts of a case with long windows whose age reaches AGE_MIN."""
    every = findings.telemetry.of_series[AGES.name].values()
    if max((point.per_s for of in every for point in of.age), default=0.0) < AGE_MIN:
        return
    yield Section(
        "wraparound",
        "Age of the oldest transaction ID, and autovacuum workers, over time",
        plots=lambda: _panels(findings),
        plots_size="small",
        legend=[of.arm.name for of in findings.arms],
        plots_note="Age of datfrozenxid in transactions, and number of autovacuum workers of the server, "
        f"sampled every second. Only a VACUUM that freezes the oldest rows reduces the age. "
        f"{shown_blocks(findings)}".strip(),
        after="wal",
        is_long=True,
    )


def _panels(findings: Findings) -> list[Panel]:
    """Return the panels of the ages, one per block, and those of the workers, if any ran."""
    every, counted = findings.telemetry.of_series[AGES.name], findings.telemetry.by_trial
    found = {trial: of for trial, of in every.items() if trial in counted}
    ages = {trial: of.age for trial, of in found.items()}
    workers = {trial: of.workers for trial, of in found.items()}
    return [
        replace(panel, title=f"{panel.title}, {name}")
        for name, of, unit in (("age", ages, "xids"), ("autovacuum", workers, "workers"))
        for panel in panels(findings, of, unit, {}, {})
    ]
