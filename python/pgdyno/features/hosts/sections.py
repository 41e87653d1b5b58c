"""Reports of one study from several hosts.

- Tables and forest plots over several hosts: estimates by host, pooled estimates, metrics, machines.
- The report of one study from several hosts: the pooled results, then the report of each file.
- Files of several hosts, and of a fleet study.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from pgdyno.analysis.comparison import Verdict
from pgdyno.analysis.finding_fields import about
from pgdyno.analysis.statistics.intervals import percent_of
from pgdyno.analysis.statistics.pooled_quantiles import BLOCKS_MIN
from pgdyno.analysis.study_findings import StudyFindings
from pgdyno.analysis.telemetry.metrics import ALL_KINDS, MEAN_TIME, SERVER_CPU, Metric, latency_key
from pgdyno.cli.report import read_findings
from pgdyno.errors import EvidenceError, UsageError
from pgdyno.features.crash.sections import durability_by_host
from pgdyno.features.hosts.findings import Host, HostsFindings, OverHosts, PooledCell, PooledTable, find_hosts
from pgdyno.features.hosts.fleet_record import SUFFIX, HostWork, read_fleet
from pgdyno.features.hosts.identity import are_shown_apart
from pgdyno.features.hosts.pooling import Pooled
from pgdyno.features.published.section import HERE, as_printed, measured_text
from pgdyno.report import result_tables, study_report
from pgdyno.report.answer import CAVEATS_PER_KIND_MAX, caveats_section, headline_lines, summary_of_several
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
from pgdyno.report.json_format import (
    VERSION,
    JsonReport,
    Sentences,
    StudyResults,
    answer_of,
    judged,
    sentences_of,
    sentences_on,
    study_results,
)
from pgdyno.report.plot import Panel, Row, arm_class
from pgdyno.report.plot import estimates as estimates_chart
from pgdyno.report.result_tables import enumeration, with_coverage
from pgdyno.report.study_report import StudyReport, build_study, lost_question
from pgdyno.study.plan import VERDICT_BLOCKS_MIN
from pgdyno.units import (
    ABSENT,
    Better,
    Estimate,
    ci_text,
    counted,
    decimals_of,
    format_size,
    given_percent,
    group_digits,
    share_text,
    signed,
    significant,
    with_unit,
)

# ----------------------------------------------------------------------
# Tables and forest plots over several hosts: estimates by host, pooled estimates, metrics, machines.
# ----------------------------------------------------------------------

FURTHER_LATENCIES = tuple(latency_key(ALL_KINDS, quantile) for quantile in ("p50", "p99"))
"""Latencies in the table of further metrics; the report of each host has the others."""

ROWS_AT_A_GLANCE = 36
"""Maximum number of rows of further metrics that HTML does not collapse."""

_DESCRIPTIVE = "The CIs are descriptive and not corrected for the number of metrics."


def estimates(findings: HostsFindings) -> Table:
    """Return the primary metric for each case and arm: a row per host, then the pooled one."""
    metric = findings.first.first.primary
    several = len(findings.cases) > 1
    rows: list[list[str]] = []
    for over in [*findings.primary, *findings.averages]:
        place = [*([over.case] if several else []), over.arm]
        pooled = [f"pooled, {len(over.pooled.hosts)} hosts", str(over.pooled.blocks), ""]
        rows += _rows_of(findings, over, place, _own, pooled)
    numeric = ("change, %", "blocks", "weight")
    return Table(
        title=f"{metric.name[0].upper()}{metric.name[1:]} by host ({metric.better.word} is better)",
        columns=(*(("case",) if several else ()), "arm", "host", *numeric),
        rows=rows,
        note=(
            "The width of the pooled CI depends on the number of hosts; more blocks per host hardly narrow "
            "it. With two hosts, it extends 12.7 standard errors to each side. "
            f"{ABSENT}: no value on that host."
            + (" The average is over the cases that every host has." if findings.averages else "")
        ),
        numeric=frozenset(numeric),
        dispensable=("weight", "blocks"),
    )


def _rows_of(
    findings: HostsFindings,
    over: OverHosts,
    place: Sequence[str],
    further: Callable[[OverHosts, str], list[str]],
    pooled: Sequence[str],
) -> list[list[str]]:
    """Return a row per host: its name, change and ``further`` cells; then the pooled row, if any.

    ``place`` is shown in the first row only. ``pooled``: name and further cells of the pooled row.
    """
    usual = findings.first.first.study.plan.confidence
    rows = []
    for host in findings.hosts:
        own = over.of_host(host.name)
        change = result_tables.with_interval(own.percent(over.better), usual) if own else ABSENT
        rows.append([host.name, change, *further(over, host.name)])
    if len(over.pooled.hosts) > 1:
        rows.append([pooled[0], pooled_text(over, usual), *pooled[1:]])
    blank = [""] * len(place)
    return [[*(blank if i else place), *row] for i, row in enumerate(rows)]


def _own(over: OverHosts, host: str) -> list[str]:
    """Return blocks and weight in the pooled estimate of one host."""
    for effect, weight in zip(over.pooled.hosts, over.pooled.weights, strict=True):
        if effect.host == host:
            return [str(effect.summary.n), share_text(weight)]
    return ["0", ABSENT]


def pooled_text(over: OverHosts, usual: float) -> str:
    """Return the pooled value with its interval, which is shown even for two hosts."""
    percent = over.percent
    if len(over.pooled.hosts) < 2:
        return ABSENT
    if percent.low is None or percent.high is None:
        return pooled_change_text(percent, "")
    low, high = (signed(end, percent.decimals, "") for end in (percent.low, percent.high))
    interval = result_tables.in_cell(low, high, percent.confidence, usual)
    return f"{pooled_change_text(percent, '')} {interval}"


def pooled_change_text(percent: Estimate, unit: str) -> str:
    """Return a pooled change with at least two digits.

    The wide interval of few hosts would otherwise round it away from the values of the hosts.
    """
    two = min(1, decimals_of(percent.value, result_tables.DIGITS_WITHOUT_INTERVAL))
    return signed(percent.value, two if percent.low is None else max(two, percent.decimals), unit)


def further_metrics(findings: HostsFindings) -> Table:
    """Return the changes of the other metrics, for each host and pooled."""
    first = findings.first.first
    keys = [*(metric.key for metric in first.metrics), *FURTHER_LATENCIES]
    primary = findings.primary_keys
    chosen = [of for of in findings.effects if of.key in keys and of.key != primary[of.case]]
    chosen.sort(key=lambda of: (findings.cases.index(of.case), keys.index(of.key)))
    note = (
        f"{_DESCRIPTIVE} Different signs near zero may be noise. {ABSENT}: no value on that host, or too few "
        f"transactions beyond that percentile. p99 has no interval below {BLOCKS_MIN} blocks on each host, "
        "or over several files of a host."
    )
    named = [(_name(of), of) for of in chosen]
    table = _by_host(findings, "Change in other metrics by host", "metric", named, note)
    return replace(table, long=len(table.rows) > ROWS_AT_A_GLANCE)


def telemetry(findings: HostsFindings) -> Table:
    """Return the changes of telemetry of whole trials; JSON also has those of each table and wait."""
    known = {metric.key: metric for of in findings.studies.values() for metric in _metrics(of)}
    chosen = [
        (f"{over.name}, {known[over.key].unit}", over)
        for over in findings.effects
        if over.key in known and ":" not in over.key
    ]
    table = _by_host(findings, "Change in telemetry by host", "metric", chosen, _DESCRIPTIVE)
    return replace(table, long=True)


def host_statement_table(findings: HostsFindings) -> Table:
    """Return the changes of the mean time of each statement, and their average."""
    chosen = [
        (over.key.partition(":")[2], over)
        for over in findings.effects
        if over.key.partition(":")[0] == MEAN_TIME
    ]
    chosen.sort(key=lambda of: findings.cases.index(of[1].case))
    averages = [("average", over) for over in findings.statements] if len(chosen) > 1 else []
    title = "Change in mean statement time by host (lower is better)"
    note = "The average is the geometric mean of the ratios, over the statements common to all hosts."
    table = _by_host(findings, title, "statement", [*averages, *chosen], note if averages else "")
    return replace(table, long=True)


def _metrics(of: StudyFindings) -> list[Metric]:
    return [metric for case in of.cases for metric in case.telemetry.metrics.values()]


def _by_host(
    findings: HostsFindings, title: str, head: str, chosen: Sequence[tuple[str, OverHosts]], note: str
) -> Table:
    """Return a table with a row per host, then the pooled one, for each of ``chosen`` (name, values)."""
    several = len(findings.cases) > 1
    rows: list[list[str]] = []
    for name, over in chosen:
        place = [*([over.case] if several else []), name, str(over.better), over.arm]
        pooled = ["pooled", "differ" if over.pooled.signs_differ else "same"]
        rows += _rows_of(findings, over, place, lambda *_: [""], pooled)
    return Table(
        title=title,
        columns=(*(("case",) if several else ()), head, "better", "arm", "host", "change, %", "signs"),
        rows=rows,
        note=note if rows else "",
        numeric=frozenset({"change, %"}),
        dispensable=("better", "signs"),
    )


def _name(over: OverHosts) -> str:
    is_latency = over.key in FURTHER_LATENCIES
    return f"{over.key.rpartition('.')[2]} latency" if is_latency else over.name


def hardware_table(findings: HostsFindings) -> Table:
    """Return the hardware of each host and, with a single case, the level of its baseline."""
    metric, alone = findings.first.first.primary, len(findings.cases) < 2
    numeric = ("cores", "memory", *((f"baseline, {metric.unit}",) if alone else ()))
    rows = [[*_machine(host), *([_baseline(host, metric.key)] if alone else [])] for host in findings.hosts]
    return Table(
        title="Hosts",
        columns=("host", "processor", "kernel", "file system", *numeric),
        rows=rows,
        numeric=frozenset(numeric),
        dispensable=("kernel", "file system"),
    )


def _machine(host: Host) -> list[str]:
    facts, memory = host.facts, host.facts.get("memory_bytes")
    processor, kernel, files, cores = (
        str(facts.get(fact, ABSENT)) for fact in ("processor", "kernel", "file_system", "cores")
    )
    size = format_size(int(memory)) if memory is not None else ABSENT
    return [host.name, processor, kernel, files.partition(" ")[0], cores, size]


def _baseline(host: Host, key: str) -> str:
    levels = [study.first.arms[0].levels.get(key) for study in host.studies.values()]
    return " and ".join(result_tables.level_text(level) for level in levels if level) or ABSENT


def host_fit_change_table(findings: HostsFindings) -> Table:
    """Return the changes that fit the study file to each machine."""
    found: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}
    for file, one in findings.studies.items():
        for key, was, now, why in study_report.fit_change_table(one).rows:
            found.setdefault((key, was), {})[file] = (now, why)
    rows = [
        [
            *key,
            *(of_file[file][0] if file in of_file else "unchanged" for file in findings.studies),
            next(iter(of_file.values()))[1],
        ]
        for key, of_file in found.items()
    ]
    columns = ("setting", "as published", *findings.studies, "reason")
    return Table(
        "Settings fitted to each machine", columns, rows, "All other settings are those of the study file."
    )


PANELS_MAX = 24
"""Maximum number of charts; the table has all cases and arms."""

HOST_COLOR, POOLED_COLOR = arm_class(0), arm_class(1)

NAME_LENGTH_MAX = 18

REACH_MAX = 4.0
"""An interval that extends beyond this multiple of the estimates is clipped, with an arrow. The interval of
two hosts can be hundreds of percent wide and would hide everything else."""


def forest(findings: HostsFindings) -> list[Panel]:
    """Return one forest plot of the primary metric for each case and arm."""
    margin = findings.first.first.study.plan.margin
    chosen = [*findings.averages, *findings.primary][:PANELS_MAX]
    span = _range(chosen, margin)
    return [
        Panel(
            f"{over.arm} vs. {over.baseline}: change of {over.name}"
            + (f", {over.case}" if over.case else ""),
            estimates_chart(
                f"{over.arm} on {len(over.pooled.hosts)} hosts, pooled {over.percent.signed_text}",
                [_row(*row) for row in _rows(over)],
                span,
                margin,
                over.better,
            ),
        )
        for over in chosen
    ]


def _row(name: str, estimate: Estimate, color: str) -> Row:
    title = f"{name}: {estimate.signed_text}, CI {estimate.signed_interval_text}"
    short = name if len(name) <= NAME_LENGTH_MAX else f"{name[: NAME_LENGTH_MAX - 1]}…"
    style = "strong" if name == "pooled" else ""
    return Row(short, estimate.value, title, color, estimate.low, estimate.high, style=style)


def _rows(over: OverHosts) -> list[tuple[str, Estimate, str]]:
    """Return name, estimate and color of each row; no interval below VERDICT_BLOCKS_MIN blocks."""
    rows = []
    for of in over.pooled.hosts:
        own = of.summary.percent(over.better)
        if own.n < VERDICT_BLOCKS_MIN:
            own = Estimate(own.value, own.unit, own.n, own.better)
        rows.append((of.host, own, HOST_COLOR))
    return [*rows, ("pooled", over.percent, POOLED_COLOR)]


def _range(chosen: list[OverHosts], margin: float) -> tuple[float, float]:
    """Return the range of all estimates and intervals; pooled intervals are clipped to REACH_MAX."""
    own = [-125 * margin, 125 * margin, 0.0]
    pooled: list[float] = []
    for over in chosen:
        for name, estimate, _ in _rows(over):
            ends = [end for end in (estimate.low, estimate.high) if end is not None]
            own.append(estimate.value)
            (pooled if name == "pooled" else own).extend(ends)
    reach = REACH_MAX * max(map(abs, own))
    values = [*own, *(min(max(end, -reach), reach) for end in pooled)]
    padding = 0.04 * (max(values) - min(values))
    return min(values) - padding, max(values) + padding


def with_pooled_changes(table: PooledTable, confidence: float, hosts: int) -> Table | None:
    """Return the published table with columns of levels and of pooled changes after each published column.

    Returns None if no host has a value for any of its cells.
    """
    if not any(cell.over or cell.levels for row in table.rows for cell in row):
        return None
    head = "pooled" if table.of_changes else "pooled change, %"
    is_pooled = any(cell.over for row in table.rows for cell in row)
    further: list[tuple[str, Callable[[PooledCell], bool], Callable[[PooledCell], str]]] = [
        (HERE, lambda cell: bool(cell.levels), lambda cell: _levels(cell, confidence)),
        (head, lambda cell: is_pooled and cell.is_requested, lambda cell: _pooled(cell, confidence)),
    ]
    columns: list[str] = []
    numeric: set[str] = set()
    rows: list[list[str]] = [[] for _ in table.rows]
    for n, title in enumerate(table.columns):
        here = [(of, text) for of, has, text in further if any(has(row[n]) for row in table.rows)]
        added = [f"{title}, {of}" for of, _ in here]
        columns += [title, *added]
        numeric |= {title, *added} if added else set()
        for row, cells in zip(rows, table.rows, strict=True):
            row += [as_printed(cells[n].published), *(text(cells[n]) for _, text in here)]
    title, note = f"{table.title}: {counted(hosts, 'host')}", _note(table, hosts, is_pooled=is_pooled)
    narrow = _narrow(table, title, {of: text for of, _, text in further[: 1 + is_pooled]})
    return Table(title, columns, rows, note, frozenset(numeric), whole=True, narrow=narrow)


def _note(table: PooledTable, hosts: int, *, is_pooled: bool) -> str:
    notes = []
    levels = [cell.is_speed for row in table.rows for cell in row if cell.levels]
    if not all(levels):
        notes.append(f"“{HERE}”: arithmetic mean of the levels of the hosts.")
    if any(levels):
        notes.append("Rates and durations depend on the machine, and are those of each host.")
    if is_pooled:
        notes += [
            f"Pooled over {hosts} hosts: (B − A) / A in percent of the baseline. The width of the CI depends",
            f"on the number of hosts. {ABSENT}: fewer than two hosts, or the baseline itself.",
        ]
    return " ".join(notes)


def _narrow(table: PooledTable, title: str, further: Mapping[str, Callable[[PooledCell], str]]) -> Table:
    """Return the table with a line for each figure, below the texts of its row. An empty first text is that
    of the row above.
    """
    lines: list[list[str]] = []
    first = ""
    for row in table.rows:
        figures = [cell.published.value is not None for cell in row]
        texts = [cell.published.text for cell, is_figure in zip(row, figures, strict=True) if not is_figure]
        texts[:1] = [first := texts[0] or first] if texts else []
        lines.append([", ".join(filter(None, texts)), "", *("" for _ in further)])
        lines += [
            [f"  {column}", as_printed(cell.published), *(text(cell) for text in further.values())]
            for column, cell, is_figure in zip(table.columns, row, figures, strict=True)
            if is_figure
        ]
    columns = ("figure", "published", *further)
    return Table(title, columns, lines, numeric=frozenset(columns[1:]), breaks_first=True)


def _levels(cell: PooledCell, confidence: float) -> str:
    """Return the mean of the hosts, or rates and durations side by side: ``small 900; large 1,300 tx/s``."""
    if not cell.is_speed:
        return measured_text(replace(cell.published, measured=cell.mean), "", confidence)
    unit = next(iter(cell.levels.values())).unit
    texts = [
        f"{host} {measured_text(replace(cell.published, measured=level), unit, confidence)}"
        for host, level in cell.levels.items()
    ]
    return with_unit("; ".join(texts), unit)


def _pooled(cell: PooledCell, confidence: float) -> str:
    if cell.over is None:
        return ABSENT if cell.is_requested else ""
    few = f"; {counted(len(cell.over.pooled.hosts), 'host')}" if cell.over.absent else ""
    return f"{pooled_text(cell.over, confidence)}{few}"


# ----------------------------------------------------------------------
# The report of one study from several hosts: the pooled results, then the report of each file.
# ----------------------------------------------------------------------


@dataclass(frozen=True)
class HostsDocument(JsonReport):
    """Report of several results files of one study."""

    title: str
    command: Annotated[str, about("Commands that repeat the study, one per line.")]
    sentences: Annotated[Sentences, about("By section.")]
    caveats: Sequence[ShownCaveat]
    hosts: HostsFindings
    files: Annotated[Mapping[str, StudyResults], about("Results by file.")]


@dataclass(frozen=True, kw_only=True)
class HostsReport(FileReport):
    """``studies`` maps the name of a file to its report."""

    findings: HostsFindings
    studies: Mapping[str, StudyReport]
    lost: str  # how a fit lost the question of the source; empty if none did

    def csv(self) -> str:
        """Return the CSV document: that of each file, after the names of host and file."""
        lost = {"lost_question": self.lost} if self.lost else {}
        rows = []
        for host in self.findings.hosts:
            for file in host.studies:
                own = [as_text(self.studies[file].lost)] if lost else []
                for row in rows_of(self.findings.studies[file]):
                    rows.append([as_text(host.name), as_text(file), *row, *own])
        return csv_text(["host", "file", *columns_of(self.findings.first), *lost], rows)

    def json(self, judgements: Sequence[Judgement]) -> HostsDocument:
        """Return the JSON document."""
        return HostsDocument(
            pgdyno_report=VERSION,
            verdicts=self.findings.verdicts_on(),
            answer=answer_of(self),
            judgements=judged(judgements),
            title=self.title,
            command=self.command,
            sentences={**sentences_of(self), **sentences_on(judgements)},
            caveats=self.caveats,
            hosts=self.findings,
            files={name: study_results(of, of.findings) for name, of in self.studies.items()},
        )


def build_hosts(findings: HostsFindings) -> HostsReport:
    """Return the report over hosts."""
    studies = {name: build_study(study) for name, study in findings.studies.items()}
    first, lost = next(iter(studies.values())), lost_question(list(findings.studies.values()))
    headlines = [
        replace(one, basis=with_coverage(one.basis, [case.study for case in findings.first.cases]))
        for one in _headlines(findings)
    ]
    sections = list(_sections(findings, studies, lost))
    unfinished = _unfinished(findings, studies)
    return HostsReport(
        title=first.title,
        sections=[*sections, Section("hosts", "Reports by host", parts=studies)],
        headlines=headlines,
        unfinished=unfinished,
        percent_of=(
            "Percentages are (B − A) / A, where A is the baseline. Pooled: random-effects mean over hosts; "
            "its CI applies to similar hosts, not only to these."
        ),
        command="\n".join(dict.fromkeys(study.command for study in studies.values())),
        kicker=first.kicker,
        summary=summary_of_several(headline_lines(headlines), unfinished, estimates(findings), sections),
        findings=findings,
        studies=studies,
        lost=lost,
    )


def _unfinished(findings: HostsFindings, studies: Mapping[str, StudyReport]) -> str:
    explained = {caveat.parameters["host"] for caveat in findings.incomplete}
    others = [
        f"{name}: {study.unfinished}"
        for name, study in studies.items()
        if study.unfinished and name not in explained
    ]
    return " ".join([*(caveat.text for caveat in findings.incomplete), *others])


def _sections(findings: HostsFindings, studies: Mapping[str, StudyReport], lost: str) -> Iterator[Section]:
    if lost:
        yield Section("lost", sentences=[lost], place=Place.ABOVE, is_alarm=True, is_source=True)
    # the number of changes by agreement with the source, for each host
    agreement = [f"{name}: {of.sentences[0]}" for name, one in studies.items() for of in one.of("agreement")]
    yield Section("agreement", sentences=agreement, place=Place.ABOVE, is_source=True)
    forests = partial(forest, findings)
    yield Section(
        "forest", "Estimate by host, and pooled", plots=forests, plots_size="effects", place=Place.TOP
    )
    usual, hosts = findings.first.first.study.plan.confidence, len(findings.hosts)
    tables = [with_pooled_changes(table, usual, hosts) for table in findings.published]
    published = [table for table in tables if table is not None]
    yield replace(tables_section("published", published, Place.TOP), is_source=True)
    yield replace(tables_section("results", _results(findings), Place.TOP), brief=_pooled_further(findings))
    yield caveats_section(_shown_caveats(findings, studies))
    yield tables_section("background", [host_fit_change_table(findings), telemetry(findings)])
    if derived := next(iter(next(iter(studies.values())).cases.values())).derived:
        yield Section("derived", sentences=[derived], is_prose=True)


def _results(findings: HostsFindings) -> list[Table]:
    tables = [
        estimates(findings),
        durability_by_host(findings.studies),
        further_metrics(findings),
        host_statement_table(findings),
        hardware_table(findings),
    ]
    return [table for table in tables if table.rows]


def _pooled_further(findings: HostsFindings) -> list[str]:
    """Return a sentence with the pooled p99 and CPU time, for one arm in one case."""
    if len(findings.primary) != 1:
        return []
    usual = findings.first.first.study.plan.confidence
    by_key = {over.key: f"{_name(over)} {pooled_text(over, usual)}" for over in findings.effects}
    known = [by_key[key] for key in (FURTHER_LATENCIES[1], SERVER_CPU.key) if key in by_key]
    return [f"Pooled change, %: {', '.join(known)}."] if known else []


def _headlines(findings: HostsFindings) -> list[Headline]:
    if len(findings.cases) < 2:
        return [_headline(over, findings) for over in findings.primary]
    found = [_headline_over_cases(over, findings) for over in findings.averages]
    return found or [_headline(over, findings) for over in findings.primary[:CAVEATS_PER_KIND_MAX]]


def _headline(over: OverHosts, findings: HostsFindings) -> Headline:
    """Return the headline of one case."""
    plan = findings.first.first.study.plan
    verdict, differs, percent = over.verdict(plan), over.differs(plan), over.percent
    hosts = over.pooled.hosts
    margin = given_percent(plan.margin)
    place = f"Over {len(hosts)} hosts" if len(hosts) > 1 else f"On {hosts[0].host} alone"
    if differs:
        size = f"{group_digits(abs(percent.value), max(0, percent.decimals))}%"
        than = f"{differs} than {over.baseline}{', but within the margin' if verdict is Verdict.SAME else ''}"
        claim = f"{over.arm} is {size} {than}"
        if over.better is Better.LESS:
            direction = "lower" if percent.value < 0 else "higher"
            claim = f"{over.arm} is {than}: its {over.name} is {size} {direction}"
    elif verdict is Verdict.SAME:
        claim = f"{over.arm} and {over.baseline} are equivalent within ±{margin}: {_change(percent)}"
    else:
        claim = f"undecided, {over.arm} vs. {over.baseline} {_change(percent)}"
    place = f"{place}, {over.case}" if over.case else place
    basis = f"{over.name}, {_basis(over, percent)}; equivalence margin {margin}"
    return Headline(verdict, f"{place}: {claim}", basis, variation_sentence(over.pooled))


def _headline_over_cases(over: OverHosts, findings: HostsFindings) -> Headline:
    plan, percent = findings.first.first.study.plan, over.percent
    same = [of for of in findings.primary if (of.baseline, of.arm) == (over.baseline, over.arm)]
    verdicts = [of.verdict(plan) for of in same]
    counts = enumeration([f"{one.word} in {verdicts.count(one)}" for one in Verdict if one in verdicts])
    hosts, cases = counted(len(over.pooled.hosts), "host"), counted(len(same), "case")
    claim = f"{over.arm} vs. {over.baseline}, {hosts}, {cases}: {counts}"
    average = f"average over the cases common to all hosts {_change(percent)}"
    basis = f"{average}: {over.name}, {_basis(over, percent)}"
    return Headline(over.verdict(plan), claim, basis, variation_sentence(over.pooled))


def _change(percent: Estimate) -> str:
    return pooled_change_text(percent, percent.unit)


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
    about: dict[str, list[ShownCaveat]] = {}
    for caveat in findings.caveats:
        about.setdefault(caveat.kind, []).append(ShownCaveat.of(caveat))
    found = []
    for caveats in about.values():
        found += caveats[:CAVEATS_PER_KIND_MAX]
        rest = len(caveats) - CAVEATS_PER_KIND_MAX
        if rest > 0:
            sentence = f"The same in {counted(rest, 'more comparison')}."
            found.append(replace(caveats[0], sentence=sentence, remedy=""))
    raised: dict[ShownCaveat, list[str]] = {}
    for name, study in studies.items():
        for shown in study.caveats:
            raised.setdefault(shown, []).append(name)
    for shown, where in raised.items():
        found.append(shown if len(where) == len(studies) else shown.at(f"{enumeration(where)}: "))
    return by_rank(found)


# ----------------------------------------------------------------------
# Files of several hosts, and of a fleet study.
# ----------------------------------------------------------------------


def read_files(paths: Sequence[Path], as_: str) -> HostsReport | None:
    """Read and pool several files, or those of a fleet study; None for other files. Raises PgdynoError."""
    if not any(path.name.endswith(SUFFIX) for path in paths):
        is_pooled = len(paths) > 1 and not are_shown_apart(paths, as_)
        return read_hosts(paths) if is_pooled else None
    if len(paths) > 1:
        raise UsageError(f"a file NAME{SUFFIX} has all hosts of its study: give it alone")
    return read_fleet_report(paths[0])


def read_hosts(
    paths: Sequence[Path] | Mapping[str, Path], works: Mapping[str, HostWork] = MappingProxyType({})
) -> HostsReport:
    """Read and pool results files, by name or with names of their own.

    Raises EvidenceError: a bad file, files of different studies.
    """
    named = paths if isinstance(paths, Mapping) else dict(zip(names_of_files(paths), paths, strict=True))
    return build_hosts(find_hosts({name: read_findings(path) for name, path in named.items()}, works))


def read_fleet_report(path: Path) -> HostsReport:
    """Read and pool the results files of a fleet study. Raises EvidenceError: a bad file, or none."""
    stem = path.name.removesuffix(SUFFIX)
    works = {
        work.file.removesuffix(".sqlite").removeprefix(f"{stem}-"): work for work in read_fleet(path).works
    }
    there = {name: path.with_name(work.file) for name, work in works.items() if not work.is_moved}
    named = {name: file for name, file in there.items() if file.is_file()}
    if not named:
        raise EvidenceError(f"{path} has no results file beside it: copy the files of the hosts there")
    return read_hosts(named, works)


def names_of_files(paths: Sequence[Path]) -> list[str]:
    """Return short unique names: the stems, with as many directories as they need to differ.

    Files that differ only in their suffix keep it. Raises UsageError for a duplicate file.
    """
    files = [path.resolve() for path in paths]
    for i, path in enumerate(paths):
        if files[i] in files[:i]:
            raise UsageError(f"{path} is given twice: give each file once")
    stems = [file.with_suffix("").parts for file in files]
    parts = [file.parts if stems.count(stem) > 1 else stem for file, stem in zip(files, stems, strict=True)]
    length = 1
    while len({of[-length:] for of in parts}) < len(parts):
        length += 1
    return ["/".join(of[-length:]) for of in parts]
