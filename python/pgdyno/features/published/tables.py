"""Published tables with measured values, and their agreement.

- Values of one case from trials and telemetry, by metric, arm and block.
- Published tables with measured values: the same rows and columns, with intervals.
- Comparison of the measured changes with the published ones: direction and size.
- All of it for a study.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from itertools import chain
from statistics import fmean
from typing import Annotated, Literal

from pydantic import ValidationError

from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.finding_fields import about, in_json
from pgdyno.analysis.statistics.averages import LogRatios, combine
from pgdyno.analysis.statistics.intervals import Method, level_of, method_of, simultaneous
from pgdyno.analysis.telemetry.metrics import METRICS, OF_DRIVER, Metric, is_tail, split_key
from pgdyno.analysis.telemetry.trial_telemetry import STDDEV_CALLS_MIN, TrialTelemetry
from pgdyno.errors import EvidenceError
from pgdyno.features.published.metric_names import PARTS_OF, PER_TIMEOUT
from pgdyno.features.published.plan import Cell, Note, Published, PublishedTable
from pgdyno.report.csv_format import TRIAL_VALUES
from pgdyno.results.records import StudyRecord, Trial, TrialStatus
from pgdyno.study.plan import VERDICT_BLOCKS_MIN
from pgdyno.units import DURATION_UNITS_S, SIZE_UNITS_BYTES, Better, Estimate, parse_duration_s

# ----------------------------------------------------------------------
# Values of one case from trials and telemetry, by metric, arm and block.
# ----------------------------------------------------------------------

Levels = Mapping[str, str]
"""factor → name of its level."""


@dataclass(frozen=True)
class MetricValues:
    """Values of one metric in one case: ``by_block`` is arm → block → value."""

    unit: str
    better: Better
    by_block: Mapping[int, Mapping[int, float]]


@dataclass(frozen=True)
class CaseValues:
    """Values of one case. ``arms`` are the levels of each arm; ``values`` are by key of the metric.

    ``versions`` are those of the arms' servers; empty if unknown. ``effects``: (key, arm) → log ratios to the
    first arm of the metrics that the comparison has, so that a figure is the effect of the verdict.
    """

    name: str
    levels: Levels
    arms: Sequence[Levels]
    values: Mapping[str, MetricValues]
    confidence: float
    method: Method
    versions: Sequence[str] = ()
    effects: Mapping[tuple[str, int], LogRatios] = field(default_factory=dict)


def case_values(
    study: StudyRecord,
    trials: Sequence[Trial],
    telemetry: Mapping[int, TrialTelemetry],
    of_features: Callable[[Trial], Iterable[tuple[str, str, float]]] = lambda _: (),
    of_case: Sequence[Metric] = (),
) -> CaseValues:
    """Return the values of a case's ok trials. ``telemetry`` is by trial ID.

    ``of_features``: further metrics of a trial with unit and value, of which less is better. The unit of a
    ratio is "1", which is not printed. ``of_case``: metrics of the case, such as inserts and latencies.
    """
    found: dict[str, dict[int, dict[int, float]]] = {}
    metrics: dict[str, Metric] = {}
    for trial in trials:
        if trial.status is not TrialStatus.OK:
            continue
        driven = (*OF_DRIVER, *of_case)
        of_trial = [(metric.key, metric, metric.value(trial, trial.measured)) for metric in driven]
        of = telemetry.get(trial.trial)
        of_trial += [(key, METRICS[split_key(key)[0]], v) for key, v in (of.values if of else {}).items()]
        of_trial += [
            (key, Metric(key, key, "" if unit == "1" else unit, Better.LESS), v)
            for key, unit, v in of_features(trial)
        ]
        for key, metric, value in of_trial:
            if value is not None:
                metrics[key] = metric
                found.setdefault(key, {}).setdefault(trial.arm, {})[trial.block] = value
    return CaseValues(
        name=study.case,
        levels={factor: str(level) for factor, level in study.levels.items()},
        arms=[dict(levels) for levels in study.arm_levels],
        values={key: MetricValues(of.unit, of.better, found[key]) for key, of in metrics.items()},
        confidence=study.plan.confidence,
        method=method_of(study.plan, trials),
    )


# ----------------------------------------------------------------------
# Published tables with measured values: the same rows and columns, with intervals.
#
# A value is an arm's level over the blocks; for several cases or statements, that of their arithmetic mean in
# each pass, as sources print it. A change is (B − A) / A in percent, where A is the baseline, whatever base
# the source uses; for several, that of the same means, so that a row agrees with itself. A source that prints
# the mean of changes has that (``mean``, ``mean_of_rows``). Only complete passes count (``averages.py``).
# Each interval has the study's confidence, without correction for the number of values in a table. Intervals
# of verdicts are corrected.
# ----------------------------------------------------------------------

SIZES: Mapping[str, float] = {
    **SIZE_UNITS_BYTES,
    **{"KB": 2.0**10, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40},
}
"""Sizes in bytes, in PostgreSQL's notation: 1 GB is 2³⁰ bytes."""

