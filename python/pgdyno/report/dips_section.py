"""Throughput dips and coincident events: sentences and a table."""

from __future__ import annotations

from collections.abc import Sequence

from pgdyno.analysis.causes.throughput_dips import DEPTH_ALWAYS, DEPTH_MIN, SDS, ArmDips, Dip
from pgdyno.analysis.findings.case_findings import Findings
from pgdyno.estimate import ABSENT, counted, given_percent, group_digits, share_text, significant
from pgdyno.report.result_tables import Table, enumeration

UNEXPLAINED = "no coincident event"

TITLE = "Throughput dips and coincident events"


def dip_sentences(findings: Findings) -> list[str]:
    """Return a sentence for each arm with dips."""
    names = {of.arm.arm: of.arm.name for of in findings.arms}
    return [_sentence(names[arm], of) for arm, of in findings.dips.items() if of.dips]


def _sentence(name: str, of: ArmDips) -> str:
    lost = share_text(max(0.0, of.share_of_transactions(of.dips)))
    parts = [
        f"{len(of.of(one.event))} with {one.event}" if len(of.dips) > 1 else f"with {one.event}"
        for one in of.coincidences
        if one.is_cause
    ]
    if of.unexplained:
        parts.append(
            f"{len(of.unexplained)} with {UNEXPLAINED}" if len(of.dips) > 1 else f"with {UNEXPLAINED}"
        )
    return (
        f"{name} had {counted(len(of.dips), 'throughput dip')} with a loss of {lost} of its transactions: "
        f"{enumeration(parts)}."
    )


def dip_table(findings: Findings) -> Table:
    """Return a row for each coincident event, and one for dips without any."""
    rows: list[list[str]] = []
    for findings_of in findings.arms:
        of = findings.dips.get(findings_of.arm.arm)
        if of is not None and of.dips:
            rows += _rows(findings_of.arm.name, of)
    numeric = ("dips", "expected at random", "time, %", "transactions lost, %")
    if not rows:
        return Table(TITLE, ("arm",), [])
    known = ((one.arm.name, findings.dips.get(one.arm.arm)) for one in findings.arms)
    peaks = [f"{counted(of.peaks, 'peak')} of {name}" for name, of in known if of is not None and of.dips]
    note = (
        f"A dip is more than {SDS:g} robust standard deviations and {given_percent(DEPTH_MIN)} below the "
        f"median rate, or {given_percent(DEPTH_ALWAYS)} below it. Events that coincide with more dips than "
        "expected at random are listed; a dip may have several. "
        f"Equally far above the median: {enumeration(peaks)}."
    )
    return Table(
        TITLE,
        ("arm", "event", *numeric),
        rows,
        note,
        frozenset(numeric),
        dispensable=("expected at random",),
    )


def _rows(name: str, of: ArmDips) -> list[list[str]]:
    rows = [[name, "all", *_cells(of, of.dips, ABSENT)]]
    for one in of.coincidences:
        if one.is_cause:
            chance = significant(one.expected, 2)
            rows.append(["", one.event, *_cells(of, of.of(one.event), chance)])
    if of.unexplained:
        rows.append(["", UNEXPLAINED, *_cells(of, of.unexplained, ABSENT)])
    return rows


def _cells(of: ArmDips, dips: Sequence[Dip], chance: str) -> list[str]:
    shares = (100 * of.share_of_time(dips), 100 * of.share_of_transactions(dips))
    return [str(len(dips)), chance, *(significant(share, 2) for share in shares)]


def label(dip: Dip) -> str:
    """Return the tooltip of a dip."""
    cause = ", ".join(dip.causes) or UNEXPLAINED
    begin, end = group_digits(dip.from_s, 1), group_digits(dip.to_s, 1)
    return f"dip of {share_text(dip.depth)} from {begin} s to {end} s: {cause}"
