"""Telemetry of the arms side by side, and verdicts on single queries.

- Telemetry tables: levels of the arms, changes, by statement, table and index, and drift.
- Verdicts on single queries: a sentence for each arm, and a table with the largest contributions first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pgdyno.analysis.case_findings import ArmFindings, Findings
from pgdyno.analysis.comparison import Verdict
from pgdyno.analysis.queries import CALLS_MIN, QueryChange, QueryChanges, QueryKind, counted_alike
from pgdyno.analysis.steady_state import Drift
from pgdyno.analysis.telemetry.metrics import MEAN_TIME, keyed, split_key
from pgdyno.analysis.telemetry.trial_telemetry import resource_of
from pgdyno.report.document import Table
from pgdyno.report.result_tables import DIGITS_OF_LEVEL, enumeration, in_a_head, with_interval
from pgdyno.report.why_section import NAMES
from pgdyno.study.plan import INTERVAL_BLOCKS_MIN, VERDICT_BLOCKS_MIN
from pgdyno.units import (
    ABSENT,
    NO_BREAK,
    Better,
    Estimate,
    bracketed,
    ci_text,
    counted,
    decimals_of,
    group_digits,
    share_text,
    signed,
    significant,
)

# ----------------------------------------------------------------------
# Telemetry tables: levels of the arms, changes, by statement, table and index, and drift.
# ----------------------------------------------------------------------

BRIEF = {
    "wal.bytes_per_tx": "WAL, B/tx",
    "wal.fpi_per_tx": "full-page images/tx",
    "checkpoints.pages_per_tx": "pages written/tx",
    "database.hit_share": "buffer hit ratio, %",
    "statements.ms_per_tx": "statements, ms/tx",
    "hardware.instructions_per_tx": "instructions/tx",
    "hardware.user_instructions_per_tx": "user-mode instructions/tx",
    "hardware.cycles_per_tx": "CPU cycles/tx",
    "host.server_share": "CPU: server, %",
    "host.driver_share": "CPU: driver, %",
    "host.rest_share": "CPU: other processes, %",
    "host.steal_share": "CPU: stolen, %",
    "trial.restart_s": "restart, s",
    "trial.recovery_s": "recovery, s",
    "trial.checkpoint_s": "last checkpoint, s",
}
"""The metrics of the short table, with short names."""

WAITS_IN_BRIEF = 5

GROUPS = (
    ("WAL and checkpoints", ("wal", "checkpoints")),
    ("Buffers and I/O", ("database", "blocks", "io")),
    ("All statements", ("statements",)),
    ("All tables and indexes", ("relations",)),
    ("Wait events, % of active time", ("waits", "wait")),
    ("Hardware counters", ("hardware",)),
    ("Machine", ("clients", "host")),
    ("Transaction IDs", ("wraparound",)),
    ("Replication", ("replication",)),
    ("Data load, start, restart and recovery", ("load", "trial")),
    ("Sampling", ("probes",)),
)
"""The detailed tables: title and prefixes of the keys."""

LOADED = "made_s"
"""Key of the load time of a dataset."""


def brief(findings: Findings) -> Table:
    """Return a selection of metrics with the largest waits."""
    of, known = findings.telemetry, findings.telemetry.metrics
    waits = [keyed("wait.share", name) for name in of.parts("wait.share")[:WAITS_IN_BRIEF]]
    rows = [row for key in [*BRIEF, *waits] for row in _rows(findings, key)]
    shown = (*_COLUMNS[:3], "level", _change_head(findings))
    kept = [0, 1, 2, 3, 5]
    short = {findings.telemetry.metrics[key].label: BRIEF[key] for key in BRIEF if key in known}
    notes = [*_not_in_version(findings), _not_compared(findings, BRIEF), _no_ratio(findings)]
    return Table(
        title="Telemetry",
        columns=shown,
        rows=[[short.get(row[0], row[0]), *(row[i] for i in kept[1:])] for row in rows],
        note=" ".join(filter(None, notes)) if rows else "",
        numeric=frozenset(shown[3:]),
        dispensable=("better",),
    )


def groups(findings: Findings) -> list[Table]:
    """Return all telemetry in GROUPS, except values of single statements, tables and indexes."""
    found = []
    for title, probes in GROUPS:
        keys = [key for key in findings.telemetry.metrics if key.partition(".")[0] in probes]
        keys.sort(key=lambda key: _ORDER.get(_resource(key), 0))
        rows = [row for key in keys for row in _rows(findings, key, _resource(key))]
        if "trial" in probes:
            rows = _loads(findings) + rows
        zero = [findings.telemetry.metrics[key].name for key in keys if _is_zero(findings, key)]
        notes = [f"Zero in all trials: {', '.join(zero)}." if zero else "", _not_compared(findings, keys)]
        columns = (*_COLUMNS, _change_head(findings), "blocks")
        if rows:
            found.append(
                Table(
                    f"Telemetry: {title[0].lower() if title[:3] != 'WAL' else title[0]}{title[1:]}",
                    columns,
                    rows,
                    " ".join(filter(None, notes)),
                    frozenset(columns[3:]),
                    long=True,
                    dispensable=("better", "blocks", "interval"),
                )
            )
    return found


def probe_overhead(findings: Findings) -> str:
    """Return a sentence on the overhead of the probes; empty without probes."""
    cost = findings.telemetry.cost
    if cost is None:
        return ""
    names = {of.arm.arm: of.arm.name for of in findings.arms}
    each = [
        f"{group_digits(us, 0 if us >= 10 else 1)}{NO_BREAK}µs per transaction of {names[arm]}"
        for arm, us in cost.us_per_tx.items()
    ]
    whole = f"{share_text(cost.share)} of the machine's CPU time" if cost.share is not None else "CPU time"
    return f"Overhead of the probes during measurement: {whole} ({enumeration(each)})."


_COLUMNS = ("metric", "better", "arm", "level", "interval")


def _change_head(findings: Findings) -> str:
    return f"change vs. {in_a_head(findings.arms[0].arm.name)}, %"


_ORDER = {name: n for n, name in enumerate(NAMES.values())}
"""Places of the resources, whose wait events stand together."""


def _resource(key: str) -> str:
    """Return the name of the resource of a wait event; ``wait`` of other metrics."""
    name, part = split_key(key)
    return NAMES.get(resource_of(part), "wait") if name == "wait.share" else "wait"


def _rows(findings: Findings, key: str, of_wait: str = "wait") -> list[list[str]]:
    """Return the rows of a metric, one per arm; empty if all values are zero."""
    metric = findings.telemetry.metrics.get(key)
    if metric is None or _is_zero(findings, key):
        return []
    name, part = split_key(key)
    counted = metric.unit in metric.name.split()  # "dead tuples" needs no unit
    label = f"{of_wait}: {part}, %" if name == "wait.share" else metric.name if counted else metric.label
    better = "" if metric.better is Better.NEITHER else str(metric.better)
    return [
        [
            label if i == 0 else "",
            better if i == 0 else "",
            of.arm.name,
            level_cell(findings, of, key),
            _interval_cell(findings, of, key),
            change_cell(findings, of, key),
            _blocks_cell(findings, of, key),
        ]
        for i, of in enumerate(findings.arms)
    ]


def _level(findings: Findings, of: ArmFindings, key: str) -> Estimate | None:
    return findings.telemetry.levels[of.arm.arm].get(key)


def _is_zero(findings: Findings, key: str) -> bool:
    known = [level for of in findings.arms if (level := _level(findings, of, key))]
    return all(level.value == 0 and not level.low for level in known)


def level_cell(findings: Findings, of: ArmFindings, key: str) -> str:
    """Return the level of an arm."""
    level = _level(findings, of, key)
    return ABSENT if level is None else telemetry_level_text(level)


def telemetry_level_text(level: Estimate) -> str:
    """Return a level of any sign with at least three digits."""
    if level.value == 0:
        return "0"
    three = DIGITS_OF_LEVEL - 1 - math.floor(math.log10(abs(level.value)))
    decimals = three if level.n < VERDICT_BLOCKS_MIN else max(three, level.decimals)
    return group_digits(level.value, min(6, max(0, decimals)))


def _interval_cell(findings: Findings, of: ArmFindings, key: str) -> str:
    level = _level(findings, of, key)
    if level is None or level.n < VERDICT_BLOCKS_MIN or level.low is None:
        return ABSENT
    return level.interval_text.replace(" ", NO_BREAK)


def change_cell(findings: Findings, of: ArmFindings, key: str) -> str:
    """Return the change from the baseline; empty for the baseline."""
    if of is findings.arms[0]:
        return ""
    effect = findings.telemetry.effects[of.arm.arm].get(key)
    return with_interval(effect.percent, findings.study.plan.confidence) if effect else ABSENT


def _blocks_cell(findings: Findings, of: ArmFindings, key: str) -> str:
    level = _level(findings, of, key)
    return str(level.n if level else 0)


def _loads(findings: Findings) -> list[list[str]]:
    """Return the load time of each dataset, which is loaded once before the study."""
    loads_s = [of.arm.dataset.get(LOADED) for of in findings.arms]
    levels = [Estimate(s, "s", 1, Better.LESS) if isinstance(s, int | float) else None for s in loads_s]
    known = [telemetry_level_text(level) if level else ABSENT for level in levels]
    if not any(cell != ABSENT for cell in known):
        return []
    heads = [("data load, s", "less"), *[("", "")] * len(known)]
    return [
        [*head, of.arm.name, cell, ABSENT, "", ""]
        for head, of, cell in zip(heads, findings.arms, known, strict=False)
    ]


def _not_in_version(findings: Findings) -> Iterable[str]:
    by_reason: dict[tuple[str, str], list[str]] = {}
    for of in findings.arms:
        for probe, reason in findings.telemetry.missing.get(of.arm.arm, {}).items():
            by_reason.setdefault((probe, reason), []).append(of.arm.name)
    return [
        f"{enumeration(names)}: no {probe} statistics ({reason})."
        for (probe, reason), names in by_reason.items()
    ]


def _not_compared(findings: Findings, keys: Iterable[str]) -> str:
    """Return the metrics that the versions of the arms count differently, as a sentence."""
    arms, known = [of.arm for of in findings.arms], findings.telemetry.metrics
    names = [known[key].name for key in keys if key in known and not counted_alike(known[key], *arms)]
    return f"Not compared between versions that count differently: {', '.join(names)}." if names else ""


def _no_ratio(findings: Findings) -> str:
    absent = len(findings.arms) > 1
    return f"{ABSENT}: no ratio, because a block has no value above zero." if absent else ""


def pivot(
    findings: Findings,
    title: str,
    first: str,
    parts: Sequence[str],
    columns: Sequence[tuple[str, Sequence[str]]],
    changed: str,
) -> Table:
    """Return a table with a row for each part (a statement or table) and arm.

    Each entry of ``columns`` has a head and alternative keys. The column ``changed`` is followed by its
    change. Columns without values are omitted.
    """
    known = {split_key(key)[0] for key in findings.telemetry.metrics}
    shown = [(head, keys) for head, keys in columns if known.intersection(keys)]
    rows = []
    for part in parts:
        for i, of in enumerate(findings.arms):
            row = [shortened(part) if i == 0 else "", of.arm.name]
            for head, keys in shown:
                own = next((k for k in keys if keyed(k, part) in findings.telemetry.metrics), keys[0])
                row.append(level_cell(findings, of, keyed(own, part)))
                if head == changed:
                    row.append(change_cell(findings, of, keyed(own, part)))
            rows.append(row)
    heads = []
    for head, _ in shown:
        heads += [head, f"change in {head.partition(',')[0]}, %"] if head == changed else [head]
    return Table(title, (first, "arm", *heads), rows, numeric=frozenset(heads), long=True)


PART_LENGTH_MAX = 72


def shortened(part: str) -> str:
    """Return a name that fits the first column of a table."""
    return part if len(part) <= PART_LENGTH_MAX else f"{part[: PART_LENGTH_MAX - 1]}…"


_OF_STATEMENTS = (
    ("calls", ("statement.calls",)),
    ("mean, ms", (MEAN_TIME,)),
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


def statement_table(findings: Findings) -> Table:
    """Return the statements with the most time, and the average change of their mean times."""
    names = findings.telemetry.parts("statement.calls")
    table = pivot(findings, "Statements", "statement", names, _OF_STATEMENTS, "mean, ms")
    if not names:
        return table
    averages = _averages(findings, table)
    note = (
        "From pg_stat_statements, during measurement. stddev is over calls; time, % is the share of "
        "the total time of all statements (a lower mean is better). A change needs at least "
        f"{CALLS_MIN} calls in every block. Transaction control statements (BEGIN, COMMIT) have none: "
        "they take about as long as reading the clock."
    )
    if averages:
        note += (
            " The average is the geometric mean of the ratios of means with equal weights, of the statements "
            "with a change."
        )
    droppable = [head for head in table.columns[2:] if head not in {"calls", "mean, ms", _CHANGE, "time, %"}]
    return replace(
        table, rows=[*averages, *table.rows], note=note, dispensable=(*reversed(droppable), "time, %")
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
    """Return the largest tables and indexes."""
    names = findings.telemetry.parts("relation.bytes")
    table = pivot(findings, "Tables and indexes", "relation", names, _OF_RELATIONS, "size, MiB")
    note = "hits: buffer hit ratio. live, free, leaf density: from pgstattuple. The JSON has all values."
    return replace(table, note=note if names else "")


def drift_table(findings: Findings) -> Table:
    """Return the rates of change within long windows."""
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
    return [
        signed(estimate.value, estimate.decimals, ""),
        _interval(estimate),
        ABSENT if percent is None else signed(percent.value, percent.decimals, ""),
        estimate.unit,
    ]


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return ABSENT
    low, high = (signed(end, estimate.decimals, "") for end in (estimate.low, estimate.high))
    return bracketed(low, high).replace(" ", NO_BREAK)


# ----------------------------------------------------------------------
# Verdicts on single queries: a sentence for each arm, and a table with the largest contributions first.
# ----------------------------------------------------------------------

NAMED_MAX = 2
"""Maximum number of queries named in a sentence; the table has all."""

NAME_LENGTH_MAX = 40
"""Maximum length of a query's name in a sentence."""


