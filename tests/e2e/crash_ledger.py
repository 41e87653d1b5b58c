"""Guarantees of a results file: digests of everything that is finished, and consistent counts."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from pgdyno.errors import EvidenceError
from pgdyno.results.reader import Evidence

Digests = Mapping[tuple[str, ...], str]
"""Finished rows by table and key, with a digest of all their bytes."""

INCONSISTENT = {
    "attempts of a trial are not numbered 1, 2, …": """
        select case_id, block, arm from trial group by 1, 2, 3 having max(attempt) <> count(*)""",
    "a finished block lacks a finished trial of an arm": """
        select b.case_id, b.block, a.arm from block b join arm a using (case_id)
        where b.status = 'done' and not exists (select 1 from trial t
            where t.case_id = b.case_id and t.block = b.block and t.arm = a.arm
            and t.status in ('ok', 'excluded'))""",
    "blocks of a case are not numbered 0, 1, …": """
        select case_id from block join study_case using (case_id) where aa_of is null
        group by 1 having max(block) + 1 <> count(*)""",
    "a trial that is ok has no measured slice": """
        select trial from trial where status = 'ok'
        and trial not in (select trial from slice where role = 'measure')""",
    "a slice has no counts": """
        select trial, position from slice left join slice_count using (trial, position) where kind is null""",
    "the intervals of a trial that is ok do not add up to its transactions": """
        select t.trial, t.transactions, sum(c.ok + c.rolled_back + c.failed) n
        from trial t join interval i using (trial) join interval_count c using (trial, from_s)
        where t.status = 'ok' and i.role = 'measure' group by t.trial having n <> t.transactions""",
    # The count has what ends in the counted part of a slice, the histogram what starts in it. So each client
    # of a closed loop may have one more in the histogram per slice: its last one, if it had none in flight at
    # the start of the counted part (crates/driver/src/tests/clients.rs).
    "the histograms of a trial that is ok do not hold its counted transactions": """
        select t.trial, t.timed, t.counted, t.slices, a.clients
        from (select trial, case_id, arm,
                (select coalesce(sum(n), 0) from histogram h
                    where h.trial = t.trial and measure = 'latency') timed,
                (select sum(ok) from slice_count c join slice s using (trial, position)
                    where c.trial = t.trial and s.role = 'measure') counted,
                (select count(*) from slice s where s.trial = t.trial and s.role = 'measure') slices
            from trial t where status = 'ok') t join arm a using (case_id, arm)
        where (timed - counted between 0 and slices * clients) is not 1""",
    "a trial that is ok failed a check, or had none": """
        select trial, name from trial left join check_result using (trial)
        where status = 'ok' and passed is not 1""",
    "a finished trial has no time of its end": """
        select trial from trial where status in ('ok', 'excluded', 'failed') and ended_unix_s is null""",
}
"""Queries that must never return a row, by the violation that a row means."""

UNENDED = {
    "a trial is still running": "select trial from trial where status = 'running'",
    "a block is still running": "select case_id, block from block where status = 'running'",
    "the study has no ending": "select id from study where ended_because is null",
}
"""Queries that must not return a row after a study has ended normally."""


def finished(evidence: Path) -> Digests:
    """Return digests of every finished trial, with its rows in all tables, and of every finished block.

    Raises sqlite3.OperationalError while the file changes its journal mode.
    """
    with contextlib.closing(sqlite3.connect(f"file:{evidence}?mode=ro", uri=True)) as reader:
        reader.execute("begin")  # one snapshot of the file for all reads
        trials = [n for (n,) in reader.execute("select trial from trial where status <> 'running'")]
        found: dict[tuple[str, ...], str] = {}
        for trial in trials:
            found["trial", str(trial)] = _digest(_rows_of(reader, trial))
        for row in reader.execute("select * from block where status in ('done', 'failed')"):
            found["block", *map(str, row[:2])] = _digest(row)
        return found


def _rows_of(reader: sqlite3.Connection, trial: int) -> list[object]:
    tables = [name for (name,) in reader.execute("select name from sqlite_schema where type = 'table'")]
    rows: list[object] = []
    for table in sorted(tables):
        columns = [row[1] for row in reader.execute(f"pragma table_info({table})")]
        if "trial" in columns:
            of_trial = reader.execute(f"select * from {table} where trial = ?", (trial,)).fetchall()
            rows.append((table, sorted(of_trial, key=repr)))
    return rows


def _digest(rows: object) -> str:
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def faults(evidence: Path, before: Digests, *, ended: bool) -> list[str]:
    """Return all violations in a file without a writer: damage, lost or changed entries of ``before``,
    inconsistent counts.
    """
    with contextlib.closing(sqlite3.connect(f"file:{evidence}?mode=ro", uri=True)) as reader:
        wrong = [f"integrity_check: {row[0]}" for row in reader.execute("pragma integrity_check")]
        wrong = [] if wrong == ["integrity_check: ok"] else wrong
        wrong += [f"foreign_key_check: {row}" for row in reader.execute("pragma foreign_key_check")]
        for what, query in {**INCONSISTENT, **(UNENDED if ended else {})}.items():
            wrong += [f"{what}: {row}" for row in reader.execute(query).fetchall()]
    after = finished(evidence)
    for key, digest in before.items():
        if after.get(key) != digest:
            wrong.append(f"finished {' '.join(key)} is {'changed' if key in after else 'lost'}")
    try:
        with Evidence(evidence) as opened:  # every packed value is read, too
            for case in opened.cases():
                opened.trials(case, all_attempts=True)
    except EvidenceError as error:
        wrong.append(f"it cannot be read: {error}")
    return wrong
