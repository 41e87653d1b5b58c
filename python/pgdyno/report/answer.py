"""The report of a case, and the first screen.

- The document of a case: headlines, caveats, sections.
- The summary of a case that fits a terminal: effect, differences of the arms, causes, serious caveats.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pgdyno.analysis.case_findings import ArmFindings, Findings
from pgdyno.analysis.comparison import BUDGET_FACTOR_MAX, POWER, Comparison, Decision, Verdict, less_noise_of
from pgdyno.analysis.measurement_noise import floor_text
from pgdyno.analysis.statistics.intervals import percent_of
from pgdyno.analysis.telemetry.metrics import ALL_KINDS, CAPACITY, SERVER_CPU, Metric
from pgdyno.caveats import Caveat, Rank
from pgdyno.report import background, conditions, result_tables, telemetry_tables, why_section
from pgdyno.report.background import METHOD, certainty_paragraphs, method_paragraphs
from pgdyno.report.document import (
    Document,
    Headline,
    Line,
    Place,
    Section,
    ShownCaveat,
    Table,
    Tone,
    by_rank,
    count_by_rank,
    placed,
    serious,
    tables_section,
)
from pgdyno.report.result_tables import enumeration, in_a_head, level_or_bound, ms_text, with_interval
from pgdyno.report.why_section import FACTOR_MIN, WhyReport
from pgdyno.results.records import Counts, ServerFacts
from pgdyno.study.cases import UNLIMITED_S
from pgdyno.study.plan import INTERVAL_BLOCKS_MIN, VERDICT_BLOCKS_MIN, Study
from pgdyno.units import (
    ABSENT,
    Better,
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
    time_of_blocks,
    with_unit,
)

# ----------------------------------------------------------------------
# The document of a case: headlines, caveats, sections.
# ----------------------------------------------------------------------

CAVEATS_PER_KIND_MAX = 3
"""Maximum number of caveats shown per kind; the rest are counted."""


INSTRUCTIONS = ("hardware.instructions_per_tx", "hardware.user_instructions_per_tx")
"""Keys of the metric that a headline adds. The first one with values is used: a choice by the size of the
effects would be biased."""


UNFINISHED = "The study is still running or was interrupted. These are preliminary results."


@dataclass(frozen=True, kw_only=True)
class Report(Document):
    """The document of a case, and what the formats with raw numbers need."""

    findings: Findings
    why: Sequence[WhyReport]
    derived: str  # the statement that the TPC requires; empty for other workloads


def case_report(findings: Findings, further: Iterable[Section] = ()) -> Report:
    """Return the report of one case. ``further``: sections of features."""
    reasons = why_section.why_reports(findings)
    derived = METHOD["tpc"] if findings.study.plan.workload.kind == "tpcc" else ""
    return Report(
        title=findings.study.title,
        sections=placed(_sections(findings, reasons, derived), further),
        headlines=[
            replace(one, basis=result_tables.with_coverage(one.basis, [findings.study]))
            for one in (_headline(comparison, findings) for comparison in findings.comparisons)
        ],
        unfinished=UNFINISHED if findings.study.ended_because is None else "",
        differs="; ".join(differences(findings)),
        percent_of=f"Percentages are (B − A) / A, where A is the baseline {findings.arms[0].arm.name}."
        f"{_full_names(findings)}",
        command=findings.study.command,
        findings=findings,
        why=reasons,
        derived=derived,
    )


def _sections(findings: Findings, reasons: Sequence[WhyReport], derived: str) -> list[Section]:
    """Return the sections of the core."""
    overhead = telemetry_tables.probe_overhead(findings)
    arms = [of.arm.name for of in findings.arms]
    why = [" ".join(one.sentences) for one in reasons if one.sentences]
    return [
        Section("why", sentences=why, place=Place.HEAD),
        Section("queries", sentences=telemetry_tables.query_sentences(findings), place=Place.HEAD),
        Section(
            "effect",
            "Effect overall and by block",
            plots=partial(result_tables.effects, findings),
            plots_size="effects",
            place=Place.TOP,
        ),
        tables_section("levels", [result_tables.level_table(findings)]),
        Section(
            "throughput",
            "Throughput over time, transactions per second (higher is better)",
            plots=partial(why_section.throughput_timelines, findings),
            plots_size="small",
            legend=arms,
            plots_note=why_section.timeline_note(findings),
        ),
        Section(
            "wal",
            "WAL written over time, MiB/s",
            plots=partial(why_section.wal_rates, findings),
            plots_size="small",
            legend=arms,
            plots_note=f"From pg_current_wal_insert_lsn(), sampled every second. "
            f"{why_section.shown_blocks(findings)}".strip(),
            is_long=True,
        ),
        Section(
            "latency",
            "Latency by percentile, ms (lower is better)",
            plots=partial(result_tables.latency_charts, findings),
        ),
        tables_section(
            "latencies",
            [
                result_tables.latency_table(findings),
                result_tables.latency_changes(findings),
                background.failures(findings),
            ],
        ),
        tables_section("breakdowns", [table for one in reasons for table in one.tables]),
        tables_section(
            "results",
            [
                telemetry_tables.drift_table(findings),
                telemetry_tables.brief(findings),
                *telemetry_tables.query_tables(findings),
                telemetry_tables.statement_table(findings),
            ],
        ),
        tables_section(
            "checks",
            [
                result_tables.safety_table(findings),
                background.deviations(findings),
                result_tables.checks(findings),
            ],
        ),
        tables_section("noise", [conditions.noise_table(findings)]),
        caveats_section(_shown_caveats(findings)),
        Section("certainty", "How sure?", certainty_paragraphs(findings), is_prose=True),
        Section(
            "method",
            "How it was measured",
            [*method_paragraphs(findings), *filter(None, (overhead, derived))],
            is_prose=True,
        ),
        tables_section(
            "conditions",
            [
                conditions.steady_state_table(findings),
                telemetry_tables.relations(findings),
                *telemetry_tables.groups(findings),
                background.scripts(findings),
                background.script_options(findings),
                background.workload(findings),
                background.transactions(findings),
            ],
        ),
        tables_section("settings", [background.settings(findings)], Place.PAGE_HEAD),
        tables_section(
            "background",
            [
                background.version_specific_settings(findings),
                background.server_table(findings),
                background.trials(findings),
                background.host(findings),
                background.machine_check_table(findings),
            ],
        ),
    ]


def caveats_section(caveats: Sequence[ShownCaveat]) -> Section:
    """Return the section of the caveats."""
    return Section("caveats", "Caveats", caveats=caveats, place=Place.CAVEATS)


def _full_names(findings: Findings) -> str:
    """Return the full names of arms whose names are shortened or given."""
    return "".join(
        f" {of.arm.name} is {of.arm.spec}."
        for of, asked in zip(findings.arms, findings.study.plan.arms, strict=True)
        if asked.is_named or not (asked.is_dsn or of.arm.spec in of.arm.name)
    )


def _headline(comparison: Comparison, findings: Findings) -> Headline:
    a, b, effect = comparison.baseline.name, comparison.arm.name, comparison.primary
    if effect is None:
        basis = "too many arrivals were skipped" if comparison.censored else "no valid block yet"
        reason = _why_held_back(comparison, findings) if comparison.is_held_back else ""
        return Headline(Verdict.UNDECIDED, f"Undecided: {b} vs. {a}", basis, reason)
    estimate, verdict = effect.percent, comparison.verdict
    differs = comparison.decision.difference if comparison.decision else None
    claim = _claim(verdict, differs, a, b, estimate, comparison.margin, findings.primary)
    basis = f"{_interval(differs, estimate)}, {counted(estimate.n, 'block')}"
    if effect.key == CAPACITY.key:
        by_clients = " by clients" if findings.study.plan.searches_clients else ""
        basis = f"{findings.study.plan.limit_text}{by_clients}, {basis}"
    if estimate.better is Better.LESS and not differs:
        basis = f"{findings.primary.name}, {basis}"
    if differs:
        basis += f"; equivalence margin {given_percent(comparison.margin)}"
    more = (_more(comparison, findings), _instructions(comparison, findings), _unlike_builds(comparison))
    return Headline(verdict, claim, basis, " ".join(filter(None, more)))


def _claim(
    verdict: Verdict,
    differs: Verdict | None,
    a: str,
    b: str,
    estimate: Estimate,
    margin: float,
    metric: Metric,
) -> str:
    is_capacity = metric.key == CAPACITY.key  # that each block has searched for
    if differs:
        within = ", but within the margin" if verdict is Verdict.SAME else ""
        # "4.0% slower" has its sign in the word, so neither the number nor the interval has one.
        direction = "lower" if estimate.value < 0 else "higher"
        if is_capacity:
            return f"The capacity of {b} is {_sized(estimate, f'{direction} than that of {a}')}{within}"
        if estimate.better is not Better.LESS:
            return f"{b} is {_sized(estimate, f'{differs} than {a}')}{within}"
        return f"{b} is {differs} than {a}{within}: its {metric.name} is {_sized(estimate, direction)}"
    if verdict is Verdict.SAME:
        arms = f"The capacities of {b} and {a}" if is_capacity else f"{b} and {a}"
        return f"{arms} are equivalent within ±{given_percent(margin)}: {estimate.signed_text}"
    change = result_tables.change_text(estimate, "%", INTERVAL_BLOCKS_MIN)  # as in the table
    return f"Undecided: {'capacity of ' if is_capacity else ''}{b} vs. {a} {change}"


def _interval(differs: Verdict | None, estimate: Estimate) -> str:
    """Return the interval: of a difference without signs, which the claim has in a word."""
    if estimate.low is None or estimate.high is None:
        return "no CI yet"
    interval = estimate.signed_interval_text
    if differs:
        near, far = sorted((estimate.low, estimate.high), key=abs)
        interval = bracketed(_size(near, estimate), _size(far, estimate))
    return f"{ci_text(estimate.confidence)} {interval}"


def _has_factor(estimate: Estimate) -> bool:
    return estimate.value > -100 and _factor(estimate.value) >= FACTOR_MIN and (estimate.low or 0) > -100


def _factor(percent: float) -> float:
    """Return the ratio of the larger to the smaller value."""
    return max(1 + percent / 100, 1 / (1 + percent / 100))


def _size(percent: float, estimate: Estimate) -> str:
    """Return the size of an estimate or an end of its interval, without a sign."""
    if _has_factor(estimate):
        return significant(_factor(percent), 3)
    return with_unit(group_digits(abs(percent), estimate.decimals), "%")


def _sized(estimate: Estimate, direction: str) -> str:
    """Return ``8.2% slower than 17``, or ``slower than 17 by a factor of 12.1``."""
    size = _size(estimate.value, estimate)
    return f"{direction} by a factor of {size}" if _has_factor(estimate) else f"{size} {direction}"


def _why_held_back(comparison: Comparison, findings: Findings) -> str:
    """Return the reasons for a missing verdict, whatever the interval is."""
    plan = findings.study.plan
    stalled = (
        f"the search found no capacity of an arm for {plan.limit_text}"
        if plan.searches_capacity
        else "an arm completed nothing"
    )
    lost = {stalled: comparison.stalled, "an arm was overloaded": comparison.censored}
    reasons = [f"{words} in {counted(len(blocks), 'block')}" for words, blocks in lost.items() if blocks]
    if comparison.failures:
        reasons.insert(0, comparison.failures_text)
    if comparison.is_unsteady:
        reasons.append("the effect depends on the length of the warm-up")
    if comparison.unconfirmed:
        arms = result_tables.enumeration(list(comparison.unconfirmed))
        reasons.append(f"the latency limit did not hold in the measured windows of {arms}")
    reasons += [
        f"{of.arm.name} did not keep the {of.kind} rate ({group_digits(of.rate, 0)} of "
        f"{group_digits(of.target, 0)} {of.unit}, too low in {of.below} of {counted(of.blocks, 'block')})"
        for of in comparison.missed_rates
    ]
    remedy = _longer_windows(plan, findings.cases) if comparison.is_unsteady else ""
    return f"No verdict: {result_tables.enumeration(reasons)}.{remedy}"


LONG_WINDOW_S, LONG_WINDOW_FACTOR = 60.0, 3
"""Window in which a warm-up of the usual length is small: at least this, and this times the present one."""
LONG_WINDOW_BLOCKS, LONG_WINDOW_OVERHEAD = 8, 1.25
"""Blocks that decide about an effect of several percent, and their time as a multiple of the windows."""


def _longer_windows(plan: Study, cases: int) -> str:
    """Return the options with which the effect depends less on the warm-up, as a sentence."""
    if plan.window_s is None:
        return ""
    window_s = max(LONG_WINDOW_S, LONG_WINDOW_FACTOR * plan.window_s)
    study_s = LONG_WINDOW_BLOCKS * plan.turns * LONG_WINDOW_OVERHEAD * window_s
    budget_s = 0.0 if plan.budget_s >= UNLIMITED_S else plan.budget_s
    minutes = math.ceil(cases * max(budget_s, study_s) / 60)
    return f" Longer windows may decide: --window {window_s:g}s --minutes {minutes}."


def _more(comparison: Comparison, findings: Findings) -> str:
    if comparison.is_held_back:
        return _why_held_back(comparison, findings)
    decision = comparison.decision
    if decision is None or decision.verdict is not Verdict.UNDECIDED:
        return ""
    parts = (_missing(comparison, decision, findings), _limits(comparison, findings.primary.name))
    return " ".join(filter(None, parts))


def _unlike_builds(comparison: Comparison) -> str:
    """Return a sentence if the builds of the arms have different optimization."""
    levels = [of.server_facts.optimization for of in (comparison.baseline, comparison.arm)]
    if not all(levels) or levels[0] == levels[1]:
        return ""
    return (
        f"The builds have different optimization ({levels[0]} and {levels[1]}), which may explain a part of "
        "the change."
    )


def _limits(comparison: Comparison, metric: str) -> str:
    """Return the largest change in each direction that the interval contains.

    Empty if the interval excludes 0: then the noise floor is the reason, which these bounds do not have.
    """
    primary = comparison.primary
    change = None if primary is None else primary.percent
    if primary is None or change is None or change.n < VERDICT_BLOCKS_MIN:
        return ""
    if change.low is None or change.high is None or not change.low <= 0 <= change.high:
        return ""
    less, more = change.unsigned_ends
    is_rate = change.better is not Better.LESS and primary.key != CAPACITY.key
    words = ("slower", "faster") if is_rate else ("lower", "higher")
    b, a = comparison.arm.name, comparison.baseline.name
    subject, other = (b, a) if is_rate else (f"The {metric} of {b}", f"that of {a}")
    return f"{subject} is at most {less} {words[0]} and at most {more} {words[1]} than {other}."


def _missing(comparison: Comparison, decision: Decision, findings: Findings) -> str:
    """Return what is needed for a verdict."""
    if decision.blocks_needed is None:
        return ""
    n, block_s = len(comparison.blocks), findings.block_s
    if n < VERDICT_BLOCKS_MIN:
        # A standard deviation of so few blocks predicts nothing.
        missing = VERDICT_BLOCKS_MIN - n
        minutes = time_of_blocks(missing, block_s)
        return f"A verdict needs at least {VERDICT_BLOCKS_MIN} blocks: {missing} more{minutes}."
    least, verdict = findings.study.plan.unmet_minimum(n) or (0, "")
    minutes = time_of_blocks(decision.blocks_needed, block_s)
    are = "is" if decision.blocks_needed == 1 else "are"
    sentence = f"About {counted(decision.blocks_needed, 'more block')}{minutes} {are} needed"
    if decision.blocks_needed >= least - n > 0:
        sentence += f" ({verdict} needs at least {least} in all)"
    floor = findings.noise_floor
    if floor and decision.detectable_percent and percent_of(floor) > decision.detectable_percent:
        sentence += f"; identical arms differ by up to {floor_text(floor)[1:]}, which hides smaller effects"
    elif decision.detectable_percent is not None:
        sentence += (
            f"; the smallest effect detectable so far is {share_text(decision.detectable_percent / 100)} "
            f"({given_percent(POWER)} power)"
        )
    if decision.blocks_needed <= (BUDGET_FACTOR_MAX - 1) * n:
        return f"{sentence}."
    found = less_noise_of(
        findings.study.plan, max(of.arm.clients for of in findings.arms), findings.study.host_facts.cores or 1
    )
    return f"{sentence}. To resolve smaller changes in this time: {conditions.less_noise_text(found)}."


def _instructions(comparison: Comparison, findings: Findings) -> str:
    """Return a significant difference in instructions per transaction, if the verdict is no difference."""
    effects = findings.telemetry.effects[comparison.arm.arm]
    effect = next((effects[key] for key in INSTRUCTIONS if key in effects), None)
    is_told = comparison.verdict in {Verdict.FASTER, Verdict.SLOWER}
    if effect is None or is_told or comparison.is_held_back or findings.has_own_rates:
        return ""
    a, b, estimate = comparison.baseline.name, comparison.arm.name, effect.percent
    if estimate.n < VERDICT_BLOCKS_MIN or estimate.low is None or estimate.high is None:
        return ""
    if estimate.low <= 0 <= estimate.high:
        return ""
    change = _sized(estimate, f"{'fewer' if estimate.value < 0 else 'more'} {effect.name} than {a}")
    basis = f"{_interval(Verdict.SLOWER, estimate)}, {counted(estimate.n, 'block')}"
    return f"{b} needs {change} ({basis})."


def _shown_caveats(findings: Findings) -> list[ShownCaveat]:
    by_kind: dict[str, list[Caveat]] = {}
    for caveat in findings.caveats:
        by_kind.setdefault(caveat.kind, []).append(caveat)
    blocks = {trial.trial: trial.block for trial in findings.trials}
    names = [of.arm.name for of in findings.arms]
    found = []
    for caveats in by_kind.values():
        equal: dict[object, list[Caveat]] = {}
        for caveat in caveats:
            equal.setdefault(_merge_key(caveat, blocks), []).append(caveat)
        groups = list(equal.values())
        is_routine = caveats[0].wording.rank is Rank.ROUTINE  # they take one line
        most = len(groups) if is_routine else CAVEATS_PER_KIND_MAX
        found += [_shown_caveat(group, names, blocks) for group in groups[:most]]
        rest = sum(map(len, groups[most:]))
        if rest:
            first = ShownCaveat.of(caveats[0])
            found.append(replace(first, sentence=f"The same in {counted(rest, 'more trial')}.", remedy=""))
    return by_rank(found)


def _merge_key(caveat: Caveat, blocks: Mapping[int, int]) -> object:
    """Return the key by which caveats are merged."""
    if not (over := caveat.wording.merged_over):
        return id(caveat)
    trial = _shown_trial(caveat)
    place = None if trial is None else blocks.get(trial)
    return place, tuple(sorted((key, value) for key, value in caveat.parameters.items() if key != over))


def _shown_trial(caveat: Caveat) -> int | None:
    """Return the trial whose block is shown; None for a routine caveat, which is a condition of the study."""
    return None if caveat.wording.rank is Rank.ROUTINE else caveat.trial


def _shown_caveat(equal: Sequence[Caveat], names: Sequence[str], blocks: Mapping[int, int]) -> ShownCaveat:
    """Merge equal caveats into one; its arms are in the order of the study."""
    first, trial = equal[0], _shown_trial(equal[0])
    place, over = "", first.wording.merged_over
    if trial is not None:
        place = f"Block {blocks[trial] + 1}: " if trial in blocks else "In a repeated trial: "
    if len(equal) == 1:
        return ShownCaveat.of(first, place)
    seen = dict.fromkeys(caveat.parameters[over] for caveat in equal)
    listed = result_tables.enumeration([name for name in names if name in seen] or [*map(str, seen)])
    whole = replace(first, parameters={**first.parameters, over: listed})
    return ShownCaveat.of(whole, place)


# ----------------------------------------------------------------------
# The summary of a case that fits a terminal: effect, differences of the arms, causes, serious caveats.
# ----------------------------------------------------------------------

HEADLINES_MAX = 2
"""Maximum number of comparisons over several cases or hosts that a full screen keeps."""

NAMES_MAX = 4
"""Maximum number of arms that a sentence names, and that a table has in their own order."""

SETTINGS_MAX = 4
UNKNOWN = "unknown"

BAR_WIDTH = 17
"""Characters of the bar."""

Reach = tuple[float, float]
"""Both ends of an axis, in percent."""


def reach_of(estimates: Iterable[Estimate], margin: float) -> Reach:
    """Return the ends of an axis that shows these changes and twice the margin, in percent."""
    ends = [end for of in estimates for end in ends_of(of)]
    return min([-2 * margin, *ends]), max([2 * margin, *ends])


def largest_first(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons by the size of their effects, those without one at the end."""

    def size(of: Comparison) -> float:
        return -1.0 if of.primary is None else abs(of.primary.summary.mean)

    return sorted(comparisons, key=size, reverse=True)


