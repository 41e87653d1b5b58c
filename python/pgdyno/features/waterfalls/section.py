"""Waterfall chart of the time per transaction: from the baseline to an arm, by part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from markupsafe import Markup

from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.telemetry.samples import RUNNING
from pgdyno.analysis.telemetry.trial_telemetry import resource_of
from pgdyno.analysis.time_breakdown import CPU, EXECUTING, STATEMENT, UNIT, TimePart, Waterfall
from pgdyno.features.plans.section import addresses
from pgdyno.features.statement_waits.section import TITLE, shown, statement_waits
from pgdyno.report.document import Place, Section, address_of
from pgdyno.report.plot import (
    NO_AXIS,
    ROW_LABEL_SCALE,
    Frame,
    Panel,
    Scale,
    element,
    label_width,
    line,
    linear,
    plot,
    row_label,
    text,
)
from pgdyno.report.result_tables import change_text
from pgdyno.report.why_section import in_order, part_name
from pgdyno.units import decimals_of, signed, significant, with_unit


def sections(findings: Findings) -> Iterator[Section]:
    """Yield the charts of a case."""
    yield Section(
        "time-per-transaction",
        "Time per transaction: differences",
        plots=partial(waterfalls, findings),
        plots_size="effects",
        plots_note="Each bar starts where the previous one ends. Pale bars are not significant. Lines "
        "are the CIs of significant parts. A bar leads to its wait events, statement or plan.",
        place=Place.TOP,
        after="effect",
    )


STEPS_WIDTH, STEPS_LEFT, STEPS_TOP = 470.0, 160.0, 8.0
STEP, BAR = 30.0, 12.0
"""Height of a part and of its bar. Its name is at the left, and its change behind the bar."""

SHARE_MIN = 0.002
"""Minimum change with its own bar, as a share of the whole, unless the change is significant."""


def waterfalls(findings: Findings) -> list[Panel]:
    """Return the charts of each arm: by resource and by statement."""
    found = []
    for why in findings.time_breakdowns.values():
        a, b = why.baseline.name, why.arm.name
        for by, waterfall in (("resource", why.by_resource), ("statement", why.by_statement)):
            if waterfall is not None:
                title = f"Time per transaction, {a} to {b}, by {by}, µs"
                found.append(Panel(title, _drawn(waterfall, a, b, details_of_parts(findings, b))))
    return found


def details_of_parts(findings: Findings, arm: str) -> Mapping[str, str]:
    """Return the address of the table with the details of a part, by its key, within its case."""
    known = findings.telemetry
    found = {resource_of(event): "telemetry-wait-events" for event in known.parts("wait.share")}
    by_statement = {resource_of(event) for event in shown(statement_waits(findings))}
    found |= dict.fromkeys(by_statement, address_of(TITLE))
    if RUNNING in by_statement:
        found[CPU] = found[RUNNING]
    if RUNNING in found:
        found[EXECUTING] = found.pop(RUNNING)
    found |= {f"{STATEMENT}:{text}": "statements" for text in known.parts("statement.calls")}
    of_plans = addresses(findings).items()
    found |= {f"{STATEMENT}:{text}": plan for (name, text), plan in of_plans if name == arm}
    return {key: f"#{address}" for key, address in found.items()}


@dataclass(frozen=True)
class _Step:
    """A part, from where the previous one ends, or a level. ``change``: its text behind the bar."""

    name: str
    change: str
    from_us: float
    to_us: float
    kind: str = ""  # class of the style sheet
    interval: str = ""
    interval_us: tuple[float, ...] = ()  # drawn of significant parts
    details: str = ""  # address of a table


def _drawn(waterfall: Waterfall, a: str, b: str, details: Mapping[str, str]) -> Markup:
    whole, (shown, left) = waterfall.total, _shown(waterfall)
    at_us, end_us = whole.a_us, whole.a_us + whole.difference.value
    steps = [_Step(a, with_unit(significant(at_us, 3), UNIT), at_us, at_us, "level")]
    for part in shown:
        step = _step(part, at_us := at_us + part.difference.value)
        steps.append(replace(step, details=details.get(part.key, "")))
    if left:
        change = signed(left, min(1, decimals_of(left, 2)), UNIT)
        steps.append(_Step("other parts, none significant", change, end_us - left, end_us))
    steps.append(_Step(b, change_text(whole.difference, UNIT), end_us, end_us, "level"))

    def draw(x: Scale, _: Scale) -> Iterator[Markup]:
        for n, step in enumerate(steps):
            y, ends = STEPS_TOP + STEP * (n + 0.5), [x(us) for us in _ends(step)]
            begin, end = sorted(ends[:2])
            place = {"x": begin, "y": y - BAR / 2, "width": round(max(2.0, end - begin), 1), "height": BAR}
            title = element("title", f"{step.name}  {step.change}{step.interval}")
            label = row_label(step.name, STEPS_LEFT - 8, y, "strong" if step.kind == "level" else "")
            bar = element("rect", title, **place, class_=f"step {step.kind}".strip())
            row = Markup().join([*label, bar])
            yield element("a", row, href=step.details) if step.details else row
            if step.interval_us:
                yield line(ends[2], y, ends[3], y, class_="whisker")
            yield text(max(begin + 2, *ends) + 6, y + 4, step.change)

    room = max(label_width(step.change) for step in steps) * ROW_LABEL_SCALE
    frame = Frame(STEPS_WIDTH, STEPS_LEFT, room + 10, STEPS_TOP, STEPS_TOP + STEP * len(steps))
    axis = replace(linear((us for step in steps for us in _ends(step)), 4), grid=True)
    return plot(
        f"Time per transaction from {a} to {b}, by part", axis, NO_AXIS, [draw], frame, class_="steps"
    )


def _ends(step: _Step) -> list[float]:
    return [step.from_us, step.to_us, *step.interval_us]


def _shown(waterfall: Waterfall) -> tuple[list[TimePart], float]:
    """Return the parts with a bar, and the sum of the changes of all others: those of the table, B − A."""
    least = SHARE_MIN * max(waterfall.total.a_us, waterfall.total.b_us)
    shown = [part for part in in_order(waterfall) if part.significant or abs(part.difference.value) >= least]
    left = waterfall.total.difference.value - sum(part.difference.value for part in shown)
    return shown, left if len(shown) < len(waterfall.parts) else 0.0


def _step(part: TimePart, end_us: float) -> _Step:
    change = part.difference
    step = _Step(
        part_name(part.key),
        change_text(change, UNIT),
        end_us - change.value,
        end_us,
        interval=f", CI {change.signed_interval_text}",
    )
    if not part.significant or change.low is None or change.high is None:
        return step
    interval_us = (step.from_us + change.low, step.from_us + change.high)
    return replace(step, kind="less" if change.value < 0 else "more", interval_us=interval_us)