def query_sentences(findings: Findings, *, brief: bool = False) -> list[str]:
    """Return a paragraph for each arm, on its scripts and on its statements."""
    return [query_sentence(of, brief=brief) for of in findings.queries]


def query_sentence(of: QueryChanges, *, brief: bool = False) -> str:
    """Return ``Statements: 2 of 214 slower on 18, 1 faster. Largest contributions: …``.

    ``brief``: without the contributions of statements, which the breakdown of the time has.
    """
    found = {verdict: len(of.with_verdict(verdict)) for verdict in Verdict}
    n_slower = found.pop(Verdict.SLOWER)
    counts = [f"{n_slower or 'none'} of {len(of.changes)} slower on {of.arm.name}"] if of.changes else []
    counts += [f"{n} {verdict.word}" for verdict, n in found.items() if n]
    if of.uncompared:
        most = _short(of.kind, of.uncompared[0])
        counts.append(f"{len(of.uncompared)} with too few calls (most time: {most})")
    sentence = f"{of.kind.capitalize()}s: {', '.join(counts)}."
    differing = [change for change in of.changes if change.verdict in {Verdict.SLOWER, Verdict.FASTER}]
    if differing and not (brief and of.kind == "statement"):
        named = [_named(of.kind, change) for change in differing[:NAMED_MAX]]
        sentence += f" Largest contributions: {'; '.join(named)}."
    return sentence