SMALLER = ("TB", "GB", "MB", "kB", "B")
"""Units for sizes smaller than one published unit, because a fitted study is small."""

TIMES: Mapping[str, float] = {**DURATION_UNITS_S, "ns": 1e-9, "µs": 1e-6}
"""Times in seconds."""

VERSION = re.compile(r"\d+(\.\d+)?")

NOT_RUN = "case or arm not run"
NOT_MEASURED = "not measured"
NO_RATIO = "zero or less in a block: undefined ratio"
NO_PAIRS = "no block has both arms, of all cases and parts"
FEW_CALLS = f"fewer than {STDDEV_CALLS_MIN} calls in a block: no standard deviation"


Place = tuple[int, int]
"""Row and column of a figure."""


NOTE_ON_TAILS = "from the percentiles of the blocks, without a CI"
"""Rare events are in some blocks only, so that the error of their mean is too small."""


@dataclass(frozen=True)
class MeasuredCell:
    """A published figure with the measured one. ``text`` is as printed, empty if there was no figure.

    ``measured`` is in the published unit if that can be converted. It is the mean of ``cases`` and ``parts``,
    each of the kind ``part`` (statement, relation, wait, row); both are empty for a single one.
    ``missing_reason`` is the reason if a measured value was requested and is missing. ``instead``: level that
    was measured by factor, if it is not the source's.
    """

    text: str
    value: float | None
    corrected: float | None
    unit: str
    note: str
    is_change: bool
    measured: Estimate | None = None
    missing_reason: str = ""
    cases: Sequence[str] = ()
    parts: Sequence[str] = ()
    part: str = ""
    instead: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_requested(self) -> bool:
        """True if a measured value was requested."""
        return self.measured is not None or bool(self.missing_reason)


