"""What a report says, in words and tables: the same in every form, so that no form can say something else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgdyno.analysis.comparison import Comparison
from pgdyno.analysis.findings import Findings
from pgdyno.analysis.verdict import POWER, Verdict
from pgdyno.caveats import Caveat, Code
from pgdyno.estimate import NO_BREAK, duration_text, grouped, share_text
from pgdyno.evidence.records import Arm
from pgdyno.report import tables
from pgdyno.report.method import DERIVED_FROM_TPC_C, how_it_was_measured
from pgdyno.report.tables import Table

LIKE_IT_MAX = 3
"""Of the same caveat on many trials so many are shown, and the rest counted."""


@dataclass(frozen=True)
class Headline:
    """The verdict on one arm. ``more`` is what to do about an undecided one, else empty."""

    arm: Arm
    verdict: Verdict
    sentence: str
    more: str


@dataclass(frozen=True)
class Doubt:
    """A caveat in words, with where it was seen."""

    code: Code
    sentence: str
    remedy: str


@dataclass(frozen=True)
class Report:
    """Everything that is said. ``findings`` are for charts and for the forms that give raw numbers."""

    title: str
    findings: Findings
    headlines: Sequence[Headline]
    percent_of: str  # of what the percentages are
    results: Sequence[Table]
    doubts: Sequence[Doubt]
    background: Sequence[Table]
    method: Sequence[str]  # paragraphs
    derived: str  # the statement the TPC asks for; empty for other workloads
    command: str

    @property
    def tables(self) -> Sequence[Table]:
        """All of them, in the order in which they are read."""
        return [*self.results, *self.background]


def build(findings: Findings) -> Report:
    """Word the findings."""
    baseline = findings.arms[0].arm
    tpcc = findings.study.plan.workload.get("kind") == "tpcc"
    results = [
        tables.levels(findings),
        tables.latencies(findings),
        tables.latency_changes(findings),
        tables.safety(findings),
        tables.checks(findings),
    ]
    background = [
        tables.transactions(findings),
        tables.failures(findings),
        tables.settings(findings),
        tables.servers(findings),
        tables.trials(findings),
        tables.host(findings),
    ]
    return Report(
        title=findings.study.title,
        findings=findings,
        headlines=[_headline(comparison, findings) for comparison in findings.comparisons],
        percent_of=f"Percentages are (B − A) / A, where A is {baseline.name}, the baseline.",
        results=[table for table in results if table.rows],
        doubts=_doubts(findings),
        background=[table for table in background if table.rows],
        method=how_it_was_measured(findings),
        derived=DERIVED_FROM_TPC_C if tpcc else "",
        command=findings.study.command,
    )


def _headline(comparison: Comparison, findings: Findings) -> Headline:
    arm, baseline, effect = comparison.arm, comparison.baseline, comparison.primary
    if effect is None or comparison.decision is None:
        sentence = (
            f"Undecided whether {arm.name} is faster or slower than {baseline.name}: no block counts yet."
        )
        return Headline(arm, Verdict.UNDECIDED, sentence, "")
    estimate, margin = effect.percent, share_text(comparison.margin)
    n = _counted(estimate.n, "block")
    if estimate.low is None or estimate.high is None:
        interval = f"no interval yet, {n}"
    else:
        interval = f"{share_text(estimate.confidence)} interval {estimate.signed_interval_text}, {n}"
    match comparison.verdict:
        case Verdict.FASTER | Verdict.SLOWER as verdict:
            # "4.0 % slower" has its sign in the word, so the interval has none either.
            size = f"{grouped(abs(estimate.value), estimate.decimals)}{NO_BREAK}%"
            low, high = sorted(abs(end) for end in (estimate.low or 0.0, estimate.high or 0.0))
            ends = f"{grouped(low, estimate.decimals)} … {grouped(high, estimate.decimals)}{NO_BREAK}%"
            sentence = (
                f"{arm.name} is {size} {verdict} than {baseline.name} "
                f"({share_text(estimate.confidence)} interval {ends}, {n}; margin {margin})."
            )
        case Verdict.SAME:
            sentence = (
                f"{arm.name} is the same as {baseline.name} within the margin of {margin}: "
                f"{estimate.signed_text} ({interval})."
            )
        case _:
            sentence = (
                f"Undecided whether {arm.name} is faster or slower than {baseline.name}: "
                f"{estimate.signed_text} ({interval}; margin {margin})."
            )
    return Headline(arm, comparison.verdict, sentence, _more(comparison, findings.block_s))


def _more(comparison: Comparison, block_s: float | None) -> str:
    decision = comparison.decision
    if decision is None or decision.blocks_needed is None:
        return ""
    minutes = f" (about {duration_text(decision.blocks_needed * block_s)})" if block_s else ""
    sentence = f"About {_counted(decision.blocks_needed, 'more block')}{minutes} should decide it."
    if decision.detectable_percent is not None:
        sentence += (
            " The blocks so far would have found an effect of "
            f"{share_text(decision.detectable_percent / 100)} or more with a chance of {share_text(POWER)}."
        )
    return sentence


def _doubts(findings: Findings) -> list[Doubt]:
    by_code: dict[Code, list[Caveat]] = {}
    for caveat in findings.caveats:
        by_code.setdefault(caveat.code, []).append(caveat)
    where = {trial.trial: f"Block {trial.block + 1}: " for trial in findings.trials}
    found = []
    for code, caveats in by_code.items():
        for caveat in caveats[:LIKE_IT_MAX]:
            place = "" if caveat.trial is None else where.get(caveat.trial, "In a repeated trial: ")
            found.append(Doubt(code, place + caveat.sentence, caveat.remedy))
        rest = len(caveats) - LIKE_IT_MAX
        if rest > 0:
            found.append(Doubt(code, f"The same of {_counted(rest, 'more trial')}.", caveats[0].remedy))
    return found


def _counted(n: int, noun: str) -> str:
    return f"{grouped(n, 0)} {noun}{'' if n == 1 else 's'}"
