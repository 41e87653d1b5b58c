"""Published tables in reports, with their charts.

- Charts of a published table: one of the published values, and one of those measured here.
- Published tables with the measured values beside the published ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from markupsafe import Markup

from pgdyno.analysis.study_findings import StudyFindings
from pgdyno.features.published.tables import (
    Agreement,
    MeasuredCell,
    MeasuredTable,
    PublishedFindings,
    SourceChange,
    counts_of,
    joined,
    published_in,
    row_texts,
    text_columns,
)
from pgdyno.report import result_tables
from pgdyno.report.document import Place, Section, Table
from pgdyno.report.json_format import Result
from pgdyno.report.plot import (
    NO_AXIS,
    ROW_LABEL_SCALE,
    Axis,
    Dots,
    Frame,
    Panel,
    Point,
    Scale,
    arm_class,
    element,
    label_width,
    line,
    linear,
    logarithmic,
    plot,
    row_label,
    text,
)
from pgdyno.results.records import LOST
from pgdyno.study.plan import VERDICT_BLOCKS_MIN
from pgdyno.units import (
    ABSENT,
    Estimate,
    counted,
    decimals_of,
    given_percent,
    group_digits,
    signed,
    significant,
    with_unit,
)

# ----------------------------------------------------------------------
# Charts of a published table: one of the published values, and one of those measured here.
# ----------------------------------------------------------------------

Value = Callable[[MeasuredCell], MeasuredCell | Estimate | None]
"""Value and unit of a cell in a chart."""


def source_charts(table: MeasuredTable) -> list[Panel]:
    """Return the charts of the values of a table.

    Each has its own scale, because levels depend on the machine: logarithmic, or that of bars from 0.
    """
    draw = _bars if table.chart == "bars" else _lines
    plain = [row[0].text for row in table.rows]
    rows = [_with_level(text, of) for text, of in zip(plain, levels_of_rows(table), strict=True)]
    columns = [
        _with_level(text, of) for text, of in zip(table.columns, levels_of_columns(table), strict=True)
    ]
    pictures = [
        ("published", draw(table, lambda cell: cell, plain, table.columns)),
        (HERE, draw(table, lambda cell: cell.measured, rows, columns)),
    ]
    return [Panel(f"{table.title}, {name}", picture) for name, picture in pictures if picture is not None]


def _lines(table: MeasuredTable, value: Value, rows: Sequence[str], columns: Sequence[str]) -> Markup | None:
    """Return the picture; ``rows`` and ``columns`` are the labels."""
    drawn = [
        [
            (r, of)
            for r, row in enumerate(table.rows)
            if not row[c].is_change and (of := value(row[c])) and of.value is not None and of.value > 0
        ]
        for c in range(len(columns))
    ]
    units = {of.unit for cells in drawn for _, of in cells}
    curves = {
        title: [(r, of.value or 0.0) for r, of in cells]
        for title, cells in zip(columns, drawn, strict=True)
        if cells
    }
    if not curves:
        return None
    names = [(float(r), text) for r, text in enumerate(rows)]
    x = Axis(-0.4, len(table.rows) - 0.6, names, table.columns[0])
    unit = units.pop() if len(units) == 1 else ""
    y = logarithmic((v for points in curves.values() for _, v in points), unit, factor=1.2)
    marks = [
        Dots(
            [Point(r, v, f"{title}, {rows[r]}: {significant(v, 3)}") for r, v in points],
            arm_class(number),
            title,
        )
        for number, (title, points) in enumerate(curves.items())
    ]
    return plot(table.title, x, y, marks)


BARS_WIDTH, BAR_ROOM, BAR = 300.0, 30.0, 13.0
"""Width of a chart of bars, height of a row, and of its bar."""

BAR_LABEL_MAX, BAR_LENGTH_MIN = 110.0, 80.0
"""Maximum room for the names of bars, and minimum room for the longest bar."""


def _bars(table: MeasuredTable, value: Value, rows: Sequence[str], columns: Sequence[str]) -> Markup | None:
    """Return the picture, with the interval of each measured value."""
    drawn = [
        (r, c, of)
        for r, row in enumerate(table.rows)
        for c, cell in enumerate(row)
        if not cell.is_change and (of := value(cell)) and of.value is not None and of.value > 0
    ]
    if not drawn:
        return None
    several = len({c for _, c, _ in drawn}) > 1
    names = [f"{rows[r]}, {columns[c]}" if several else rows[r] for r, c, _ in drawn]
    ends = [[of.value or 0.0, *_interval(of)] for _, _, of in drawn]
    texts = [_bar_text(of) for _, _, of in drawn]
    left = min(BAR_LABEL_MAX, max(map(label_width, names)) * ROW_LABEL_SCALE + 10)
    room = min(max(map(label_width, texts)) * ROW_LABEL_SCALE + 10, BARS_WIDTH - left - BAR_LENGTH_MIN)

    def draw(x: Scale, __: Scale) -> Iterator[Markup]:
        for n, (_, column, _) in enumerate(drawn):
            y, places = BAR_ROOM * (n + 0.5), [x(end) for end in ends[n]]
            title = element("title", f"{names[n]}: {texts[n]}")
            size = {"width": round(places[0] - left, 1), "height": BAR}
            yield from row_label(names[n], left - 6, y)
            yield element("rect", title, x=left, y=y - BAR / 2, **size, class_=f"dot {arm_class(column - 1)}")
            if len(places) > 1:
                yield line(places[1], y, places[2], y, class_="whisker")
            yield text(max(places) + 5, y + 4, texts[n])

    axis = replace(linear([0.0, *(end for of in ends for end in of)], 3, padding=0.0), grid=True)
    frame = Frame(BARS_WIDTH, left, room, 0.0, BAR_ROOM * len(drawn))
    return plot(table.title, axis, NO_AXIS, [draw], frame)


def _interval(of: MeasuredCell | Estimate) -> tuple[float, ...]:
    low, high = (of.low, of.high) if isinstance(of, Estimate) else (None, None)
    return () if low is None or high is None else (max(0.0, low), high)


def _bar_text(of: MeasuredCell | Estimate) -> str:
    return (
        as_printed(of) if isinstance(of, MeasuredCell) else with_unit(result_tables.level_text(of), of.unit)
    )


# ----------------------------------------------------------------------
# Levels that were measured in the place of the source's: in the name of a row or column if they are its own.
# ----------------------------------------------------------------------

HERE = "here"

Instead = Mapping[str, str]
"""Factor → measured level, where it is not the source's."""