@dataclass(frozen=True)
class MeasuredTable:
    """A published table. ``notes`` are the source's, and notes on its corrected figures."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[MeasuredCell]]
    notes: Sequence[str]
    chart: bool | Literal["bars"] = False


def text_columns(rows: Sequence[Sequence[Cell | MeasuredCell]]) -> list[int]:
    """Return the columns without numbers, whose texts are the names of the rows."""
    return [n for n in range(len(rows[0])) if all(row[n].value is None for row in rows)]


def row_texts(rows: Sequence[Sequence[Cell | MeasuredCell]]) -> list[list[str]]:
    """Return the texts in the columns without numbers by row. An empty first one repeats the row above."""
    columns = text_columns(rows)
    found: list[list[str]] = []
    for row in rows:
        texts = [row[n].text or "" for n in columns]
        if texts and found and not texts[0]:
            texts[0] = found[-1][0]
        found.append(texts)
    return found


def joined(texts: Iterable[str]) -> str:
    """Return the texts of a row as its name."""
    return ", ".join(filter(None, texts))


def with_measured_values(published: Published, cases: Sequence[CaseValues]) -> list[MeasuredTable]:
    """Return every table with measured values. ``cases`` are those that were run."""
    return [
        MeasuredTable(
            table.title,
            [column.title for column in table.columns],
            [
                [_cell(table, (r, c), cell, cases) for c, cell in enumerate(row)]
                for r, row in enumerate(table.figures())
            ],
            [text for note in table.notes if (text := note.text_for(_largest(note, table, cases)))],
            table.chart,
        )
        for table in published.tables
    ]


def _largest(note: Note, table: PublishedTable, cases: Sequence[CaseValues]) -> float | None:
    """Return the largest measured value of the note's metric; None without one.

    It is that of the table's figures with this metric, or without one that of all arms.
    """
    figures = [cell for row in table.figures() for cell in row if cell.metric == note.metric]
    found = [case.values[note.metric] for case in cases if note.metric in case.values]
    arms = (
        [item.blocks(item.arm) for cell in figures for item in items_of(cell, cases)]
        if figures
        else [blocks for of in found for blocks in of.by_block.values()]
    )
    return max((value for blocks in arms for value in blocks.values()), default=None)


def _cell(table: PublishedTable, place: Place, cell: Cell, cases: Sequence[CaseValues]) -> MeasuredCell:
    found = MeasuredCell(
        text=cell.text if cell.text is not None else "" if cell.value is None else f"{cell.value:.15g}",
        value=cell.value,
        corrected=cell.corrected,
        unit="%" if cell.show == "change" else cell.unit or "",
        note=cell.note,
        is_change=cell.show == "change",
    )
    if cell.dropped:
        return replace(found, missing_reason=NOT_RUN)
    # A text is the row's name or an empty cell of the source, for any metric of the column.
    if cell.metric is None or cell.value is None:
        return found
    is_mean = table.rows_averaged(*place)
    found = _mean_of_rows(found, table, place, cases) if is_mean else _filled(found, cell, cases)
    if found.measured is None or not is_tail(cell.metric):
        return found
    without_interval = replace(found.measured, low=None, high=None)
    return replace(found, measured=without_interval, note=found.note or NOTE_ON_TAILS)


@dataclass(frozen=True)
class Item:
    """One value of one arm of one case. ``baseline`` is the arm to which its change refers."""

    case: CaseValues
    key: str
    arm: int
    baseline: int | None

    @property
    def name(self) -> tuple[str, str]:
        return self.case.name, split_key(self.key)[1]

    def instead(self, asked: Cell) -> dict[str, str]:
        """Return the measured level by factor where it is not that of the source."""
        found = {
            f: str(asked.levels[f]) for f, of in asked.source_levels.items() if str(asked.levels[f]) != of
        }
        named = str(asked.levels.get("server", ""))
        version = self.case.versions[self.arm] if self.case.versions else named
        both_known = VERSION.fullmatch(named) and VERSION.fullmatch(version)
        if both_known and not f"{version}.".startswith(f"{named}."):
            found["server"] = version
        return found

    def blocks(self, arm: int) -> Mapping[int, float]:
        return self.case.values[self.key].by_block.get(arm, {})


def _filled(cell: MeasuredCell, asked: Cell, cases: Sequence[CaseValues]) -> MeasuredCell:
    arms = [found for case in cases if (found := _arm(case, asked)) is not None]
    if not arms:
        return replace(cell, missing_reason=NOT_RUN)
    items = _items_in(asked, arms)
    if cell.is_change:
        items = [item for item in items if item.baseline != item.arm]
        if not items and all(arm == baseline for _, arm, baseline in arms):
            return cell  # the baseline's own change
    if not items:
        is_few = asked.metric == "statement.stddev_ms" and _items_in(
            asked.model_copy(update={"metric": "statement.calls"}), arms
        )
        return replace(cell, missing_reason=FEW_CALLS if is_few else NOT_MEASURED)
    named = list(dict.fromkeys(item.case.name for item in items))
    parts = list(dict.fromkeys(item.name[1] for item in items))
    cell = replace(cell, cases=named if len(named) > 1 else (), parts=parts if len(parts) > 1 else ())
    cell = replace(cell, part=(asked.metric or "").partition(".")[0] if cell.parts else "")
    instead = {factor: of for item in items for factor, of in item.instead(asked).items()}
    cell = replace(cell, instead=instead)
    return _changed(cell, asked, items) if cell.is_change else _valued(cell, items)


def items_of(asked: Cell, cases: Sequence[CaseValues]) -> list[Item]:
    """Return the values of a figure: one for each case that it covers, and for each statement or the like."""
    return _items_in(asked, [found for case in cases if (found := _arm(case, asked)) is not None])


def _items_in(asked: Cell, arms: Sequence[tuple[CaseValues, int, int | None]]) -> list[Item]:
    return [
        Item(case, key, arm, baseline)
        for case, arm, baseline in arms
        for key in _keys(case, asked)
        if case.values[key].by_block.get(arm)
    ]


@dataclass(frozen=True)
class Changed:
    """Change of a figure's arm: block → log ratio to its baseline. ``of``: what it is the mean of."""

    of: str
    ratios: LogRatios
    better: Better
    method: Method


