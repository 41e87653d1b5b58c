"""Report of a history: the changes with date and size, as text, tables and an HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
from markupsafe import Markup

from pgdyno.analysis.comparison import Verdict
from pgdyno.analysis.finding_fields import about
from pgdyno.features.gates.conditions import GateOutcome
from pgdyno.features.history.changes import (
    NIGHTS,
    FileDifference,
    HistoryChange,
    HistoryPoint,
    HistorySeries,
    StudyHistory,
)
from pgdyno.report.document import Document, Section, Table
from pgdyno.report.json_format import VERSION, Sentences, encoded
from pgdyno.report.plot import (
    Axis,
    Frame,
    Panel,
    Scale,
    arm_class,
    circle,
    element,
    line,
    linear,
    plot,
    row_of_labels,
    text,
)
from pgdyno.report.result_tables import level_text
from pgdyno.units import ci_text, counted, given_percent, with_unit

BARS = "▁▂▃▄▅▆▇█"

BARS_MAX = 32
"""Maximum number of bars of a sparkline; in a longer history, several files share a bar."""

DIFFERENCES_MAX = 8
"""Maximum number of differences named in a sentence; JSON has all."""

BIASED = "an arm failed or was not steady"
"""Reason for which a file is left out of a series."""

TEXT_MAX = 60
"""Maximum length of a shown value, for example of the build flags."""

NEWEST_FILES = 10
"""Default number of newest files whose confirmed changes fail the gate. Older changes are known, and would
fail a pipeline forever."""


class HistoryCondition(StrEnum):
    """Conditions of ``--fail-if``."""

    SLOWER = "slower"
    FASTER = "faster"
    CHANGE = "change"


@dataclass(frozen=True)
class HistoryReport:
    """All histories of a directory. ``skipped`` maps an unused file to the reason."""

    histories: Sequence[StudyHistory]
    skipped: Mapping[str, str]


@dataclass(frozen=True)
class HistoryGate:
    """Result of ``--fail-if``, in sentences."""

    outcome: GateOutcome
    met: Sequence[str]
    not_evaluable: Annotated[Sequence[str], about("Metrics with too few files, or without a baseline.")]
    awaiting: Annotated[Sequence[str], about("Changes to be confirmed by the next run.")]


@dataclass(frozen=True)
class HistoryDocument:
    """Output of ``pgdyno history --json``."""

    pgdyno_history: Annotated[Literal[3], about("Version of the format.")]
    skipped: Annotated[Mapping[str, str], about("Reason by file that is not used.")]
    sentences: Annotated[Sentences, about("By history: title, machine and number of files.")]
    histories: Sequence[StudyHistory]
    gate: Annotated[HistoryGate | None, about("Null without ``--fail-if``.")]


def history_to_json(report: HistoryReport, gate: HistoryGate | None) -> str:
    """Return the JSON document of a history."""
    sentences = {heading(history): history_sentences(history) for history in report.histories}
    return encoded(HistoryDocument(VERSION, report.skipped, sentences, report.histories, gate))


def heading(history: StudyHistory) -> str:
    """Return title, machine and number of files of a history."""
    return f"{history.title}, on machine {history.machine}, {counted(len(history.files), 'file')}"


def subject(series: HistorySeries) -> str:
    """Return the name of a series: ``clients 8: 18 vs. 17``, or ``clients 8: 18`` for the level of an arm."""
    key = series.key
    of = f"{key.arm} vs. {key.baseline}" if key.baseline else key.arm
    return f"{key.case}: {of}" if key.case else of


def history_change_sentence(series: HistorySeries, change: HistoryChange) -> str:
    """Return sentences with the first file, the size, the basis and the confirmation of a change."""
    point, percent = series.points[change.at], change.percent
    interval = "no interval"
    if percent.low is not None:
        interval = f"{ci_text(percent.confidence)} {percent.signed_interval_text}"
    files = f"{len(change.before)} files before, {len(change.after)} since"
    became = "may have become" if change is series.awaiting else "became"
    return (
        f"{subject(series)} {became} {change.verdict} with {point.file} ({day(point.created_unix_s)}): "
        f"{series.key.name} {percent.signed_text} ({interval}; {files}). {_confirmation(series, change)}"
    )


def _confirmation(series: HistorySeries, change: HistoryChange) -> str:
    if change is series.awaiting:
        return "To be confirmed by the next run; not gated until then."
    if change.confirmed_at is None:
        return "Not gated, since a level contains the drift of the machine."
    return f"Confirmed by {series.points[change.confirmed_at].file}."


def other_differences(change: HistoryChange) -> str:
    """Return the other differences between the file and the previous one."""
    if not change.differences:
        return "The files record no other difference."
    return f"Other differences from the previous file: {_named(change.differences)}."


def _named(differences: Sequence[FileDifference]) -> str:
    named = [difference_text(of) for of in differences[:DIFFERENCES_MAX]]
    rest = len(differences) - len(named)
    return "; ".join(named) + (f"; and {rest} more" if rest > 0 else "")


def difference_text(of: FileDifference) -> str:
    """Return name and both values of a difference: ``the machine's kernel (6.1 → 6.2)``."""
    before, after = fact_text(of.before), fact_text(of.after)
    return f"{of.name} ({before} → {after})"


