"""Throughput dips and coincident events: sentences, a table, marks in charts, and rows of the CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pgdyno.analysis.case_findings import Findings
from pgdyno.features.dips.findings import DEPTH_ALWAYS, DEPTH_MIN, SDS, ArmDips, Dip, dips_by_arm
from pgdyno.report.document import Place, Section, Table, tables_section
from pgdyno.report.result_tables import enumeration
from pgdyno.report.why_section import TimelineMark, TimelineMarks
from pgdyno.results.records import Trial
from pgdyno.units import ABSENT, counted, given_percent, group_digits, share_text, significant


def sections(findings: Findings) -> Iterator[Section]:
    """Yield the sentences and the table of a case."""
    yield Section("dips", sentences=dip_sentences(findings), place=Place.HEAD, after="queries")
    yield replace(tables_section("dip-table", [dip_table(findings)]), after="breakdowns")


UNEXPLAINED = "no coincident event"

TITLE = "Throughput dips and coincident events"


def dip_sentences(findings: Findings) -> list[str]:
    """Return a sentence for each arm with dips."""
    names = {of.arm.arm: of.arm.name for of in findings.arms}
    return [_sentence(names[arm], of) for arm, of in dips_by_arm(findings).items() if of.dips]


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
    rows, dips = list[list[str]](), dips_by_arm(findings)
    for findings_of in findings.arms:
        of = dips.get(findings_of.arm.arm)
        if of is not None and of.dips:
            rows += _rows(findings_of.arm.name, of)
    numeric = ("dips", "expected at random", "time, %", "transactions lost, %")
    if not rows:
        return Table(TITLE, ("arm",), [])
    known = ((one.arm.name, dips.get(one.arm.arm)) for one in findings.arms)
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


def timeline_marks(findings: Findings) -> list[TimelineMark]:
    """Return a mark for each dip."""
    return [
        TimelineMark(dip.trial, (dip.from_s + dip.to_s) / 2, label(dip))
        for of in dips_by_arm(findings).values()
        for dip in of.dips
    ]


MARKS = TimelineMarks(timeline_marks, "Triangles mark throughput dips; hover for coincident events.")


def trial_values(findings: Findings, trial: Trial) -> Iterator[tuple[str, str, float]]:
    """Yield the values of all dips of a trial, then of each cause of the arm's dips, even if 0."""
    of = dips_by_arm(findings).get(trial.arm)
    if of is None or trial.trial not in of.trials:
        return
    groups: list[tuple[str, Sequence[Dip]]] = [("", of.dips)]
    groups += [(f":{one.event}", of.of(one.event)) for one in of.coincidences if one.is_cause]
    if of.unexplained:
        groups.append((":unexplained", of.unexplained))
    for suffix, dips in groups:
        own = [dip for dip in dips if dip.trial == trial.trial]
        yield f"dips.n{suffix}", "dips", len(own)
        yield f"dips.time{suffix}", "s", sum(dip.to_s - dip.from_s for dip in own)
        yield f"dips.lost{suffix}", "tx", sum(dip.lost for dip in own)