def _change(table: PublishedTable, place: Place, asked: Cell, cases: Sequence[CaseValues]) -> Changed | None:
    if asked.metric is None or asked.value is None:
        return None
    rows = table.rows_averaged(*place)
    figures = table.figures()
    asked_for = [figures[row][place[1]] for row in rows] or [asked]
    items = [item for of in asked_for for item in items_of(of, cases) if item.baseline != item.arm]
    ratios = _ratios_of_rows(table, place, cases)[1] if rows else _ratios(asked, items)
    if not ratios:
        return None
    first = items[0]
    of = "; ".join(" ".join(item.name) for item in items)
    return Changed(of, ratios, first.case.values[first.key].better, first.case.method)


def _arm(case: CaseValues, asked: Cell) -> tuple[CaseValues, int, int | None] | None:
    """Return the case's arm with all requested levels, and its reference arm.

    Factors of the arms that are not named have the baseline's level. The reference arm has the same levels,
    except for the named factors: for those it has the levels of ``against``, or the baseline's.
    """
    if not case.arms or any(case.levels.get(f, level) != level for f, level in asked.levels.items()):
        return None
    first = case.arms[0]
    wanted = {factor: str(asked.levels.get(factor, level)) for factor, level in first.items()}
    if any(factor not in first and factor not in case.levels for factor in asked.levels):
        return None
    arm = _number(case, wanted)
    if arm is None:
        return None
    named = {*asked.levels, *asked.against}
    base = {f: str(asked.against.get(f, first[f])) if f in named else of for f, of in wanted.items()}
    return case, arm, _number(case, base)


def _number(case: CaseValues, levels: Levels) -> int | None:
    return next((i for i, arm in enumerate(case.arms) if dict(arm) == dict(levels)), None)


def _keys(case: CaseValues, asked: Cell) -> Iterator[str]:
    """Yield the requested keys. A metric per statement has a key for every matching statement."""
    metric = asked.metric or ""
    if metric.partition(".")[0] not in PARTS_OF:
        if metric in case.values:
            yield metric
        return
    for key in case.values:
        of, part = split_key(key)
        if of == metric and _is_requested(part, asked):
            yield key


def _is_requested(part: str, asked: Cell) -> bool:
    if asked.relation is not None:
        return part == asked.relation or part.endswith(f".{asked.relation}")
    text = " ".join(part.split())
    return not asked.statements or any(text.startswith(" ".join(of.split())) for of in asked.statements)


Side = Mapping[int, float]
"""Block → value of one arm, or ratio of two arms."""


def _mean(sides: Sequence[Side]) -> Side:
    """Return the arithmetic mean in each block that all have."""
    common = sorted(set.intersection(*(set(side) for side in sides))) if sides else []
    return {block: fmean(side[block] for side in sides) for block in common}


def _ratio(a: Side, b: Side) -> Side | None:
    """Return b / a in each common block; None if a value is zero or less."""
    both = sorted(a.keys() & b.keys())
    return None if any(min(a[n], b[n]) <= 0 for n in both) else {n: b[n] / a[n] for n in both}


def _log_ratios(asked: Cell, pairs: Sequence[tuple[Side, Side]]) -> LogRatios | None:
    """Return the log ratios of the means of all A and B, or of the mean change; None if one is undefined."""
    if asked.mean == "changes":
        ratios = [_ratio(a, b) for a, b in pairs]
        return None if None in ratios else _logs(_mean([ratio for ratio in ratios if ratio is not None]))
    a, b = (_mean(sides) for sides in zip(*pairs, strict=True))
    ratio = _ratio(a, b)
    return None if ratio is None else _logs(ratio)


