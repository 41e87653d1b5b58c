"""Throughput dips and coincident events: sentences, a table, marks in charts, and rows of the CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pgdyno.analysis.case_findings import Findings
from pgdyno.features.dips.findings import DEPTH_ALWAYS, DEPTH_MIN, SDS, ArmDips, Dip, dips_by_arm, rates_of
from pgdyno.features.dips.variation import values_of_trial, variation_by_arm
from pgdyno.report.csv_format import TrialValues
from pgdyno.report.document import Place, Section, Table, tables_section
from pgdyno.report.result_tables import enumeration
from pgdyno.report.why_section import TimelineMark, TimelineMarks
from pgdyno.results.records import Trial
from pgdyno.units import (
    ABSENT,
    counted,
    format_duration,
    given_percent,
    group_digits,
    number_text,
    share_text,
    significant,
)


def sections(findings: Findings) -> Iterator[Section]:
    """Yield the sentences and the table of a case."""
    yield Section("dips", sentences=dip_sentences(findings), place=Place.HEAD, after="queries")
    tables = [variation_table(findings), dip_table(findings)]
    yield replace(tables_section("dip-table", tables), after="breakdowns")


UNEXPLAINED = "no coincident event"

VARIATION = "Variation of throughput"

TITLE = "Throughput dips and coincident events"


def dip_sentences(findings: Findings) -> list[str]:
    """Return a sentence for each arm with dips."""
    names = {of.arm.arm: of.arm.name for of in findings.arms}
    return [_sentence(names[arm], of) for arm, of in dips_by_arm(findings).items() if of.dips]


def _sentence(name: str, of: ArmDips) -> str:
    lost = share_text(max(0.0, of.share_of_transactions(of.dips)))
    parts = [f"{len(dips)} with {event or UNEXPLAINED}" for event, _, dips in of.groups]
    if len(of.dips) == 1:
        parts = [f"with {event or UNEXPLAINED}" for event, _, _ in of.groups]
    return (
        f"{name} had {counted(len(of.dips), 'throughput dip')} with a loss of {lost} of its transactions: "
        f"{enumeration(parts)}."
    )


def variation_table(findings: Findings) -> Table:
    """Return a row for each arm: the variation of its throughput within and between trials, and its dips."""
    columns = (
        *("arm", "trials", "tx/s of trials", "tx/s of intervals"),
        *("CV within, %", "CV between, %", "CV expected, %", "dips"),
    )
    rows, lengths = list[list[str]](), list[str]()
    dips, found = dips_by_arm(findings), variation_by_arm(findings)
    for arm in findings.arms:
        of, own = found.get(arm.arm.arm), dips.get(arm.arm.arm)
        if of is not None:
            lengths.append(format_duration(of.interval_s))
            rows.append(
                [
                    arm.arm.name,
                    str(of.trials),
                    _range(of.trial_min_per_s, of.trial_max_per_s),
                    _range(of.interval_min_per_s, of.interval_max_per_s),
                    significant(100 * of.within_cv, 2),
                    ABSENT if of.between_cv is None else significant(100 * of.between_cv, 2),
                    significant(100 * of.expected_cv, 2),
                    str(len(own.dips)) if own else ABSENT,
                ]
            )
    note = (
        f"Minimum to maximum, and SD divided by mean, of trials and of their intervals of "
        f"{enumeration(list(dict.fromkeys(lengths)))}. Expected: the CV between trials if intervals did not "
        "depend on each other. A CV between trials far above it means that conditions change slowly or from "
        "trial to trial. For remedies see pgdyno docs noise#consistent-results."
    )
    numeric = frozenset(columns[1:])
    return Table(
        VARIATION, columns, rows, note, numeric, long=True, dispensable=("trials", "tx/s of intervals")
    )


def _range(low: float, high: float) -> str:
    return f"{number_text(low)} to {number_text(high)}"


def dip_table(findings: Findings) -> Table:
    """Return a row for each coincident event, and one for dips without any."""
    rows, peaks, dips = list[list[str]](), list[str](), dips_by_arm(findings)
    for arm in findings.arms:
        of, name = dips.get(arm.arm.arm), arm.arm.name
        if of is not None and of.dips:
            peaks.append(f"{counted(of.peaks, 'peak')} of {name}")
            rows.append([name, "all", *_cells(of, of.dips, None)])
            rows += [["", event or UNEXPLAINED, *_cells(of, own, chance)] for event, chance, own in of.groups]
    if not rows:
        return Table(TITLE, ("arm",), [])
    note = (
        f"A dip is more than {SDS:g} robust standard deviations and {given_percent(DEPTH_MIN)} below the "
        f"median rate, or {given_percent(DEPTH_ALWAYS)} below it. Events that coincide with more dips than "
        "expected at random are listed; a dip may have several. "
        f"Equally far above the median: {enumeration(peaks)}."
    )
    chance = "expected at random"
    numeric = ("dips", chance, "time, %", "transactions lost, %")
    columns = ("arm", "event", *numeric)
    return Table(TITLE, columns, rows, note, frozenset(numeric), dispensable=(chance,))


def _cells(of: ArmDips, dips: Sequence[Dip], expected: float | None) -> list[str]:
    shares = (100 * of.share_of_time(dips), 100 * of.share_of_transactions(dips))
    chance = ABSENT if expected is None else significant(expected, 2)
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
    """Yield the variation of a trial, the values of all its dips, then of each cause of the arm's dips."""
    if trial.trial in findings.executed:
        yield from values_of_trial(rates_of(findings.executed[trial.trial]))
    of = dips_by_arm(findings).get(trial.arm)
    if of is None or trial.trial not in of.trials:
        return
    groups = [(f":{event or 'unexplained'}", dips) for event, _, dips in of.groups]
    for suffix, dips in [("", of.dips), *groups]:
        own = [dip for dip in dips if dip.trial == trial.trial]
        yield f"dips.n{suffix}", "dips", len(own)
        yield f"dips.time{suffix}", "s", sum(dip.to_s - dip.from_s for dip in own)
        yield f"dips.lost{suffix}", "tx", sum(dip.lost for dip in own)


VALUES = TrialValues(("rate.cv", "rate.max_to_min", "dips.n", "dips.time", "dips.lost"), trial_values)