def lead(findings: Findings) -> str:
    """Return the verdicts on several arms: ``Compared with 17: 1 arm faster (18), 1 undecided (16).``"""
    named = {one: [of.arm.name for of in findings.comparisons if of.verdict is one] for one in Verdict}
    of_few = len(findings.comparisons) <= NAMES_MAX
    counts = [
        f"{len(names)} {verdict.word}" + of_few * f" ({'; '.join(names)})"
        for verdict, names in named.items()
        if names
    ]
    known = [of.primary.percent for of in findings.comparisons if of.primary is not None]
    levels = sorted({confidence_percent(of.confidence) for of in known if of.low is not None})
    basis = f"{' to '.join(dict.fromkeys([*levels[:1], *levels[-1:]]))} CIs, " if levels else ""
    margin = given_percent(findings.study.plan.margin)
    return (
        f"Compared with {findings.arms[0].arm.name}: {', '.join(counts)} ({findings.primary.name}, {basis}"
        f"{counted(findings.blocks_max, 'block')}; equivalence margin {margin})."
    )


def effect_table(findings: Findings) -> Table:
    """Return one row per arm: level, change with its interval and as a bar, p99, CPU time.

    With more than a few arms, the largest effects come first.
    """
    metric, baseline = findings.primary, findings.arms[0].arm.name
    by_arm = {comparison.arm.arm: comparison for comparison in findings.comparisons}
    shown = {arm: of.primary.percent for arm, of in by_arm.items() if of.primary is not None}
    margin = 100 * findings.study.plan.margin
    reach = reach_of(shown.values(), margin)
    change, bar = f"change vs. {in_a_head(baseline)}, %", axis(reach)
    first, *others = findings.arms
    if len(others) >= NAMES_MAX:
        places = [of.arm.arm for of in largest_first(findings.comparisons)]
        others.sort(key=lambda of: places.index(of.arm.arm))
    arms = [first, *others]
    further = further_columns(arms)
    has_verdicts = len(findings.comparisons) > 1  # the only headline has its own
    rows = []
    for i, of in enumerate(arms):
        estimate = shown.get(of.arm.arm)
        # The lead has the confidence of several arms.
        interval = with_interval(estimate, estimate.confidence, INTERVAL_BLOCKS_MIN) if estimate else ""
        verdict = by_arm[of.arm.arm].verdict if of.arm.arm in by_arm else "baseline"
        drawn = bar_of(estimate, margin, reach) if estimate else ""
        known = [verdict] if has_verdicts else []
        more = [texts[i] for texts in further.values()]
        rows.append([of.arm.name, _level(of, metric.key), interval, *known, *more, drawn])
    return Table(
        title="",
        columns=("arm", metric.label, change, *(["verdict"] if has_verdicts else []), *further, bar),
        rows=rows,
        numeric=frozenset({metric.label, change, *further, bar}),
        dispensable=(bar, *reversed(further), metric.label),
        drawing=bar,
        breaks_first=True,
        plots=partial(result_tables.effect_bars, findings, reach),
    )