def fact_text(fact: str) -> str:
    """Return a value in at most TEXT_MAX characters."""
    return (fact if len(fact) <= TEXT_MAX else f"{fact[: TEXT_MAX - 1]}…") or "none"


def history_sentences(history: StudyHistory) -> list[str]:
    """Return sentences for each change, newest first, or one that nothing changed.

    The last sentence explains why these files do not continue another history of the same title.
    """
    found = [
        (
            series.points[change.at].created_unix_s,
            f"{history_change_sentence(series, change)} {other_differences(change)}",
        )
        for series in history.series
        for change in shown_changes(series)
    ]
    changes = [text for _, text in sorted(found, key=lambda one: -one[0])]
    changes = changes or [_unchanged(history)]
    newest = history.files[-1:] if history.lacking else []
    if left_out := dict.fromkeys([*(file for of in history.series for file in of.biased), *newest]):
        changes.append(f"Without a value of some series ({BIASED}): {', '.join(left_out)}.")
    if (apart := history.separation) is None:
        return changes
    separation = (
        f"{apart.file} starts a new series and does not continue that of {apart.before}: "
        f"{difference_text(apart.difference)}."
    )
    return [*changes, separation]


def _unchanged(history: StudyHistory) -> str:
    short = sum(series.is_too_short for series in history.series)
    if short == len(history.series):
        return f"Too few files to detect changes: at least {_points_min(history.series)} are needed."
    none = f"None of the {len(history.series)} series changed"
    if not short:
        return f"{none}."
    return f"{none}; {short} have too few files (at least {_points_min(history.series)} are needed)."


def _points_min(series: Sequence[HistorySeries]) -> int:
    return max(of.points_min for of in series if of.is_too_short)


def shown_changes(series: HistorySeries) -> list[HistoryChange]:
    """Return the changes of a series and the one that awaits confirmation, oldest first."""
    return [*series.changes, *([series.awaiting] if series.awaiting else [])]


def ungated_metrics(report: HistoryReport, newest: int) -> list[str]:
    """Return a sentence for each metric that a gate cannot judge.

    It has no changes from a baseline, or too few files to detect changes.
    """
    found = []
    for history in _continuing(report, newest):
        keys = [*(series.key for series in history.series), *history.lacking]
        for name in dict.fromkeys(key.name for key in keys):
            gated = [of for of in history.series if of.key.name == name and of.key.is_change]
            problem = ""
            if any(key.name == name for key in history.lacking):
                problem = f"{name}: {history.files[-1]} has no value ({BIASED})."
            elif not gated:
                problem = (
                    f"{name} has only levels, which contain the drift of the machine: no file has a change "
                    "from the baseline."
                )
            elif any(series.is_too_short for series in gated):
                least = _points_min(gated)
                problem = f"too few files to detect changes of {name}: at least {least} are needed."
            if problem:
                found.append(f"{heading(history)}: {problem}")
    return found


def _continuing(report: HistoryReport, newest: int) -> list[StudyHistory]:
    """Return the histories with one of the ``newest`` files of the directory; others have ended."""
    ended = [
        {point.file: point.created_unix_s for series in history.series for point in series.points}
        for history in report.histories
    ]
    since = sorted(at for of in ended for at in of.values())[-newest:][0]
    return [history for history, of in zip(report.histories, ended, strict=True) if max(of.values()) >= since]


