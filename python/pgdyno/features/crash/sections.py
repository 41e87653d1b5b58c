"""Reports of crash tests, and the section about durability in the report of a study.

- Report of a crash test: tables, one sentence per arm, JSON and CSV.
- Durability section: the speed of each arm beside the commits that power cuts lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from markupsafe import Markup

from pgdyno.analysis.statistics.intervals import MedianInterval, Proportion
from pgdyno.analysis.study_findings import StudyFindings
from pgdyno.features.crash.findings import CrashFindings
from pgdyno.features.crash.plan import (
    CrashKind,
    CrashMoment,
    CrashPlan,
    DiskBehavior,
    FileSystem,
    StandbyCrash,
)
from pgdyno.features.crash.records import Crash, CrashArm, CrashTestRecord
from pgdyno.report.answer import BAR_WIDTH, axis, bar_of, ends_of, interval_bar, reach_of
from pgdyno.report.csv_format import as_text, csv_text
from pgdyno.report.document import Document, Headline, Section, Table, tables_section
from pgdyno.report.plot import Axis, Mark, Panel, Scale, arm_class, circle, line, linear, plot, text
from pgdyno.report.result_tables import in_a_head, with_interval
from pgdyno.results.records import Json
from pgdyno.study.plan import INTERVAL_BLOCKS_MIN
from pgdyno.units import (
    ABSENT,
    Better,
    Estimate,
    ci_text,
    format_duration,
    format_size,
    group_digits,
    share_text,
    significant,
)

# ----------------------------------------------------------------------
# Report of a crash test: tables, one sentence per arm, JSON and CSV.
# ----------------------------------------------------------------------

PLURAL = {
    CrashKind.BACKEND: ("kill of a backend", "kills of a backend"),
    CrashKind.SERVER: ("kill of the server", "kills of the server"),
    CrashKind.POWER: ("power cut", "power cuts"),
}

OF = {
    None: "",
    StandbyCrash.PRIMARY: " of the primary",
    StandbyCrash.BOTH: " of primary and standby",
    StandbyCrash.STANDBY: " of the standby",
}

FAULT = {
    DiskBehavior.FAILING: "a disk request failed",
    DiskBehavior.FULL: "the server found the disk full",
}

PHASE = {
    CrashMoment.CHECKPOINT: "during the checkpoint",
    CrashMoment.VACUUM: "during the VACUUM",
    CrashMoment.COMMIT: "at a flush",
}

COLUMNS = ("arm", "loss (95% CI)", "lost", "window", "corrupt", "recovery")

DISK_TITLE = "Simulated disk, per acknowledged commit"
DISK_COLUMNS = ("arm", "commits", "written", "writes", "flushes", "read")


LOSS_NOTE = (
    "loss: {kind} that lost an acknowledged commit. lost, window: the most commits and the longest time lost "
    "in one of them."
)


@dataclass(frozen=True)
class CrashReport:
    """Everything that the formats show."""

    record: CrashTestRecord
    arms: Sequence[CrashArm]
    findings: Sequence[CrashFindings]
    crashes: Sequence[Crash] = ()

    @property
    def plan(self) -> CrashPlan:
        """The plan of the test."""
        return self.record.plan


def title_of(report: CrashReport) -> str:
    """Return the title: kind, disk, number of crashes."""
    plan = report.plan
    real = " of a real machine" if plan.real else ""
    parts = [f"{plan.disk} disk"] if plan.disk is not DiskBehavior.HONEST else []
    parts += [plan.file_system] if plan.file_system is not FileSystem.EXT4 else []
    disk = "".join(f", {part}" for part in parts)
    done = max((found.crashes for found in report.findings), default=0)
    load = f", {plan.parameters.data_name}" if plan.parameters is not None else ""
    crashes = f"{PLURAL[plan.kind][done != 1]}{real}{OF[plan.standby]}{disk}"
    return f"{crashes}: {done} per arm, {plan.clients} clients{load}"


def crash_tables(report: CrashReport) -> list[Table]:
    """Return the table of losses, and that of the simulated disk if there was one."""
    kind = PLURAL[report.plan.kind][1]
    losses = Table(
        title=capitalized(title_of(report)),
        columns=COLUMNS,
        rows=table_rows(report.findings),
        note=LOSS_NOTE.format(kind=kind),
        numeric=frozenset(COLUMNS[1:]),
        dispensable=("recovery", "window", "corrupt"),
        breaks_first=True,
    )
    disk = Table(
        title=DISK_TITLE,
        columns=DISK_COLUMNS,
        rows=disk_rows(report.findings),
        note="Requests and bytes of server and file system, from the start of the load to the cut.",
        numeric=frozenset(DISK_COLUMNS[1:]),
        dispensable=("commits", "read"),
        breaks_first=True,
    )
    return [losses, *([disk] if disk.rows else [])]


def crash_document(report: CrashReport) -> Document:
    """Return the document of a crash test without a study: a verdict for each arm, then the tables."""
    return Document(
        title="Crash test",
        headlines=[Headline(None, sentence) for sentence in sentences(report)],
        sections=[tables_section("losses", crash_tables(report))],
        kicker="crash test",
    )


def capitalized(text: str) -> str:
    """Return a text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def table_rows(findings: Sequence[CrashFindings]) -> list[tuple[str, ...]]:
    """Return the rows of the table, in the order of COLUMNS."""
    return [
        (
            found.name,
            _with_interval(found.with_loss),
            group_digits(found.lost_max, 0) if found.lost else ABSENT,
            _window(found),
            ABSENT if found.corrupt is None else f"{found.corrupt.count}/{found.corrupt.n}",
            ABSENT if found.recovery_s is None else format_duration(found.recovery_s.value),
        )
        for found in findings
    ]


