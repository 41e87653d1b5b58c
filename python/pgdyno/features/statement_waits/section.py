"""The time of each statement in each wait event, from the samples that have the ID of a statement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from pgdyno.units import ABSENT, US_PER_S, significant

EVENTS_MAX, STATEMENTS_MAX = 8, 3
"""Maximum number of rows: wait events, and statements of each besides OTHERS. The JSON has all."""

SHARE_MIN = 0.01
"""Minimum time of a row, as a share of that of all samples of its arm."""

TITLE, OTHERS = "Wait events by statement", "others, or without an ID"


@dataclass(frozen=True)
class StatementWait:
    """A statement in a wait event, or running without one."""

    event: str
    statement: Annotated[str | None, about("Null: samples without the ID of a known statement.")]
    us: Annotated[
        Mapping[int, float], about("Mean time in µs per transaction by the index of the arm, from samples.")
    ]


def statement_waits(findings: Findings) -> list[StatementWait]:
    """Return the times, the largest first. An arm or a trial without known statements has none."""
    found: dict[tuple[str | None, str], dict[int, float]] = {}
    for of in findings.arms:
        by_trial = [
            {
                key: US_PER_S * counted_s(trial) / trial.counts.executed * backends
                for key, backends in telemetry.statement_waits.items()
            }
            for trial in findings.trials
            if trial.arm == of.arm.arm and trial.counts.executed
            for telemetry in [findings.telemetry.by_trial.get(trial.trial)]
            if telemetry is not None and any(text for text, _ in telemetry.statement_waits)
        ]
        for key in {key for times in by_trial for key in times}:
            found.setdefault(key, {})[of.arm.arm] = fmean(times.get(key, 0.0) for times in by_trial)
    waits = [StatementWait(event, text, us) for (text, event), us in found.items()]
    return sorted(waits, key=lambda one: (-max(one.us.values()), one.event, one.statement or ""))


def sections(findings: Findings) -> Iterator[Section]:
    """Yield the table of a case."""
    yield replace(tables_section("statement-waits", [table(findings)]), after="breakdowns")


def table(findings: Findings) -> Table:
    """Return a row for each wait event and statement, and a column for each arm."""
    waits = statement_waits(findings)
    sampled = {arm for one in waits for arm in one.us}
    heads = [f"{of.arm.name}, µs/tx" for of in findings.arms]
    rows = []
    for event, of_event in shown(waits).items():
        for n, one in enumerate(of_event):
            times = [
                significant(one.us.get(of.arm.arm, 0.0), 3) if of.arm.arm in sampled else ABSENT
                for of in findings.arms
            ]
            text = OTHERS if one.statement is None else shortened(one.statement)
            rows.append([_label(event) if n == 0 else "", text, *times])
    return Table(
        TITLE,
        ("wait event", "statement", *heads),
        rows,
        "Mean time per transaction from samples, without intervals. Unlike the time by resource, it excludes "
        "waits for parallel workers, and is not scaled to the clocks of the kernel and the server.",
        frozenset(heads),
        long=True,
    )


def shown(waits: Sequence[StatementWait]) -> dict[str, list[StatementWait]]:
    """Return the largest wait events, each with its largest statements and the sum of the others."""
    whole, events = _sum(waits), defaultdict[str, list[StatementWait]](list)
    for one in waits:
        events[one.event].append(one)

    def is_large(us: Mapping[int, float]) -> bool:
        return any(time >= SHARE_MIN * whole[arm] for arm, time in us.items() if time)

    found = {}
    for event in sorted(events, key=lambda event: -max(_sum(events[event]).values()))[:EVENTS_MAX]:
        named = [one for one in events[event] if one.statement is not None and is_large(one.us)]
        named = named[:STATEMENTS_MAX]
        others = StatementWait(event, None, _sum(one for one in events[event] if one not in named))
        found[event] = [*named, *([others] if is_large(others.us) else [])]
    return {event: of for event, of in found.items() if of}


def _sum(waits: Iterable[StatementWait]) -> dict[int, float]:
    found: dict[int, float] = defaultdict(float)
    for one in waits:
        for arm, us in one.us.items():
            found[arm] += us
    return found


def _label(event: str) -> str:
    return NAMES[EXECUTING] if event == RUNNING else f"{NAMES[resource_of(event)]}: {event}"


RESULT = Result(
    "statement_waits",
    dict[str, list[StatementWait]],
    "Times of the statements in each wait event by case, the largest first.",
    lambda of: {case.study.case: statement_waits(case) for case in of.cases},
)