def _level(of: ArmFindings, key: str) -> str:
    """Return the level of an arm; a capacity, which answers a question of its own, with its interval."""
    text, level = level_or_bound(of, key), of.levels[key]
    has_interval = level is not None and level.low is not None and level.n >= VERDICT_BLOCKS_MIN
    return f"{text} {level.interval_text}" if level and has_interval and key == CAPACITY.key else text


def further_columns(arms: Sequence[ArmFindings]) -> dict[str, list[str]]:
    """Return the columns of p99, or of the highest percentile of all arms, and of the CPU time."""
    quantiles = [of.quantiles_ms(ALL_KINDS) for of in arms]
    highest = next((q for q in ("p99", "p95", "p90") if all(of[q] for of in quantiles)), "p50")
    found = {
        f"{highest}, ms": [ms_text(of[highest]) for of in quantiles],
        "CPU, µs/tx": [level_or_bound(of, SERVER_CPU.key) for of in arms],
    }
    return {name: texts for name, texts in found.items() if set(texts) != {ABSENT}}


def ends_of(estimate: Estimate) -> tuple[float, ...]:
    """Return the value and the known ends of its interval."""
    return tuple(end for end in (estimate.low, estimate.value, estimate.high) if end is not None)


def axis(reach: Reach) -> str:
    """Return the head of a column of ``bar_of``: both ends, and zero where it is."""
    low, high = (signed(end, min(1, decimals_of(end, 2)), "") for end in reach)
    head, zero = list(low + high.rjust(BAR_WIDTH - len(low))), _column(0.0, reach)
    if head[zero - 1 : zero + 2] == [" "] * 3:
        head[zero] = "0"
    return "".join(head)