def levels_of_rows(table: MeasuredTable) -> list[Instead]:
    """Return the levels that all measured figures of a row share, but not those of the whole table."""
    return [_unless(_shared(row), levels_of_table(table)) for row in table.rows]


def levels_of_columns(table: MeasuredTable) -> list[Instead]:
    """Return the levels that all measured figures of a column share, but not those of rows or the table."""
    in_rows = {factor for row in levels_of_rows(table) for factor in row}
    columns = [_shared([row[n] for row in table.rows]) for n in range(len(table.columns))]
    return [
        {
            factor: of
            for factor, of in _unless(column, levels_of_table(table)).items()
            if factor not in in_rows
        }
        for column in columns
    ]


def levels_of_table(table: MeasuredTable) -> Instead:
    """Return the levels that all measured figures share, if more than one row has any."""
    rows = [row for row in table.rows if any(cell.measured for cell in row)]
    return _shared([cell for row in rows for cell in row]) if len(rows) > 1 else {}


def _shared(cells: Sequence[MeasuredCell]) -> Instead:
    found = [dict(cell.instead) for cell in cells if cell.measured]
    return {f: of for f, of in found[0].items() if all(one.get(f) == of for one in found)} if found else {}


def _unless(levels: Instead, others: Instead) -> Instead:
    return {factor: of for factor, of in levels.items() if others.get(factor) != of}


def _with_level(text: str, levels: Instead) -> str:
    """Return a name with the measured levels: ``250 (here clients 5)``."""
    return f"{text} ({HERE} {_listed(levels)})".lstrip() if levels else text


def _listed(levels: Instead) -> str:
    return ", ".join(f"{factor} {of}" for factor, of in levels.items())


# ----------------------------------------------------------------------
# Published tables with the measured values beside the published ones.
# ----------------------------------------------------------------------

AS_ABOVE = "as above"
"""Shown instead of a repeated number, which would look like a second measurement."""


def sections(findings: StudyFindings) -> Iterator[Section]:
    """Yield the agreement with the source, the published tables, and their charts and notes."""
    yield from (replace(section, order=10, is_source=True) for section in _sections(findings))


