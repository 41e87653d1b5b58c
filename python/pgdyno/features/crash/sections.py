"""Reports of crash tests, and the section about durability in the report of a study.

- Report of a crash test: tables, one sentence per arm, JSON and CSV.
- Durability section: the speed of each arm beside the commits that power cuts lost.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from markupsafe import Markup

from pgdyno.analysis.finding_fields import about
from pgdyno.analysis.statistics.intervals import Proportion
from pgdyno.analysis.study_findings import StudyFindings
from pgdyno.errors import EvidenceError
from pgdyno.features.crash.findings import CrashFindings, CrashTest, crash_test_of_study, find_crash_test
from pgdyno.features.crash_disk.plan import (
    CrashKind,
    CrashMoment,
    CrashPlan,
    DiskBehavior,
    FileSystem,
    StandbyCrash,
)
from pgdyno.features.crash_disk.records import Crash, has_study
from pgdyno.report.answer import BAR_WIDTH, axis, bar_of, ends_of, interval_bar, reach_of
from pgdyno.report.csv_format import as_text, csv_text
from pgdyno.report.document import FileReport, Headline, Judgement, Section, Table, tables_section
from pgdyno.report.json_format import VERSION, Result, Sentences, sentences_of
from pgdyno.report.plot import Axis, Dots, Panel, Point, arm_class, linear, plot
from pgdyno.report.result_tables import enumeration, in_a_head, with_interval
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

FAULT = {DiskBehavior.FAILING: "a disk request failed", DiskBehavior.FULL: "the server found the disk full"}

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
class _LeadingFields:
    """Fields before those of the crash test."""

    pgdyno_crash: Annotated[Literal[3], about("Version of the format.")]
    sentences: Annotated[Sentences, about("By section.")]


@dataclass(frozen=True)
class CrashDocument(CrashTest, _LeadingFields):
    """Output of ``pgdyno crash --json``."""


@dataclass(frozen=True, kw_only=True)
class CrashReport(FileReport):
    """The report of a crash test without a study: a verdict for each arm, then the tables."""

    test: CrashTest

    def csv(self) -> str:
        """Return a row per crash. Crashes count from 0, and unknown values are empty."""
        names = {of.arm.arm: as_text(of.arm.name) for of in self.test.arms}
        rows = (_csv_row(of, names[of.arm]) for of in self.test.crashes)
        return csv_text(CRASH_COLUMNS, (["" if of is None else of for of in row] for row in rows))

    def json(self, judgements: Sequence[Judgement]) -> CrashDocument:  # noqa: ARG002 - there is nothing to compare
        """Return the JSON document."""
        return CrashDocument(VERSION, sentences_of(self), **vars(self.test))


def read_files(paths: Sequence[Path], _as: str) -> CrashReport | None:
    """Return the report of a results file with a crash test and no study; None for other files."""
    try:
        if len(paths) > 1 or has_study(paths[0]):
            return None
    except EvidenceError:  # the readers of other files report the error
        return None
    return read_crash_report(paths[0])


def read_crash_report(path: Path) -> CrashReport:
    """Return the report of a crash test. Raises EvidenceError for a file without one."""
    test = find_crash_test(path)
    if test is None:
        raise EvidenceError(f"{path} has neither a study nor a crash test: check the name")
    return build_crash_report(test)


def build_crash_report(test: CrashTest) -> CrashReport:
    """Return the report."""
    return CrashReport(
        title="Crash test",
        headlines=[Headline(None, f"{of.arm.name}: {outcome(test.plan, of)}") for of in test.arms],
        sections=[
            tables_section("losses", crash_tables(test)),
            Section("corruption", "Corruption", corruption_sentences(test)),
        ],
        unfinished=""
        if test.complete
        else f"The crash test is still running or was interrupted: {_done(test)}.",
        command=test.command,
        kicker="crash test",
        findings=None,
        test=test,
    )


def _done(test: CrashTest) -> str:
    done = [found.cuts for found in test.arms]
    return f"{min(done)} of {test.plan.cuts} {PLURAL[test.plan.kind][1]} per arm"


def corruption_sentences(test: CrashTest) -> list[str]:
    """Return what the checks found after the crashes of each arm, and which checks were not possible."""
    sentences, unchecked = [], dict[str, list[str]]()
    for found in test.arms:
        of, name = found.corruption, found.arm.name
        if of.by_check:
            counts = ", ".join(f"{check} {count}" for check, count in of.by_check.items())
            sentences.append(
                f"{name}: number of crashes by the check that failed: {counts}. {of.examples[0]}"
            )
        for check in of.unchecked:
            unchecked.setdefault(check, []).append(name)
    if unchecked:
        missing = ", ".join(f"{check} ({enumeration(names)})" for check, names in unchecked.items())
        why = "The server has no program, extension or checksums for it, is remote, or the check timed out."
        sentences.append(f"Not checked after at least one crash: {missing}. {why}")
    return sentences


def title_of(test: CrashTest) -> str:
    """Return the title: kind, disk, number of crashes."""
    plan = test.plan
    real = " of a real machine" if plan.real else ""
    parts = [f"{plan.disk} disk"] if plan.disk is not DiskBehavior.HONEST else []
    parts += [plan.file_system] if plan.file_system is not FileSystem.EXT4 else []
    disk = "".join(f", {part}" for part in parts)
    done = max((found.cuts for found in test.arms), default=0)
    load = f", {plan.parameters.data_name}" if plan.parameters is not None else ""
    crashes = f"{PLURAL[plan.kind][done != 1]}{real}{OF[plan.standby]}{disk}"
    return f"{crashes}: {done} per arm, {plan.clients} clients{load}"


def crash_tables(test: CrashTest) -> list[Table]:
    """Return the table of losses, and that of the simulated disk if there was one."""
    title, note = title_of(test), LOSS_NOTE.format(kind=PLURAL[test.plan.kind][1])
    losses = _losses(f"{title[0].upper()}{title[1:]}", [(found, ()) for found in test.arms], note)
    disk = Table(
        title=DISK_TITLE,
        columns=DISK_COLUMNS,
        rows=[_disk_row(found, of) for found in test.arms if (of := found.disk_per_commit)],
        note="Requests and bytes of server and file system, from the start of the load to the cut.",
        numeric=frozenset(DISK_COLUMNS[1:]),
        dispensable=("commits", "read"),
        breaks_first=True,
    )
    return [losses, *([disk] if disk.rows else [])]


def _losses(
    title: str, arms: Iterable[tuple[CrashFindings, Sequence[str]]], note: str, more: Sequence[str] = ()
) -> Table:
    """Return a table of losses, with cells in ``more`` columns after the name of the arm."""
    return Table(
        title=title,
        columns=(COLUMNS[0], *more, *COLUMNS[1:]),
        rows=[[found.arm.name, *cells, *_loss_cells(found)] for found, cells in arms],
        note=note,
        numeric=frozenset(COLUMNS[1:]),
        dispensable=("recovery", "window", "corrupt"),
        breaks_first=True,
    )


def _loss_cells(found: CrashFindings) -> list[str]:
    corrupt, window_s, recovery_s = found.corruption.cuts, found.loss_window_s_max, found.recovery_s
    return [
        _with_interval(found.cuts_with_loss),
        group_digits(found.lost_max, 0) if found.lost_commits else ABSENT,
        ABSENT if window_s is None else format_duration(window_s),
        ABSENT if corrupt is None else f"{corrupt.count}/{corrupt.n}",
        ABSENT if recovery_s is None else format_duration(recovery_s.value),
    ]


def _disk_row(found: CrashFindings, of: Mapping[str, float]) -> list[str]:
    return [
        found.arm.name,
        group_digits(found.acknowledged_commits, 0),
        format_size(round(of["written_bytes"])),
        significant(of["writes"], 3),
        significant(of["flushes"], 3),
        format_size(round(of["read_bytes"])),
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


def outcome(plan: CrashPlan, found: CrashFindings) -> str:
    """Return the verdict of an arm without its name."""
    if found.cuts_with_loss is None or found.corruption.cuts is None:
        return "no crash yet."
    n = found.cuts
    crashes = f"{n} {PLURAL[plan.kind][n != 1]}{OF[plan.standby]}"
    if found.cuts_with_loss.count == 0:
        limit = f"probability below {share_text(found.cuts_with_loss.limit)} with 95% confidence"
        lost = f"none of {crashes} lost an acknowledged commit ({limit})"
    else:
        lost = f"{found.cuts_with_loss.count} of {crashes} lost acknowledged commits{_most(found)}"
    parts = [lost, *_irregular(found)]
    if plan.disk.fails_before_cut:
        parts.append(f"{FAULT[plan.disk]} in {found.disk_faults} of {n}")
    if plan.at is not CrashMoment.ANY:
        parts.append(f"{found.cuts_in_phase} of {n} {PHASE[plan.at]}")
    text = f"{', '.join(parts)}."
    if found.breaks_promise:
        text += " The settings promise to lose nothing: PostgreSQL, the file system or the disk is at fault."
    return text


def _most(found: CrashFindings) -> str:
    """Return the largest loss as text, for example `` (up to 1,297, 52.0 ms)``; empty without one."""
    window = "" if (of := found.loss_window_s_max) is None else f", {format_duration(of)}"
    return f" (up to {group_digits(found.lost_max, 0)}{window})" if found.lost_max else ""


def _irregular(found: CrashFindings) -> list[str]:
    """Return what was found besides losses."""
    counts = {
        "left the cluster corrupt": found.corruption.cuts.count if found.corruption.cuts else 0,
        "left it unreadable": found.cuts_unreadable,
        "lost before a later commit that is present": found.holes,
        "present and never sent": found.phantoms,
        "damaged rows": found.damaged,
    }
    return _counted(counts)


def _counted(counts: Mapping[str, int]) -> list[str]:
    return [f"{group_digits(count, 0)} {name}" for name, count in counts.items() if count]


CRASH_COLUMNS = (
    *("arm", "crash", "load_s", "acknowledged", "lost", "loss_window_ms", "in_doubt", "in_doubt_present"),
    *("holes", "phantoms", "damaged", "corruptions", "recovery_s", "replayed_bytes"),
)


def _csv_row(of: Crash, arm: str) -> list[object]:
    values = {
        **vars(of),
        "arm": arm,
        "crash": of.number,
        "load_s": of.active_s,
        "loss_window_ms": None if of.loss_window_s is None else 1000 * of.loss_window_s,
        "corruptions": len(of.corruption),
    }
    return [values[name] for name in CRASH_COLUMNS]


def progress_line(crash: Crash, name: str, plan: CrashPlan) -> str:
    """Return the line that is printed after each crash."""
    what = f"{PLURAL[plan.kind][0]}{OF[plan.standby]}"
    head = f"{what} {crash.number + 1} of {plan.cuts}, {name}, after {group_digits(crash.active_s, 1)} s"
    acknowledged = f"{group_digits(crash.acknowledged, 0)} acknowledged"
    if crash.audit is None:
        why = crash.corruption[0].text if crash.corruption else "no reason"
        return f"{head}: {acknowledged}, none readable: {why}"
    audit = crash.audit
    window = "" if audit.loss_window_s is None else f" ({format_duration(audit.loss_window_s)})"
    irregular = {"holes": audit.holes, "phantoms": audit.phantoms, "damaged": audit.damaged}
    parts = [f"{group_digits(audit.lost, 0)} of {acknowledged} lost{window}", *_counted(irregular)]
    if crash.recovery_s is not None:
        parts.append(f"recovery {group_digits(crash.recovery_s, 2)} s")
    if crash.corruption:
        parts.append(f"corrupt: {crash.corruption[0].check}: {crash.corruption[0].text}")
    return f"{head}: {', '.join(parts)}"


# ----------------------------------------------------------------------
# Durability section: the speed of each arm beside the commits that power cuts lost.
# ----------------------------------------------------------------------

TITLE = "Durability"

MINOR = re.compile(r"\d+\.\d+")
"""A server by its minor version, for which a study may have measured the nearest one."""
SENTENCES_MAX = 4
"""Maximum number of arms whose sentence the summary on the terminal has."""

COMMAND_MAX = 200
"""Maximum length of a command in the summary. Arms of study files can have 20 settings each."""


def durability_sections(study: StudyFindings) -> list[Section]:
    """Return the section of a study with a crash test of its arms, or the command that makes one."""
    test = study.findings_of(crash_test_of_study)
    if test is None:
        return _untested(study)
    changes = _changes(study)
    sentences = [_sentence(found, changes, study, test.plan) for found in test.arms]
    disk = [replace(table, title=f"{TITLE}: {table.title}") for table in crash_tables(test)[1:]]
    return [
        Section(
            "durability",
            TITLE,
            [*sentences, *corruption_sentences(test)],
            [_table(study, changes, test), *disk],
            plots=lambda: [Panel("Loss against speed", _picture(study, changes, test))],
            drawn=_drawn(study, changes, test),
            brief=_brief(test) or [f"{TITLE}: {sentence}" for sentence in sentences[:SENTENCES_MAX]],
            order=20,
            is_alarm=True,
        )
    ]


def _brief(test: CrashTest) -> list[str]:
    """Return the losses of all arms in a sentence; empty if more was found, or an arm has no crash."""
    shares = [found.cuts_with_loss for found in test.arms]
    if None in shares or any(of.breaks_promise or _irregular(of) for of in test.arms):
        return []
    parts = [
        f"{found.arm.name} in {share.count} of {share.n}{_most(found)}"
        for found, share in zip(test.arms, shares, strict=True)
        if share is not None
    ]
    return [f"Acknowledged commits lost in {PLURAL[test.plan.kind][1]}: {'; '.join(parts[:SENTENCES_MAX])}."]


def _untested(study: StudyFindings) -> list[Section]:
    arms = study.first.study.plan.arms
    if any(arm.is_dsn for arm in arms) or "unsafe-settings" not in {of.kind for of in study.first.caveats}:
        return []
    kept = [
        (with_version(of.arm.spec, of.arm.server_facts.version), [one.kept for one in of.arm.safety])
        for of in study.first.arms
    ]
    unlike = [spec for spec, guarantees in kept if guarantees != kept[0][1]]
    command = shlex.join(["pgdyno", "crash", kept[0][0], *unlike])
    brief = f"To measure lost commits: sudo {command}"
    if len(command) > COMMAND_MAX:
        brief = "To measure lost commits: repeat the study with --durability."
    return [Section("durability", brief=[brief], order=20, is_alarm=True)]


def with_version(spec: str, version: str | None) -> str:
    """Return an arm that names a minor version with the measured one: pgdyno crash takes no other."""
    asked, comma, rest = spec.partition(",")
    return f"{version}{comma}{rest}" if version and MINOR.fullmatch(asked) else spec


def _changes(study: StudyFindings) -> dict[str, Estimate]:
    """Return the change of the primary metric by arm: of the only case, or the average over cases."""
    if len(study.cases) == 1:
        return {of.arm.name: of.primary.percent for of in study.first.comparisons if of.primary is not None}
    better = study.first.primary.better
    return {over.arm: over.average.percent(better) for over in study.over_cases if over.average is not None}


def _sentence(
    found: CrashFindings, changes: Mapping[str, Estimate], study: StudyFindings, plan: CrashPlan
) -> str:
    """Return speed and loss of an arm in one sentence."""
    name = found.arm.name
    if name == study.first.arms[0].arm.name:
        speed = "baseline"
    elif (change := changes.get(name)) is None:
        speed = f"{study.first.primary.label} not compared"
    else:
        n = len(study.cases)
        basis = [f"average over {n} cases"] if n > 1 else []
        if change.low is not None:
            basis.append(f"{ci_text(change.confidence)} {change.signed_interval_text}")
        shown = f" ({', '.join(basis)})" if basis else ""
        speed = f"{study.first.primary.label} {change.signed_text}{shown}"
    return f"{name}: {speed}; {outcome(plan, found)}"


def _table(study: StudyFindings, changes: Mapping[str, Estimate], test: CrashTest) -> Table:
    confidence = study.first.study.plan.confidence
    change = f"{study.first.primary.label} vs. {in_a_head(study.first.arms[0].arm.name)}, %"
    note = LOSS_NOTE.format(kind=PLURAL[test.plan.kind][1])
    shown = {name: with_interval(of, confidence, INTERVAL_BLOCKS_MIN) for name, of in changes.items()}
    table = _losses(
        f"{TITLE}: {title_of(test)}",
        [(found, [shown.get(found.arm.name, ABSENT)]) for found in test.arms],
        f"{note} The load of the cuts is a ledger of its own, not the workload above.",
        [change],
    )
    return replace(table, numeric=table.numeric | {change})


def durability_by_host(studies: Mapping[str, StudyFindings]) -> Table:
    """Return a row per arm and file. Files are not pooled: each host has its own disk and kernel."""
    tests = {name: test for name, of in studies.items() if (test := of.findings_of(crash_test_of_study))}
    table = _losses(
        f"{TITLE} by host",
        [
            (found, [name, title_of(test)] if number == 0 else ["", ""])
            for name, test in tests.items()
            for number, found in enumerate(test.arms)
        ],
        "loss: crashes that lost an acknowledged commit. lost, window: the most in one of them.",
        ["host", "crashes"],
    )
    return replace(table, dispensable=(*table.dispensable, "crashes"))


def _drawn(study: StudyFindings, changes: Mapping[str, Estimate], test: CrashTest) -> Table:
    """Return one row per arm: its change and the share of cuts with a loss, each as a bar."""
    margin = 100 * study.first.study.plan.margin
    reach = reach_of(changes.values(), margin)
    speed, loss = axis(reach), "0" + "100%".rjust(BAR_WIDTH - 1)
    bars = {name: bar_of(change, margin, reach) for name, change in changes.items()}
    rows = [
        [found.arm.name, bars.get(found.arm.name, ""), share_bar(found.cuts_with_loss)] for found in test.arms
    ]
    return Table(
        title=f"Change of {study.first.primary.label}, %, and {PLURAL[test.plan.kind][1]} with a loss",
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


def _picture(study: StudyFindings, changes: Mapping[str, Estimate], test: CrashTest) -> Markup:
    """Return a chart with a point per arm: its change, the share of cuts with a loss (both %), their CIs."""
    metric, kind = study.first.primary.label, PLURAL[test.plan.kind][1]
    ends = [0.0, *(end for change in changes.values() for end in ends_of(change))]
    x = replace(linear(ends, unit="%", title=f"change of {metric}"), grid=True)
    y = Axis(
        0.0, 100.0, [(float(share), f"{share}%") for share in (0, 25, 50, 75, 100)], f"{kind} with a loss"
    )
    marks = [
        Dots([_point(found.arm.name, share, changes.get(found.arm.name))], arm_class(arm), found.arm.name)
        for arm, found in enumerate(test.arms)
        if (share := found.cuts_with_loss) is not None and (arm == 0 or found.arm.name in changes)
    ]
    return plot("Loss against speed", x, y, marks)


def _point(name: str, share: Proportion, change: Estimate | None) -> Point:
    of, at = share_estimate(share), 0.0 if change is None else change.value
    ends = [] if change is None or change.low is None or change.high is None else [change.low, change.high]
    return Point(at, of.value, f"{name}: {share.count} of {share.n}", of.low, of.high, ends)


RESULT = Result(
    "durability", CrashTest | None, "Crash test of the arms.", lambda of: of.findings_of(crash_test_of_study)
)
