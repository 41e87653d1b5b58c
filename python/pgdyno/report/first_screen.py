"""The summary of a case that fits a terminal: effect, differences of the arms, causes, main caveats."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pgdyno.analysis.findings.case_findings import Findings
from pgdyno.caveats import Severity
from pgdyno.estimate import ABSENT, Estimate, counted, decimals_of, group_digits
from pgdyno.report import background_tables
from pgdyno.report.case_report import Report, ShownCaveat
from pgdyno.report.result_tables import Table, in_a_head, level_or_bound, of_several_arms, with_interval
from pgdyno.results.recorded_facts import ServerFacts
from pgdyno.results.records import Counts
from pgdyno.study.stopping_rule import INTERVAL_BLOCKS_MIN

HEADLINES_MAX = 2
"""Maximum number of arms with a headline each; the table of more arms has a column of verdicts."""

SETTINGS_MAX = 4
UNKNOWN = "unknown"
FAILURES_MAX = 1
CAVEATS_MAX = 2

BAR_WIDTH = 23
"""Characters of the bar, an odd number: zero is in the middle."""


def reach_of(estimates: Iterable[Estimate], margin: float) -> float:
    """Return the end of an axis around 0 that shows these changes and twice the margin, in percent."""
    return max([2 * margin, *(abs(end) for of in estimates for end in ends_of(of))])


def effect_table(findings: Findings) -> Table:
    """Return one row per arm: level, change with its interval, and both as a bar against the margin."""
    metric, baseline = findings.primary, findings.arms[0].arm.name
    by_arm = {comparison.arm.arm: comparison for comparison in findings.comparisons}
    shown = {arm: of.primary.percent for arm, of in by_arm.items() if of.primary is not None}
    margin = 100 * findings.study.plan.margin
    reach = reach_of(shown.values(), margin)
    change, bar = f"change vs. {in_a_head(baseline)}, %", axis(reach)
    rows = []
    for of in findings.arms:
        estimate = shown.get(of.arm.arm)
        interval = (
            with_interval(estimate, findings.study.plan.confidence, INTERVAL_BLOCKS_MIN) if estimate else ""
        )
        verdict = by_arm[of.arm.arm].verdict if of.arm.arm in by_arm else "baseline"
        drawn = bar_of(estimate, margin, reach) if estimate else ""
        rows.append([of.arm.name, level_or_bound(of, metric.key), interval, verdict, drawn])
    table = Table(
        title="",
        columns=("arm", metric.label, change, "verdict", bar),
        rows=rows,
        note=of_several_arms(findings).strip(),
        numeric=frozenset({metric.label, change, bar}),
        dispensable=(bar, metric.label),
        drawing=bar,
    )
    if len(findings.comparisons) > HEADLINES_MAX:
        return table
    return _without(table, "verdict")


def _without(table: Table, column: str) -> Table:
    """Return the table without a column, which the headlines repeat."""
    at = list(table.columns).index(column)
    return replace(
        table,
        columns=[*table.columns[:at], *table.columns[at + 1 :]],
        rows=[[*row[:at], *row[at + 1 :]] for row in table.rows],
    )


ROWS_MAX = 7
"""Maximum number of rows of a table over cases or hosts."""


def first_rows(table: Table) -> Table:
    """Return the first rows, and the first sentence of the note."""
    rest = len(table.rows) - ROWS_MAX
    note = [f"{counted(rest, 'more row')} with --full."] if rest > 0 else []
    note.append(re.split(r"(?<=\.) ", table.note)[0])
    return replace(table, rows=table.rows[:ROWS_MAX], note=" ".join(note))


def ends_of(estimate: Estimate) -> tuple[float, ...]:
    """Return the value and the known ends of its interval."""
    return tuple(end for end in (estimate.low, estimate.value, estimate.high) if end is not None)


def axis(reach: float) -> str:
    """Return the head of a column of ``bar_of``."""
    low, high = (f"{sign}{group_digits(reach, min(1, decimals_of(reach, 2)))}" for sign in "−+")
    space = BAR_WIDTH - len(low) - len(high)
    return low + "0".center(space) + high


def bar_of(estimate: Estimate, margin: float, reach: float) -> str:
    """Return a line of BAR_WIDTH characters from −reach to +reach: interval, estimate, zero, margin."""
    half = BAR_WIDTH // 2

    def column(value: float) -> int:
        return half + max(-half, min(half, round(half * value / reach)))

    line = [" "] * BAR_WIDTH
    for end in (-margin, margin):
        line[column(end)] = "┊"
    line[half] = "│"
    if estimate.low is not None and estimate.high is not None:
        low, high = column(estimate.low), column(estimate.high)
        line[low : high + 1] = "─" * (high + 1 - low)
        line[low], line[high] = "├", "┤"
    line[column(estimate.value)] = "●"
    return "".join(line).rstrip().ljust(BAR_WIDTH)


MAIN_SETTINGS = (
    *("shared_buffers", "synchronous_commit", "fsync", "full_page_writes", "wal_level", "wal_compression"),
    *("max_wal_size", "checkpoint_timeout", "checkpoint_completion_target", "wal_buffers", "min_wal_size"),
    *("work_mem", "maintenance_work_mem", "effective_cache_size", "huge_pages", "io_method", "io_workers"),
    "io_max_workers",
    *("effective_io_concurrency", "random_page_cost", "jit", "autovacuum", "max_parallel_workers_per_gather"),
    *("max_worker_processes", "max_connections", "synchronous_standby_names", "shared_preload_libraries"),
    *("data_checksums", "track_io_timing", "bgwriter_delay", "wal_writer_delay", "commit_delay"),
)
"""Settings that affect throughput most, shown first if no setting was requested, as on running servers."""

COMPUTED_SETTINGS = frozenset(
    {"commit_timestamp_buffers", "subtransaction_buffers", "transaction_buffers", "io_max_concurrency"}
)
"""Settings that the server computes from others by default, shown last."""


def _place_of(setting: str) -> int:
    """Return the place of a setting in the order of differences; equal for settings in neither list."""
    if setting in MAIN_SETTINGS:
        return MAIN_SETTINGS.index(setting)
    return len(MAIN_SETTINGS) + (setting in COMPUTED_SETTINGS)


def differences(findings: Findings) -> list[str]:
    """Return what differs between the arms: servers, their builds, then settings, requested ones first."""
    facts = [of.arm.server_facts for of in findings.arms]
    found = [
        f"{name} {_values(values)}"
        for name, values in (
            ("PostgreSQL", [of.version or UNKNOWN for of in facts]),
            ("extension", [of.extensions_shown or "none" for of in facts]),
            ("compiler", [_compiler(of) for of in facts]),
            ("CFLAGS", [of.optimization or UNKNOWN for of in facts]),
            ("clients", [str(of.arm.clients) for of in findings.arms]),
        )
        if len(set(values)) > 1 and UNKNOWN not in values
    ]
    requested = {name for of in findings.arms for name in of.arm.settings_requested}
    known = [row for row in background_tables.differing_settings(findings) if ABSENT not in row]
    settings = sorted(known, key=lambda row: (row[0] not in requested, _place_of(row[0])))
    found += [f"{name} {_values(values)}" for name, *values in settings[:SETTINGS_MAX]]
    more = len(settings) - SETTINGS_MAX
    return [*found, *([counted(more, "more setting")] if more > 0 else [])]


def failures(findings: Findings) -> list[str]:
    """Return the most frequent error of the first arms with failed transactions."""
    table = background_tables.failures(findings)
    most: dict[str, Sequence[str]] = {}
    for row in table.rows:
        most.setdefault(row[0], row)
    attempts = attempts_without_success(findings)
    return [
        (
            f"No transaction of {arm} succeeded in {group_digits(attempts[arm], 0)} attempts"
            if arm in attempts
            else f"Failed transactions of {arm}, most frequent: {n} {kind}"
        )
        + f", SQLSTATE {sqlstate}: {sample}"
        for arm, kind, sqlstate, n, sample in most.values()
    ][:FAILURES_MAX]


def attempts_without_success(findings: Findings) -> dict[str, int]:
    """Return the number of attempts of each arm without a successful transaction."""
    attempts = {}
    for of in findings.arms:
        trials = [trial for trial in findings.trials if trial.arm == of.arm.arm]
        counts = sum(
            (n for one in trials for piece in one.measured for n in piece.kinds.values()), start=Counts()
        )
        if not counts.executed:
            attempts[of.arm.name] = counts.failed + counts.retried
    return attempts


def _values(values: Sequence[str]) -> str:
    return (" → " if len(values) == 2 else " | ").join(values)


def _compiler(of: ServerFacts) -> str:
    found = re.search(r"compiled by (.+?),", of.version_text or "")
    return found[1] if found else UNKNOWN


def causes(report: Report) -> list[str]:
    """Return a paragraph on the causes of the difference of each arm, if these are few."""
    if len(report.why) > HEADLINES_MAX:
        return []
    return [" ".join(one.sentences) for one in report.why if one.sentences]


def main_caveats(caveats: Sequence[ShownCaveat], most: int = CAVEATS_MAX) -> tuple[list[ShownCaveat], str]:
    """Return the most severe caveats, at most ``most``, and the number of the others in words."""
    first = [one for one in caveats if one.severity is not Severity.LOW][:most]
    rest = len(caveats) - len(first)
    return first, counted(rest, "other caveat" if first else "minor caveat") if rest else ""
