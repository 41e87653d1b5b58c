"""Time and CPU of the program of ``run.beside``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from statistics import fmean

from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.comparison import ok_by_block
from pgdyno.analysis.statistics.intervals import method_of, summarize
from pgdyno.analysis.telemetry.counters import Row, numeric
from pgdyno.report.csv_format import TrialValues
from pgdyno.report.document import Section, Table
from pgdyno.report.result_tables import with_interval
from pgdyno.results.records import Trial
from pgdyno.units import ABSENT, Better, Estimate, counted, significant

COLUMNS = ("arm", "trials", "succeeded in the window", "time, s", "CPU, s", "change of time, s")


def _row(findings: Findings, trial: int) -> Row | None:
    """Return the facts of a trial; None without them."""
    of = findings.telemetry.by_trial.get(trial)
    rows: Sequence[Row] = of.after.get("beside", ()) if of else ()
    return rows[0] if rows else None


def _took_s(row: Row | None) -> float | None:
    """Return the time of a program that ended by itself, without an error."""
    return numeric(row, "took_s") if row is not None and row["status"] == 0 else None


def trial_values(findings: Findings, trial: Trial) -> Iterator[tuple[str, str, float]]:
    """Yield the time of a trial's program, if it ended by itself, and its CPU time."""
    row = _row(findings, trial.trial)
    if (took_s := _took_s(row)) is not None:
        yield "beside.time", "s", took_s
    if row is not None and (cpu_s := numeric(row, "cpu_s")) is not None:
        yield "beside.cpu", "s", cpu_s


VALUES = TrialValues(("beside.time", "beside.cpu"), trial_values)


def sections(findings: Findings) -> Iterator[Section]:
    """Yield a table of the arms, and the errors of the program."""
    plan, blocks = findings.study.plan, ok_by_block(findings.trials).values()
    lines, errors = [], []
    for arm in findings.arms:
        sides = [
            tuple(_row(findings, of[i].trial) if i in of else None for i in (0, arm.arm.arm)) for of in blocks
        ]
        rows = [row for _, row in sides if row is not None]
        if not rows:
            continue
        # Means of those that were fast enough to end would hide a change.
        is_whole = all(row["status"] is not None for side in sides for row in side if row is not None)
        took = [_took_s(row) for row in rows]
        cpu = [numeric(row, "cpu_s") for row in rows]
        pairs = [(_took_s(a), _took_s(b)) for a, b in sides] if arm.arm.arm else []
        d = [b - a for a, b in pairs if a is not None and b is not None] if is_whole else []
        change = _change(findings, d)
        n = sum(one is not None for one in took)
        lines.append(
            [arm.arm.name, str(len(rows)), str(n), _mean(took if is_whole else []), _mean(cpu), change]
        )
        if failed := [row for row in rows if row["status"]]:
            times, first = counted(len(failed), "trial"), failed[0]
            why = f"with status {first['status']}: {first['error'] or 'no error message'}"
            errors.append(f"The program failed in {times} of {arm.arm.name}, {why}")
    if lines:
        note = (
            "It started with each window. If it was still running at the end, it was ended, and there is no "
            "mean of the time: lengthen the window. CPU includes the launcher."
        )
        title = f"Program beside the clients: {shlex.join(plan.beside)}"
        table = Table(title, COLUMNS, lines, note, numeric=frozenset(COLUMNS[1:]))
        yield Section("beside", sentences=errors, tables=[table], after="results", is_alarm=bool(errors))


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return significant(fmean(known), 3) if known else ABSENT


def _change(findings: Findings, d: Sequence[float]) -> str:
    """Return the mean of the differences with its interval."""
    if not d:
        return ABSENT
    plan = findings.study.plan
    of = summarize(d, plan.confidence, method_of(plan, findings.trials))
    change = Estimate(of.mean, "s", of.n, Better.LESS, of.low, of.high, of.confidence)
    return with_interval(change, plan.confidence)