def disk_rows(findings: Sequence[CrashFindings]) -> list[tuple[str, ...]]:
    """Return the rows of the table of the disk, in the order of DISK_COLUMNS; empty without such counters."""
    return [
        (
            found.name,
            group_digits(found.acknowledged, 0),
            format_size(round(of["written_bytes"])),
            significant(of["writes"], 3),
            significant(of["flushes"], 3),
            format_size(round(of["read_bytes"])),
        )
        for found in findings
        if (of := found.disk_per_commit)
    ]


def _with_interval(share: Proportion | None) -> str:
    if share is None:
        return ABSENT
    if share.count == 0:  # one-sided, as in the sentence
        return f"0/{share.n} (<{share_text(share.limit)})"
    return f"{share.count}/{share.n} {share_estimate(share).interval_text}"


def share_estimate(share: Proportion) -> Estimate:
    """Return a share of crashes in percent with its interval."""
    low, value, high = (100 * of for of in (share.low, share.count / share.n, share.high))
    return Estimate(value, "%", share.n, Better.LESS, low, high)


def _window(found: CrashFindings) -> str:
    return ABSENT if found.loss_window_s_max is None else format_duration(found.loss_window_s_max)


def sentences(report: CrashReport) -> list[str]:
    """Return one verdict per arm."""
    return [sentence(report.plan, found) for found in report.findings]


def sentence(plan: CrashPlan, found: CrashFindings) -> str:
    """Return the verdict of an arm."""
    return f"{found.name}: {outcome(plan, found)}"


def outcome(plan: CrashPlan, found: CrashFindings) -> str:
    """Return the verdict of an arm without its name."""
    if found.with_loss is None or found.corrupt is None:
        return "no crash yet."
    n = found.crashes
    crashes = f"{n} {PLURAL[plan.kind][n != 1]}{OF[plan.standby]}"
    if found.with_loss.count == 0:
        limit = f"probability below {share_text(found.with_loss.limit)} with 95% confidence"
        lost = f"none of {crashes} lost an acknowledged commit ({limit})"
    else:
        window = found.loss_window_s_max
        most = f"up to {group_digits(found.lost_max, 0)}" + (
            "" if window is None else f", {format_duration(window)}"
        )
        lost = f"{found.with_loss.count} of {crashes} lost acknowledged commits"
        lost += f" ({most})" if found.lost_max else ""
    parts = [lost]
    if found.corrupt.count:
        parts.append(f"{found.corrupt.count} left the cluster corrupt")
    if found.unreadable:
        parts.append(f"{found.unreadable} left it unreadable")
    parts += [f"{group_digits(count, 0)} {name}" for name, count in _irregular(found).items() if count]
    if plan.disk.fails_before_cut:
        parts.append(f"{FAULT[plan.disk]} in {found.disk_faults} of {n}")
    if plan.at is not CrashMoment.ANY:
        parts.append(f"{found.in_phase} of {n} {PHASE[plan.at]}")
    text = f"{', '.join(parts)}."
    if found.breaks_promise:
        text += " The settings promise to lose nothing: PostgreSQL, the file system or the disk is at fault."
    return text


