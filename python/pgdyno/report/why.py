"""Sentences and tables on why an arm is faster or slower, from the values of ``causes/time_breakdown.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgdyno.analysis.causes.time_breakdown import Part, Waterfall, Why
from pgdyno.analysis.findings.case_findings import Findings
from pgdyno.estimate import ABSENT, counted, decimals_of, grouped
from pgdyno.report.tables import NAME_IN_HEAD_MAX, Table, listed, with_interval
from pgdyno.report.why_sentences import NAMES, name_of, sentences


@dataclass(frozen=True)
class WhyReport:
    """One arm: sentences for the top of the report, and a table for each breakdown of the time."""

    why: Why
    sentences: Sequence[str]
    tables: Sequence[Table]


def build(findings: Findings) -> list[WhyReport]:
    """Return a report for each arm with data from the probes.

    Arms driven at different rates get tables only: comparing their times would mislead.
    """
    verdicts = {of.arm.arm: of.verdict for of in findings.comparisons}
    return [
        WhyReport(
            one,
            [] if findings.has_own_rates else sentences(one, verdicts[arm]),
            tables(one, findings),
        )
        for arm, one in findings.why.items()
        if one.by_statement or one.by_resource
    ]


def tables(why: Why, findings: Findings) -> list[Table]:
    """By statement and by resource."""
    several = f", {why.arm.name}" if len(findings.arms) > 2 else ""
    found = []
    for title, waterfall, note in (
        ("by resource", why.by_resource, _note_on_resources(why)),
        ("by statement", why.by_statement, _note_on_statements(why)),
    ):
        if waterfall is not None:
            head = f"Time per transaction {title}{several}, µs{findings.at_own_rates}"
            found.append(_table(head, why, waterfall, note))
    return found


def _table(title: str, why: Why, waterfall: Waterfall, note: str) -> Table:
    whole = "mean latency" if why.latency else "whole"
    names = (("A", why.baseline.name), ("B", why.arm.name))
    heads = [f"{of}: {name}" if len(name) <= NAME_IN_HEAD_MAX else of for of, name in names]
    said = [f"{of} is {name}." for of, name in names if len(name) > NAME_IN_HEAD_MAX]
    columns = ("part", *heads, "B − A")
    rows = [_row(whole, waterfall.whole)]
    rows += [_row(name_of(part.key), part) for part in in_order(waterfall)]
    return Table(
        f"{title} (lower is better)",
        columns,
        rows,
        " ".join([*said, note]),
        frozenset(columns[1:]),
        dispensable=columns[1:3],
        breaks_first=True,
    )


def in_order(waterfall: Waterfall) -> list[Part]:
    """Return resources in the order of NAMES, after the statements in descending order of time."""
    place = {key: i for i, key in enumerate(NAMES)}
    return sorted(waterfall.parts, key=lambda part: (place.get(part.key, -1), -max(part.a_us, part.b_us)))


def _row(name: str, part: Part) -> list[str]:
    if not any(part.by_block.values()) and part.a_us == part.b_us == 0:
        return [name, "0", "0", "0"]
    mark = " *" if part.significant else ""
    return [
        name,
        _level(part.a_us),
        _level(part.b_us),
        with_interval(part.difference, part.difference.confidence) + mark,
    ]


def _level(us: float) -> str:
    return ABSENT if us == 0 else grouped(us, min(2, decimals_of(us, 3)))


def _note_on_resources(why: Why) -> str:
    said = [_SIGNIFICANT]
    if why.cpu_is_of_all:
        said.append("CPU time includes all server processes, because that of client backends is unknown.")
    if why.looks:
        samples = counted(round(why.looks), "sample")
        if why.scaled is None:
            said.append(f"Wait shares come from {samples} of pg_stat_activity.")
        else:
            said.append(
                f"Wait shares come from {samples} of pg_stat_activity and are scaled by "
                f"{grouped(why.scaled, 2)} to match the kernel's measured wait time (a woken backend still "
                "shows its wait event until it gets a CPU)."
            )
    if any(_negative(part) for part in why.by_resource.parts) if why.by_resource else False:
        said.append(_TOO_MUCH)
    return " ".join(said)


def _note_on_statements(why: Why) -> str:
    said = [
        _SIGNIFICANT,
        "Outside statements: parsing, commit and its WAL, protocol, network, driver.",
    ]
    if any(_negative(part) for part in why.by_statement.parts) if why.by_statement else False:
        said.append(_TOO_MUCH)
    if why.twice:
        said.append(
            f"{listed(list(why.twice))}: statements inside functions are counted twice, because "
            "pg_stat_statements before 14 does not distinguish them."
        )
    return " ".join(said)


_SIGNIFICANT = "*: significant; the CIs are corrected for all parts (Holm). The parts add up to the whole."
_TOO_MUCH = "A negative residual means that the measured parts exceed the whole by that amount."


def _negative(part: Part) -> bool:
    return part.a_us < 0 or part.b_us < 0


def as_object(why: Why) -> dict[str, object]:
    """For JSON."""
    return {
        "whole_is": "mean latency" if why.latency else "clients × time / transactions",
        "unit": "µs per transaction",
        "by_resource": _waterfall_object(why.by_resource),
        "by_statement": _waterfall_object(why.by_statement),
        "looks": why.looks,
        "waits_multiplied_by": why.scaled,
        "cpu_of_all_processes": why.cpu_is_of_all,
        "nested_statements_counted_twice": list(why.twice),
    }


def _waterfall_object(waterfall: Waterfall | None) -> dict[str, object] | None:
    if waterfall is None:
        return None
    return {
        "whole": _part_object(waterfall.whole),
        "parts": {part.key: _part_object(part) for part in in_order(waterfall)},
    }


def _part_object(part: Part) -> dict[str, object]:
    change = part.difference
    return {
        "a": part.a_us,
        "b": part.b_us,
        "difference": change.value,
        "low": change.low,
        "high": change.high,
        "confidence": change.confidence,
        "n": change.n,
        "p_value": part.p_value,
        "significant": part.significant,
        "by_block": {str(block): us for block, us in part.by_block.items()},
    }