def _logs(ratios: Side) -> LogRatios:
    return {block: math.log(ratio) for block, ratio in ratios.items()}


def _pair(base: Item, item: Item) -> tuple[Side, Side]:
    """Return the values of both arms, in the ratio of the comparison if it has this metric."""
    a, b = base.blocks(base.arm), item.blocks(item.arm)
    effect = item.case.effects.get((item.key, item.arm)) if base.case is item.case and base.arm == 0 else None
    return a, b if effect is None else {n: a[n] * math.exp(d) for n, d in effect.items() if n in a}


def _ratios(asked: Cell, items: Sequence[Item]) -> LogRatios | None:
    """Return the log ratios to the baseline of each item; None if one is undefined."""
    pairs = [_pair(replace(item, arm=item.baseline), item) for item in items if item.baseline is not None]
    return _log_ratios(asked, pairs) if pairs else {}


def _ratios_of_rows(
    table: PublishedTable, place: Place, cases: Sequence[CaseValues]
) -> tuple[list[str], LogRatios]:
    """Return the measured rows of a mean of rows, and its log ratios."""
    found, names = {}, row_texts([row.cells for row in table.rows])
    for row in table.rows_averaged(*place):
        figure = table.figures()[row][place[1]]
        items = [item for item in items_of(figure, cases) if item.baseline != item.arm]
        if not figure.dropped and (ratios := _ratios(figure, items)):
            found[joined(names[row])] = {n: math.exp(d) for n, d in ratios.items()}
    return list(found), _logs(_mean(list(found.values())))


def _mean_of_rows(
    cell: MeasuredCell, table: PublishedTable, place: Place, cases: Sequence[CaseValues]
) -> MeasuredCell:
    rows, ratios = _ratios_of_rows(table, place, cases)
    if not rows:
        return replace(cell, missing_reason=NOT_MEASURED)
    return _estimated(replace(cell, parts=rows, part="row"), ratios, cases[0], Better.NEITHER)


def _changed(cell: MeasuredCell, asked: Cell, items: Sequence[Item]) -> MeasuredCell:
    ratios = _ratios(asked, items)
    if ratios is None:
        return replace(cell, missing_reason=NO_RATIO)
    first = items[0]
    return _estimated(cell, ratios, first.case, first.case.values[first.key].better)


def _estimated(cell: MeasuredCell, ratios: LogRatios, case: CaseValues, better: Better) -> MeasuredCell:
    combined = combine({"": ratios}, case.confidence, case.method)
    if combined is None:
        return replace(cell, missing_reason=NO_PAIRS)
    return replace(cell, measured=combined.percent(better))


def _valued(cell: MeasuredCell, items: Sequence[Item]) -> MeasuredCell:
    """Return the value. Several are averaged in each common block, or without one over their levels."""
    case = items[0].case
    of, confidence, method = case.values[items[0].key], case.confidence, case.method
    every = [item.blocks(item.arm) for item in items]
    if means := _mean(every):
        found = level_of(means, of.unit, of.better, confidence, method)
    else:
        known = (level_of(blocks, of.unit, of.better, confidence, method) for blocks in every)
        levels = [level for level in known if level is not None]
        found = Estimate(sum(one.value for one in levels) / len(levels), of.unit, len(levels), of.better)
    return replace(cell, measured=None if found is None else in_unit(found, cell.unit))


def in_unit(estimate: Estimate, unit: str) -> Estimate:
    """Convert to the published unit if it measures the same quantity.

    A size smaller than one unit is shown in a smaller unit.
    """
    for table in (SIZES, TIMES):
        if unit in table and estimate.unit in table:
            if table is SIZES:
                unit = _fitting(abs(estimate.value) * table[estimate.unit], unit)
            return _scaled(estimate, table[estimate.unit] / table[unit], unit)
    return estimate


def mean_level(levels: Sequence[Estimate], unit: str) -> Estimate:
    """Return the arithmetic mean of levels, in the published unit as far as it fits."""
    factors = [SIZES.get(level.unit, 1.0) for level in levels]
    mean = fmean(level.value * factor for level, factor in zip(levels, factors, strict=True))
    of = "B" if levels[0].unit in SIZES else levels[0].unit
    return in_unit(Estimate(mean, of, len(levels), levels[0].better), unit)