def _irregular(found: CrashFindings) -> dict[str, int]:
    return {
        "lost before a later commit that is present": found.holes,
        "present and never sent": found.phantoms,
        "damaged rows": found.damaged,
    }


def crash_json(report: CrashReport) -> Json:
    """Return the JSON document."""
    plan = report.plan
    return {
        "kind": plan.kind,
        "real": plan.real,
        "disk": plan.disk if plan.kind is CrashKind.POWER else None,
        "file_system": plan.file_system if plan.kind is CrashKind.POWER else None,
        "at": plan.at,
        "standby": plan.standby,
        "workload": plan.workload,
        "clients": plan.clients,
        "seed": plan.seed,
        "complete": report.record.ended_unix_s is not None,
        "arms": [
            _arm_json(arm, found, report.plan)
            for arm, found in zip(report.arms, report.findings, strict=True)
        ],
    }


def _arm_json(arm: CrashArm, found: CrashFindings, plan: CrashPlan) -> Json:
    return {
        "arm": found.name,
        "server": arm.server,
        "settings": dict(arm.settings),
        "cuts": found.crashes,
        "acknowledged_commits": found.acknowledged,
        "cuts_with_loss": _optional(found.with_loss),
        "lost_commits": list(found.lost),
        "holes": found.holes,
        "phantoms": found.phantoms,
        "damaged": found.damaged,
        "in_doubt": found.in_doubt,
        "in_doubt_present": found.in_doubt_present,
        "cuts_unreadable": found.unreadable,
        "loss_window_ms": [1000 * window_s for window_s in found.loss_window_s],
        "wal_writer_delay_ms": 1000 * found.wal_writer_delay_s,
        "recovery_s": _optional(found.recovery_s),
        "replayed_bytes": _optional(found.replayed_bytes),
        "disk_per_commit": dict(found.disk_per_commit) or None,
        "disk_faults": found.disk_faults,
        "cuts_in_phase": None if plan.at is CrashMoment.ANY else found.in_phase,
        "corruption": {
            "cuts": _optional(found.corrupt),
            "by_check": dict(found.findings),
            "examples": list(found.examples),
            "unchecked": list(found.unchecked),
        },
        "promised": found.promise,
        "breaks_promise": found.breaks_promise,
        "verdict": sentence(plan, found),
    }


def _optional(of: Proportion | MedianInterval | None) -> Json | None:
    return None if of is None else asdict(of)


CRASH_COLUMNS = (
    *("arm", "crash", "load_s", "acknowledged", "lost", "loss_window_ms", "in_doubt", "in_doubt_present"),
    *("holes", "phantoms", "damaged", "corruptions", "recovery_s", "replayed_bytes"),
)


def crash_csv(report: CrashReport) -> str:
    """Return a row per crash. Crashes count from 0, and unknown values are empty."""
    names = {arm.arm: arm.name for arm in report.arms}
    rows = []
    for of in report.crashes:
        counts = {} if of.audit is None else asdict(of.audit)
        window_s = counts.get("loss_window_s")
        values = {
            **counts,
            "arm": as_text(names[of.arm]),
            "crash": of.number,
            "load_s": of.active_s,
            "acknowledged": of.acknowledged,
            "loss_window_ms": None if window_s is None else 1000 * window_s,
            "corruptions": len(of.corruption),
            "recovery_s": of.recovery_s,
            "replayed_bytes": of.replayed_bytes,
        }
        rows.append(["" if values.get(name) is None else values[name] for name in CRASH_COLUMNS])
    return csv_text(CRASH_COLUMNS, rows)


