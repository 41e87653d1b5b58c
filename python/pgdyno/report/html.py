"""The report as one HTML file: opens offline, asks nobody for anything, runs no script."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from pgdyno.report import charts
from pgdyno.report.model import Report


def to_html(report: Report) -> str:
    """A whole document. Everything that comes from the evidence is escaped, by jinja2 and by svg.py."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    folder = files(__package__)
    template = environment.from_string(folder.joinpath("report.html.j2").read_text("utf-8"))
    findings = report.findings
    return template.render(
        report=report,
        style=folder.joinpath("report.css").read_text("utf-8"),
        arms=[(of.arm, charts.arm_class(of.arm.arm)) for of in findings.arms],
        effects=charts.effects(findings),
        throughput=charts.throughput(findings),
        latencies=charts.latencies(findings),
        when=datetime.fromtimestamp(findings.study.created_unix_s, UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
