"""Scalability section: throughput by number of clients, with the fitted Universal Scalability Law (USL)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from markupsafe import Markup

from pgdyno.analysis.findings.scalability import REACH, Curve, CurveDifference, Scalability
from pgdyno.estimate import (
    ABSENT,
    NO_BREAK,
    Estimate,
    bracketed,
    given_percent,
    group_digits,
    signed,
    significant,
)
from pgdyno.report import result_tables
from pgdyno.report.charts import Panel, arm_class
from pgdyno.report.result_tables import Table, enumeration
from pgdyno.report.section import Section
from pgdyno.report.svg import (
    Scale,
    circle,
    drawing,
    line,
    log_ticks,
    nice_ticks,
    polyline,
    text,
    tick_labels,
)
from pgdyno.study.plan import Study
from pgdyno.study.stopping_rule import VERDICT_BLOCKS_MIN

CURVES_MAX = 6
"""Maximum number of curves in a chart; the tables have all."""

STEPS = 60
"""Number of points at which the line of a curve is computed."""

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 300.0, 216.0, 50.0, 12.0, 24.0, 176.0
LEGEND_LINE = 12.0


def curves(found: Scalability) -> list[Panel]:
    """Return a chart of the throughput and, with several curves, one of the ratios to the baseline."""
    shown = found.curves[:CURVES_MAX]
    panels = [Panel(f"{found.metric.name}, with the fitted curve", _throughput(shown, found.metric.unit))]
    compared = {curve.name: number for number, curve in enumerate(shown)}
    differences = [of for of in found.differences if of.name in compared]
    if differences:
        panels.append(Panel("measured change vs. the baseline", _ratios(differences, compared)))
    return panels


def _clients_axis(clients: Sequence[int]) -> tuple[Scale, list[Markup]]:
    low, high = min(clients), max(clients)
    x = Scale(low / 1.15, high * 1.15, LEFT, WIDTH - RIGHT, log=True)
    parts = [text(x(n), BOTTOM + 15, str(n), class_="middle small") for n in clients]
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, BOTTOM + 29, "clients", class_="middle small"))
    return x, parts


def _numbers(every: Sequence[Sequence[int]]) -> list[int]:
    return sorted({n for clients in every for n in clients})


def legend(names: Mapping[str, int]) -> list[Markup]:
    """Return the legend below the chart, one line per name."""
    parts = []
    for i, (name, number) in enumerate(names.items()):
        y = BOTTOM + 44 + LEGEND_LINE * i
        parts.append(line(LEFT, y - 3, LEFT + 14, y - 3, class_=f"curve {arm_class(number)}"))
        parts.append(text(LEFT + 19, y, name, class_="small"))
    return parts


def height(names: int) -> float:
    """Return the height of a chart with a legend of ``names`` lines."""
    return HEIGHT + LEGEND_LINE * names


def _throughput(shown: Sequence[Curve], unit: str) -> Markup:
    x, parts = _clients_axis(_numbers([curve.clients for curve in shown]))
    values = [end for curve in shown for level in curve.measured.values() for end in _ends(level)]
    y = Scale(min(values) / 1.1, max(values) * 1.1, BOTTOM, TOP, log=True)
    for tick in log_ticks(min(values) / 1.1, max(values) * 1.1):
        label = significant(tick, 1)
        parts.append(line(LEFT, y(tick), WIDTH - RIGHT, y(tick), class_="grid"))
        parts.append(text(LEFT - 5, y(tick) + 3.5, label, class_="end small"))
    parts.append(text(LEFT - 5, TOP - 10, unit, class_="end small"))
    for number, curve in enumerate(shown):
        color = arm_class(number)
        at = np.geomspace(curve.clients[0], curve.clients_max, STEPS)
        way = [(x(n), y(float(rate))) for n, rate in zip(at, curve.law.at(at), strict=True)]
        parts.append(polyline(way, class_=f"curve {color}"))
        for clients, level in curve.measured.items():
            low, high = _ends(level)
            title = f"{curve.name}, {clients} clients: {level.value_text} ({level.interval_text})"
            parts.append(line(x(clients), y(low), x(clients), y(high), class_=f"cap {color}"))
            parts.append(circle(x(clients), y(level.value), 3.2, title, class_=f"dot {color}"))
    names = {curve.name: number for number, curve in enumerate(shown)}
    return drawing(
        WIDTH, height(len(names)), "Throughput by number of clients", [*parts, *legend(names)], "curves"
    )


def _ratios(differences: Sequence[CurveDifference], numbers: Mapping[str, int]) -> Markup:
    x, parts = _clients_axis(_numbers([list(of.ratios) for of in differences]))
    values = [0.0, *(end for of in differences for ratio in of.ratios.values() for end in _ends(ratio))]
    padding = 0.06 * (max(values) - min(values)) or 1.0
    low, high = min(values) - padding, max(values) + padding
    y = Scale(low, high, BOTTOM, TOP)
    ticks = nice_ticks(low, high, 5)
    for tick, label in zip(ticks, tick_labels(ticks, "%"), strict=True):
        parts.append(line(LEFT, y(tick), WIDTH - RIGHT, y(tick), class_="grid" if tick else "zero"))
        parts.append(text(LEFT - 5, y(tick) + 3.5, label, class_="end small"))
    for i, of in enumerate(differences):
        color = arm_class(numbers[of.name])
        aside = 4.0 * (i - (len(differences) - 1) / 2)
        way = [(x(clients) + aside, y(ratio.value)) for clients, ratio in of.ratios.items()]
        parts.append(polyline(way, class_=f"curve {color}"))
        for (at, place), (clients, ratio) in zip(way, of.ratios.items(), strict=True):
            ends = _ends(ratio)
            title = f"{of.name}, {clients} clients: {ratio.signed_text} ({ratio.signed_interval_text})"
            parts.append(line(at, y(ends[0]), at, y(ends[1]), class_=f"cap {color}"))
            parts.append(circle(at, place, 3.2, title, class_=f"dot {color}"))
    names = {of.name: numbers[of.name] for of in differences}
    return drawing(
        WIDTH, height(len(names)), "Change by number of clients", [*parts, *legend(names)], "curves"
    )


def _ends(estimate: Estimate) -> tuple[float, float]:
    """Return the interval, or the value twice if there are fewer passes than VERDICT_BLOCKS_MIN."""
    if estimate.low is None or estimate.high is None or estimate.n < VERDICT_BLOCKS_MIN:
        return estimate.value, estimate.value
    return estimate.low, estimate.high


LAW = "X(N) = λN / (1 + σ(N − 1) + κN(N − 1))"

UNFIT_P = 0.01
"""Significance level of the lack-of-fit test: one in a hundred curves that follow the USL is rejected."""

ROWS_MAX = 14
"""Rows shown on a terminal; HTML collapses a longer table."""


def scalability_section(found: Scalability, plan: Study) -> Section:
    """Return the section: sentences, tables and charts."""
    made = [parameters(found, plan), curve_difference_table(found, plan), ratios(found, plan), points(found)]
    sentences = scalability_sentences(found, plan)
    return Section(
        title="Scalability",
        sentences=sentences,
        tables=[table for table in made if table.rows],
        panels=curves(found) if found.curves else [],
        brief=[f"Scalability: {sentence}" for sentence in sentences[:1]],
    )


def scalability_sentences(found: Scalability, plan: Study) -> list[str]:
    """Return a sentence for each curve, then one on arms without a curve."""
    lines = [curve_sentence(curve, plan) for curve in found.curves]
    if found.without_curve:
        lines.append(
            f"{enumeration(found.without_curve)}: no curve, because too few numbers of clients have valid "
            "blocks."
        )
    return lines


def curve_sentence(curve: Curve, plan: Study) -> str:
    """Return the maximum of the throughput, its causes, and the fit of the curve."""
    parts = [f"{curve.name}: {_end(curve, plan)}"]
    if not fits(curve):
        clients, left = max(zip(curve.clients, curve.fitting.left, strict=True), key=lambda at: abs(at[1]))
        parts.append(
            f"The curve does not fit: at {clients} clients, the measured throughput deviates by "
            f"{signed(100 * math.expm1(left), 1, '%')}, more than the noise between passes explains (F test, "
            f"{_p(curve.fitting.p_value)}). Use the measured values, not the parameters."
        )
    elif curve.fitting.p_value is None:
        parts.append("The fit cannot be tested with a single pass.")
    if curve.left_out:
        parts.append(f"Excluded: {enumeration(curve.left_out)} clients, without enough valid blocks.")
    return " ".join(parts)


def fits(curve: Curve) -> bool:
    """Return False if the lack-of-fit test rejects the curve. A fit that cannot be tested counts as good."""
    return curve.fitting.p_value is None or curve.fitting.p_value >= UNFIT_P


def _end(curve: Curve, plan: Study) -> str:
    largest = curve.clients_max
    if curve.knee is None or curve.peak is None:
        return (
            f"throughput has no maximum within {group_digits(REACH * largest, 0)} clients, twice the largest "
            f"measured number.{_losses(curve)}"
        )
    knee, peak = curve.knee, curve.peak
    ci = f"{given_percent(plan.confidence)} CI "
    claim = (
        f"throughput is highest with about {group_digits(knee.value, _places(knee.value))} clients"
        f"{f' ({ci}{_knee_interval(curve)})' if knee.low is not None else ' (no CI yet)'}: "
        f"{peak.value_text}{f' ({ci}{_peak_interval(peak)})' if peak.low is not None else ''}."
    )
    if knee.value > largest:
        claim += f" This is an extrapolation: at most {largest} clients were measured."
    elif knee.value < curve.clients[0]:
        claim += f" This is an extrapolation: at least {curve.clients[0]} clients were measured."
    return f"{claim}{_losses(curve)}"


def _losses(curve: Curve) -> str:
    """Return the shares of σ and κ at the largest number of clients; empty without an interval or a fit."""
    if curve.contention.low is None or not fits(curve):
        return ""
    return (
        f" At {curve.clients_max} clients, the curve attributes {curve.contention.value_text} "
        f"{curve.contention.interval_text} of the transaction time to contention (σ) and "
        f"{curve.coherency.value_text} {curve.coherency.interval_text} to coherency (κ)."
    )


def _knee_interval(curve: Curve) -> str:
    """Return the interval of the knee; an infinite end is shown as "more than" the range of the fit."""
    knee, reach = curve.knee, REACH * curve.clients_max
    assert knee is not None and knee.low is not None and knee.high is not None
    low = group_digits(knee.low, _places(knee.low))
    if not math.isfinite(knee.high):
        return bracketed(low, f"more than {group_digits(reach, 0)}")
    return bracketed(low, group_digits(knee.high, _places(knee.high)))


def _places(clients: float) -> int:
    return 1 if clients < 10 else 0


def _p(p_value: float | None) -> str:
    if p_value is None:
        return ABSENT
    return "p < 0.0001" if p_value < 1e-4 else f"p = {significant(p_value, 2)}"


def parameters(found: Scalability, plan: Study) -> Table:
    """Return the fitted parameters, one row per curve."""
    rows = [
        [
            curve.name,
            _with_interval(curve.rate_of_one),
            _with_interval(curve.sigma),
            _with_interval(curve.kappa),
            _knee(curve),
            ABSENT if curve.peak is None else _peak_cell(curve.peak),
            _p(curve.fitting.p_value).removeprefix("p = ").removeprefix("p "),
            str(len(curve.passes)),
        ]
        for curve in found.curves
    ]
    unit = found.metric.unit
    numeric = (
        f"λ, {unit}",
        "σ, %",
        "κ, per million",
        "knee, clients",
        f"peak, {unit}",
        "fit, p",
        "passes",
    )
    return Table(
        title=f"Universal Scalability Law: {LAW}",
        columns=("arm", *numeric),
        rows=rows,
        note=(
            "λ: throughput of one client. σ: contention, the serial share of the work. κ: coherency, the "
            f"cost per pair of clients. {ABSENT}: no maximum within twice the measured number of clients. "
            "A small p (F test of lack of fit) means that the curve does not fit. The CIs are over passes, "
            f"{given_percent(plan.confidence)} each, not corrected{_as_if_fixed(plan)}."
        ),
        numeric=frozenset(numeric),
        dispensable=("passes", numeric[0], numeric[5], numeric[2], numeric[1]),
        breaks_first=True,
    )


def _as_if_fixed(plan: Study) -> str:
    return ", and assume a number of passes fixed in advance" if plan.needs_anytime_intervals else ""


def _knee(curve: Curve) -> str:
    if curve.knee is None:
        return ABSENT
    value = group_digits(curve.knee.value, _places(curve.knee.value))
    return value if curve.knee.low is None else f"{value} {_tight(_knee_interval(curve))}"


def _peak_cell(peak: Estimate) -> str:
    value = group_digits(peak.value, peak.decimals)
    return value if peak.low is None else f"{value} {_tight(_peak_interval(peak))}"


def _with_interval(estimate: Estimate) -> str:
    value = group_digits(estimate.value, estimate.decimals)
    return value if estimate.low is None else f"{value} {_tight(_without_unit(estimate).interval_text)}"


def _without_unit(estimate: Estimate) -> Estimate:
    """Return the estimate without a unit, for a column with the unit in its head."""
    return replace(estimate, unit="")


def _peak_interval(peak: Estimate) -> str:
    if peak.low is None or peak.high is None or math.isfinite(peak.high):
        return peak.interval_text
    return bracketed(group_digits(peak.low, peak.decimals), "∞")


def _tight(interval: str) -> str:
    """Return the interval with no-break spaces."""
    return interval.replace(" ", NO_BREAK)


def curve_difference_table(found: Scalability, plan: Study) -> Table:
    """Return the differences of the parameters, one row per curve compared with its baseline."""
    numeric = ("λ, %", "σ, points", "κ, per million", "peak, %", "passes")
    rows = []
    for of in found.differences:
        cells = [_signed(of.rate_of_one), _signed(of.sigma), _signed(of.kappa)]
        cells.append(ABSENT if of.peak is None else _signed(of.peak))
        rows.append([of.name, of.baseline, *cells, str(of.rate_of_one.n)])
    return Table(
        title="Differences of the parameters",
        columns=("arm", "baseline", *numeric),
        rows=rows,
        note=f"Paired by pass; CIs of {given_percent(plan.confidence)}, not corrected.",
        numeric=frozenset(numeric),
        dispensable=("passes", numeric[2], numeric[0], numeric[1]),
        breaks_first=True,
    )


def _signed(estimate: Estimate) -> str:
    value = signed(estimate.value, estimate.decimals, "")
    if estimate.low is None:
        return value
    if estimate.high is not None and math.isinf(estimate.high):
        low = signed(estimate.low, estimate.decimals, "")
        return f"{value} {_tight(bracketed(low, '∞'))}"
    low, high = (signed(end, estimate.decimals, "") for end in (estimate.low, estimate.high or 0.0))
    return f"{value} {_tight(bracketed(low, high))}"


def ratios(found: Scalability, plan: Study) -> Table:
    """Return the measured ratios, one row per curve and number of clients."""
    rows = [
        [
            of.name if first else "",
            str(clients),
            result_tables.with_interval(ratio, plan.confidence),
            str(ratio.n),
        ]
        for of in found.differences
        for first, clients, ratio in _numbered(of)
    ]
    baselines = enumeration(list(dict.fromkeys(of.baseline for of in found.differences)))
    return Table(
        title=f"Change of throughput vs. {baselines} at each number of clients, %",
        columns=("arm", "clients", "change, %", "passes"),
        rows=rows,
        note=(
            "Measured, not fitted. The CIs are corrected (Holm); a CI without a confidence level has "
            f"{given_percent(plan.confidence)}."
        ),
        numeric=frozenset({"clients", "change, %", "passes"}),
        dispensable=("passes",),
        long=len(rows) > ROWS_MAX,
    )


def _numbered(of: CurveDifference) -> list[tuple[bool, int, Estimate]]:
    return [(i == 0, clients, ratio) for i, (clients, ratio) in enumerate(of.ratios.items())]


def points(found: Scalability) -> Table:
    """Return measured and fitted throughput for each number of clients."""
    rows = []
    for curve in found.curves:
        for i, (clients, level) in enumerate(curve.measured.items()):
            fitted = float(curve.law.at(clients)[0])
            rows.append(
                [
                    curve.name if i == 0 else "",
                    str(clients),
                    result_tables.level_text(level),
                    significant(fitted, 4),
                    signed(100 * math.expm1(float(curve.fitting.left[i])), 1, ""),
                ]
            )
    unit = found.metric.unit
    numeric = ("clients", f"measured, {unit}", f"fitted, {unit}", "measured / fitted − 1, %")
    return Table(
        title="Measured and fitted throughput",
        columns=("arm", *numeric),
        rows=rows,
        note="Geometric means over the passes.",
        numeric=frozenset(numeric),
        long=True,
    )