def progress_line(crash: Crash, name: str, plan: CrashPlan) -> str:
    """Return the line that is printed after each crash."""
    what = f"{PLURAL[plan.kind][0]}{OF[plan.standby]}"
    head = f"{what} {crash.number + 1} of {plan.cuts}, {name}, after {group_digits(crash.active_s, 1)} s"
    if crash.audit is None:
        why = crash.corruption[0].text if crash.corruption else "no reason"
        return f"{head}: {group_digits(crash.acknowledged, 0)} acknowledged, none readable: {why}"
    audit = crash.audit
    window = "" if audit.loss_window_s is None else f" ({format_duration(audit.loss_window_s)})"
    parts = [
        f"{group_digits(audit.lost, 0)} of {group_digits(crash.acknowledged, 0)} acknowledged lost{window}"
    ]
    irregular = {"holes": audit.holes, "phantoms": audit.phantoms, "damaged": audit.damaged}
    parts += [f"{group_digits(count, 0)} {what}" for what, count in irregular.items() if count]
    if crash.recovery_s is not None:
        parts.append(f"recovery {group_digits(crash.recovery_s, 2)} s")
    if crash.corruption:
        parts.append(f"corrupt: {crash.corruption[0].check}: {crash.corruption[0].text}")
    return f"{head}: {', '.join(parts)}"


# ----------------------------------------------------------------------
# Durability section: the speed of each arm beside the commits that power cuts lost.
# ----------------------------------------------------------------------

TITLE = "Durability"
SENTENCES_MAX = 4
"""Maximum number of arms whose sentence the summary on the terminal has."""

LABEL_SPACE = 70.0
"""Distance to the right border below which a label is to the left of its point, in pixels."""


def durability_section(study: StudyFindings, crashes: CrashReport) -> Section:
    """Return the section of a study with a crash test of its arms."""
    changes = _changes(study)
    sentences = [_sentence(found, changes, study, crashes) for found in crashes.findings]
    disk = [replace(table, title=f"{TITLE}: {table.title}") for table in crash_tables(crashes)[1:]]
    return Section(
        "durability",
        TITLE,
        sentences,
        [_table(study, changes, crashes), *disk],
        plots=lambda: [Panel("Loss against speed", _picture(study, changes, crashes))],
        drawn=_drawn(study, changes, crashes),
        brief=[f"{TITLE}: {sentence}" for sentence in sentences[:SENTENCES_MAX]],
        order=20,
    )


def _changes(study: StudyFindings) -> dict[str, Estimate]:
    """Return the change of the primary metric by arm: of the only case, or the average over cases."""
    if len(study.cases) == 1:
        return {of.arm.name: of.primary.percent for of in study.first.comparisons if of.primary is not None}
    better = study.first.primary.better
    return {over.arm: over.average.percent(better) for over in study.over_cases if over.average is not None}


def _sentence(
    found: CrashFindings, changes: Mapping[str, Estimate], study: StudyFindings, crashes: CrashReport
) -> str:
    """Return speed and loss of an arm in one sentence."""
    if found.name == study.first.arms[0].arm.name:
        speed = "baseline"
    elif (change := changes.get(found.name)) is None:
        speed = f"{study.first.primary.label} not compared"
    else:
        n = len(study.cases)
        basis = [f"average over {n} cases"] if n > 1 else []
        if change.low is not None:
            basis.append(f"{ci_text(change.confidence)} {change.signed_interval_text}")
        shown = f" ({', '.join(basis)})" if basis else ""
        speed = f"{study.first.primary.label} {change.signed_text}{shown}"
    return f"{found.name}: {speed}; {outcome(crashes.plan, found)}"


def _table(study: StudyFindings, changes: Mapping[str, Estimate], crashes: CrashReport) -> Table:
    plan, metric = study.first.study.plan, study.first.primary
    change = f"{metric.label} vs. {in_a_head(study.first.arms[0].arm.name)}, %"
    rows = []
    for found, row in zip(crashes.findings, table_rows(crashes.findings), strict=True):
        estimate = changes.get(found.name)
        shown = with_interval(estimate, plan.confidence, INTERVAL_BLOCKS_MIN) if estimate else ABSENT
        rows.append([row[0], shown, *row[1:]])
    kind = PLURAL[crashes.plan.kind][1]
    return Table(
        title=f"{TITLE}: {title_of(crashes)}",
        columns=("arm", change, *COLUMNS[1:]),
        rows=rows,
        note=f"{LOSS_NOTE.format(kind=kind)} The load of the cuts is a ledger of its own, not the workload "
        "above.",
        numeric=frozenset({change, *COLUMNS[1:]}),
        dispensable=("recovery", "window", "corrupt"),
        breaks_first=True,
    )


