"""Tables and charts of results.

- Tables: titles, column heads, cells, notes.
- Charts: effect by block, latency by percentile.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from markupsafe import Markup

from pgdyno.analysis.case_findings import ArmFindings, Findings
from pgdyno.analysis.comparison import Comparison
from pgdyno.analysis.statistics.intervals import Method, method_of, percent_of
from pgdyno.analysis.statistics.pooled_quantiles import BLOCKS_MIN, MISSED, missed_share
from pgdyno.analysis.telemetry.metrics import (
    ALL_KINDS,
    PERCENTILES,
    PERCENTILES_COMPARED,
    Metric,
    latency_key,
)
from pgdyno.analysis.telemetry.percentiles import LatencyMs, curve_ms
from pgdyno.report.document import Table
from pgdyno.report.plot import (
    DOTS_MAX,
    Axis,
    Dots,
    Mark,
    Panel,
    Point,
    Row,
    arm_class,
    estimates,
    logarithmic,
    plot,
    trace,
)
from pgdyno.results.records import Kept, StudyRecord
from pgdyno.study.plan import INTERVAL_BLOCKS_MIN, VERDICT_BLOCKS_MIN
from pgdyno.units import (
    ABSENT,
    NO_BREAK,
    Estimate,
    bracketed,
    ci_text,
    confidence_percent,
    counted,
    decimals_of,
    given_percent,
    group_digits,
    share_text,
    signed,
    significant,
)

DIGITS_WITHOUT_INTERVAL = 2
"""Significant digits of a change without an interval."""


DIGITS_OF_LEVEL = 3

NAME_IN_HEAD_MAX = 12


def level_table(findings: Findings) -> Table:
    """Return throughput and CPU time of every arm with the change from the baseline."""
    baseline = findings.arms[0].arm.name
    confidence = given_percent(findings.study.plan.confidence)
    rows = [
        _level_row(findings, metric, arm, first=i == 0)
        for metric in findings.metrics
        if any(of.levels[metric.key] or metric.key in of.bounds for of in findings.arms)
        for i, arm in enumerate(findings.arms)
    ]
    numeric = ("level", f"{confidence} CI", f"change vs. {in_a_head(baseline)}, %", "blocks")
    return Table(
        title=f"Throughput and CPU{findings.at_own_rates}",
        columns=("metric", "better", "arm", *numeric),
        rows=rows,
        note=(
            "Compare arms by the change: a slow block lowers the levels of all arms, but hardly changes "
            "their ratio." + _at_any_time(findings) + of_several_arms(findings)
        ),
        numeric=frozenset(numeric),
        dispensable=("better", "blocks", numeric[1]),
    )


def in_a_head(name: str, instead: str = "the baseline") -> str:
    """Return a name short enough for the head of a narrow column."""
    return name if len(name) <= NAME_IN_HEAD_MAX else instead


def _level_row(findings: Findings, metric: Metric, of: ArmFindings, *, first: bool) -> list[str]:
    level = of.levels[metric.key]
    change = _change(findings, of.arm.arm, metric.key)
    blocks_min = INTERVAL_BLOCKS_MIN if metric.key == findings.primary.key else VERDICT_BLOCKS_MIN
    return [
        metric.label if first else "",
        metric.better if first else "",
        of.arm.name,
        level_or_bound(of, metric.key),
        level.interval_text.replace(" ", NO_BREAK) if level and level.n >= VERDICT_BLOCKS_MIN else ABSENT,
        with_interval(change, findings.study.plan.confidence, blocks_min) if change else "",
        str(change.n if change else level.n if level else 0),
    ]


def level_or_bound(of: ArmFindings, key: str) -> str:
    """Return the level of a metric, or a lower bound such as ``> 5.00``."""
    level, bound = of.levels[key], of.bounds.get(key)
    if bound is not None:
        return ms_text(LatencyMs(bound, is_bound=True))
    return level_text(level) if level else ABSENT


def level_text(level: Estimate) -> str:
    """Return a level with three to five digits: its interval includes drift, which cancels in the change."""
    three = decimals_of(level.value, DIGITS_OF_LEVEL)
    if level.n < VERDICT_BLOCKS_MIN:
        return group_digits(level.value, three)
    return group_digits(level.value, min(three + 2, max(three, level.decimals)))


def _change(findings: Findings, arm: int, key: str) -> Estimate | None:
    for comparison in findings.comparisons:
        if comparison.arm.arm == arm and key in comparison.effects:
            return comparison.effects[key].percent
    return None


def _of_every_block(findings: Findings, arm: int, key: str) -> Estimate | None:
    """Return the change if all valid blocks have a value.

    Blocks too slow for enough transactions lack one; without them, the change would be too favorable.
    """
    change = _change(findings, arm, key)
    blocks = next(len(c.blocks) for c in findings.comparisons if c.arm.arm == arm)
    return change if change and change.n == blocks else None


def _at_any_time(findings: Findings) -> str:
    plan = findings.study.plan
    if not has_anytime_interval(findings):
        return ""
    what = (
        "the interim analysis after each block" if plan.stops_on_verdict else "a length not fixed in advance"
    )
    return f" CIs allow for {what}."


def has_anytime_interval(findings: Findings) -> bool:
    """Return whether the interval of the effect is valid at any stopping time."""
    return method_of(findings.study.plan, findings.trials) is Method.ANYTIME


def of_several_arms(findings: Findings) -> str:
    """Return the note on the correction for several arms; empty for two."""
    if len(findings.comparisons) < 2:
        return ""
    usual = given_percent(findings.study.plan.confidence)
    error = given_percent(1 - findings.study.plan.confidence)
    return (
        " With several arms, CIs are wider (Holm's correction): any false difference has a probability of "
        f"at most {error}. The confidence is {usual} unless shown."
    )


def latency_table(findings: Findings) -> Table:
    """Return latency percentiles for each transaction type and arm."""
    numeric = ("transactions", *PERCENTILES)
    rows, is_bounded = [], False
    for kind in _kinds(findings):
        for i, of in enumerate(findings.arms):
            latencies = of.latency.get(kind)
            if latencies is None or not latencies.n:
                continue
            quantiles = of.quantiles_ms(kind).values()
            is_bounded = is_bounded or any(ms and ms.is_bound for ms in quantiles)
            rows.append(
                [
                    kind_text(kind) if i == 0 else "",
                    of.arm.name,
                    group_digits(latencies.n, 0),
                    *map(ms_text, quantiles),
                ]
            )
    return Table(
        title=f"Latency, ms{findings.at_own_rates} (lower is better)",
        columns=("kind", "arm", *numeric),
        rows=rows,
        note=f"{ABSENT}: fewer than 10 transactions above that percentile."
        + (" >: lower bound, because arrivals were skipped." if is_bounded else ""),
        numeric=frozenset(numeric),
        dispensable=("p90", "transactions", "p95"),
    )


def _kinds(findings: Findings) -> Sequence[str]:
    """Return the types of transactions, then all together if there are several."""
    return findings.kinds if len(findings.kinds) == 1 else [*findings.kinds, ALL_KINDS]


def latency_changes(findings: Findings) -> Table:
    """Return the change in latency percentiles for each transaction type and arm."""
    baseline = findings.arms[0].arm.name
    is_bounded = any(
        metric.bounds.get(trial.trial) for metric in findings.latencies for trial in findings.trials
    )
    rows = []
    for kind in _kinds(findings):
        for i, of in enumerate(findings.arms[1:]):
            changes = [
                _of_every_block(findings, of.arm.arm, latency_key(kind, q)) for q in PERCENTILES_COMPARED
            ]
            if any(changes):
                usual = findings.study.plan.confidence
                cells = [with_interval(change, usual) if change else ABSENT for change in changes]
                rows.append([kind_text(kind) if i == 0 else "", of.arm.name, *cells])
    return Table(
        title=f"Change in latency vs. {baseline}, %{findings.at_own_rates} (lower is better)",
        columns=("kind", "arm", *PERCENTILES_COMPARED),
        rows=rows,
        note=(
            f"p50: geometric mean of the blocks' ratios, with a CI from {VERDICT_BLOCKS_MIN} blocks on. "
            f"Others: ratio of the percentiles over all blocks, no interval below {BLOCKS_MIN} blocks."
            f"{_missed_events(findings)} {ABSENT}: a block has fewer than 10 transactions above it"
            f"{', or only a lower bound' if is_bounded else ''}." + of_several_arms(findings)
        ),
        numeric=frozenset(PERCENTILES_COMPARED),
        dispensable=("p90", "p95", "p99"),
    )


def _missed_events(findings: Findings) -> str:
    """Return which rare events the blocks probably do not contain; empty without blocks."""
    blocks = min((n for of in findings.comparisons if (n := len(of.blocks))), default=0)
    if not blocks:
        return ""
    return (
        f" {counted(blocks, 'block')} can miss an event that occurs in fewer than "
        f"{share_text(missed_share(blocks))} of the blocks (probability above {given_percent(MISSED)})."
    )


def change_text(change: Estimate, unit: str, blocks_min: int = VERDICT_BLOCKS_MIN) -> str:
    """Return a change, for example ``+4.2%``, with the digits that its precision supports.

    ``blocks_min``: minimum number of blocks of an interval; the effect has one from INTERVAL_BLOCKS_MIN on.
    """
    if change.low is None or change.n < blocks_min:
        return signed(change.value, min(1, decimals_of(change.value, DIGITS_WITHOUT_INTERVAL)), unit)
    return signed(change.value, change.decimals, unit)


def with_interval(change: Estimate, usual: float, blocks_min: int = VERDICT_BLOCKS_MIN) -> str:
    """Return value and interval, with its confidence unless it is ``usual``."""
    value = change_text(change, "", blocks_min)
    if change.low is None or change.high is None or change.n < blocks_min:
        return value
    low, high = (signed(end, change.decimals, "") for end in (change.low, change.high))
    return f"{value} {in_cell(low, high, change.confidence, usual)}"


def change_with_ci(change: Estimate) -> str:
    """Return ``+4.2% (95% CI [+0.9%, +7.6%])`` for sentences, or the change alone without an interval."""
    if change.low is None or change.n < VERDICT_BLOCKS_MIN:
        return change_text(change, "%")
    return f"{change.signed_text} ({ci_text(change.confidence)} {change.signed_interval_text})"


def in_cell(low: str, high: str, confidence: float, usual: float) -> str:
    """Return an interval, for example ``[+2.9, +5.5]``, with its confidence unless it is ``usual``."""
    own = "" if math.isclose(confidence, usual) else f"; {confidence_percent(confidence)}"
    return with_no_break_spaces(bracketed(low, f"{high}{own}"))


def with_no_break_spaces(interval: str) -> str:
    """Keep an interval on one line."""
    return interval.replace(" ", NO_BREAK)


def safety_table(findings: Findings) -> Table:
    """Return the durability and safety guarantees that each arm keeps or gives up."""
    badges = [{badge.name: badge for badge in of.arm.safety} for of in findings.arms]
    names = list(dict.fromkeys(name for of_arm in badges for name in of_arm))
    rows = [
        [name, *(of_arm[name].kept.words if name in of_arm else ABSENT for of_arm in badges)]
        for name in names
    ]
    columns = ("guarantee", *(of.arm.name for of in findings.arms))
    return Table("Safety", columns, rows, note=" ".join(lost_guarantees(findings)), said_elsewhere=True)


def lost_guarantees(findings: Findings) -> list[str]:
    """Return a sentence for each guarantee: ``17 and 18: can be restored to a point in time: NO (…).``"""
    by_promise: dict[tuple[Kept, str, str], list[str]] = {}
    for of in findings.arms:
        for badge in of.arm.safety:
            if badge.kept in (Kept.NO, Kept.PARTLY):
                by_promise.setdefault((badge.kept, badge.name, badge.text), []).append(of.arm.name)
    return [
        f"{enumeration(names) if len(names) < len(findings.arms) else 'All arms'}: "
        f"{promise}: {kept.words}{f' ({reason})' if reason else ''}."
        for (kept, promise, reason), names in by_promise.items()
    ]


def with_coverage(basis: str, studies: Iterable[StudyRecord]) -> str:
    """Add which share of the recorded time of a database the loads cover at least, rounded down."""
    covered = [one.plan.workload.coverage for one in studies]
    known = [coverage for coverage in covered if coverage is not None]
    return f"{basis}; covers {math.floor(min(known) * 100)}% of the recorded time" if known else basis


def enumeration(names: Sequence[str]) -> str:
    """Return an enumeration, for example ``17, 18 and 18,fsync=off``; empty without names."""
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def checks(findings: Findings) -> Table:
    """Return each check with the number of trials that passed and the message of a failure or skip."""
    rows = []
    every = {check.name for trial in findings.trials for check in trial.checks}
    # Condition 2 comes before condition 10.
    names = sorted(every, key=lambda name: re.sub(r"\d+", lambda found: found[0].zfill(9), name))
    for name in names:
        for i, of in enumerate(findings.arms):
            mine = [c for t in findings.trials if t.arm == of.arm.arm for c in t.checks if c.name == name]
            if not mine:
                continue
            p_values = [check.p_value for check in mine if check.p_value is not None]
            bad = [check.detail for check in mine if not check.passed]
            skipped = [check.detail for check in mine if check.skipped]
            run = len(mine) - len(skipped)
            least = min(p_values, default=None)
            rows.append(
                [
                    name if i == 0 else "",
                    of.arm.name,
                    f"{run - len(bad)} of {run}" if run else "skipped",
                    significant(least, 2) if least is not None else ABSENT,
                    (bad or skipped or [""])[0],
                ]
            )
    return Table(
        title="Checks",
        columns=("check", "arm", "passed", "min. p", "failure"),
        rows=rows,
        note="Trials that fail a check are listed but excluded from the estimates.",
        numeric=frozenset({"passed", "min. p"}),
        long=all(row[4] == "" for row in rows),
    )


def kind_text(kind: str) -> str:
    """Return the name of a transaction type: ``new order`` for ``new_order``."""
    return "all types" if kind == ALL_KINDS else kind.replace("_", " ")


def ms_text(ms: LatencyMs | None) -> str:
    """Return a latency with three digits; ``> 4,930`` if it is a lower bound."""
    if ms is None:
        return ABSENT
    text = significant(ms.value, 3)
    return f">{NO_BREAK}{text}" if ms.is_bound else text


# ----------------------------------------------------------------------
# Charts: effect by block, latency by percentile.
# ----------------------------------------------------------------------

NAMES_MAX = 12
"""Maximum number of blocks with a label each; beyond it, every fifth block has one."""


def effects(findings: Findings) -> list[Panel]:
    """Return one chart per comparison on a common axis: interval, margin, and the ratio of each block."""
    drawn = [comparison for comparison in findings.comparisons if comparison.primary]
    if not drawn:
        return []
    span, metric = _percent_range(drawn), findings.primary.name
    return [Panel(f"{c.arm.name} vs. {c.baseline.name}: change of {metric}", _effect(c, span)) for c in drawn]


def effect_bars(findings: Findings, span: tuple[float, float]) -> list[Panel]:
    """Return one chart of all changes with their intervals and the margin; none without a change."""
    rows = [
        Row(
            of.arm.name,
            percent.value,
            change_with_ci(percent),
            arm_class(of.arm.arm),
            percent.low,
            percent.high,
        )
        for of in findings.comparisons
        if of.primary and (percent := of.primary.percent)
    ]
    title = f"Change of {findings.primary.name}"
    margin, better = findings.study.plan.margin, findings.primary.better
    return [Panel(title, estimates(title, rows, span, margin, better))] if rows else []


def _percent_range(comparisons: Sequence[Comparison]) -> tuple[float, float]:
    values = [0.0]
    for comparison in comparisons:
        limit = 100 * comparison.margin
        values += [-1.25 * limit, 1.25 * limit]
        if comparison.primary:
            percent = comparison.primary.percent
            values += [end for end in (percent.low, percent.high) if end is not None]
            values += [percent_of(d) for d in comparison.primary.log_ratios.values()]
    padding = 0.04 * (max(values) - min(values))
    return min(values) - padding, max(values) + padding


def _effect(comparison: Comparison, span: tuple[float, float]) -> Markup:
    effect = comparison.primary
    assert effect is not None
    percent, color = effect.percent, arm_class(comparison.arm.arm)
    value = f"{percent.signed_text}, CI {percent.signed_interval_text}"
    whole = Row("estimate", percent.value, value, color, percent.low, percent.high, 34.0, 6.0, "strong")
    rows = [whole]
    n = len(effect.log_ratios)
    each = n <= NAMES_MAX
    step = 16.0 if each else 13.0 if n <= DOTS_MAX else max(3.0, 13.0 * DOTS_MAX / n)
    for i, (block, d) in enumerate(sorted(effect.log_ratios.items())):
        is_named = each or i in (0, n - 1) or (n <= DOTS_MAX and (block + 1) % 5 == 0)
        name = f"block {block + 1}"
        title = f"{name}: {signed(percent_of(d), 2, '%')}"
        row = Row(
            name if is_named else "", percent_of(d), title, color, height=step, radius=3.2, style="quiet"
        )
        rows.append(row)
    return estimates(
        f"Effect of {comparison.arm.name}: {value}", rows, span, comparison.margin, percent.better
    )


def latency_charts(findings: Findings) -> list[Panel]:
    """Return one chart per kind of transaction: latency by percentile, both axes logarithmic."""
    panels = []
    for kind in findings.kinds:
        curves = {of.arm.arm: curve_ms(of.latency[kind]) for of in findings.arms if kind in of.latency}
        known = {arm: curve for arm, curve in curves.items() if curve and curve[0][1] > 0}
        if known:
            names = {of.arm.arm: of.arm.name for of in findings.arms}
            panels.append(Panel(kind_text(kind), _curves(known, names)))
    return panels


NAMED_SHARES = {0.5: "p50", 0.1: "p90", 0.01: "p99", 1e-3: "p99.9", 1e-4: "p99.99"}
"""Shares of transactions beyond a percentile, with the names on the axis and in tooltips."""


def _curves(curves: dict[int, list[tuple[float, float]]], names: Mapping[int, str]) -> Markup:
    least = min(share for curve in curves.values() for share, _ in curve)
    shares = [(share, name) for share, name in NAMED_SHARES.items() if share >= least]
    x = Axis(0.5, least, shares, log=True, grid=True)
    y = logarithmic((value for curve in curves.values() for _, value in curve), "ms")
    marks: list[Mark] = []
    for arm, points in curves.items():
        marks.append(trace(points, f"curve {arm_class(arm)}"))
        # The first point at or beyond the share, as the points of a curve are discrete.
        beyond = [
            (name, next((point for point in points if point[0] <= share * (1 + 1e-9)), None))
            for share, name in NAMED_SHARES.items()
        ]
        dots = [
            Point(*at, f"{names[arm]}, {name}: {significant(at[1], 3)} ms")
            for name, at in beyond
            if at is not None
        ]
        marks.append(Dots(dots, arm_class(arm), names[arm], joined=False, radius=2.4))
    return plot("Latency by percentile", x, y, marks)