def overview(history: StudyHistory) -> Table:
    """Return the table of a history, one row per series."""
    rows = []
    several = len({series.key.metric for series in history.series}) > 1
    for series in history.series:
        newest = series.points[-1].estimate
        shown = shown_changes(series)
        rows.append(
            [
                f"{subject(series)}, {series.key.name}" if several else subject(series),
                str(len(series.points)),
                newest.signed_text if series.key.is_change else with_unit(level_text(newest), newest.unit),
                sparkline([point.log for point in series.points]),
                str(len(series.changes)),
                _last(series, shown[-1]) if shown else "",
            ]
        )
    level = given_percent(1 - history.confidence)
    return Table(
        title="Series" if several else history.series[0].key.name,
        columns=("series", "files", "newest", "oldest to newest", "changes", "last change"),
        rows=rows,
        note=(
            "Arm vs. baseline: paired change, in which drift of the machine cancels. The probability of any "
            f"false confirmed change is at most {level} in {NIGHTS} files. "
            "Arm alone: its level, not gated, since it contains the drift."
        ),
        numeric=frozenset({"files", "newest", "oldest to newest", "changes", "last change"}),
        dispensable=("files", "changes"),
    )


def _last(series: HistorySeries, change: HistoryChange) -> str:
    status = " (to be confirmed)" if change is series.awaiting else ""
    return f"{change.verdict}, {day(series.points[change.at].created_unix_s)}{status}"