def _sections(findings: StudyFindings) -> Iterator[Section]:
    found = published_in(findings.cases)
    if found is None:
        return
    confidence = findings.first.study.plan.confidence
    if said := agreement_sentences(findings, found.changes):
        yield Section("agreement", sentences=said, place=Place.ABOVE)
    if found.tables:
        tables = [with_measured_columns(table, confidence) for table in found.tables]
        yield Section("published", tables=tables)
    charts = [table for table in found.tables if table.chart]
    if charts:
        panels = partial(_panels, charts)
        yield Section("source-charts", "Charts of the source", plots=panels)
    if found.changes:
        tables = [_agreement(found.changes, confidence)]
        yield Section("source-changes", "Agreement with the source", tables=tables)
    if found.tables and found.notes:
        yield Section("source-notes", "Notes on the published values", found.notes)
    if found.not_repeated:
        yield Section("not-repeated", "Published, and not repeated", found.not_repeated)


def _panels(tables: Sequence[MeasuredTable]) -> list[Panel]:
    return [panel for table in tables for panel in source_charts(table)]


CONTRADICTIONS = (Agreement.OPPOSITE, Agreement.NOT_REPRODUCED)

CONTRADICTIONS_MAX = 3
"""Maximum number of contradictions with a sentence each, the largest first; the table has all."""

REASONS_MAX = 4

REASONS = (
    LOST,
    "data : ",
    "window : ",
    "factors.settings",
    "run.window",
    "run.transactions",
    "drive.",
    "factors.",
)
"""Beginnings of the changes of a fit, most probable reason of another effect first."""


def agreement_sentences(findings: StudyFindings, changes: Sequence[SourceChange]) -> list[str]:
    """Return the number of changes by agreement, and those that contradict the source, with reasons."""
    if not changes:
        return []
    counts = counts_of(changes)
    said = "; ".join(f"{n} {agreement}" for agreement, n in counts.items())
    sentences = [f"{counted(len(changes), 'change')} of the source measured here: {said}."]
    contradicting = [one for one in changes if one.agreement in CONTRADICTIONS]
    contradicting.sort(key=lambda one: -abs(one.published_percent))
    sentences += [
        f"{_named(one)}: {_beside(one)}: {one.agreement}." for one in contradicting[:CONTRADICTIONS_MAX]
    ]
    if counts.keys() & {*CONTRADICTIONS, Agreement.ONLY_HERE, Agreement.SMALLER, Agreement.LARGER} and (
        reasons := probable_reasons(findings)
    ):
        sentences.append(f"Probable reasons of differences: {'; '.join(reasons)}.")
    return sentences


def _named(change: SourceChange) -> str:
    measured = f" ({HERE} {change.instead})" if change.instead else ""
    return f"{change.what}, {change.arm} vs. {change.baseline}{measured}"


def _beside(change: SourceChange) -> str:
    then = signed(change.published_percent, decimals_of(change.published_percent, 3), "%")
    return f"source {then}, here {result_tables.change_with_ci(change.measured)}"


def probable_reasons(findings: StudyFindings) -> list[str]:
    """Return the deviations from the source that can change an effect, most important first."""
    changes = findings.first.study.changes
    ranked = [
        change for beginning in REASONS for change in changes if str(change["key"]).startswith(beginning)
    ]
    texts = [
        f"{str(change['key']).removeprefix(LOST)} {change['before']} → {change['after']}" for change in ranked
    ]
    reasons = list(dict.fromkeys(texts))[:REASONS_MAX]
    if any(caveat.kind == "nearest-version" for of in findings.cases for caveat in of.caveats):
        reasons.append("other minor versions")
    if any(change["key"] == "fit.machine" for change in changes):
        reasons.append("other hardware")
    return reasons


def _agreement(changes: Sequence[SourceChange], confidence: float) -> Table:
    rows = [
        [
            one.what,
            f"{one.arm} vs. {one.baseline}" + (f" ({HERE} {one.instead})" if one.instead else ""),
            signed(one.published_percent, decimals_of(one.published_percent, 3), ""),
            result_tables.with_interval(one.measured, confidence),
            one.agreement.value,
        ]
        for one in changes
    ]
    columns = ("figure", "change", "source, %", f"{HERE}, %", "agreement")
    note = (
        "The source has no CI: agrees means that the CI contains its value. Not resolved: the CI contains "
        "its value and 0. Not reproduced: the CI contains 0 and not its value. The CIs are corrected over "
        "all changes (Holm); a CI without a confidence level has "
        f"{given_percent(confidence)}. "
        "Levels of settings of different cases are compared between the blocks of a pass."
    )
    return Table("Published and measured changes", columns, rows, note, frozenset(columns[2:4]))


