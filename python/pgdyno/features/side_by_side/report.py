"""The report of several results files side by side: levels, paired changes, and what differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Annotated, Literal

from pgdyno.analysis.finding_fields import about
from pgdyno.analysis.statistics.pooled_quantiles import BLOCKS_MIN
from pgdyno.cli.report import read_findings
from pgdyno.errors import UsageError
from pgdyno.features.history.report import fact_text
from pgdyno.features.hosts.identity import are_shown_apart
from pgdyno.features.hosts.sections import names_of_files
from pgdyno.features.side_by_side.findings import (
    P99,
    AcrossFiles,
    FilesFindings,
    InFile,
    ReadFile,
    find_files,
    read_p99,
)
from pgdyno.report.answer import caveats_section
from pgdyno.report.csv_format import as_text, columns_of, csv_text, rows_of
from pgdyno.report.document import (
    FileReport,
    Headline,
    Judgement,
    Place,
    Section,
    ShownCaveat,
    Table,
    by_rank,
    tables_section,
)
from pgdyno.report.json_format import VERSION, Sentences, sentences_of, sentences_on
from pgdyno.report.plot import Panel, Row, arm_class, estimates
from pgdyno.report.result_tables import change_with_ci, level_text, with_interval, with_no_break_spaces
from pgdyno.study.plan import VERDICT_BLOCKS_MIN
from pgdyno.units import ABSENT, Estimate, ci_text, counted, given_percent

HEADLINES_MAX = 6
"""Maximum number of headlines; the table has all arms."""


@dataclass(frozen=True)
class SideBySideDocument:
    """Report of several results files side by side."""

    pgdyno_side_by_side: Annotated[Literal[3], about("Version of the format.")]
    title: str
    sentences: Annotated[Sentences, about("By section.")]
    caveats: Sequence[ShownCaveat]
    files: FilesFindings


@dataclass(frozen=True, kw_only=True)
class SideBySideReport(FileReport):
    """Several files, without a comparison."""

    found: FilesFindings
    findings: None = None

    def csv(self) -> str:
        """Return the CSV document: that of each file, after its name."""
        studies = self.found.studies
        columns = list(dict.fromkeys(name for of in studies.values() for name in columns_of(of)))
        rows = []
        for file, study in studies.items():
            for row in rows_of(study):
                own = dict(zip(columns_of(study), row, strict=True))
                rows.append([as_text(file), *(own.get(name, "") for name in columns)])
        return csv_text(["file", *columns], rows)

    def json(self, judgements: Sequence[Judgement]) -> SideBySideDocument:
        """Return the JSON document."""
        sentences = {**sentences_of(self), **sentences_on(judgements)}
        return SideBySideDocument(VERSION, self.title, sentences, self.caveats, self.found)


def read_files(paths: Sequence[Path], as_: str) -> SideBySideReport | None:
    """Read several files; None if they are pooled. Raises PgdynoError."""
    if not are_shown_apart(paths, as_):
        return None
    if len(paths) < 2:
        raise UsageError(
            f"--as side-by-side requires several results files (got {paths[0]}): name another one"
        )
    files = {}
    for name, path in zip(names_of_files(paths), paths, strict=True):
        study = read_findings(path)
        files[name] = ReadFile(study, read_p99(path, study))
    return build_side_by_side(find_files(files))


def build_side_by_side(found: FilesFindings) -> SideBySideReport:
    """Return the report."""
    first = next(iter(found.studies.values())).first.study
    caveats = by_rank(ShownCaveat.of(of) for of in found.caveats)  # the first one is above the headlines, too
    left_out = [f"Not in all files: {'; '.join(found.left_out)}."] if found.left_out else []
    if held_back := _held_back(found):
        left_out.append(f"No verdict in the report of the file, so levels may be biased: {held_back}.")
    tables = [_level_table(found, list(of)) for _, of in groupby(found.levels, key=lambda of: of.metric)]
    paired = [_paired_table(found, list(of)) for _, of in groupby(found.paired, key=lambda of: of.metric)]
    primary = [of for of in found.levels if of.metric == found.levels[0].metric]
    return SideBySideReport(
        title=first.title,
        sections=[
            Section("not-paired", sentences=[found.caveats[0].text], place=Place.ABOVE, is_alarm=True),
            Section(
                "change",
                "Change between files",
                plots=partial(_charts, found, primary),
                plots_size="effects",
                place=Place.TOP,
            ),
            Section("results", sentences=left_out, tables=[*tables, *paired], place=Place.TOP),
            caveats_section(caveats),
            tables_section("differences", [_difference_table(found)]),
        ],
        headlines=[line for of in [*found.paired, *primary] for line in _headlines(of)][:HEADLINES_MAX],
        unfinished=f"Still running or interrupted: {', '.join(found.unfinished)}."
        if found.unfinished
        else "",
        percent_of="Percentages are (B − A) / A, where A is the first file, or the baseline of a "
        "paired change.",
        kicker="side-by-side view",
        found=found,
    )


def _held_back(found: FilesFindings) -> str:
    """Return the comparisons that have no paired change, because their file holds them back."""
    return "; ".join(
        f"{file}: {one.arm.name} vs. {one.baseline.name}{f' in {case.study.case}' if case.study.case else ''}"
        for file, study in found.studies.items()
        for case in study.cases
        for one in case.comparisons
        if one.is_held_back
    )


def _headlines(of: AcrossFiles) -> list[Headline]:
    """Return the change of an arm, or of its paired change, from its first file to each later one."""
    before = next(one.file for one in of.files if one.estimate)
    how = "blocks are paired within each file, so drift cancels" if of.baseline else "not paired"
    return [
        Headline(
            None,
            f"{_subject(of)}: {of.name} {change_with_ci(one.change)} from {before} to {one.file}",
            f"{how}, {counted(one.change.n, 'block')} or more in each file",
        )
        for one in of.files
        if one.change is not None
    ]


def _subject(of: AcrossFiles) -> str:
    return f"{of.case}, {_arm(of)}" if of.case else _arm(of)


def _arm(of: AcrossFiles) -> str:
    return f"{of.arm} vs. {of.baseline}" if of.baseline else of.arm


def _level_table(found: FilesFindings, chosen: Sequence[AcrossFiles]) -> Table:
    """Return the levels of a metric: a row per arm and file."""
    metric, name, better = chosen[0].metric, chosen[0].name, chosen[0].better
    unit = next(of.estimate.unit for of in _in(chosen) if of.estimate)
    level, blocks = f"{ci_text(found.confidence)}", "blocks"
    note = (
        f"The p99 is that of all blocks, without an interval below {BLOCKS_MIN} blocks."
        if metric == P99
        else "The change is not paired: its CI has no share of the drift between the files."
    )
    cells = [
        [level_text(of.estimate), _interval(of.estimate, found.confidence)] if of.estimate else [ABSENT] * 2
        for of in _in(chosen)
    ]
    return _by_file(
        found,
        f"{name[0].upper()}{name[1:]}, {unit}, by file ({better.word} is better)",
        chosen,
        ("level", level),
        cells,
        note,
        (blocks, level),
    )


def _in(chosen: Sequence[AcrossFiles]) -> list[InFile]:
    return [of for one in chosen for of in one.files]


def _interval(level: Estimate, usual: float) -> str:
    """Return the interval, with its confidence unless it is ``usual``."""
    if level.low is None or level.n < VERDICT_BLOCKS_MIN:
        return ABSENT
    own = "" if level.confidence == usual else f"; {given_percent(level.confidence)}"
    return with_no_break_spaces(level.interval_text.replace("]", f"{own}]"))


def _paired_table(found: FilesFindings, chosen: Sequence[AcrossFiles]) -> Table:
    """Return the changes from the baseline within each file."""
    usual = found.confidence
    cells = [[with_interval(of.estimate, usual) if of.estimate else ABSENT] for of in _in(chosen)]
    return _by_file(
        found,
        f"Change of {chosen[0].name} vs. the baseline of the same file",
        chosen,
        ("change vs. baseline, %",),
        cells,
        "Both arms were measured in the same blocks, so drift of the machine cancels. It also cancels in the "
        "last column, the change of the ratio between the files.",
        ("blocks",),
    )


def _by_file(
    found: FilesFindings,
    title: str,
    chosen: Sequence[AcrossFiles],
    own: Sequence[str],
    cells: Sequence[Sequence[str]],
    note: str,
    dispensable: Sequence[str],
) -> Table:
    """Return a table with a row per arm and file. ``cells``: those of the columns ``own``."""
    several = len({of.case for of in chosen}) > 1
    rows, remaining = [], iter(cells)
    for of in chosen:
        for i, one in enumerate(of.files):
            place = [*([of.case] if several else []), _arm(of)]
            change = with_interval(one.change, found.confidence) if one.change else ""
            blocks = str(one.estimate.n) if one.estimate else "0"
            rows.append([*([""] * len(place) if i else place), one.file, *next(remaining), change, blocks])
    numeric = (*own, "change between files, %", "blocks")
    columns = (*(("case",) if several else ()), "arm", "file", *numeric)
    return Table(title, columns, rows, note, frozenset(numeric), dispensable=dispensable, breaks_first=True)


def _difference_table(found: FilesFindings) -> Table:
    """Return a row for the time of the measurement, and for each fact that differs."""
    times = [f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}" for at in found.created_unix_s.values()]
    rows = [["measured (UTC)", *times]]
    rows += [[of.name, *map(fact_text, of.values.values())] for of in found.differences]
    return Table("What differs between the files", ("fact", *found.created_unix_s), rows, whole=True)


def _charts(found: FilesFindings, primary: Sequence[AcrossFiles]) -> list[Panel]:
    """Return one chart of the changes of each case."""
    margin = next(iter(found.studies.values())).first.study.plan.margin
    panels = []
    for case, of_case in groupby(primary, key=lambda of: of.case):
        chosen = list(of_case)
        rows = [
            Row(
                f"{of.arm}: {one.file}",
                change.value,
                change_with_ci(change),
                arm_class(i),
                change.low,
                change.high,
            )
            for i, of in enumerate(chosen)
            for one in of.changes
            if (change := one.change)
        ]
        if rows:
            ends = [end for row in rows for end in (row.low, row.value, row.high) if end is not None]
            span = min(-125 * margin, *ends), max(125 * margin, *ends)
            title = f"Change of {chosen[0].name} since the first file"
            panels.append(
                Panel(
                    f"{title}, {case}" if case else title,
                    estimates(title, rows, span, margin, chosen[0].better),
                )
            )
    return panels
