"""The tables by statement, by table and index, and of drift within long windows."""

from __future__ import annotations

from dataclasses import replace

from pgdyno.analysis.findings.case_findings import Findings
from pgdyno.analysis.steady_state.drift import Drift
from pgdyno.estimate import ABSENT, NO_BREAK, Better, Estimate, bracketed, signed
from pgdyno.report.tables import Table, with_interval
from pgdyno.report.telemetry import pivot

STATEMENTS_ON_TERMINAL = 5
"""Those with the most time; the others are in the other forms."""

_OF_STATEMENTS = (
    ("calls", ("statement.calls",)),
    ("mean, ms", ("statement.mean_ms",)),
    ("stddev, ms", ("statement.stddev_ms",)),
    ("time, %", ("statement.share_of_time",)),
    ("rows/call", ("statement.rows_per_call",)),
    ("blocks read/call", ("statement.blocks_read_per_call",)),
    ("WAL, B/call", ("statement.wal_bytes_per_call",)),
    ("planning, ms", ("statement.plan_mean_ms",)),
)

_OF_RELATIONS = (
    ("size, MiB", ("relation.bytes",)),
    ("growth, MiB", ("relation.growth",)),
    ("hits, %", ("relation.hit_share", "relation.index_hit_share")),
    ("HOT, %", ("relation.hot_share",)),
    ("dead tuples", ("relation.dead_tuples",)),
    ("autovacuums", ("relation.autovacuums",)),
    ("live, %", ("relation.tuple_percent",)),
    ("free, %", ("relation.free_percent",)),
    ("leaf density, %", ("relation.leaf_density",)),
)


def statements(findings: Findings) -> Table:
    """The statements with the most time, and the average change of their mean times."""
    names = findings.telemetry.parts("statement.calls")
    table = pivot(findings, "Statements", "statement", names, _OF_STATEMENTS, "mean, ms")
    if not names:
        return table
    averages = _averages(findings, table)
    note = (
        "From pg_stat_statements, during measurement. stddev is over calls; time, % is the share of "
        "the total time of all statements (a lower mean is better)."
    )
    if averages:
        note += (
            " The average is the geometric mean of the ratios of means with equal weights, without "
            "BEGIN, COMMIT and other transaction control statements."
        )
    droppable = [head for head in table.columns[2:] if head not in {"calls", "mean, ms", _CHANGE, "time, %"}]
    return replace(
        table,
        rows=[*averages, *table.rows],
        note=note,
        dispensable=(*reversed(droppable), "calls", "time, %"),
        rows_on_terminal=len(averages) + STATEMENTS_ON_TERMINAL * len(findings.arms),
    )


_CHANGE = "change in mean, %"


def _averages(findings: Findings, table: Table) -> list[list[str]]:
    rows = []
    for of in findings.arms[1:]:
        average = findings.telemetry.average.get(of.arm.arm)
        if average is not None:
            percent = with_interval(average.percent(Better.LESS), findings.study.plan.confidence)
            cells = {"statement": "average", "arm": of.arm.name, _CHANGE: percent}
            rows.append([cells.get(column, "") for column in table.columns])
    return rows


def relations(findings: Findings) -> Table:
    """The largest tables and indexes."""
    names = findings.telemetry.parts("relation.bytes")
    table = pivot(findings, "Tables and indexes", "relation", names, _OF_RELATIONS, "size, MiB")
    note = "hits: buffer hit ratio. live, free, leaf density: from pgstattuple. The JSON has all values."
    return replace(table, note=note if names else "")


def drifts(findings: Findings) -> Table:
    """How fast things changed during long windows."""
    rows = []
    names = dict.fromkeys(drift.key for of in findings.drifts.values() for drift in of)
    for key in names:
        for i, of in enumerate(findings.arms):
            for drift in findings.drifts[of.arm.arm]:
                if drift.key == key:
                    rows.append([drift.name if i == 0 else "", of.arm.name, *_drift_cells(drift)])
    numeric = ("change per hour", "CI", "% of mean per hour")
    return Table(
        "Drift within the measurement windows",
        ("metric", "arm", *numeric, "unit"),
        rows,
        "The CI is over trials; with a single trial it is over ten parts of its window.",
        frozenset(numeric),
        dispensable=("CI",),
    )


def _drift_cells(drift: Drift) -> list[str]:
    estimate, percent = drift.estimate, drift.percent
    interval = _interval(estimate)
    return [
        signed(estimate.value, estimate.decimals, ""),
        interval,
        ABSENT if percent is None else signed(percent.value, percent.decimals, ""),
        estimate.unit,
    ]


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return ABSENT
    low, high = (signed(end, estimate.decimals, "") for end in (estimate.low, estimate.high))
    return bracketed(low, high).replace(" ", NO_BREAK)
