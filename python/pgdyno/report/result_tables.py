"""Tables of results: titles, column heads, cells, notes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pgdyno.analysis.case_findings import ArmFindings, Findings
from pgdyno.analysis.comparison import TAIL_SD_MAX
from pgdyno.analysis.statistics.intervals import Method, method_of
from pgdyno.analysis.telemetry.metrics import (
    ALL_KINDS,
    PERCENTILES,
    PERCENTILES_COMPARED,
    Metric,
    latency_key,
)
from pgdyno.analysis.telemetry.percentiles import LatencyMs
from pgdyno.results.records import Kept, StudyRecord
from pgdyno.study.plan import INTERVAL_BLOCKS_MIN, VERDICT_BLOCKS_MIN
from pgdyno.units import (
    ABSENT,
    NO_BREAK,
    Estimate,
    bracketed,
    ci_text,
    confidence_percent,
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


@dataclass(frozen=True)
class Table:
    """``numeric`` names the columns set to the right. A cell that repeats the one above it is empty."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    numeric: frozenset[str] = field(default_factory=frozenset)
    long: bool = False  # details: collapsed in HTML
    dispensable: Sequence[str] = ()  # columns that a narrow terminal omits and names, in this order
    drawing: str = ""  # dispensable column that draws the numbers of others
    said_elsewhere: bool = False  # the summary of a pipeline has it as text
    breaks_first: bool = False  # a narrow page wraps the first column before omitting one
    narrow: Table | None = None  # the same numbers, for a terminal on which this table does not fit


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
            "Intervals of levels include drift between blocks; it cancels in the paired change."
            + _at_any_time(findings)
            + of_several_arms(findings)
        ),
        numeric=frozenset(numeric),
        dispensable=("better", "blocks", numeric[1]),
    )


def in_a_head(name: str) -> str:
    """Return a name short enough for the head of a narrow column."""
    return name if len(name) <= NAME_IN_HEAD_MAX else "the baseline"


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
    why = "has an interim analysis after each block" if plan.stops_on_verdict else "was resumed"
    return (
        f" CIs of changes are valid at any stopping time, because the study {why}; those of levels are "
        "Student's t."
    )


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
    for kind in [*findings.kinds, ALL_KINDS]:
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


def latency_changes(findings: Findings) -> Table:
    """Return the change in latency percentiles for each transaction type and arm."""
    baseline = findings.arms[0].arm.name
    is_bounded = any(
        metric.bounds.get(trial.trial) for metric in findings.latencies for trial in findings.trials
    )
    is_dispersed = any(of.is_dispersed for one in findings.comparisons for of in one.effects.values())
    limit = share_text(TAIL_SD_MAX)
    rows = []
    for kind in [*findings.kinds, ALL_KINDS]:
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
            "Geometric mean over blocks of the ratios of that percentile, with a CI from "
            f"{VERDICT_BLOCKS_MIN} blocks on. {ABSENT}: a block has fewer than 10 transactions above it"
            f"{', or only a lower bound' if is_bounded else ''}."
            + (f" Without CI: its block ratios have an SD above {limit}." if is_dispersed else "")
            + of_several_arms(findings)
        ),
        numeric=frozenset(PERCENTILES_COMPARED),
        dispensable=("p90", "p95", "p99"),
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
    words = {Kept.YES: "kept", Kept.PARTLY: "partly kept", Kept.NO: "GIVEN UP", Kept.UNKNOWN: "unknown"}
    badges = [{badge.name: badge for badge in of.arm.safety} for of in findings.arms]
    names = list(dict.fromkeys(name for of_arm in badges for name in of_arm))
    rows = [
        [name, *(words[of_arm[name].kept] if name in of_arm else ABSENT for of_arm in badges)]
        for name in names
    ]
    columns = ("guarantee", *(of.arm.name for of in findings.arms))
    return Table("Safety", columns, rows, note=" ".join(lost_guarantees(findings)), said_elsewhere=True)


def lost_guarantees(findings: Findings) -> list[str]:
    """Return a sentence for each guarantee: ``GIVEN UP by 17 and 18: point-in-time recovery (…).``"""
    words = {Kept.NO: "GIVEN UP", Kept.PARTLY: "Only partly kept"}
    by_promise: dict[tuple[Kept, str, str], list[str]] = {}
    for of in findings.arms:
        for badge in of.arm.safety:
            if badge.kept in words:
                by_promise.setdefault((badge.kept, badge.name, badge.text), []).append(of.arm.name)
    return [
        f"{words[kept]} by {enumeration(names) if len(names) < len(findings.arms) else 'all arms'}: "
        f"{promise}{f' ({reason})' if reason else ''}."
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


def _by_number(name: str) -> list[tuple[int, str]]:
    """Return a sort key that places ``condition 2`` before ``condition 10``."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def checks(findings: Findings) -> Table:
    """Return each check with the number of trials that passed and the message of a failure or skip."""
    rows = []
    names = sorted({check.name for trial in findings.trials for check in trial.checks}, key=_by_number)
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