def sparkline(values: Sequence[float]) -> str:
    """Return at most BARS_MAX bars, of medium height if all values are equal."""
    parts = np.array_split(np.asarray(values), min(len(values), BARS_MAX))
    means = np.array([float(part.mean()) for part in parts])
    extent = float(np.ptp(means))
    if extent == 0:
        return BARS[len(BARS) // 2] * len(means)
    places = np.minimum(((means - means.min()) / extent * len(BARS)).astype(int), len(BARS) - 1)
    return "".join(BARS[place] for place in places)


def day(unix_s: float) -> str:
    """Return the date of a file in UTC."""
    return _in_utc(unix_s, "%Y-%m-%d")


def _in_utc(unix_s: float, form: str) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime(form)


def recent_changes(report: HistoryReport, asked: Sequence[HistoryCondition], newest: int) -> list[str]:
    """Return sentences for each confirmed change that meets one of the conditions ``asked``.

    Only the last one of a series counts, and only if one of the ``newest`` files of its history confirmed
    it. A history that has ended fails no gate.
    """
    found = []
    for history in _continuing(report, newest):
        recent = history.files[-newest:]
        for series in history.series:
            last = series.changes[-1] if series.changes else None
            if last is None or last.confirmed_at is None or not _is_requested(last, asked):
                continue
            if series.points[last.confirmed_at].file in recent:
                found.append(f"{history_change_sentence(series, last)} {other_differences(last)}")
    return found


def awaiting_changes(report: HistoryReport, asked: Sequence[HistoryCondition], newest: int) -> list[str]:
    """Return sentences for each change that meets a condition ``asked`` once the next run confirms it."""
    return [
        history_change_sentence(series, series.awaiting)
        for history in _continuing(report, newest)
        for series in history.series
        if series.awaiting and _is_requested(series.awaiting, asked)
    ]


def judge_history(report: HistoryReport, asked: Sequence[HistoryCondition], newest: int) -> HistoryGate:
    """Return the result of the conditions ``asked``. A change that is not yet confirmed leaves it
    inconclusive.
    """
    met = recent_changes(report, asked, newest)
    not_evaluable, awaiting = ungated_metrics(report, newest), awaiting_changes(report, asked, newest)
    outcome = (
        GateOutcome.FAILED
        if met
        else GateOutcome.NOT_EVALUABLE
        if not_evaluable
        else GateOutcome.INCONCLUSIVE
        if awaiting
        else GateOutcome.PASSED
    )
    return HistoryGate(outcome, met, not_evaluable, awaiting)


def _is_requested(change: HistoryChange, asked: Sequence[HistoryCondition]) -> bool:
    word = HistoryCondition.FASTER if change.verdict is Verdict.FASTER else HistoryCondition.SLOWER
    return HistoryCondition.CHANGE in asked or word in asked


PANELS_MAX = 200
"""Maximum number of charts; the table has all series."""

DATES = 5
"""Number of dates on the axis."""

FRAME = Frame(640.0, 64.0, 34.0, 26.0, 180.0, 15.0)

LEVEL_COLOR, EFFECT_COLOR = arm_class(0), arm_class(1)


def history_document(report: HistoryReport) -> Document:
    """Return the document: the changes, the table and the charts of each history."""
    sections = [
        section
        for history in report.histories
        for section in (
            Section("history", heading(history), history_sentences(history), [overview(history)]),
            Section(
                "files",
                "File by file",
                plots=partial(panels, history),
                plots_size="effects",
                plots_note="Each dot is a file, with its CI. Horizontal lines are the means between changes. "
                "Hover over a dot for the name of the file.",
            ),
        )
    ]
    if report.skipped:
        skipped = [f"{file}: {why}" for file, why in report.skipped.items()]
        sections.append(Section("skipped", "Not used", skipped))
    return Document("History", sections, kicker="history")


def panels(history: StudyHistory) -> list[Panel]:
    """Return the charts; series with a change come first."""
    ordered = sorted(history.series, key=lambda series: not shown_changes(series))
    return [
        Panel(f"{subject(series)}: {series.key.name}", _picture(series, history.differences))
        for series in ordered[:PANELS_MAX]
    ]


def _picture(series: HistorySeries, differences: Mapping[str, Sequence[FileDifference]]) -> Markup:
    points, relative = series.points, series.key.is_change
    begin, end = points[0].created_unix_s, points[-1].created_unix_s
    aside = 0.02 * (end - begin)
    form = "%Y-%m-%d" if end - begin > DATES * 86_400 else "%Y-%m-%d %H:%M"
    dates = {_in_utc(at, form): at for at in np.linspace(begin, end, DATES).tolist()}
    x = Axis(begin - aside, end + aside, [(at, shown) for shown, at in dates.items()])
    unit = "%" if relative else None
    y = linear(_range(points), unit=unit, padding=0.0)
    color = EFFECT_COLOR if relative else LEVEL_COLOR

    def draw(x: Scale, y: Scale) -> Iterator[Markup]:
        shown = f"{unit or points[-1].estimate.unit}, {series.better} is better"
        yield text(FRAME.left, 14, shown, class_="quiet")
        labels = []
        for change in shown_changes(series):
            status = " (to be confirmed)" if change is series.awaiting else ""
            at = x(points[change.at].created_unix_s)
            yield line(at, FRAME.top, at, FRAME.bottom, class_="zero")
            labels.append((at, f"{change.verdict} {change.percent.signed_text}{status}"))
        yield from row_of_labels(labels, FRAME.bottom + 30, FRAME.width, "middle small strong")
        for point in points:
            yield from _point(point, x, y, color)
            if point.file in differences:
                yield _mark(point, differences[point.file], x(point.created_unix_s))
        yield from _means(series, x, y, color)

    label = f"{subject(series)}: {series.key.name}, {len(points)} files, {len(series.changes)} changes"
    return plot(label, x, y, [draw], FRAME, class_="effect wide")


def _range(points: Sequence[HistoryPoint]) -> tuple[float, float]:
    """Return the range of the values, with the ends of intervals that lie near them."""
    values = [point.estimate.value for point in points]
    extent = max(values) - min(values)
    ends = [
        end
        for point in points
        for end in (point.estimate.low, point.estimate.high)
        if end is not None and min(values) - extent <= end <= max(values) + extent
    ]
    values += ends
    padding = 0.06 * (max(values) - min(values)) or 0.05 * abs(values[0]) or 1.0
    return min(values) - padding, max(values) + padding


def _point(point: HistoryPoint, x: Scale, y: Scale, color: str) -> list[Markup]:
    of, at = point.estimate, x(point.created_unix_s)
    value = of.signed_text if point.is_change else of.value_text
    title = f"{point.file}, {day(point.created_unix_s)}: {value}, CI {of.interval_text}"
    parts = []
    if of.low is not None and of.high is not None:
        parts.append(line(at, y.inside(of.low), at, y.inside(of.high), class_=f"tick faint {color}"))
    return [*parts, circle(at, y(of.value), 3.4, title, class_=f"dot {color}")]


def _mark(point: HistoryPoint, differences: Sequence[FileDifference], x: float) -> Markup:
    """Return a mark on the axis of a file with other builds, settings or facts than the previous one."""
    title = element("title", f"{point.file}, {day(point.created_unix_s)}: {_named(differences)}")
    return text(x, FRAME.bottom - 1, Markup("▴") + title, class_="middle quiet")


def _means(series: HistorySeries, x: Scale, y: Scale, color: str) -> list[Markup]:
    """Return a line for each segment, at the mean of its dots."""
    edges = [0, *(change.at for change in series.changes), len(series.points)]
    parts = []
    for begin, end in pairwise(edges):
        of = series.points[begin:end]
        mean = sum(point.estimate.value for point in of) / len(of)
        first, last = x(of[0].created_unix_s), x(of[-1].created_unix_s)
        parts.append(line(first, y(mean), last, y(mean), class_=f"rate {color}"))
    return parts