def durability_by_host(reports: Mapping[str, CrashReport]) -> Table:
    """Return a row per arm and file. Files are not pooled: each host has its own disk and kernel."""
    rows = [
        [row[0], name if number == 0 else "", title_of(report) if number == 0 else "", *row[1:]]
        for name, report in reports.items()
        for number, row in enumerate(table_rows(report.findings))
    ]
    return Table(
        title=f"{TITLE} by host",
        columns=(COLUMNS[0], "host", "crashes", *COLUMNS[1:]),
        rows=rows,
        note="loss: crashes that lost an acknowledged commit. lost, window: the most in one of them.",
        numeric=frozenset(COLUMNS[1:]),
        dispensable=("recovery", "window", "corrupt", "crashes"),
        breaks_first=True,
    )


def _drawn(study: StudyFindings, changes: Mapping[str, Estimate], crashes: CrashReport) -> Table:
    """Return one row per arm: its change and the share of cuts with a loss, each as a bar."""
    margin = 100 * study.first.study.plan.margin
    reach = reach_of(changes.values(), margin)
    speed, loss = axis(reach), "0" + "100%".rjust(BAR_WIDTH - 1)
    rows = [
        [
            found.name,
            bar_of(change, margin, reach) if (change := changes.get(found.name)) else "",
            share_bar(found.with_loss),
        ]
        for found in crashes.findings
    ]
    return Table(
        title=f"Change of {study.first.primary.label}, %, and {PLURAL[crashes.plan.kind][1]} with a loss",
        columns=("arm", speed, loss),
        rows=rows,
        numeric=frozenset({speed, loss}),
    )


def share_bar(share: Proportion | None) -> str:
    """Return a line of BAR_WIDTH characters from 0 to 100%: interval and share."""
    if share is None:
        return ""
    ends = (share.low, share.count / share.n, share.high)
    return interval_bar([round((BAR_WIDTH - 1) * end) for end in ends])


def _picture(study: StudyFindings, changes: Mapping[str, Estimate], crashes: CrashReport) -> Markup:
    """Return a chart with a point per arm: its change, the share of cuts with a loss (both %), their CIs."""
    metric, kind = study.first.primary.label, PLURAL[crashes.plan.kind][1]
    ends = [0.0, *(end for change in changes.values() for end in ends_of(change))]
    x = replace(linear(ends, unit="%", title=f"change of {metric}"), grid=True)
    y = Axis(
        0.0, 100.0, [(float(share), f"{share}%") for share in (0, 25, 50, 75, 100)], f"{kind} with a loss"
    )
    marks = [
        _mark(found, changes.get(found.name), arm_class(arm))
        for arm, found in enumerate(crashes.findings)
        if found.with_loss is not None and (arm == 0 or found.name in changes)
    ]
    return plot("Loss against speed", x, y, marks)


def _mark(found: CrashFindings, change: Estimate | None, color: str) -> Mark:
    share = found.with_loss
    assert share is not None
    estimate = share_estimate(share)

    def draw(x: Scale, y: Scale) -> Iterator[Markup]:
        at, up = x(0.0 if change is None else change.value), y(estimate.value)
        yield line(at, y(100 * share.low), at, y(100 * share.high), class_=f"interval {color}")
        if change is not None and change.low is not None and change.high is not None:
            yield line(x(change.low), up, x(change.high), up, class_=f"interval {color}")
        yield circle(at, up, 4, f"{found.name}: {share.count} of {share.n}", class_=f"dot {color}")
        is_right = at > x.end - LABEL_SPACE
        yield text(
            at - 9 if is_right else at + 9, up - 8, found.name, class_="end small" if is_right else "small"
        )

    return draw