def _fitting(size_bytes: float, unit: str) -> str:
    smaller = [one for one in SMALLER if SIZES[one] <= SIZES[unit]]
    return next((one for one in [unit, *smaller] if size_bytes >= SIZES[one]), unit)


def _scaled(estimate: Estimate, factor: float, unit: str) -> Estimate:
    low, high = (None if end is None else end * factor for end in (estimate.low, estimate.high))
    return replace(estimate, value=estimate.value * factor, unit=unit, low=low, high=high)


# ----------------------------------------------------------------------
# Comparison of the measured changes with the published ones: direction and size.
#
# A published table has changes, or values of which changes follow: in the same table, an arm against the
# baseline or ``against``, and a level of ``settings`` against the first one. A published value has no
# interval, so agreement means that the interval measured here contains it. Percentiles above the median have
# none, and are not compared. The intervals hold simultaneously (Holm), because a few of many changes would
# differ from the source at random.
# ----------------------------------------------------------------------


ZERO_MAX = 5.0
"""Largest change in percent within an interval that agrees with no change."""


class Agreement(StrEnum):
    """Result of the comparison; the text is shown."""

    OPPOSITE = "opposite sign"
    NOT_REPRODUCED = "not reproduced"
    ONLY_HERE = "change here only"
    SMALLER = "same sign, smaller"
    LARGER = "same sign, larger"
    AGREES = "agrees"
    UNRESOLVED = "not resolved"
    NO_INTERVAL = "no CI"


@dataclass(frozen=True)
class SourceChange:
    """A change in percent: of the source (corrected, if it was wrong), and measured here.

    ``what`` names the row, ``arm`` and ``baseline`` are compared. ``instead`` names the levels that were
    measured in their place.
    """

    table: str
    what: str
    arm: str
    baseline: str
    published_percent: float
    instead: str
    measured: Estimate

    @in_json
    def agreement(self) -> Agreement:
        """Return whether direction and size agree with the source."""
        here, then = self.measured, self.published_percent
        if here.low is None or here.high is None or here.n < VERDICT_BLOCKS_MIN:
            return Agreement.NO_INTERVAL
        contains_zero = here.low <= 0 <= here.high
        if here.low <= then <= here.high:
            is_wide = max(-here.low, here.high) > ZERO_MAX
            return Agreement.UNRESOLVED if contains_zero and (then or is_wide) else Agreement.AGREES
        if contains_zero:
            return Agreement.NOT_REPRODUCED
        if then == 0:
            return Agreement.ONLY_HERE
        if here.value * then < 0:
            return Agreement.OPPOSITE
        return Agreement.LARGER if abs(here.value) > abs(then) else Agreement.SMALLER


def changes_of_source(published: Published, cases: Sequence[CaseValues]) -> list[SourceChange]:
    """Return each change of the source that was measured here, in the order of its tables."""
    if not cases or not cases[0].arms:
        return []
    found: dict[object, Compared] = {}
    for table in published.tables:
        for key, compared in _changes(table, cases):
            found.setdefault(key, compared)
    estimators = [partial(combine, {"": ratios}, method=cases[0].method) for _, ratios in found.values()]
    estimates = simultaneous(estimators, cases[0].confidence)
    return [
        change_of(estimate.percent(Better.NEITHER))
        for (change_of, _), estimate in zip(found.values(), estimates, strict=True)
        if estimate is not None
    ]


Compared = tuple[Callable[[Estimate], SourceChange], LogRatios]
"""A published change without its estimate, and the measured log ratios."""


def _changes(table: PublishedTable, cases: Sequence[CaseValues]) -> Iterator[tuple[object, Compared]]:
    figures = {
        (r, c): cell
        for r, row in enumerate(table.figures())
        for c, cell in enumerate(row)
        if cell.metric is not None and cell.value is not None and not is_tail(cell.metric)
    }
    for place, cell in sorted(figures.items(), key=lambda one: one[1].show != "change"):
        if cell.show == "change":
            yield from _printed(table, place, cell, cases)
            continue
        for base in _bases(cell, figures, cases):
            yield from _of_values(table, place, base, figures, cases)


