"""Report of a crash test: tables, one sentence per arm, and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pgdyno.analysis.findings.crash_findings import CrashFindings
from pgdyno.analysis.statistics.exact_interval import MedianInterval, Proportion
from pgdyno.estimate import ABSENT, Better, Estimate, group_digits, share_text, significant
from pgdyno.report.result_tables import Table
from pgdyno.results.crash_records import Crash, CrashArm, CrashTestRecord
from pgdyno.results.records import Json
from pgdyno.study.crash_plan import CrashKind, CrashMoment, CrashPlan, DiskBehavior, FileSystem, StandbyCrash
from pgdyno.units import format_duration, format_size

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
