"""The report of one study from several hosts: the pooled results, then the report of each file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pgdyno.analysis.comparison.verdict import Verdict
from pgdyno.analysis.findings.host_findings import HostsFindings
from pgdyno.analysis.findings.pooled_hosts import OverHosts
from pgdyno.analysis.statistics.effect import percent_of
from pgdyno.analysis.statistics.pooling import Pooled
from pgdyno.caveats import Code
from pgdyno.estimate import (
    Better,
    Estimate,
    ci_text,
    counted,
    given_percent,
    group_digits,
    share_text,
    significant,
)
from pgdyno.report import hosts_tables
from pgdyno.report.case_report import CAVEATS_PER_CODE_MAX, Headline, ShownCaveat, by_severity
from pgdyno.report.crash_report import CrashReport
from pgdyno.report.durability_section import durability_by_host
from pgdyno.report.hosts_tables import with_pooled_changes
from pgdyno.report.result_tables import Table, enumeration, with_coverage
from pgdyno.report.study_report import WORDS, StudyReport, build_study, lost_question
from pgdyno.study.stopping_rule import VERDICT_BLOCKS_MIN


@dataclass(frozen=True)
class HostsReport:
    """``studies`` maps the name of a file to its report. The other fields are about all hosts."""

    title: str
    findings: HostsFindings
    headlines: Sequence[Headline]
    unfinished: str
    lost: str  # sentence: how a fit lost the question of the source; empty if none did
    agreement: Sequence[str]  # sentences: agreement of each host with the source
    percent_of: str
    published: Sequence[Table]  # published tables beside the pooled values
    results: Sequence[Table]
    caveats: Sequence[ShownCaveat]
    studies: Mapping[str, StudyReport]
    background: Sequence[Table]
    derived: str
    command: str


def build_hosts(
    findings: HostsFindings, crashes: Mapping[str, CrashReport | None] | None = None
) -> HostsReport:
    """Return the report over hosts. ``crashes``: the crash test of each file, if it has one."""
    tested = crashes or {}
    studies = {name: build_study(study, tested.get(name)) for name, study in findings.studies.items()}
    first = next(iter(studies.values()))
    results = [
        hosts_tables.estimates(findings),
        durability_by_host({name: found for name, found in tested.items() if found is not None}),
        hosts_tables.further_metrics(findings),
        hosts_tables.host_statement_table(findings),
        hosts_tables.hardware_table(findings),
    ]
    background = [hosts_tables.host_fit_change_table(findings), hosts_tables.telemetry(findings)]
    unfinished = [caveat.text for caveat in findings.incomplete]
    explained = {caveat.parameters["host"] for caveat in findings.incomplete}
    unfinished += [
        f"{name}: {study.unfinished}"
        for name, study in studies.items()
        if study.unfinished and name not in explained
    ]
    return HostsReport(
        title=first.title,
        findings=findings,
        headlines=[
            replace(one, basis=with_coverage(one.basis, [case.study for case in findings.first.cases]))
            for one in _headlines(findings)
        ],
        unfinished=" ".join(unfinished),
        lost=lost_question(list(findings.studies.values())),
        agreement=[f"{name}: {of}" for name, study in studies.items() for of in study.agreement[:1]],
        percent_of=(
            "Percentages are (B − A) / A, where A is the baseline. Pooled: random-effects mean over hosts; "
            "its CI applies to similar hosts, not only to these."
        ),
        published=_published(findings),
        results=[table for table in results if table.rows],
        caveats=_shown_caveats(findings, studies),
        studies=studies,
        background=[table for table in background if table.rows],
        derived=next(iter(first.cases.values())).derived,
        command="\n".join(dict.fromkeys(study.command for study in studies.values())),
    )


def _published(findings: HostsFindings) -> list[Table]:
    usual, hosts = findings.first.first.study.plan.confidence, len(findings.hosts)
    tables = [with_pooled_changes(table, usual, hosts) for table in findings.published]
    return [table for table in tables if table is not None]


def _headlines(findings: HostsFindings) -> list[Headline]:
    if len(findings.cases) < 2:
        return [_headline(over, findings) for over in findings.primary]
    found = [_headline_over_cases(over, findings) for over in findings.averages]
    return found or [_headline(over, findings) for over in findings.primary[:CAVEATS_PER_CODE_MAX]]


def _headline(over: OverHosts, findings: HostsFindings) -> Headline:
    """Return the headline of one case."""
    plan = findings.first.first.study.plan
    verdict, percent, hosts = over.verdict(plan), over.percent, over.pooled.hosts
    margin = given_percent(plan.margin)
    place = f"Over {len(hosts)} hosts" if len(hosts) > 1 else f"On {hosts[0].host} alone"
    match verdict:
        case Verdict.FASTER | Verdict.SLOWER:
            size = f"{group_digits(abs(percent.value), max(0, percent.decimals))}%"
            claim = f"{over.arm} is {size} {verdict} than {over.baseline}"
            if over.better is Better.LESS:
                direction = "lower" if percent.value < 0 else "higher"
                claim = f"{over.arm} is {verdict} than {over.baseline}: its {over.name} is {size} {direction}"
        case Verdict.SAME:
            claim = f"{over.arm} and {over.baseline} are equivalent within ±{margin}: {_change(percent)}"
        case _:
            claim = f"undecided, {over.arm} vs. {over.baseline} {_change(percent)}"
    place = f"{place}, {over.case}" if over.case else place
    basis = f"{over.name}, {_basis(over, percent)}; equivalence margin {margin}"
    return Headline(verdict, f"{place}: {claim}", basis, variation_sentence(over.pooled))


def _headline_over_cases(over: OverHosts, findings: HostsFindings) -> Headline:
    plan = findings.first.first.study.plan
    same = [of for of in findings.primary if (of.baseline, of.arm) == (over.baseline, over.arm)]
    verdicts = [of.verdict(plan) for of in same]
    counts = enumeration([WORDS[one].format(n=verdicts.count(one)) for one in Verdict if one in verdicts])
    hosts, cases = counted(len(over.pooled.hosts), "host"), counted(len(same), "case")
    claim = f"{over.arm} vs. {over.baseline}, {hosts}, {cases}: {counts}"
    percent = over.percent
    basis = (
        f"average over the cases common to all hosts {_change(percent)}: {over.name}, {_basis(over, percent)}"
    )
    return Headline(over.verdict(plan), claim, basis, variation_sentence(over.pooled))


def _change(percent: Estimate) -> str:
    return hosts_tables.pooled_change_text(percent, percent.unit)


def _basis(over: OverHosts, percent: Estimate) -> str:
    hosts, blocks = len(over.pooled.hosts), over.pooled.blocks
    interval = "no CI yet"
    if percent.low is not None and (hosts > 1 or blocks >= VERDICT_BLOCKS_MIN):
        interval = f"{ci_text(percent.confidence)} {percent.signed_interval_text}"
    return f"{interval}, {counted(hosts, 'host')}, {counted(blocks, 'block')}"


def variation_sentence(pooled: Pooled) -> str:
    """Return a sentence on the variation between hosts (τ and I²)."""
    if len(pooled.hosts) < 2:
        return "There is only one host: variation between machines is unknown."
    if pooled.tau is None or pooled.i2 is None:
        return (
            "Some hosts have too few blocks for a standard deviation. All hosts have equal weight, and "
            "variation between hosts cannot be separated from variation within hosts."
        )
    if pooled.tau == 0:
        return "The hosts do not differ beyond the noise within each host (τ = 0, I² = 0)."
    varies = percent_of(pooled.tau)
    return (
        f"The effect varies between hosts by about {significant(varies, 2)}% (τ, a "
        f"standard deviation); {share_text(pooled.i2)} of the variance between hosts is not explained by the "
        "noise within hosts (I²)."
    )


def _shown_caveats(findings: HostsFindings, studies: Mapping[str, StudyReport]) -> list[ShownCaveat]:
    """Return each caveat once: those about the hosts first, then those of the files, with the files."""
    about: dict[Code, list[ShownCaveat]] = {}
    for caveat in findings.caveats:
        about.setdefault(caveat.code, []).append(ShownCaveat.of(caveat))
    found = []
    for code, caveats in about.items():
        found += caveats[:CAVEATS_PER_CODE_MAX]
        rest = len(caveats) - CAVEATS_PER_CODE_MAX
        if rest > 0:
            sentence = f"{code}: {counted(rest, 'more comparison')}."
            found.append(replace(caveats[0], sentence=sentence))
    raised: dict[ShownCaveat, list[str]] = {}
    for name, study in studies.items():
        report = study.only
        for shown in report.caveats if report else study.caveats:
            raised.setdefault(shown, []).append(name)
    for shown, where in raised.items():
        everywhere = len(where) == len(studies)
        found.append(
            shown if everywhere else replace(shown, sentence=f"{enumeration(where)}: {shown.sentence}")
        )
    return by_severity(found)
