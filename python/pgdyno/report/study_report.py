"""The report of a study with several cases: the summary over cases, then the report of each case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pgdyno.analysis.comparison import Verdict
from pgdyno.analysis.study_findings import OverCases, StudyFindings
from pgdyno.features.capacity.section import capacity_section
from pgdyno.features.crash.sections import CrashReport, durability_section
from pgdyno.features.factors.effects import factors_section
from pgdyno.features.factors.scalability import scalability_section
from pgdyno.features.fitting.fit import LOST, NOT_THE_QUESTION
from pgdyno.features.published.section import agreement_sentences, source_section, with_measured_columns
from pgdyno.report import result_tables
from pgdyno.report.answer import Report, ShownCaveat, by_severity, case_report
from pgdyno.report.document import Section
from pgdyno.report.result_tables import Table, enumeration
from pgdyno.study.plan import INTERVAL_BLOCKS_MIN
from pgdyno.units import ABSENT, Better, ci_text, counted

WORDS = {
    Verdict.FASTER: "faster in {n}",
    Verdict.SLOWER: "slower in {n}",
    Verdict.SAME: "equivalent in {n}",
    Verdict.UNDECIDED: "undecided in {n}",
}


@dataclass(frozen=True)
class OverCasesHeadline:
    """One arm over all cases: the number of cases for each verdict, and the average with its basis."""

    claim: str
    basis: str

    @property
    def sentence(self) -> str:
        """Claim and basis in one sentence."""
        return f"{self.claim}; {self.basis}."


@dataclass(frozen=True)
class StudyReport:
    """``cases`` maps the name of a case to its report; a comparison has a single case and no summary."""

    title: str
    findings: StudyFindings
    headlines: Sequence[OverCasesHeadline]
    unfinished: str
    lost: str  # sentence: how the fit lost the question of the source; empty if it did not
    percent_of: str
    published: Sequence[Table]  # published tables beside the measured values
    source: Sequence[Section]  # agreement with the source and its notes, below its tables
    agreement: Sequence[str]  # sentences: agreement with the source
    results: Sequence[Table]
    sections: Sequence[Section]  # about all cases together
    crashes: CrashReport | None  # the crash test of the arms
    caveats: Sequence[ShownCaveat]
    noise: Sequence[str]  # a sentence for each layout
    fitted: Sequence[str]  # sentences: differences from the study file
    cases: Mapping[str, Report]
    background: Sequence[Table]
    command: str

    @property
    def only(self) -> Report | None:
        """The report of the only case; None if there are several."""
        return next(iter(self.cases.values())) if len(self.cases) == 1 else None


def build_study(findings: StudyFindings, crashes: CrashReport | None = None) -> StudyReport:
    """Return the report of a study, with the crash test of its arms if there is one."""
    cases = {of.study.case: case_report(of) for of in findings.cases}
    first = findings.first
    results = [changes_by_case(findings)]
    background = [fit_change_table(findings)]
    return StudyReport(
        title=first.study.title,
        findings=findings,
        headlines=[
            replace(
                one, basis=result_tables.with_coverage(one.basis, [case.study for case in findings.cases])
            )
            for one in (_headline(over, findings) for over in findings.over_cases)
        ],
        unfinished=next(iter(cases.values())).unfinished,
        lost=lost_question([findings]),
        percent_of="Percentages are (B − A) / A, where A is the baseline.",
        published=[with_measured_columns(table, first.study.plan.confidence) for table in findings.published],
        source=source_section(findings),
        agreement=agreement_sentences(findings),
        results=[table for table in results if table.rows],
        sections=list(_sections(findings, crashes)),
        crashes=crashes,
        caveats=_shown_caveats(cases),
        noise=list(dict.fromkeys(report.noise for report in cases.values())),
        fitted=[
            f"{change['key']}: {change['before']} → {change['after']} ({change['why']})"
            if change["key"]
            else change["why"]
            for change in first.study.changes
        ],
        cases=cases,
        background=[table for table in background if table.rows],
        command=first.study.command,
    )


def lost_question(studies: Sequence[StudyFindings]) -> str:
    """Return a sentence with the changes that lose the question in any of the studies; empty without one."""
    lost = [
        f"{change['key'].removeprefix(LOST)} {change['before']} → {change['after']} ({change['why']})"
        for findings in studies
        for change in findings.first.study.changes
        if str(change["key"]).startswith(LOST)
    ]
    return f"{NOT_THE_QUESTION}: {'; '.join(dict.fromkeys(lost))}." if lost else ""


def _sections(findings: StudyFindings, crashes: CrashReport | None) -> Iterator[Section]:
    if crashes is not None:
        yield durability_section(findings, crashes)
    if findings.capacity is not None:
        yield capacity_section(findings.capacity, findings.first.study.plan)
    if findings.effects is not None:
        yield factors_section(findings.effects, findings.first.study.plan)
    if findings.scalability is not None:
        yield scalability_section(findings.scalability, findings.first.study.plan)


def _headline(over: OverCases, findings: StudyFindings) -> OverCasesHeadline:
    """Return a headline: ``13 vs. 12, 8 cases: faster in 3, undecided in 5; average +1.2% (…).``"""
    found = over.verdicts
    counts = enumeration([WORDS[verdict].format(n=found[verdict]) for verdict in Verdict if found[verdict]])
    claim = f"{over.arm} vs. {over.baseline}, {counted(len(over.comparisons), 'case')}: {counts}"
    metric = findings.first.primary
    if over.average is None:
        return OverCasesHeadline(claim, "no valid block yet")
    percent = over.average.percent(metric.better)
    known = percent.low is not None
    interval = f"{ci_text(percent.confidence)} {percent.signed_interval_text}"
    names = f"{metric.name}, {interval if known else 'no CI yet'}"
    average = f"average over cases {result_tables.change_text(percent, '%', INTERVAL_BLOCKS_MIN)}"
    return OverCasesHeadline(claim, f"{average} ({names}, {counted(percent.n, 'block')})")


def changes_by_case(findings: StudyFindings) -> Table:
    """Return a row for each case and arm: both levels, the change, the verdict."""
    metric = findings.first.primary
    usual = findings.first.study.plan.confidence
    rows = []
    for over in findings.over_cases:
        for case, comparison in over.comparisons.items():
            of = next(one for one in findings.cases if one.study.case == case)
            levels = {found.arm.arm: found.levels.get(metric.key) for found in of.arms}
            a, b = levels.get(comparison.baseline.arm), levels.get(comparison.arm.arm)
            change = comparison.primary.percent if comparison.primary else None
            rows.append(
                [
                    case,
                    over.arm,
                    result_tables.level_text(a) if a else ABSENT,
                    result_tables.level_text(b) if b else ABSENT,
                    result_tables.with_interval(change, usual, INTERVAL_BLOCKS_MIN) if change else ABSENT,
                    str(comparison.verdict),
                    str(len(comparison.blocks)),
                ]
            )
        rows.append(_average_row(over, metric.better, usual))
    numeric = (f"baseline, {metric.unit}", f"arm, {metric.unit}", "change, %", "blocks")
    return Table(
        title=f"{metric.name[0].upper()}{metric.name[1:]} by case ({metric.better.word} is better)",
        columns=("case", "arm", *numeric[:3], "verdict", numeric[3]),
        rows=rows,
        note=(
            "The average is the geometric mean of the ratios of all cases; its CI is over passes "
            "(one block of every case). Verdicts are not corrected for the number of cases: one in twenty "
            "cases without a difference is expected to be called faster or slower." + _left_out(findings)
        ),
        numeric=frozenset(numeric),
        dispensable=("blocks", numeric[0]),
    )


def _left_out(findings: StudyFindings) -> str:
    cases = list(dict.fromkeys(case for over in findings.over_cases for case in over.stalled))
    if not cases:
        return ""
    why = "an arm failed or completed no transaction in some block, or the effect changed within windows"
    return f" Excluded from the average ({why}): {'; '.join(cases)}."


def _average_row(over: OverCases, better: Better, usual: float) -> list[str]:
    change = over.average.percent(better) if over.average else None
    text = result_tables.with_interval(change, usual, INTERVAL_BLOCKS_MIN) if change else ABSENT
    return ["average", over.arm, "", "", text, "", str(change.n) if change else "0"]


def fit_change_table(findings: StudyFindings) -> Table:
    """Return the changes that fit the study file to this machine."""
    rows = [
        [str(change["key"]), str(change["before"]), str(change["after"]), str(change["why"])]
        for change in findings.first.study.changes
    ]
    return Table(
        "Settings fitted to this machine",
        ("setting", "as published", "here", "reason"),
        rows,
        "All other settings are those of the study file.",
        long=True,
    )


def _shown_caveats(cases: Mapping[str, Report]) -> list[ShownCaveat]:
    """Return each caveat once, with the cases where it was raised."""
    raised: dict[ShownCaveat, list[str]] = {}
    for case, report in cases.items():
        for caveat in report.caveats:
            raised.setdefault(caveat, []).append(case)
    return by_severity(
        caveat if len(where) == len(cases) else replace(caveat, sentence=_placed(caveat.sentence, where))
        for caveat, where in raised.items()
    )


NAMED_MAX = 2
"""Maximum number of cases named with a caveat; more are counted."""


def _placed(sentence: str, where: Sequence[str]) -> str:
    if len(where) > NAMED_MAX:
        return f"In {len(where)} cases: {sentence}"
    return f"{' and '.join(where)}: {sentence}"