def with_measured_columns(table: MeasuredTable, confidence: float) -> Table:
    """Return the published table with a column of measured values after each column that has any.

    A unit that all numbers of a column share is in its heading, any other unit is beside its number.
    """
    measured = [any(row[n].is_requested for row in table.rows) for n in range(len(table.columns))]
    units = [_common_unit([row[n] for row in table.rows]) for n in range(len(table.columns))]
    titles = _titles(table, units)
    columns: list[str] = []
    numeric: set[str] = set()
    for title, has_ours, levels in zip(titles, measured, levels_of_columns(table), strict=True):
        columns.append(title)
        if has_ours:
            columns.append(f"{title}, {HERE}" + (f" ({_listed(levels)})" if levels else ""))
            numeric |= {title, columns[-1]}
    rows = [
        _row(row, measured, units, confidence, again=n > 0 and _is_the_same(row, table.rows[n - 1]))
        for n, row in enumerate(table.rows)
    ]
    for row, levels in zip(rows, levels_of_rows(table), strict=True):
        row[0] = _with_level(row[0], levels)
    return Table(
        title=table.title,
        columns=columns,
        rows=rows,
        note=_note(table),
        numeric=frozenset(numeric),
        whole=True,
        narrow=_narrow(table, measured, titles, rows),
    )


def _common_unit(cells: Sequence[MeasuredCell]) -> str:
    """Return the unit of all published and measured numbers of a column; empty if they differ."""
    units = {cell.unit for cell in cells if cell.value is not None}
    units |= {cell.measured.unit for cell in cells if cell.measured is not None}
    return units.pop() if len(units) == 1 else ""


def _titles(table: MeasuredTable, units: Sequence[str]) -> list[str]:
    return [
        f"{title}, {unit}" if unit and not title.endswith(unit) else title
        for title, unit in zip(table.columns, units, strict=True)
    ]


def _narrow(
    table: MeasuredTable, measured: Sequence[bool], titles: Sequence[str], rows: Sequence[Sequence[str]]
) -> Table | None:
    """Return the table with a line for each number; None if it has no measured numbers.

    The texts of a row are its name. With several numbers per row it has a line of its own above them.
    """
    if not any(measured):
        return None
    places = [n + sum(measured[:n]) for n in range(len(titles))]
    names = text_columns(table.rows)
    groups: list[tuple[str, list[list[str]]]] = []
    titles = [_with_level(text, of) for text, of in zip(titles, levels_of_columns(table), strict=True)]
    every = zip(table.rows, rows, row_texts(table.rows), levels_of_rows(table), strict=True)
    for cells, row, texts, levels in every:
        if 0 in names:
            texts[0] = _with_level(texts[0], levels)
        figures = [
            [title, row[places[n]], row[places[n] + 1] if measured[n] else ""]
            for n, title in enumerate(titles)
            if n not in names and (cells[n].text or cells[n].is_requested)
        ]
        groups.append((joined(texts), figures))
    head = joined(titles[n] for n in names)
    numeric = frozenset(("published", HERE))
    if names and any(len(figures) > 1 for _, figures in groups):
        lines = []
        for name, figures in groups:
            lines += [[name, "", ""], *([f"  {title}", *numbers] for title, *numbers in figures)]
        return Table(table.title, (head, "published", HERE), lines, numeric=numeric, breaks_first=True)
    lines = [[name, *figure] for name, figures in groups for figure in figures]
    columns = (head, "figure", "published", HERE)
    return Table(table.title, columns, lines, numeric=numeric, breaks_first=True)


def _is_the_same(row: Sequence[MeasuredCell], above: Sequence[MeasuredCell]) -> bool:
    """Return True if both rows show the same trials: two levels can become one when fitted to a machine."""
    pairs = list(zip(row, above, strict=True))
    return any(cell.measured for cell in row) and all(
        cell.measured == other.measured for cell, other in pairs
    )


