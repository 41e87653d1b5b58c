"""Gates: their section in reports, and the summary for pipelines.

- The outcome of a gate as text.
- Short summary for a CI job page, in GitHub-flavored Markdown: gate, verdicts, the most serious caveat.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgdyno.analysis.comparison import Verdict
from pgdyno.analysis.finding_fields import Key
from pgdyno.analysis.study_findings import MetricVerdict
from pgdyno.analysis.telemetry.metrics import is_latency
from pgdyno.features.gates.conditions import (
    Gate,
    GateOutcome,
    Inconclusive,
    NotEvaluable,
    Reason,
    has_interval,
    is_beyond,
)
from pgdyno.report.document import Document, ShownCaveat, Table, count_by_rank
from pgdyno.report.markdown_format import escaped, grid
from pgdyno.report.result_tables import change_text
from pgdyno.report.visible_text import visible
from pgdyno.study.plan import VERDICT_BLOCKS_MIN
from pgdyno.units import ABSENT, ci_text, counted, given_number, group_digits

# ----------------------------------------------------------------------
# The outcome of a gate as text.
# ----------------------------------------------------------------------

VERDICT_TEXT = {
    Verdict.FASTER: "is faster than",
    Verdict.SLOWER: "is slower than",
    Verdict.SAME: "is equivalent to",
    Verdict.UNDECIDED: "is undecided vs.",
}


def gate_sentence(of: MetricVerdict) -> str:
    """Return a verdict: ``clients 8: 18 is slower than 17 (new orders per minute −10.6%, 95% CI …)``."""
    place = f"{of.case}: " if of.case else ""
    return f"{place}{of.arm} {VERDICT_TEXT[of.verdict]} {of.baseline} ({size(of)})"


def size(of: MetricVerdict) -> str:
    """Return the change with its interval, if it has one."""
    if of.percent is None:
        return "no valid block"
    if not has_interval(of):
        below, yet = of.no_interval_below, " yet" if of.blocks < VERDICT_BLOCKS_MIN else ""
        why = f"no CI{yet}" if below is None else f"no interval below {below} blocks"
        return f"{of.name} {change_text(of.percent, '%')}, {why}"
    interval = f"{ci_text(of.percent.confidence)} {of.percent.signed_interval_text}"
    return f"{of.name} {of.percent.signed_text}, {interval}"


REASONS_MAX = 10
"""Maximum number of comparisons listed; the rest are counted."""


def outcome(of: Gate) -> str:
    """Return the outcome of the gate, with the conditions that could not be evaluated."""
    asked = " or ".join(condition.text for condition in of.conditions)
    if of.outcome is GateOutcome.PASSED:
        return f"Gate passed: every comparison rules out {asked}."
    not_evaluable = f"could not be evaluated: {_by_reason(of.not_evaluable)}." if of.not_evaluable else ""
    inconclusive = f"{counted(len(of.inconclusive), 'comparison')} neither met nor ruled out {asked}."
    if of.outcome is GateOutcome.NOT_EVALUABLE:
        return f"Gate {not_evaluable}"
    if of.outcome is GateOutcome.INCONCLUSIVE:
        return f"Gate inconclusive: {inconclusive} {REMEDY}"
    failed = f"Gate failed: {counted(len(of.met), 'comparison')} met {asked}."
    if of.inconclusive:
        failed = f"{failed} {inconclusive}"
    return f"{failed} Others {not_evaluable}" if not_evaluable else failed


REMEDY = "Measure longer (--resume FILE --minutes N), or on a quieter machine."

NO_BLOCK = "no block has values of this metric to compare: none, zero, or counted differently by the versions"
NO_TAIL = (
    "no block has a value of this percentile, because it is not valid or has fewer than 10 transactions "
    "above it in some arm (measure longer per block with --window, or use a lower percentile)"
)
SOME_BLOCKS = (
    "the result is biased: some blocks have no value of this metric for one arm, only one block counts in a "
    "case of the average, the effect depends on the length of the warm-up, or the latency limit did not hold "
    "at the capacity found"
)


def _by_reason(not_evaluable: Sequence[NotEvaluable]) -> str:
    """Return conditions by reason: ``slower:p99 of 18 vs. 17 in clients 8: no block has values …``."""
    by_reason: dict[str, list[str]] = {}
    for one in not_evaluable[:REASONS_MAX]:
        named = f"{one.condition.text} of {_place(one.of)}" if one.of else one.condition.text
        by_reason.setdefault(why_not_evaluated(one), []).append(named)
    text = "; ".join(f"{', '.join(named)}: {why}" for why, named in by_reason.items())
    rest = len(not_evaluable) - REASONS_MAX
    return f"{text}; and {group_digits(rest, 0)} more" if rest > 0 else text


def why_not_evaluated(of: NotEvaluable) -> str:
    """Return the reason why a condition could not be evaluated."""
    if of.of is None or of.of.percent is None:
        return NO_TAIL if is_latency(of.condition.metric) else NO_BLOCK
    return SOME_BLOCKS


def why_inconclusive(one: Inconclusive, of: Gate) -> str:
    """Return the reason as the end of a sentence; empty if the verdict has it."""
    if one.reason is Reason.NOT_SIGNIFICANT:
        return f"; not significant among {counted(of.family, 'comparison')} (Holm)"
    if one.reason is Reason.NOISE_FLOOR and one.condition.limit_percent is not None:
        return "; the difference from the limit is below the noise floor of identical arms (A/A)"
    if one.reason is Reason.NOISE_FLOOR:
        return "; the difference is below the noise floor of identical arms (A/A)"
    if one.condition.limit_percent is None or one.reason is Reason.TOO_FEW_BLOCKS:
        return ""
    if not has_interval(one.of):
        return f"; a limit needs a CI, and {VERDICT_BLOCKS_MIN} blocks"
    limit = one.condition.limit_of(one.of)
    if is_beyond(one.of, limit) is False:  # of not-same, whose other limit is in the CI
        limit = -limit
    return f"; the CI contains {'−' if limit < 0 else '+'}{given_number(abs(limit))}%"


def _place(of: MetricVerdict) -> str:
    pair = f"{of.arm} vs. {of.baseline}"
    return f"{pair} in {of.case}" if of.case else pair


def reasons(of: Gate) -> list[str]:
    """Return a sentence for each comparison that met a condition or is inconclusive, and for lost trials."""
    found = [f"{one.condition.text}: {gate_sentence(one.of)}." for one in of.met]
    found += [
        f"Inconclusive for {one.condition.text}: {gate_sentence(one.of)}{why_inconclusive(one, of)}."
        for one in of.inconclusive
    ]
    rest = len(found) - REASONS_MAX
    sentences = [*found[:REASONS_MAX], f"And {group_digits(rest, 0)} more."] if rest > 0 else found
    if of.lost:
        sentences.append(
            f"{group_digits(of.lost, 0)} of {counted(of.trials, 'trial')} failed or were excluded; "
            "the gate uses only the others."
        )
    return sentences


# ----------------------------------------------------------------------
# Short summary for a CI job page, in GitHub-flavored Markdown: gate, verdicts, the most serious caveat.
#
# Details are collapsed. The summary can be appended to a file that other steps also write to.
# ----------------------------------------------------------------------

ROWS_MAX = 40
"""Maximum number of comparisons in the table; the report has all."""

RESULTS = ("levels", "latencies", "outliers", "breakdowns", "dip-table", "results", "checks")
"""Sections with tables of results."""

COLLAPSED_MAX = 3
"""Maximum number of collapsed tables of results."""


def to_summary(
    document: Document, found: Sequence[MetricVerdict], gate: Gate | None, files: Sequence[str]
) -> str:
    """Return the summary, which ends with an empty line. ``files`` names related files."""
    caveats = document.caveats
    parts = [f"## pgdyno: {escaped(document.title)}"]
    if gate is not None:
        parts += [f"**{escaped(outcome(gate))}**", _listed(reasons(gate))]
    parts.append("\n".join(grid(_verdicts(found))))
    if len(found) > ROWS_MAX:
        parts.append(f"{counted(len(found) - ROWS_MAX, 'more comparison')} in the report.")
    parts.append(_listed([sentence for section in document.sections for sentence in section.brief]))
    why = [sentence for section in document.of("why") for sentence in section.sentences]
    parts += map(escaped, (document.unfinished, *why, _most_serious(caveats)))
    if files:
        parts.append(escaped(f"Files: {', '.join(files)}."))
    results = document.tables(*RESULTS)
    short = [table for table in results if not table.long and not table.said_elsewhere]
    for table in short[:COLLAPSED_MAX]:
        parts.append(_collapsed(table.title, "\n".join([*grid(table), "", escaped(table.note)])))
    if caveats:
        items = _listed([f"{caveat.sentence} {caveat.remedy}" for caveat in caveats])
        parts.append(_collapsed(counted(len(caveats), "caveat"), items))
    command = "\n".join(f"    {line}" for line in document.command.splitlines())
    parts.append(_collapsed("How to repeat it", command))
    return visible("\n\n".join([*filter(None, parts), escaped(document.percent_of)]) + "\n\n")


def _listed(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {escaped(sentence)}" for sentence in sentences)


def _verdicts(found: Sequence[MetricVerdict]) -> Table:
    """Return the table of verdicts; the column ``case`` is omitted if all its cells are empty."""
    rows = [
        [
            of.case,
            f"{of.arm} vs. {of.baseline}",
            of.verdict.value,
            of.name,
            ABSENT if of.percent is None else of.percent.signed_text,
            of.percent.signed_interval_text if of.percent and has_interval(of) else ABSENT,
            str(of.blocks),
        ]
        for of in found[:ROWS_MAX]
    ]
    columns = ("case", "comparison", "verdict", "metric", "change", "interval", "blocks")
    shown = [i for i in range(len(columns)) if i or any(row[0] for row in rows)]
    return Table(
        title="",
        columns=tuple(columns[i] for i in shown),
        rows=[[row[i] for i in shown] for row in rows],
        note="",
        numeric=frozenset(columns[4:]),
    )


def _most_serious(caveats: Sequence[ShownCaveat]) -> str:
    if not caveats:
        return ""
    first, counts = caveats[0], f"Caveats: {count_by_rank(caveats)}"
    return f"{counts}." if first.condition else f"{counts}; the most serious: {first.sentence} {first.remedy}"


def _collapsed(title: str, content: str) -> str:
    """Return a collapsed block. GitHub renders Markdown within it only after an empty line."""
    return f"<details><summary>{escaped(title)}</summary>\n\n{content}\n\n</details>"


GATE = Key("gate", Gate | None, "Result of ``--fail-if``; null without it.")