def bar_of(estimate: Estimate, margin: float, reach: Reach) -> str:
    """Return a line of BAR_WIDTH characters over ``reach``: interval, estimate, zero, margin."""
    marks = {_column(-margin, reach): "┊", _column(margin, reach): "┊", _column(0.0, reach): "│"}
    return interval_bar([_column(end, reach) for end in ends_of(estimate)], marks)


def _column(value: float, reach: Reach) -> int:
    low, high = reach
    return round((BAR_WIDTH - 1) * (min(high, max(low, value)) - low) / (high - low))


def interval_bar(columns: Sequence[int], marks: Mapping[int, str] | None = None) -> str:
    """Return BAR_WIDTH characters with a value, or its low end, itself and its high end, at these columns."""
    line = [" "] * BAR_WIDTH
    for column, mark in (marks or {}).items():
        line[column] = mark
    low, high = columns[0], columns[-1]
    if len(columns) > 1:
        line[low : high + 1] = "─" * (high + 1 - low)
        line[low], line[high] = "├", "┤"
    line[columns[len(columns) // 2]] = "●"
    return "".join(line)


def _place_of(setting: str) -> int:
    """Return the place of a setting in the order of differences; equal for settings in neither list."""
    main: list[str] = background.SETTINGS["main"]
    if setting in main:
        return main.index(setting)
    return len(main) + (setting in background.SETTINGS["computed"])


def differences(findings: Findings) -> list[str]:
    """Return what differs between the arms: servers, their builds, then settings, requested ones first.

    Between major versions, the defaults that changed and the settings that only some have are told apart from
    requested ones. On a running server they may be set.
    """
    facts = [of.arm.server_facts for of in findings.arms]
    found = [
        f"{name} {_values(values)}"
        for name, values in (
            ("PostgreSQL", [of.version or UNKNOWN for of in facts]),
            ("extension", [of.extensions_shown or "none" for of in facts]),
            ("WAL directory", [of.wal_dir or "with the data" for of in facts]),
            ("compiler", [_compiler(of) for of in facts]),
            ("CFLAGS", [of.optimization or UNKNOWN for of in facts]),
            ("clients", [findings.study.plan.clients_text(of.arm.clients) for of in findings.arms]),
        )
        if len(set(values)) > 1 and UNKNOWN not in values
    ]
    requested = {name for of in findings.arms for name in of.arm.settings_requested}
    # A setting that only one major version has may be the cause, such as io_method of 18.
    majors = [(of.version or "").partition(".")[0] for of in facts]
    is_upgrade = len({*majors} - {""}) > 1
    by_default = is_upgrade and not any(of.provider == "dsn" for of in facts)
    known = [
        row
        for row in background.differing_settings(findings)
        if ABSENT not in row or (is_upgrade and row[0] in background.SETTINGS["main"])
    ]
    settings = sorted(known, key=lambda row: (row[0] not in requested, _place_of(row[0])))
    groups: dict[str, list[str]] = {}
    for name, *values in settings:
        having = [major for major, value in zip(majors, values, strict=True) if value != ABSENT]
        begin, shown = "", values
        if by_default and name not in requested:
            begin = "by default: "
            if len(having) < len(values):
                begin = f"only in {enumeration([*dict.fromkeys(having)])}: "
                shown = [*dict.fromkeys(value for value in values if value != ABSENT)]
        if not begin or name in background.SETTINGS["main"]:
            groups.setdefault(begin, []).append(f"{name} {_values(shown)}")
    for begin, texts in groups.items():
        found += [begin + ", ".join(texts[:SETTINGS_MAX])] if begin else texts[:SETTINGS_MAX]
    more = len(settings) - sum(len(texts[:SETTINGS_MAX]) for texts in groups.values())
    return [*found, *([counted(more, "more setting")] if more > 0 else [])]


def failures(findings: Findings) -> list[str]:
    """Return the most frequent error with the arms that have it, if any transaction failed."""
    rows, attempts = background.failures(findings).rows, attempts_without_success(findings)
    for arm, kind, sqlstate, n, sample in [*(row for row in rows if row[0] in attempts), *rows][:1]:
        arms = [row[0] for row in rows if row[1:3] == [kind, sqlstate]]
        whose = "all arms" if len(arms) == len(findings.arms) else enumeration(arms)
        at_most = "up to " if len(arms) > 1 else ""
        most = f"Most failed transactions of {whose}: {at_most}{n} {kind}"
        if arm in attempts:
            most = f"No transaction of {arm} succeeded in {group_digits(attempts[arm], 0)} attempts"
        code = sqlstate if sqlstate.islower() else f"SQLSTATE {sqlstate}"  # abandoned or connection
        return [f"{most}, {code}: {sample}"]
    return []


def attempts_without_success(findings: Findings) -> dict[str, int]:
    """Return the number of attempts of each arm without a successful transaction."""
    attempts = {}
    for of in findings.arms:
        counts = Counts.total(trial.counts for trial in findings.trials if trial.arm == of.arm.arm)
        if not counts.executed:
            attempts[of.arm.name] = counts.failed + counts.retried
    return attempts


def _values(values: Sequence[str]) -> str:
    if len(values) > NAMES_MAX + 1:
        return f"({len(set(values))} values)"
    return (" → " if len(values) == 2 else " | ").join(values)


def _compiler(of: ServerFacts) -> str:
    found = re.search(r"compiled by (.+?),", of.version_text or "")
    return found[1] if found else UNKNOWN


def case_summary(report: Report, sections: Sequence[Section]) -> list[Line | Table]:
    """Return the summary of a case: with published tables, or with the effect and its causes."""
    findings = report.findings
    head = [
        line
        for one in report.headlines
        for line in (Line(one.sentence, one.verdict or Tone.STRONG), *([Line(one.more)] if one.more else []))
    ]
    if published := published_lines(sections):
        return summary(head, report.unfinished, published, sections)
    if several := len(report.headlines) > 1:
        head = [
            Line(lead(findings), Tone.STRONG),
            *(
                Line(f"{comparison.arm.name}: {_why_held_back(comparison, findings)}", is_spare=True)
                for comparison in findings.comparisons
                if comparison.is_held_back and not comparison.failures  # else a caveat has them
            ),
        ]
    body: list[Line | Table] = [effect_table(findings)]
    if report.differs:
        body.append(Line(f"{report.differs}.", begin="Differs: "))
    reasons = {one.why.arm.arm: one for one in report.why if one.causes}
    told = [one for of in largest_first(findings.comparisons) if (one := reasons.get(of.arm.arm))]
    if several:
        body += [
            Line(one.largest, begin=f"Why {one.why.arm.name}: ", is_cut=True, is_spare=i > 0)
            for i, one in enumerate(told)
        ]
    else:
        body += [Line(one.causes, begin="Why: ") for one in told]
    queries = telemetry_tables.query_sentences(findings, brief=True)
    body += [Line(sentence, is_spare=True) for sentence in queries]
    body += [Line(one, Tone.ALARM, "! ", is_cut=several, is_spare=several) for one in failures(findings)]
    return summary(head, report.unfinished, body, sections)


def summary_of_several(
    head: Sequence[Line], unfinished: str, results: Table, sections: Sequence[Section]
) -> list[Line | Table]:
    """Return the summary of several cases or hosts: published tables, or the results."""
    shown = replace(results, note=re.split(r"(?<=\.) ", results.note)[0])
    return summary(head, unfinished, published_lines(sections) or [shown], sections)


def headline_lines(headlines: Sequence[Headline]) -> list[Line]:
    """Return a line for each headline; further ones are spare."""
    return [
        Line(one.sentence, one.verdict or Tone.STRONG, is_spare=i >= HEADLINES_MAX)
        for i, one in enumerate(headlines)
    ]


def published_lines(sections: Sequence[Section]) -> list[Line | Table]:
    """Return published tables."""
    return [table for section in sections for table in section.tables if table.whole]


def summary(
    head: Sequence[Line], unfinished: str, body: Sequence[Line | Table], sections: Sequence[Section]
) -> list[Line | Table]:
    """Return headlines, ``body``, the brief sentences of sections, and serious caveats."""
    first = [Line(sentence) for section in sections if section.order < 0 for sentence in section.brief]
    briefs = [
        Line(sentence, is_spare=not section.is_alarm)
        for section in sections
        if section.order >= 0
        for sentence in section.brief
    ]
    caveats = [caveat for section in sections for caveat in section.caveats]
    fitted = sum(len(table.items) for section in sections for table in section.tables)
    others = [
        *([f"Caveats: {count_by_rank(caveats)}"] if caveats else []),
        *([f"{counted(fitted, 'setting')} fitted to this machine"] if fitted else []),
    ]
    return [
        *(replace(line, is_headline=True) for line in head),
        *([Line(unfinished, Tone.STRONG, is_headline=True)] if unfinished else []),
        *first,
        *body,
        *briefs,
        *serious(caveats),
        *([Line(f"{'; '.join(others)}.", begin="+ ")] if others else []),
    ]
