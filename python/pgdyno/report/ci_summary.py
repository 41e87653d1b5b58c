"""Short summary for a CI job page, in GitHub-flavored Markdown: gate, verdicts, the most severe caveat.

Details are collapsed. The summary can be appended to a file that other steps also write to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pgdyno.analysis.findings.gates import Gate, GateComparison, gate_comparisons
from pgdyno.estimate import ABSENT, counted
from pgdyno.report import gate_section as wording
from pgdyno.report.case_report import ShownCaveat
from pgdyno.report.crash_report import sentences
from pgdyno.report.hidden_characters import visible
from pgdyno.report.hosts_report import HostsReport
from pgdyno.report.markdown_format import escaped, grid
from pgdyno.report.result_tables import Table
from pgdyno.report.study_report import StudyReport

ROWS_MAX = 40
"""Maximum number of comparisons in the table; the report has all."""

COLLAPSED_MAX = 3
"""Maximum number of collapsed tables of results."""


def to_summary(study: StudyReport | HostsReport, gate: Gate | None, files: Sequence[str]) -> str:
    """Return the summary, which ends with an empty line. ``files`` names related files."""
    return visible("\n".join(_lines(study, gate, files)) + "\n\n")


def _lines(study: StudyReport | HostsReport, gate: Gate | None, files: Sequence[str]) -> Iterator[str]:
    yield f"## pgdyno: {escaped(study.title)}"
    yield ""
    if gate is not None:
        yield f"**{escaped(wording.outcome(gate))}**"
        yield ""
        for reason in wording.reasons(gate):
            yield f"- {escaped(reason)}"
        yield ""
    found = gate_comparisons(study.findings)
    yield from grid(_verdicts(found))
    yield ""
    if len(found) > ROWS_MAX:
        yield f"{counted(len(found) - ROWS_MAX, 'more comparison')} in the report."
        yield ""
    if isinstance(study, StudyReport) and study.crashes is not None:
        yield from (f"- {escaped(sentence)}" for sentence in sentences(study.crashes))
        yield ""
    only = study.only if isinstance(study, StudyReport) else None
    caveats = study.caveats if only is None else only.caveats
    why = [" ".join(one.sentences) for one in only.why] if only else []
    for sentence in (only.unfinished if only else study.unfinished, *why, _most_severe(caveats)):
        if sentence:
            yield escaped(sentence)
            yield ""
    if files:
        yield escaped(f"Files: {', '.join(files)}.")
        yield ""
    results = study.results if only is None else only.results
    short = [table for table in results if not table.long and not table.said_elsewhere]
    for table in short[:COLLAPSED_MAX]:
        yield from _collapsed(table.title, [*grid(table), "", escaped(table.note)])
    if caveats:
        items = [f"- {escaped(caveat.sentence)} {escaped(caveat.remedy)}" for caveat in caveats]
        yield from _collapsed(counted(len(caveats), "caveat"), items)
    yield from _collapsed("How to repeat it", [f"    {line}" for line in study.command.splitlines()])
    yield escaped(only.percent_of if only else study.percent_of)


def _verdicts(found: Sequence[GateComparison]) -> Table:
    """Return the table of verdicts; the column ``case`` is omitted if all its cells are empty."""
    rows = [
        [
            of.case,
            f"{of.arm} vs. {of.baseline}",
            of.verdict.value,
            of.name,
            ABSENT if of.percent is None else of.percent.signed_text,
            of.percent.signed_interval_text if of.percent and of.has_interval else ABSENT,
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


def _most_severe(caveats: Sequence[ShownCaveat]) -> str:
    if not caveats:
        return ""
    first = caveats[0]
    return f"{counted(len(caveats), 'caveat')}; the most severe: {first.sentence} {first.remedy}"


def _collapsed(title: str, lines: Sequence[str]) -> Iterator[str]:
    """Yield a collapsed block. GitHub renders Markdown within it only after an empty line."""
    yield f"<details><summary>{escaped(title)}</summary>"
    yield ""
    yield from lines
    yield ""
    yield "</details>"
    yield ""