def _named(kind: QueryKind, change: QueryChange) -> str:
    percent = change.percent
    interval = f"{ci_text(percent.confidence)} {percent.signed_interval_text}"
    basis = f"({interval}), {_contribution(change)} of all {kind} time"
    return f"{_short(kind, change.name)} {percent.signed_text} {basis}"


def _short(kind: QueryKind, name: str) -> str:
    """Return the name in quotation marks: the end of a script's path, the start of a statement."""
    if len(name) > NAME_LENGTH_MAX:
        kept = NAME_LENGTH_MAX - 1
        name = f"…{name[-kept:]}" if kind == "script" else f"{name[:kept]}…"
    return f"“{name}”"


def query_tables(findings: Findings) -> list[Table]:
    """Return a table of scripts and one of statements."""
    kinds: tuple[QueryKind, ...] = ("script", "statement")
    return [_table(kind, [of for of in findings.queries if of.kind == kind], findings) for kind in kinds]


def _table(kind: QueryKind, of_arms: list[QueryChanges], findings: Findings) -> Table:
    several, usual = len(of_arms) > 1, findings.study.plan.confidence
    rows = [
        [
            shortened(change.name),
            *([of.arm.name] if several else []),
            _ms(change.baseline_ms),
            _ms(change.arm_ms),
            with_interval(change.percent, usual, INTERVAL_BLOCKS_MIN),
            group_digits(100 * change.share, 1),
            _contribution(change),
            str(change.verdict),
        ]
        for of in of_arms
        for change in of.changes
    ]
    baseline = in_a_head(findings.arms[0].arm.name, "baseline")
    arm = "arm" if several or not of_arms else in_a_head(of_arms[0].arm.name, "arm")
    numeric = (f"{baseline}, ms", f"{arm}, ms", "change, %", "time, %", "contribution")
    return Table(
        title=f"Change of the mean time by {kind} (lower is better)",
        columns=(kind, *(["arm"] if several else []), *numeric, "verdict"),
        rows=rows,
        note=_note(kind, of_arms) if of_arms else "",
        numeric=frozenset(numeric),
        long=True,
        dispensable=("time, %", numeric[0], numeric[1]),
    )


def _note(kind: QueryKind, of_arms: list[QueryChanges]) -> str:
    what = (
        "the mean service time of the driver, from the first command of a script to its end"
        if kind == "script"
        else "the mean execution time of pg_stat_statements"
    )
    n_family, n_missing = of_arms[0].family, max(len(of.uncompared) for of in of_arms)
    note = (
        f"The times are {what}. The CIs are corrected over {counted(n_family, 'comparison')} (Holm). "
        "time, % is the share of the baseline's time. The contribution is the change of the time of all "
        "queries due to this one. Queries share the server, so a slow query can slow others, too."
    )
    if n_missing:
        note += f" {counted(n_missing, kind)} had too few calls in a block of an arm."
    return note


def _contribution(change: QueryChange) -> str:
    percent = 100 * change.contribution
    return signed(percent, min(1, decimals_of(percent, 2)), "%")


def _ms(ms: float) -> str:
    return significant(ms, 3)
