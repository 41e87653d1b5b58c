"""The report as one self-contained HTML file, without scripts and external resources."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined

from pgdyno.analysis.findings.case_findings import Findings
from pgdyno.analysis.findings.study_findings import StudyFindings
from pgdyno.report import charts, hosts_tables, profile_section, timelines, why_chart
from pgdyno.report.case_report import Report
from pgdyno.report.hidden_characters import visible
from pgdyno.report.hosts_report import HostsReport
from pgdyno.report.study_report import StudyReport


def to_html(study: StudyReport | HostsReport) -> str:
    """Return the HTML document. All text from the results file is escaped, by jinja2 and by svg.py."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    folder = files(__package__)
    template = environment.from_string(folder.joinpath("report.html.j2").read_text("utf-8"))
    created_unix_s = _first(study).study.created_unix_s
    studies = study.studies if isinstance(study, HostsReport) else {"": study}
    document = template.render(
        study=study,
        studies=studies,
        several_hosts=isinstance(study, HostsReport),
        forest=hosts_tables.forest(study.findings) if isinstance(study, HostsReport) else [],
        style=folder.joinpath("report.css").read_text("utf-8"),
        pictures={
            file: [_pictures(report) for report in one.cases.values()] for file, one in studies.items()
        },
        when=datetime.fromtimestamp(created_unix_s, UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    return visible(document)


def _first(study: StudyReport | HostsReport) -> Findings:
    found = study.findings.first
    return found.first if isinstance(found, StudyFindings) else found


def _pictures(report: Report) -> dict[str, Any]:
    """Return the charts of one case."""
    findings = report.findings
    return {
        "arms": [(of.arm, charts.arm_class(of.arm.arm)) for of in findings.arms],
        "effects": charts.effects(findings),
        "why": why_chart.waterfalls(report.why),
        "throughput": timelines.throughput_timelines(findings),
        "checkpoints": timelines.has_checkpoints(findings),
        "wal": timelines.wal_rates(findings),
        "latencies": charts.latency_charts(findings),
        "flames": profile_section.flames(findings),
    }
