"""The time of each statement in each wait event, from the samples that have the ID of a statement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Annotated

from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.finding_fields import about
from pgdyno.analysis.telemetry.samples import RUNNING
from pgdyno.analysis.telemetry.trial_telemetry import resource_of
from pgdyno.analysis.time_breakdown import EXECUTING, counted_s
from pgdyno.report.document import Section, Table, tables_section
from pgdyno.report.json_format import Result
from pgdyno.report.telemetry_tables import shortened
from pgdyno.report.why_section import NAMES
from pgdyno.units import US_PER_S, significant

EVENTS_MAX, STATEMENTS_MAX = 8, 3
"""Maximum number of rows: wait events, and statements of each. The JSON has all."""

SHARE_MIN = 0.01
"""Minimum time of a row, as a share of that of all rows of its arm."""

TITLE = "Wait events by statement"


@dataclass(frozen=True)
class StatementWait:
    """A statement in a wait event, or running without one."""

    event: str
    statement: str
    us: Annotated[
        Mapping[int, float], about("Mean time in µs per transaction by the index of the arm, from samples.")
    ]


def statement_waits(findings: Findings) -> list[StatementWait]:
    """Return the times, the largest first; empty before PostgreSQL 14, and without IDs of statements."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    every = findings.telemetry.by_trial
    for of in findings.arms:
        trials = [trial for trial in findings.trials if trial.arm == of.arm.arm and trial.trial in every]
        by_trial = [
            {
                key: US_PER_S * counted_s(trial) / trial.counts.executed * backends
                for key, backends in every[trial.trial].statement_waits.items()
            }
            for trial in trials
            if every[trial.trial].time.wait_samples and trial.counts.executed
        ]
        for key in {key for times in by_trial for key in times}:
            found.setdefault(key, {})[of.arm.arm] = fmean(times.get(key, 0.0) for times in by_trial)
    waits = [StatementWait(event, text, us) for (text, event), us in found.items()]
    return sorted(waits, key=lambda one: (-max(one.us.values()), one.event, one.statement))


def sections(findings: Findings) -> Iterator[Section]:
    """Yield the table of a case."""
    yield replace(tables_section("statement-waits", [table(findings)]), after="breakdowns")


def table(findings: Findings) -> Table:
    """Return a row for each wait event and statement, and a column for each arm."""
    arms = [of.arm for of in findings.arms]
    heads = [f"{arm.name}, µs/tx" for arm in arms]
    rows = []
    for event, waits in shown(statement_waits(findings)).items():
        for n, one in enumerate(waits):
            cells = [significant(one.us.get(arm.arm, 0.0), 3) for arm in arms]
            rows.append([_label(event) if n == 0 else "", shortened(one.statement), *cells])
    return Table(
        TITLE,
        ("wait event", "statement", *heads),
        rows,
        "Mean time per transaction, from samples: a description without intervals. The breakdown by resource "
        "differs where the server times its I/O.",
        frozenset(heads),
        long=True,
    )


def shown(waits: Sequence[StatementWait]) -> dict[str, list[StatementWait]]:
    """Return the largest wait events, each with its largest statements."""
    whole: dict[int, float] = defaultdict(float)
    for one in waits:
        for arm, us in one.us.items():
            whole[arm] += us
    found: dict[str, list[StatementWait]] = {}
    for one in waits:
        if any(us >= SHARE_MIN * whole[arm] for arm, us in one.us.items()):
            found.setdefault(one.event, []).append(one)
    return {event: of[:STATEMENTS_MAX] for event, of in list(found.items())[:EVENTS_MAX]}


def _label(event: str) -> str:
    return NAMES[EXECUTING] if event == RUNNING else f"{NAMES[resource_of(event)]}: {event}"


RESULT = Result(
    "statement_waits",
    dict[str, list[StatementWait]],
    "Times of the statements in each wait event by case, the largest first.",
    lambda of: {case.study.case: statement_waits(case) for case in of.cases},
)