def _identity(cell: Cell) -> tuple[object, ...]:
    return cell.metric, cell.relation, cell.statements


def _printed(
    table: PublishedTable, place: Place, cell: Cell, cases: Sequence[CaseValues]
) -> Iterator[tuple[object, Compared]]:
    first = cases[0].arms[0]
    levels = {factor: str(level) for factor, level in {**first, **cell.levels}.items()}
    against = {
        factor: str(cell.against.get(factor, first.get(factor, level))) for factor, level in levels.items()
    }
    compared = {factor for factor in (*cell.levels, *cell.against) if factor in first}
    base = cell.model_copy(update={"levels": {**cell.levels, **{f: against[f] for f in compared}}})
    is_mean = bool(table.rows_averaged(*place))
    ratios = _ratios_of_rows(table, place, cases)[1] if is_mean else _ratios_of_cell(cell, base, cases)
    then = _right_value(cell)
    if ratios and then is not None:
        names = _names(levels, {**levels, **{f: against[f] for f in compared}})
        of: object = (table.title, place) if is_mean else _identity(cell)
        key = (of, tuple(sorted(levels.items())), tuple(sorted(against.items())))
        instead = _instead(cases, cell, base)
        yield (
            key,
            (partial(SourceChange, table.title, _row_name(table, place), *names, then, instead), ratios),
        )


def _right_value(cell: Cell) -> float | None:
    """Return the published value, corrected if it was wrong."""
    return cell.value if cell.corrected is None else cell.corrected


def _bases(cell: Cell, figures: Mapping[Place, Cell], cases: Sequence[CaseValues]) -> Iterator[Place]:
    """Yield the figures of the baseline, of ``against``, and of the first level of ``settings``; other levels
    are equal.
    """
    first = cases[0].arms[0]
    own = dict(cell.levels)
    wanted = [{**own, **{f: level for f, level in first.items() if f in own}}]
    if cell.against:
        wanted.append({**own, **cell.against})
    settings = next((case.levels["settings"] for case in cases if "settings" in case.levels), None)
    if settings is not None and "settings" in own:
        wanted.append({**own, "settings": settings})
    values = {place: of for place, of in figures.items() if of.show != "change"}
    same = {place: of for place, of in values.items() if _identity(of) == _identity(cell)}
    for levels in wanted:
        if levels != own:
            yield from [place for place, of in same.items() if dict(of.levels) == levels][:1]


def _of_values(
    table: PublishedTable,
    place: Place,
    base: Place,
    figures: Mapping[Place, Cell],
    cases: Sequence[CaseValues],
) -> Iterator[tuple[object, Compared]]:
    cell, other = figures[place], figures[base]
    value, base_value = _right_value(cell), _right_value(other)
    if not value or not base_value:
        return
    ratios = _ratios_of_cell(cell, other, cases)
    if not ratios:
        return
    then = 100 * (value / base_value - 1)
    names = _names(cell.levels, other.levels)
    levels = [tuple(sorted((f, str(v)) for f, v in one.levels.items())) for one in (cell, other)]
    yield (
        (_identity(cell), *levels),
        (
            partial(
                SourceChange, table.title, _row_name(table, place), *names, then, _instead(cases, cell, other)
            ),
            ratios,
        ),
    )


def _instead(cases: Sequence[CaseValues], *cells: Cell) -> str:
    """Return the measured levels that are not those of the source: ``clients 5 for 250``."""
    found = {
        f"{factor} {of} for {cell.source_levels.get(factor, cell.levels[factor])}"
        for cell in cells
        for item in items_of(cell, cases)
        for factor, of in item.instead(cell).items()
    }
    return ", ".join(sorted(found))


def _names(levels: Mapping[str, object], base: Mapping[str, object]) -> tuple[str, str]:
    """Return the levels of both that differ."""
    differing = [factor for factor in levels if levels[factor] != base.get(factor)]
    arm, baseline = (", ".join(str(of[factor]) for factor in differing) for of in (levels, base))
    return arm, baseline


def _row_name(table: PublishedTable, place: Place) -> str:
    """Return the name of the row and the heading of the column."""
    return joined([*row_texts([row.cells for row in table.rows])[place[0]], table.columns[place[1]].title])