def _row(
    row: Sequence[MeasuredCell],
    measured: Sequence[bool],
    units: Sequence[str],
    confidence: float,
    *,
    again: bool,
) -> list[str]:
    cells = []
    for cell, has_ours, unit in zip(row, measured, units, strict=True):
        cells.append(as_printed(cell, in_head=unit))
        if has_ours:
            cells.append(AS_ABOVE if again and cell.measured else measured_text(cell, unit, confidence))
    return cells


def as_printed(cell: MeasuredCell, *, in_head: str = "") -> str:
    """Return the published number or text with its unit, and the correct value if it was wrong.

    ``in_head``: unit in the heading of the column.
    """
    known = cell.value is not None and cell.unit and cell.unit != in_head
    is_whole = cell.value is not None and cell.text.isdigit()
    text = group_digits(float(cell.text), 0) if is_whole else cell.text
    text = with_unit(text, cell.unit) if known and not text.endswith(cell.unit) else text
    if cell.corrected is None:
        return text
    right = signed(cell.corrected, decimals_of(cell.corrected, 3), cell.unit)
    return f"{text} (correct: {right})"


def measured_text(cell: MeasuredCell, in_head: str, confidence: float) -> str:
    """Return the measured number with its unit, unless that is in the heading of the column."""
    if cell.measured is None:
        return ABSENT if cell.is_requested else ""
    found = cell.measured
    if cell.is_change:
        return result_tables.with_interval(found, confidence)
    text = group_digits(found.value, 0) if found.value <= 0 else result_tables.level_text(found)
    return text if found.unit in ("", in_head) else with_unit(text, found.unit)


def _note(table: MeasuredTable) -> str:
    """Return the notes of the source and of cells, the reasons for missing values, and the averages."""
    every = [cell for row in table.rows for cell in row]
    notes = [*table.notes, *_notes_on_figures(table)]
    notes += [
        f"{ABSENT}: {reason}"
        for reason in dict.fromkeys(cell.missing_reason for cell in every if cell.missing_reason)
    ]
    notes += _averages(table)
    if levels := levels_of_table(table):
        notes.append(f"Measured {HERE} with {_listed(levels)}")
    if any(cell.is_change and cell.measured and cell.measured.n < VERDICT_BLOCKS_MIN for cell in every):
        notes.append(f"Without a CI: fewer than {VERDICT_BLOCKS_MIN} blocks")
    if any(cell.is_requested for cell in every):
        notes.append(f"“{HERE}”: on this machine")
    if any(cell.is_change and cell.measured for cell in every):
        notes.append("Changes are (B − A) / A in percent of the baseline")
    return " ".join(f"{sentence.rstrip('.')}." for sentence in dict.fromkeys(notes))


def _notes_on_figures(table: MeasuredTable) -> Iterator[str]:
    """Yield notes such as ``growth of the database, change: in percent of the newer version``."""
    for row in table.rows:
        for title, cell in zip(table.columns, row, strict=True):
            if cell.note:
                yield f"{row[0].text}, {title}: {cell.note}" if row[0].text else f"{title}: {cell.note}"


def _averages(table: MeasuredTable) -> Iterator[str]:
    """Yield the cases and parts that means cover, with the columns whose rows all agree, or with the rows."""
    by_column = [
        {_over(row[n]) for row in table.rows if row[n].measured is not None}
        for n in range(len(table.columns))
    ]
    names: dict[str, dict[str, None]] = {}
    for row, own in zip(table.rows, map(joined, row_texts(table.rows)), strict=True):
        cells = zip(table.columns, row, by_column, strict=True)
        found = [(title, _over(cell), len(over) == 1) for title, cell, over in cells if cell.measured]
        is_one = own and len({mean for _, mean, is_column in found if not is_column}) == 1
        for title, mean, is_column in found:
            name = title if is_column else own if is_one else ", ".join(filter(None, (own, title)))
            names.setdefault(mean, {})[name] = None
    names.pop("", None)
    for mean, of in names.items():
        yield f"{HERE.capitalize()} over {mean}: {'; '.join(of)}"


def _over(cell: MeasuredCell) -> str:
    """Return the basis of a mean: ``2 cases and 3 statements``; empty for a single value."""
    several = [(len(cell.cases), "case"), (len(cell.parts), cell.part)]
    return " and ".join(counted(n, noun) for n, noun in several if n)


RESULT = Result(
    "published",
    PublishedFindings | None,
    "Source of the study beside the measured values.",
    lambda of: published_in(of.cases),
)
