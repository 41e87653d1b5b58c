"""Durability section: the speed of each arm beside the commits that power cuts lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from markupsafe import Markup

from pgdyno.analysis.findings.crash_findings import CrashFindings
from pgdyno.analysis.findings.study_findings import StudyFindings
from pgdyno.analysis.statistics.exact_interval import Proportion
from pgdyno.estimate import ABSENT, Estimate, ci_text
from pgdyno.report.charts import Panel, arm_class
from pgdyno.report.crash_report import (
    COLUMNS,
    LOSS_NOTE,
    PLURAL,
    CrashReport,
    crash_tables,
    outcome,
    table_rows,
    title_of,
)
from pgdyno.report.first_screen import BAR_WIDTH, axis, bar_of, ends_of, reach_of
from pgdyno.report.result_tables import Table, in_a_head, with_interval
from pgdyno.report.section import Section
from pgdyno.report.svg import Scale, circle, drawing, line, nice_ticks, text, tick_labels
from pgdyno.study.stopping_rule import INTERVAL_BLOCKS_MIN

TITLE = "Durability"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 300.0, 210.0, 42.0, 12.0, 22.0, 168.0
SENTENCES_MAX = 4
"""Maximum number of arms whose sentence the summary on the terminal has."""

LABEL_SPACE = 70.0
"""Distance to the right border below which a label is to the left of its point, in pixels."""


def durability_section(study: StudyFindings, crashes: CrashReport) -> Section:
    """Return the section of a study with a crash test of its arms."""
    changes = _changes(study)
    sentences = [_sentence(found, changes, study, crashes) for found in crashes.findings]
    disk = [replace(table, title=f"{TITLE}: {table.title}") for table in crash_tables(crashes)[1:]]
    return Section(
        TITLE,
        sentences,
        [_table(study, changes, crashes), *disk],
        [Panel("Loss against speed", _picture(study, changes, crashes))],
        _drawn(study, changes, crashes),
        brief=[f"{TITLE}: {sentence}" for sentence in sentences[:SENTENCES_MAX]],
    )


def _changes(study: StudyFindings) -> dict[str, Estimate]:
    """Return the change of the primary metric by arm: of the only case, or the average over cases."""
    if len(study.cases) == 1:
        return {of.arm.name: of.primary.percent for of in study.first.comparisons if of.primary is not None}
    better = study.first.primary.better
    return {over.arm: over.average.percent(better) for over in study.over_cases if over.average is not None}


def _sentence(
    found: CrashFindings, changes: Mapping[str, Estimate], study: StudyFindings, crashes: CrashReport
) -> str:
    """Return speed and loss of an arm in one sentence."""
    if found.name == study.first.arms[0].arm.name:
        speed = "baseline"
    elif (change := changes.get(found.name)) is None:
        speed = f"{study.first.primary.label} not compared"
    else:
        n = len(study.cases)
        basis = [f"average over {n} cases"] if n > 1 else []
        if change.low is not None:
            basis.append(f"{ci_text(change.confidence)} {change.signed_interval_text}")
        shown = f" ({', '.join(basis)})" if basis else ""
        speed = f"{study.first.primary.label} {change.signed_text}{shown}"
    return f"{found.name}: {speed}; {outcome(crashes.plan, found)}"


def _table(study: StudyFindings, changes: Mapping[str, Estimate], crashes: CrashReport) -> Table:
    plan, metric = study.first.study.plan, study.first.primary
    change = f"{metric.label} vs. {in_a_head(study.first.arms[0].arm.name)}, %"
    rows = []
    for found, row in zip(crashes.findings, table_rows(crashes.findings), strict=True):
        estimate = changes.get(found.name)
        shown = with_interval(estimate, plan.confidence, INTERVAL_BLOCKS_MIN) if estimate else ABSENT
        rows.append([row[0], shown, *row[1:]])
    kind = PLURAL[crashes.plan.kind][1]
    return Table(
        title=f"{TITLE}: {title_of(crashes)}",
        columns=("arm", change, *COLUMNS[1:]),
        rows=rows,
        note=f"{LOSS_NOTE.format(kind=kind)} The load of the cuts is a ledger of its own, not the workload "
        "above.",
        numeric=frozenset({change, *COLUMNS[1:]}),
        dispensable=("recovery", "window", "corrupt"),
        breaks_first=True,
    )


def durability_by_host(reports: Mapping[str, CrashReport]) -> Table:
    """Return a row per arm and file. Files are not pooled: each host has its own disk and kernel."""
    rows = [
        [row[0], name if number == 0 else "", title_of(report) if number == 0 else "", *row[1:]]
        for name, report in reports.items()
        for number, row in enumerate(table_rows(report.findings))
    ]
    return Table(
        title=f"{TITLE} by host",
        columns=(COLUMNS[0], "host", "crashes", *COLUMNS[1:]),
        rows=rows,
        note="loss: crashes that lost an acknowledged commit. lost, window: the most in one of them.",
        numeric=frozenset(COLUMNS[1:]),
        dispensable=("recovery", "window", "corrupt", "crashes"),
        breaks_first=True,
    )


def _drawn(study: StudyFindings, changes: Mapping[str, Estimate], crashes: CrashReport) -> Table:
    """Return one row per arm: its change and the share of cuts with a loss, each as a bar."""
    margin = 100 * study.first.study.plan.margin
    reach = reach_of(changes.values(), margin)
    speed, loss = axis(reach), "0" + "100%".rjust(BAR_WIDTH - 1)
    rows = [
        [
            found.name,
            bar_of(change, margin, reach) if (change := changes.get(found.name)) else "",
            share_bar(found.with_loss),
        ]
        for found in crashes.findings
    ]
    return Table(
        title=f"Change of {study.first.primary.label}, %, and {PLURAL[crashes.plan.kind][1]} with a loss",
        columns=("arm", speed, loss),
        rows=rows,
        numeric=frozenset({speed, loss}),
    )


def share_bar(share: Proportion | None) -> str:
    """Return a line of BAR_WIDTH characters from 0 to 100%: interval and share."""
    if share is None:
        return ""

    def column(value: float) -> int:
        return round((BAR_WIDTH - 1) * value)

    drawn = [" "] * BAR_WIDTH
    low, high = column(share.low), column(share.high)
    drawn[low : high + 1] = "─" * (high + 1 - low)
    drawn[low], drawn[high] = "├", "┤"
    drawn[column(share.count / share.n)] = "●"
    return "".join(drawn)


def _picture(study: StudyFindings, changes: Mapping[str, Estimate], crashes: CrashReport) -> Markup:
    """Return a chart with a point per arm: its change, the share of cuts with a loss (both %), their CIs."""
    shown = [(i, found, changes.get(found.name)) for i, found in enumerate(crashes.findings)]
    ends = [0.0, *(end for change in changes.values() for end in ends_of(change))]
    padding = 0.06 * ((max(ends) - min(ends)) or 1.0)
    x = Scale(min(ends) - padding, max(ends) + padding, LEFT, WIDTH - RIGHT)
    y = Scale(0, 100, BOTTOM, TOP)
    parts = []
    for tick in (0, 25, 50, 75, 100):
        parts += [
            line(LEFT, y(tick), WIDTH - RIGHT, y(tick), class_="grid"),
            text(LEFT - 6, y(tick) + 4, f"{tick}%", class_="end small"),
        ]
    ticks = nice_ticks(x.low, x.high, 5)
    for value, label in zip(ticks, tick_labels(ticks, "%"), strict=True):
        parts += [
            line(x(value), TOP, x(value), BOTTOM, class_="zero" if abs(value) < 1e-9 else "grid"),
            text(x(value), BOTTOM + 16, label, class_="middle small"),
        ]
    metric = study.first.primary.label
    parts += [
        text((LEFT + WIDTH - RIGHT) / 2, BOTTOM + 32, f"change of {metric}", class_="middle small"),
        text(LEFT - 6, TOP - 10, f"{PLURAL[crashes.plan.kind][1]} with a loss", class_="small"),
    ]
    for arm, found, change in shown:
        if found.with_loss is None or (change is None and arm != 0):
            continue
        share, color = found.with_loss, arm_class(arm)
        at, up = x(0.0 if change is None else change.value), y(100 * share.count / share.n)
        parts.append(line(at, y(100 * share.low), at, y(100 * share.high), class_=f"interval {color}"))
        if change is not None and change.low is not None and change.high is not None:
            parts.append(line(x(change.low), up, x(change.high), up, class_=f"interval {color}"))
        title = f"{found.name}: {share.count} of {share.n}"
        parts.append(circle(at, up, 4, title, class_=f"dot {color}"))
        is_right = at > WIDTH - RIGHT - LABEL_SPACE
        side = {"class_": "end small"} if is_right else {"class_": "small"}
        parts.append(text(at - 9 if is_right else at + 9, up - 8, found.name, **side))
    return drawing(WIDTH, HEIGHT, "Loss against speed", parts, "curves")
