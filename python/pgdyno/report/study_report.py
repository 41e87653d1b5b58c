"""The report of a study with several cases: the summary over cases, then the report of each case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.comparison import Verdict
from pgdyno.analysis.study_findings import OverCases, StudyFindings, are_alike
from pgdyno.analysis.telemetry.metrics import Metric
from pgdyno.caveats import Rank
from pgdyno.hooks import Hooks
from pgdyno.report import csv_format, result_tables
from pgdyno.report.answer import (
    HEADLINES_MAX,
    Report,
    case_report,
    case_summary,
    caveats_section,
    further_columns,
    headline_lines,
    summary_of_several,
)
from pgdyno.report.document import (
    Document,
    FileReport,
    Headline,
    Judgement,
    Line,
    Place,
    Section,
    ShownCaveat,
    Table,
    Tone,
    by_rank,
    tables_section,
)
from pgdyno.report.json_format import VERSION, StudyDocument, answer_of, judged, study_results
from pgdyno.report.result_tables import enumeration
from pgdyno.results.records import LOST, NOT_THE_QUESTION
from pgdyno.study.plan import INTERVAL_BLOCKS_MIN
from pgdyno.units import ABSENT, Better, ci_text, counted

SECTIONS = Hooks[Callable[[StudyFindings], Iterable[Section]]]("sections")
"""Sections of features about all cases; each has its place and order."""

ROWS_OPEN_MAX = 40
"""A table of more cases and arms is collapsed in HTML."""

CASE_SECTIONS = Hooks[Callable[[Findings], Iterable[Section]]]("case_sections")
"""Sections of features about one case; each says after which section of ``answer`` it comes."""


@dataclass(frozen=True, kw_only=True)
class StudyReport(FileReport):
    """``cases`` maps the name of a case to its report; a comparison has a single case."""

    findings: StudyFindings
    cases: Mapping[str, Report]
    lost: str  # sentence: how the fit lost the question of the source; empty if it did not

    @property
    def only(self) -> Report | None:
        """The report of the only case; None if there are several."""
        return next(iter(self.cases.values())) if len(self.cases) == 1 else None

    def csv(self) -> str:
        """Return the CSV document."""
        return csv_format.to_csv(self.findings, self.lost)

    def json(self, judgements: Sequence[Judgement]) -> StudyDocument:
        """Return the JSON document."""
        head = (VERSION, self.findings.verdicts_on(), answer_of(self), judged(judgements))
        return StudyDocument(*head, **vars(study_results(self, self.findings, judgements)))


def build_study(findings: StudyFindings) -> StudyReport:
    """Return the report of a study."""
    cases = {
        of.study.case: case_report(of, [section for sections in CASE_SECTIONS for section in sections(of)])
        for of in findings.cases
    }
    first, study = next(iter(cases.values())), findings.first.study
    lost = lost_question([findings])
    every = [replace(of, place=min(of.place, Place.TOP)) for of in _sections(findings, lost)]
    source = [section for section in every if section.is_source]
    others = [section for section in every if not section.is_source]
    fitted = tables_section("fitted", [fit_change_table(findings)])
    if len(cases) == 1:
        whole = _of_one(first, [*source, *others, *first.sections, fitted])
    else:
        whole = _of_several(
            findings, cases, source, [*others, caveats_section(_shown_caveats(cases)), fitted]
        )
    kicker = f"{study.title} · {datetime.fromtimestamp(study.created_unix_s, UTC):%Y-%m-%d %H:%M} UTC"
    of_study = {"unfinished": first.unfinished, "command": study.command, "kicker": kicker}
    return StudyReport(**{**vars(whole), **of_study}, findings=findings, cases=cases, lost=lost)


def _sections(findings: StudyFindings, lost: str) -> list[Section]:
    """Return the sections about all cases in their order."""
    found = [section for sections in SECTIONS for section in sections(findings)]
    if lost:
        found.append(Section("lost", sentences=[lost], place=Place.ABOVE, is_alarm=True, is_source=True))
    return sorted(found, key=lambda section: section.order)


def _of_one(only: Report, sections: Sequence[Section]) -> Document:
    return Document(
        title=only.title,
        sections=sections,
        headlines=only.headlines,
        differs=only.differs,
        percent_of=only.percent_of,
        summary=case_summary(only, sections),
    )


def _of_several(
    findings: StudyFindings, cases: Mapping[str, Report], source: Sequence[Section], others: Sequence[Section]
) -> Document:
    coverage = [case.study for case in findings.cases]
    counts = not any(section.has_verdicts for section in others)
    headlines = [
        replace(one, basis=result_tables.with_coverage(one.basis, coverage))
        for one in (_headline(over, findings, counts=counts) for over in findings.over_cases)
    ]
    head = headline_lines(headlines) if len(headlines) == 1 else _lines_of_arms(findings, counts=counts)
    results = Section(
        "results",
        sentences=[] if counts else [_on_average(findings)],
        tables=[changes_by_case(findings)] if counts else [],
        place=Place.TOP,
        is_prose=True,
    )
    parts = {name: replace(report, command="") for name, report in cases.items()}
    before = [section for section in others if section.order < 0]
    after = [section for section in others if section.order >= 0]
    sections = [*source, *before, results, *after, Section("cases", "Cases", parts=parts)]
    return Document(
        title=findings.first.study.title,
        sections=sections,
        headlines=headlines,
        percent_of="Percentages are (B − A) / A, where A is the baseline.",
        summary=summary_of_several(
            head, next(iter(cases.values())).unfinished, changes_at_a_glance(findings), sections
        ),
    )


def published_document(document: Document) -> Document:
    """Return the published tables with measured values, and what they need to be read."""
    kept = ("caveats", "fitted", "hosts")
    return Document(
        title=document.title,
        sections=[
            replace(section, parts={name: published_document(one) for name, one in section.parts.items()})
            for section in document.sections
            if section.is_source or section.id in kept
        ],
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


def _metric_of(findings: StudyFindings) -> Metric:
    """Return the primary metric; of several workloads, only its name."""
    metric, keys = findings.first.primary, {of.primary.key for of in findings.cases}
    return metric if len(keys) == 1 else replace(metric, name="primary metric", unit="primary metric")


def _lines_of_arms(findings: StudyFindings, *, counts: bool) -> list[Line]:
    """Return a line for each of several arms over all cases, the largest effects first."""
    order = sorted(findings.over_cases, key=lambda of: -abs(of.average.summary.mean) if of.average else 0.0)
    of_all = f"{_metric_of(findings).name} over {counted(len(findings.cases), 'case')}"
    are_one = len({of.baseline for of in order}) == 1  # exclusions may leave a case another baseline
    against = f" vs. {order[0].baseline}" if are_one else ""
    lines = [Line(f"Average change of {of_all}{against}:", Tone.STRONG)]
    for i, over in enumerate(order):
        verdicts = f"; {', '.join(_verdicts(over))}" if counts else ""
        change = result_tables.change_with_ci(over.percent) if over.percent else ABSENT
        name = over.arm if are_one else f"{over.arm} vs. {over.baseline}"
        part = f", {_cases(over)}" if over.stalled and over.average else ""
        lines.append(Line(f"{name}: {change}{part}{verdicts}.", is_spare=i >= HEADLINES_MAX))
    return lines


def _cases(over: OverCases) -> str:
    """Return ``8 cases``, or ``6 of 8 cases`` if the average lacks some."""
    every = counted(len(over.comparisons), "case")
    return f"{len(over.average.names)} of {every}" if over.stalled and over.average else every


def _verdicts(over: OverCases) -> list[str]:
    return [f"{one.word} in {n}" for one in Verdict if (n := over.verdicts[one])]


def _headline(over: OverCases, findings: StudyFindings, *, counts: bool) -> Headline:
    """Return a headline: ``13 vs. 12, 8 cases: faster in 3, undecided in 5; average +1.2% (…).``

    Without counts: ``13 vs. 12, 8 cases: +1.2% on average; primary metric, …``
    """
    every = counted(len(over.comparisons), "case")
    claim = f"{over.arm} vs. {over.baseline}, {every if counts else _cases(over)}"
    claim += f": {enumeration(_verdicts(over))}" if counts else ""
    metric = _metric_of(findings)
    if over.average is None:
        is_early = are_alike(over.comparisons)
        return Headline(None, claim, "no valid block yet" if is_early else "rates and latencies: no average")
    percent = over.average.percent(metric.better)
    known = percent.low is not None
    interval = f"{ci_text(percent.confidence)} {percent.signed_interval_text}"
    names = f"{metric.name}, {interval if known else 'no CI yet'}"
    change = result_tables.change_text(percent, "%", INTERVAL_BLOCKS_MIN)
    basis = f"{names}, {counted(percent.n, 'block')}"
    if counts:
        over_some = _cases(over) if over.stalled else "cases"
        return Headline(None, claim, f"average over {over_some} {change} ({basis})")
    return Headline(None, f"{claim}: {change} on average", basis)


def changes_by_case(findings: StudyFindings) -> Table:
    """Return a row for each case and arm: both levels, the change, the verdict."""
    metric = _metric_of(findings)
    usual = findings.first.study.plan.confidence
    rows = []
    for over in findings.over_cases:
        for case, comparison in over.comparisons.items():
            of = next(one for one in findings.cases if one.study.case == case)
            levels = {found.arm.arm: found.levels.get(of.primary.key) for found in of.arms}
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
        if are_alike(over.comparisons):
            rows.append(_average_row(over, metric.better, usual))
    numeric = (f"baseline, {metric.unit}", f"arm, {metric.unit}", "change, %", "blocks")
    return Table(
        title=f"{metric.name[0].upper()}{metric.name[1:]} by case ({metric.better.word} is better)",
        columns=("case", "arm", *numeric[:3], "verdict", numeric[3]),
        rows=rows,
        note=(
            f"{_on_average(findings)} Verdicts are not corrected for the number of cases: one in twenty "
            "cases without a difference is expected to be called faster or slower."
        ),
        numeric=frozenset(numeric),
        dispensable=("blocks", numeric[0]),
        long=len(rows) > ROWS_OPEN_MAX,
    )


def changes_at_a_glance(findings: StudyFindings) -> Table:
    """Return a row for each case and arm: change, verdict, and both levels of metric, p99 and CPU time."""
    whole, metric = changes_by_case(findings), _metric_of(findings)
    has_arms, has_verdicts = len(findings.over_cases) > 1, len({row[5] for row in whole.rows if row[5]}) > 1
    found: list[dict[str, str]] = []
    for case, arm, a, b, change, verdict, _ in whole.rows:
        row = {"case": case, "arm": arm if has_arms else "", metric.unit: f"{a} → {b}" if a else ""}
        row |= {"change, %": change, "verdict": verdict if has_verdicts else ""}
        of = next((one for one in findings.cases if one.study.case == case), None)
        arms = [] if of is None else [one for one in of.arms if one.arm.name in (of.arms[0].arm.name, arm)]
        found.append(row | {name: " → ".join(texts) for name, texts in further_columns(arms).items()})
    names = list(dict.fromkeys(key for row in found for key, cell in row.items() if cell))
    further = [name for name in names if name not in ("case", "arm", metric.unit, "change, %", "verdict")]
    return Table(
        whole.title,
        names,
        [[row.get(name, "") for name in names] for row in found],
        numeric=frozenset([metric.unit, "change, %", *further]),
        dispensable=(*reversed(further), metric.unit),
    )


def _on_average(findings: StudyFindings) -> str:
    """Return how the average is made, and which cases it excludes."""
    how = "The average is the geometric mean of the ratios of all cases; its CI is over passes (one block of "
    how += "every case)."
    cases = list(dict.fromkeys(case for over in findings.over_cases for case in over.stalled))
    if not cases:
        return how
    why = "an arm failed or did nothing in some block, only one block counts, or the effect depends on the "
    return f"{how} Excluded from the average ({why}length of the warm-up): {'; '.join(cases)}."


def _average_row(over: OverCases, better: Better, usual: float) -> list[str]:
    change = over.average.percent(better) if over.average else None
    text = result_tables.with_interval(change, usual, INTERVAL_BLOCKS_MIN) if change else ABSENT
    return ["average", over.arm, "", "", text, "", str(change.n) if change else "0"]


def fit_change_table(findings: StudyFindings) -> Table:
    """Return the changes that fit the study file to this machine."""
    changes = findings.first.study.changes
    rows = [[str(change[name]) for name in ("key", "before", "after", "why")] for change in changes]
    return Table(
        "Settings fitted to this machine",
        ("setting", "as published", "here", "reason"),
        rows,
        "All other settings are those of the study file.",
        long=True,
        items=[
            f"{change['key']}: {change['before']} → {change['after']} ({change['why']})"
            if change["key"]
            else change["why"]
            for change in changes
        ],
    )


def _shown_caveats(cases: Mapping[str, Report]) -> list[ShownCaveat]:
    """Return each caveat once, with the cases where it was raised. Of many alike, one is an example.

    The report of each case has all of its own.
    """
    raised: dict[ShownCaveat, list[str]] = {}
    for case, report in cases.items():
        for caveat in report.caveats:
            raised.setdefault(caveat, []).append(case)
    by_code: dict[str, list[ShownCaveat]] = {}
    for caveat in raised:
        by_code.setdefault(caveat.code, []).append(caveat)
    found = [one for one, where in raised.items() if len(where) == len(cases)]
    for alike in by_code.values():
        of_some = [one for one in alike if len(raised[one]) < len(cases)]
        if len(of_some) > NAMED_MAX and of_some[0].rank is Rank.GOOD_TO_KNOW:
            where = counted(len({case for one in of_some for case in raised[one]}), "case")
            found.append(of_some[0].at(f"In {where}, for example {raised[of_some[0]][0]}: "))
        else:
            found += [one.at(_place(raised[one])) for one in of_some]
    return by_rank(found)


NAMED_MAX = 2
"""Maximum number of cases named with a caveat, and of caveats with the same code; more are counted."""


def _place(cases: Sequence[str]) -> str:
    return f"In {len(cases)} cases: " if len(cases) > NAMED_MAX else f"{' and '.join(cases)}: "
