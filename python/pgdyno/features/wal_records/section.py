"""WAL per transaction by type of record: what each arm writes, and where the difference comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.comparison import ok_by_block
from pgdyno.analysis.finding_fields import ArmName, about
from pgdyno.analysis.statistics.intervals import LogRatioSummary, method_of, simultaneous, summarize
from pgdyno.analysis.telemetry.counters import Row, numeric
from pgdyno.report.document import Section, Table, tables_section
from pgdyno.report.json_format import Result
from pgdyno.report.result_tables import in_a_head, with_interval
from pgdyno.units import Better, Estimate, counted, share_text, significant

SHARE_MIN = 0.01
"""Least share of an arm's WAL of a row of its own in the table. JSON has all types."""

IMAGES = "full-page images"

READ_ALL = 0.995
"""Share of the WAL from which on all of it counts as read."""


@dataclass(frozen=True)
class WalPart:
    """WAL of one type of record without its full-page images, or all full-page images of a resource manager.

    Means over blocks, in bytes per transaction. ``change``: B − A, its interval by Holm over all parts.
    """

    name: Annotated[str, about("“Heap/INSERT”, or “Heap, full-page images”.")]
    baseline_bytes: float
    arm_bytes: float
    change: Estimate


@dataclass(frozen=True)
class WalComparison:
    """WAL of an arm and the baseline, largest part first.

    ``read_share``: share of the WAL of the measured parts that was read. The rest is taken as alike, so the
    changes have no interval then: full-page images are frequent after a checkpoint.
    """

    baseline: ArmName
    arm: ArmName
    blocks: int
    read_share: float
    parts: Sequence[WalPart]


def parts_of_trial(rows: Sequence[Row], transactions: int | None) -> dict[str, float]:
    """Return bytes per transaction by part; empty if nothing was written or read."""
    facts, types = (rows[0], rows[1:]) if rows else ({}, ())
    written, read = (numeric(facts, name) or 0.0 for name in ("wal_bytes", "read_bytes"))
    if not transactions or not read:
        return {}
    found: dict[str, float] = {}
    for row in types:
        name = str(row["type"])
        manager = name.partition("/")[0]
        for part, column in ((name, "record_bytes"), (f"{manager}, {IMAGES}", "image_bytes")):
            size = (numeric(row, column) or 0.0) * written / read / transactions
            if size:
                found[part] = found.get(part, 0.0) + size
    return found


def wal_of(findings: Findings) -> list[WalComparison]:
    """Compare the WAL of a case; one per arm after the first that has any."""
    plan, trials = findings.study.plan, findings.trials
    rows = {trial: of.after.get("wal_records", ()) for trial, of in findings.telemetry.by_trial.items()}
    by_trial = {one.trial: parts_of_trial(rows.get(one.trial, ()), one.transactions) for one in trials}
    found = []
    for arm in findings.arms[1:]:
        sides = [
            (of_block[0].trial, of_block[arm.arm.arm].trial)
            for of_block in ok_by_block(trials).values()
            if {0, arm.arm.arm} <= of_block.keys()
        ]
        sides = [(a, b) for a, b in sides if by_trial[a] and by_trial[b]]
        if sides:
            facts = [rows[one][0] for pair in sides for one in pair]
            read = sum(numeric(row, "read_bytes") or 0.0 for row in facts)
            share = read / sum(numeric(row, "wal_bytes") or 0.0 for row in facts)
            pairs = [(by_trial[a], by_trial[b]) for a, b in sides]
            summarized = partial(summarize, method=method_of(plan, trials))
            parts = _parts(pairs, plan.confidence, summarized)
            if share < READ_ALL:
                parts = [replace(one, change=replace(one.change, low=None, high=None)) for one in parts]
            found.append(WalComparison(findings.arms[0].arm, arm.arm, len(pairs), share, parts))
    return found


def _parts(
    pairs: Sequence[tuple[Mapping[str, float], Mapping[str, float]]],
    confidence: float,
    summarized: partial[LogRatioSummary],
) -> list[WalPart]:
    names = list(dict.fromkeys(name for pair in pairs for side in pair for name in side))
    values = {name: [(a.get(name, 0.0), b.get(name, 0.0)) for a, b in pairs] for name in names}
    estimators = [partial(summarized, [b - a for a, b in values[name]]) for name in names]
    parts = []
    for name, of in zip(names, simultaneous(estimators, confidence), strict=True):
        a, b = (sum(side) / len(pairs) for side in zip(*values[name], strict=True))
        change = Estimate(of.mean, "B", of.n, Better.LESS, of.low, of.high, of.confidence)
        parts.append(WalPart(name, a, b, change))
    return sorted(parts, key=lambda part: -(part.baseline_bytes + part.arm_bytes))


def sections(findings: Findings) -> Iterator[Section]:
    """Yield a table for each comparison of a case."""
    tables = [_table(findings, one) for one in wal_of(findings)]
    yield replace(tables_section("wal-records", tables), after="results")


def _table(findings: Findings, of: WalComparison) -> Table:
    totals = [sum(sizes) for sizes in zip(*map(_sizes, of.parts), strict=True)]
    small = [
        part
        for part in of.parts
        if all(size < SHARE_MIN * total for size, total in zip(_sizes(part), totals, strict=True))
    ]
    shown = [part for part in of.parts if part not in small]
    rows = [
        [
            part.name,
            *map(_bytes, (part.baseline_bytes, part.arm_bytes)),
            with_interval(part.change, part.change.confidence),
        ]
        for part in [*shown, *_rest(small)]
    ]
    names = (in_a_head(of.baseline.name, "baseline"), in_a_head(of.arm.name, "arm"))
    columns = ("type of record", *(f"{name}, B/tx" for name in names), "change, B/tx")
    share = share_text(of.read_share)
    read = (
        ""
        if of.read_share >= READ_ALL
        else f" {share} of it was read, the last part of each trial, and stands for the rest. Full-page "
        "images depend on the distance to a checkpoint, so there are no CIs."
    )
    return Table(
        f"WAL per transaction by type of record{findings.at_own_rates} (lower is better)",
        columns,
        rows,
        f"Means over {counted(of.blocks, 'block')}.{read} Records are without their full-page images, which "
        f"have a row for each resource manager. CIs are corrected over all rows (Holm).",
        numeric=frozenset(columns[1:]),
        long=True,
    )


def _rest(parts: Sequence[WalPart]) -> Iterator[WalPart]:
    """Yield one row for all others, without an interval."""
    if parts:
        a, b = sum(part.baseline_bytes for part in parts), sum(part.arm_bytes for part in parts)
        change = Estimate(b - a, "B", parts[0].change.n, Better.LESS)
        yield WalPart(counted(len(parts), "more type"), a, b, change)


def _sizes(part: WalPart) -> tuple[float, float]:
    return part.baseline_bytes, part.arm_bytes


def _bytes(size: float) -> str:
    return significant(size, 3) if size else "0"


RESULT = Result(
    "wal_records",
    dict[str, list[WalComparison]],
    "WAL by type of record, by case: one comparison per arm after the first that has any.",
    lambda of: {case.study.case: wal_of(case) for case in of.cases},
)
