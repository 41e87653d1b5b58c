"""The page of a study with the factor workload: an effect with its interval for each workload and server.

The cells are one family. The procedure of Benjamini and Hochberg ("Controlling the false discovery rate",
1995) selects those that differ. Of the selected cells, a share of at most 1 − confidence is false on average.
It is proven for positively dependent tests. Here cells of a row share the baseline, and a study may stop at
any time: simulations with both stay below the limit (``tests/test_matrix.py``). The interval of each cell has
the level at which its test was decided, so it excludes 0 exactly if the cell is selected. Then the expected
share of selected cells whose interval misses the true effect has the same limit (Benjamini and Yekutieli,
"False discovery rate-adjusted multiple confidence intervals", 2005). Those of the other cells have no such
limit. A correction for any false cell (Holm) would leave most of a large page undecided.

A cell differs only if the report of its workload finds a difference, too: it also examines warm-ups and A/A
blocks.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Annotated, Any

from markupsafe import Markup

from pgdyno.analysis.case_findings import ArmFindings, Findings
from pgdyno.analysis.comparison import Comparison, detectable_log_ratio
from pgdyno.analysis.finding_fields import about
from pgdyno.analysis.statistics.intervals import critical_value, percent_of, with_error
from pgdyno.analysis.study_findings import StudyFindings
from pgdyno.analysis.telemetry.metrics import SERVER_CPU
from pgdyno.features.plans.findings import plans_of
from pgdyno.features.plans.section import named_changes
from pgdyno.report.document import Place, Section, Table, address_of
from pgdyno.report.json_format import Result
from pgdyno.report.plot import Panel, drawing, element, label_width, text
from pgdyno.report.why_section import why_reports
from pgdyno.study.plan import VERDICT_BLOCKS_MIN, Study
from pgdyno.study.workload_parameters import WorkloadParameters
from pgdyno.units import (
    ABSENT,
    Better,
    Estimate,
    bracketed,
    confidence_percent,
    counted,
    given_percent,
    share_text,
    signed,
)

FACTOR = "workload"

COSTS = {
    "server_cpu": ("CPU, µs/tx", 0.0),
    "clients.switches_per_tx": ("context switches/tx", 0.0),
    "wal.bytes_per_tx": ("WAL, B/tx", 10.0),
    "database.blocks_read_per_tx": ("blocks read/tx", 0.1),
}
"""Metrics of the cost of a transaction: short name, and the least cost of any server that is shown."""

CHANGE_MAX = 900.0
"""Maximum change of a cost with its percentage; a larger one is of a cost near zero."""


@dataclass(frozen=True)
class Cell:
    """One workload on one server, compared with the baseline.

    ``change`` is that of the primary metric, its interval for the whole page. ``differs``: it is selected.
    ``resolves``: smallest detectable effect in percent. ``held_back``: the reason for which the cell has no
    interval and cannot differ.
    """

    change: Estimate | None
    differs: bool
    resolves: float | None
    held_back: str = ""


@dataclass(frozen=True)
class Matrix:
    """``cells[i][j]`` is workload i on server j after the baseline."""

    baseline: str
    servers: Annotated[Sequence[str], about("Without the baseline.")]
    workloads: Sequence[str]
    metrics: Annotated[Sequence[str], about("Primary metric by workload.")]
    cells: Annotated[Sequence[Sequence[Cell]], about("By workload and server.")]
    confidence: Annotated[float, about("One minus the limit of the share of false cells.")]
    interval_confidence: Annotated[float, about("Confidence of the intervals of the cells.")]

    @property
    def every(self) -> list[Cell]:
        """All cells."""
        return [cell for row in self.cells for cell in row]


def matrix_in(findings: StudyFindings) -> Matrix | None:
    """Return the matrix of a study; None without the factor workload, with other factors, or if exclusions
    leave the workloads different arms.
    """
    cases = [of for of in findings.cases if set(of.study.levels) == {FACTOR}]
    if len(cases) < 2 or len(cases) < len(findings.cases):
        return None
    comparisons = [of.comparisons for of in cases]
    if len({tuple((one.baseline.name, one.arm.name) for one in row) for row in comparisons}) > 1:
        return None
    confidence = findings.confidence
    level, every = cells_of([one for row in comparisons for one in row], confidence)
    cells = iter(every)
    return Matrix(
        baseline=cases[0].arms[0].arm.name,
        servers=[one.arm.name for one in comparisons[0]],
        workloads=[of.study.case for of in cases],
        metrics=[of.primary.label for of in cases],
        cells=[[next(cells) for _ in row] for row in comparisons],
        confidence=confidence,
        interval_confidence=1 - level,
    )


def cells_of(comparisons: Sequence[Comparison], confidence: float) -> tuple[float, list[Cell]]:
    """Return the level of the tests of a page, and its cells."""
    reasons = [_held_back(one) for one in comparisons]
    p_values = [
        one.primary.summary.p_value if one.primary and not reason else None
        for one, reason in zip(comparisons, reasons, strict=True)
    ]
    level = level_of_page(p_values, 1 - confidence)
    return level, [_cell(one, reason, 1 - level) for one, reason in zip(comparisons, reasons, strict=True)]


def level_of_page(p_values: Sequence[float | None], q: float) -> float:
    """Return the level at which all tests of a family are decided: q · R / m for R selected ones of m.

    That of one selected test if none is selected. A test without a p-value counts in m.
    """
    known, m = sorted(p for p in p_values if p is not None), len(p_values)
    selected = max((rank for rank, p in enumerate(known, 1) if p <= q * rank / m), default=1)
    return q * selected / max(1, m)


def _held_back(one: Comparison) -> str:
    if one.censored:
        return "overloaded"
    if one.lost_by_an_arm:
        return "an arm failed"
    if one.primary is None:
        return "no valid block"
    if one.missed_rates:
        return "rate missed"
    if one.unconfirmed:
        return "limit missed"
    if one.is_held_back:
        return "not steady"
    return "too few blocks" if one.primary.summary.n < VERDICT_BLOCKS_MIN else ""


def _cell(one: Comparison, reason: str, confidence: float) -> Cell:
    if one.primary is None:
        return Cell(None, differs=False, resolves=None, held_back=reason)
    of, percent = one.primary.summary, one.primary.percent
    for_page = with_error(of.mean, of.sd, of.n, confidence, of.method)
    change = for_page.percent(percent.better)
    differs = _excludes_zero(change)
    if not reason and differs and (one.decision is None or one.decision.difference is None):
        reason = "undecided in its report"
    if reason:
        change = Estimate(percent.value, "%", of.n, percent.better)
        return Cell(change, differs=False, resolves=None, held_back=reason)
    is_known = of.sd is not None and critical_value(of.n, confidence, of.method) < float("inf")
    least = detectable_log_ratio(of.sd or 0.0, of.n, confidence, of.method) if is_known else None
    return Cell(change, differs, None if least is None else percent_of(least))


def _excludes_zero(change: Estimate) -> bool:
    return change.low is not None and change.high is not None and (change.low > 0 or change.high < 0)


# Sentences and tables.


def sections(findings: StudyFindings) -> Iterator[Section]:
    """Yield the page."""
    if (found := matrix_in(findings)) is not None:
        sentences = sentences_of(found)
        functions = (effects_table, causes_table, costs_table, searches)
        tables = [of(found, findings.cases) for of in functions]
        yield Section(
            "matrix",
            f"All workloads against {found.baseline}",
            sentences,
            [table for table in tables if table.rows],
            plots=partial(heat_map, found),
            plots_size="effects",
            plots_note="Green is better than the baseline, red worse. Pale: no difference is established. "
            "A cell leads to its workload, whose verdict is not corrected for the number of cells.",
            brief=sentences,
            place=Place.TOP,
            order=-10,
            has_verdicts=True,
        )


def sentences_of(found: Matrix) -> list[str]:
    """Return how many cells differ, what the page resolves, and what is held back."""
    cells, total = found.every, len(found.every)
    selected = [cell for cell in cells if cell.differs]
    better = sum(_is_better(cell) for cell in selected)
    false = given_percent(1 - found.confidence)
    said = [
        f"{len(selected)} of {counted(total, 'cell')} differ from {found.baseline}: {better} better, "
        f"{len(selected) - better} worse. The false discovery rate is limited to {false}."
        if selected
        else f"No cell of {total} is known to differ from {found.baseline}."
    ]
    resolved = [cell.resolves for cell in cells if cell.resolves is not None]
    if resolved:
        low, mid, high = (share_text(one / 100) for one in (min(resolved), median(resolved), max(resolved)))
        said.append(f"The page resolves ±{low} to ±{high} by cell, ±{mid} at the median (80% power).")
    held = [cell.held_back for cell in cells if cell.held_back]
    if held:
        kinds = ", ".join(f"{kind}: {held.count(kind)}" for kind in dict.fromkeys(held))
        said.append(f"Without a result: {counted(len(held), 'cell')} ({kinds}).")
    if "too few blocks" in held:
        said.append(f"Differences need {VERDICT_BLOCKS_MIN} blocks of a workload: resume the study.")
    return said


def _is_better(cell: Cell) -> bool:
    return cell.change is not None and (cell.change.value > 0) == (cell.change.better is Better.MORE)


def effects_table(found: Matrix, cases: Sequence[Findings]) -> Table:
    """Return the levels of the baseline, and the effects with their intervals."""
    levels = [
        f"{_number(level.value)} {metric}" if (level := case.arms[0].levels.get(case.primary.key)) else ABSENT
        for metric, case in zip(found.metrics, cases, strict=True)
    ]
    title = f"Change of the primary metric against {found.baseline}, %"
    names, servers = (found.baseline, *found.servers), found.servers
    rows = list(zip(found.workloads, levels, found.cells, strict=True))
    return Table(
        title,
        ("workload", *names),
        [[workload, level, *map(_cell_text, row)] for workload, level, row in rows],
        "An asterisk marks a difference (Benjamini and Hochberg over all cells; the false discovery rate is "
        f"limited to {given_percent(1 - found.confidence)}). The intervals have a confidence of "
        f"{confidence_percent(found.interval_confidence)}. The expected share of marked cells whose "
        "interval misses the effect has the same limit; other intervals have none.",
        numeric=frozenset(names),
        long=True,
        whole=True,
        narrow=Table(
            title,
            ("workload", *servers),
            [[workload, *map(_short, row)] for workload, _, row in rows],
            numeric=frozenset(servers),
        ),
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _short(cell: Cell) -> str:
    if cell.change is None or cell.held_back:
        return cell.held_back or ABSENT
    return f"{_value(cell)}{'*' if cell.differs else ''}"


def _cell_text(cell: Cell) -> str:
    if cell.change is None:
        return ABSENT
    if cell.held_back:
        return f"{_value(cell)} ({cell.held_back})"
    return f"{_short(cell)} {_interval(cell)}".rstrip()


def _value(cell: Cell) -> str:
    assert cell.change is not None
    return signed(cell.change.value, min(1, cell.change.decimals), "")


def _interval(cell: Cell) -> str:
    change = cell.change
    if change is None or change.low is None or change.high is None:
        return ""
    ends = (change.low, change.high)
    is_near_zero = cell.differs and min(map(abs, ends)) < 10**-1
    decimals = change.decimals if is_near_zero else min(1, change.decimals)
    return bracketed(*(signed(end, decimals, "") for end in ends))


def causes_table(found: Matrix, cases: Sequence[Findings]) -> Table:
    """Return the largest causes of each cell that differs, and the changes of plans of all cells."""
    rows = []
    for case, row in zip(cases, found.cells, strict=True):
        causes = {of.why.arm.arm: of.largest for of in why_reports(case)}
        plans = {of.arm.arm: named_changes(of) for of in plans_of(case)}
        for server, cell, of in zip(found.servers, row, case.comparisons, strict=True):
            cause = causes.get(of.arm.arm, "") if cell.differs else ""
            plan = plans.get(of.arm.arm, "")
            rows += [[case.study.case, server, cause, plan]] if cause or plan else []
    return Table(
        "Causes",
        ("workload", "server", "largest cause of a difference", "change of plans"),
        rows,
        "The largest part of the difference by resource, and by statement.",
        long=True,
    )


def costs_table(found: Matrix, cases: Sequence[Findings]) -> Table:
    """Return what a transaction costs on each server, with its change."""
    rows = []
    for workload, case in zip(found.workloads, cases, strict=True):
        for key, (name, least) in COSTS.items():
            levels = {of.arm.arm: _level(case, of, key) for of in case.arms}
            if any(level is not None and level > least for level in levels.values()):
                costs = [_cost(case, arm, key, level) for arm, level in levels.items()]
                rows.append([workload, name, *costs])
    names = (found.baseline, *found.servers)
    return Table(
        "Cost of a transaction",
        ("workload", "cost", *names),
        rows,
        "Means over the blocks. In parentheses: change against the baseline, if its interval in the report "
        "of the workload excludes 0. WAL of at most 10 B and reads of at most 0.1 blocks are omitted.",
        numeric=frozenset(names),
        long=True,
    )


def _level(case: Findings, own: ArmFindings, key: str) -> float | None:
    of_arm = own.levels if key == SERVER_CPU.key else case.telemetry.levels.get(own.arm.arm, {})
    level = of_arm.get(key)
    return None if level is None else level.value


def _cost(case: Findings, arm: int, key: str, level: float | None) -> str:
    """Return the level of a cost, and its change if that is significant."""
    if level is None:
        return ABSENT
    comparison = next((of for of in case.comparisons if of.arm.arm == arm), None)
    if comparison is None or comparison.is_held_back:
        return _number(level)
    effects = comparison.effects if key == SERVER_CPU.key else case.telemetry.effects.get(arm, {})
    effect = effects.get(key)
    if effect is None or not _excludes_zero(effect.percent) or effect.summary.n < VERDICT_BLOCKS_MIN:
        return _number(level)
    change = effect.percent.value
    decimals = 0 if abs(change) >= 1 else effect.percent.decimals
    shown = "> ×10" if change > CHANGE_MAX else signed(change, decimals, "%")
    return f"{_number(level)} ({shown})"


def searches(found: Matrix, cases: Sequence[Findings]) -> Table:
    """Return the command for each cell that differs between versions."""
    rows = []
    for case, row in zip(cases, found.cells, strict=True):
        for server, cell, of in zip(found.servers, row, case.comparisons, strict=True):
            command = bisect_command(case.study.plan, of.arm.arm) if cell.differs else ""
            rows += [[case.study.case, server, command]] if command else []
    return Table(
        "Search for the commit",
        ("workload", "server", "command"),
        rows,
        "CLONE is a clone of PostgreSQL. Between distant versions several commits may matter: begin with "
        "neighbors.",
        long=True,
    )


# Commands that search the commit behind a cell.

OPTIONS = {"scripts": "--builtin", "options": "--opt"}
"""Options whose field has another name."""

_VERSION = re.compile(r"(\d+)(\.\d+)?")


def bisect_command(study: Study, arm: int) -> str:
    """Return ``pgdyno bisect REL_17_BETA1 REL_18_BETA1 …`` for an arm against the baseline.

    Empty unless both are versions, with default settings, a closed loop and no script of the study's own,
    which a bisection would not have. The first beta of a version is a commit of the main branch, so the older
    one is an ancestor of the newer one.
    """
    found = [_VERSION.fullmatch(study.arms[index].server) for index in (0, arm)]
    majors = [int(one[1]) for one in found if one]
    if len(majors) < 2 or majors[0] == majors[1]:
        return ""
    driving, specs = study.driving(arm), (study.arms[0], study.arms[arm])
    has_own_text = any(one.get("text") for one in _named_scripts(driving.workload))
    has_settings = any(of.settings or of.profiles for of in specs)
    if has_own_text or has_settings or driving.rate or driving.pacing != "none":
        return ""
    good, bad = (f"REL_{major}_BETA1" for major in sorted(majors))
    words = ["pgdyno", "bisect", good, bad, "--repository", "CLONE", "--clients", str(driving.clients)]
    return shlex.join([*words, *options_of(driving.workload)])


def options_of(workload: WorkloadParameters) -> Iterator[str]:
    """Yield the options that make this workload, without those that have their default."""
    yield from ("--workload", workload.kind)
    for name, value in workload.model_dump(exclude_defaults=True, exclude={"kind"}).items():
        option = OPTIONS.get(name, f"--{name.replace('_', '-')}")
        if value is True:
            yield option
        elif isinstance(value, Mapping) and "name" not in value:
            yield from (word for key, text in value.items() for word in (option, f"{key}={text}"))
        elif isinstance(value, tuple | list):
            yield from (word for one in value for word in _script(option, one))
        else:
            yield from _script(option, value)


def _named_scripts(workload: WorkloadParameters) -> Iterator[Mapping[str, Any]]:
    written = workload.model_dump()
    for value in (written.get("script"), *(written.get("scripts") or ())):
        if isinstance(value, Mapping):
            yield value


def _script(option: str, value: Any) -> tuple[str, str]:
    """Return an option with its value, or with the name and weight of a script."""
    if not isinstance(value, Mapping):
        return option, str(value)
    weight = value.get("weight", 1)
    return option, value["name"] if weight == 1 else f"{value['name']}@{weight}"


# Heat map.

ROW_H, COLUMN_W, HEAD_H = 34.0, 104.0, 24.0

WIDTH_MIN = 560.0
"""Maximum width of ``svg.steps`` in a page: a smaller drawing would be enlarged."""

STRONGEST = 20.0
"""Effect in percent with the strongest color."""


def heat_map(found: Matrix) -> list[Panel]:
    """Return the drawing: a row for each workload, a column for each server."""
    left = 12 + max(label_width(name) for name in found.workloads)
    parts = [
        text(left + (j + 0.5) * COLUMN_W, HEAD_H - 8, name, text_anchor="middle", class_="strong")
        for j, name in enumerate(found.servers)
    ]
    for i, (workload, row) in enumerate(zip(found.workloads, found.cells, strict=True)):
        y = HEAD_H + i * ROW_H
        parts.append(text(left - 10, y + ROW_H / 2 + 4, workload, text_anchor="end"))
        parts += [
            _linked(_drawn(cell, left + j * COLUMN_W, y, f"{workload}, {server}"), workload)
            for j, (server, cell) in enumerate(zip(found.servers, row, strict=True))
        ]
    width = max(WIDTH_MIN, left + len(found.servers) * COLUMN_W)
    size = width, HEAD_H + len(found.workloads) * ROW_H
    label = f"Heat map: change of the primary metric against {found.baseline}, in percent"
    return [Panel(label, drawing(*size, label, parts, "steps"))]


def _linked(drawn: Markup, case: str) -> Markup:
    """Return the drawing as a link to a case."""
    return element("a", drawn, href=f"#{address_of(case)}")


def _drawn(cell: Cell, x: float, y: float, name: str) -> Markup:
    place = {"x": x + 1, "y": y + 1, "width": COLUMN_W - 2, "height": ROW_H - 2}
    if cell.differs and cell.change is not None:
        kind = "less" if _is_better(cell) else "more"  # colors of the style sheet: good and bad
        strength = round(0.2 + 0.5 * min(1.0, abs(cell.change.value) / STRONGEST), 2)
    else:
        kind, strength = "", 0.12
    value = ABSENT if cell.change is None else f"{_value(cell)}%"
    parts = [
        element("title", f"{name}: {_cell_text(cell)}"),
        element("rect", "", class_=f"step {kind}".strip(), fill_opacity=strength, **place),
        text(
            x + COLUMN_W / 2, y + 14, value, text_anchor="middle", class_="strong" if cell.differs else None
        ),
        text(
            x + COLUMN_W / 2, y + 27, cell.held_back or _interval(cell), text_anchor="middle", class_="small"
        ),
    ]
    return element("g", Markup("").join(parts))


RESULT = Result(
    "matrix",
    Matrix | None,
    "Effects of all workloads of a study with the factor workload; null without it.",
    matrix_in,
)