def _ratios_of_cell(cell: Cell, base: Cell, cases: Sequence[CaseValues]) -> LogRatios | None:
    """Return the log ratios of common blocks; None if one of the two lacks a value that the other has."""
    compared = {factor for factor, of in cell.levels.items() if base.levels.get(factor) != of}

    def place(item: Item) -> tuple[str, list[tuple[str, str]]]:
        others = [(factor, of) for factor, of in item.case.levels.items() if factor not in compared]
        return item.key, sorted(others)

    arms, bases = (sorted(items_of(of, cases), key=place) for of in (cell, base))
    if not arms or [place(item) for item in arms] != [place(item) for item in bases] or arms == bases:
        return None
    return _log_ratios(cell, [_pair(*both) for both in zip(bases, arms, strict=True)])


def counts_of(changes: Sequence[SourceChange]) -> Mapping[Agreement, int]:
    """Return the number of changes by agreement, in the order of ``Agreement``."""
    found = Counter(change.agreement for change in changes)
    return {agreement: found[agreement] for agreement in Agreement if found[agreement]}


# ----------------------------------------------------------------------
# All of it for a study.
# ----------------------------------------------------------------------


@dataclass(frozen=True)
class PublishedFindings:
    """The source of a study beside the measured values."""

    tables: Annotated[Sequence[MeasuredTable], about("Tables of the source with measured values.")]
    notes: Annotated[Sequence[str], about("Notes on the published values.")]
    not_repeated: Annotated[Sequence[str], about("Published figures without a counterpart, with the reason.")]
    changes: Annotated[Sequence[SourceChange], about("Changes of the source beside the measured ones.")]


def published_in(cases: Sequence[Findings]) -> PublishedFindings | None:
    """Return the source of a study beside its values; None for a study without a source."""
    source = _source(cases)
    if source is None:
        return None
    values = _values(cases)
    return PublishedFindings(
        tables=with_measured_values(source, values),
        notes=source.notes,
        not_repeated=source.not_repeated,
        changes=changes_of_source(source, values),
    )


def changes_beside(cases: Sequence[Findings], names: Sequence[str]) -> list[list[list[Changed | None]]]:
    """Return the change in each figure by table and row; ``names`` are the labels of the cases.

    None without a published figure, for a baseline, and without a ratio.
    """
    source = _source(cases)
    if source is None:
        return []
    values = [replace(of, name=name) for name, of in zip(names, _values(cases), strict=True)]
    return [
        [
            [_change(table, (r, c), cell, values) for c, cell in enumerate(row)]
            for r, row in enumerate(table.figures())
        ]
        for table in source.tables
    ]


def _source(cases: Sequence[Findings]) -> Published | None:
    given = cases[0].study.published
    try:
        return None if given is None else Published.model_validate_json(json.dumps(given))
    except ValidationError as error:
        message = error.errors()[0]["msg"]
        raise EvidenceError(
            f"the published tables are invalid ({message}): restore the results file from a copy"
        ) from error


def further_values(findings: Findings, trial: Trial) -> Iterator[tuple[str, str, float]]:
    """Yield metric, unit and value of a trial: those of features, and PER_TIMEOUT. Less is better."""
    yield from chain.from_iterable(values.of(findings, trial) for values in TRIAL_VALUES)
    of, timeout = findings.telemetry.by_trial.get(trial.trial), trial.settings.get("checkpoint_timeout")
    per_hour = of.values.get("checkpoints.per_hour") if of else None
    if per_hour is not None and timeout:
        yield PER_TIMEOUT, "", per_hour * parse_duration_s(timeout) / DURATION_UNITS_S["h"]


def _values(cases: Sequence[Findings]) -> list[CaseValues]:
    return [
        replace(
            case_values(
                of.study,
                of.trials,
                of.telemetry.by_trial,
                partial(further_values, of),
                (*of.metrics, *of.latencies),
            ),
            versions=[one.arm.server_facts.version or "" for one in of.arms],
            effects={
                (key, comparison.arm.arm): effect.log_ratios
                for comparison in of.comparisons
                for key, effect in comparison.effects.items()
            },
        )
        for of in cases
    ]
