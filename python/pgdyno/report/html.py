"""The report as one HTML file: opens offline, asks nobody for anything, runs no script."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined

from pgdyno.analysis.findings import Findings
from pgdyno.report import charts
from pgdyno.report.study import StudyReport


def to_html(study: StudyReport) -> str:
    """A whole document. Everything that comes from the evidence is escaped, by jinja2 and by svg.py."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    folder = files(__package__)
    template = environment.from_string(folder.joinpath("report.html.j2").read_text("utf-8"))
    created_unix_s = study.findings.first.study.created_unix_s
    return template.render(
        study=study,
        style=folder.joinpath("report.css").read_text("utf-8"),
        pictures=[_pictures(report.findings) for report in study.cases.values()],
        when=datetime.fromtimestamp(created_unix_s, UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


def _pictures(findings: Findings) -> dict[str, Any]:
    """Of one case."""
    return {
        "arms": [(of.arm, charts.arm_class(of.arm.arm)) for of in findings.arms],
        "effects": charts.effects(findings),
        "throughput": charts.throughput(findings),
        "latencies": charts.latencies(findings),
    }
