"""Sentences and tables on why an arm is faster or slower, from ``causes/time_breakdown.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pgdyno.analysis.causes import time_breakdown as of
from pgdyno.analysis.causes.time_breakdown import TimeBreakdown, TimePart, Waterfall
from pgdyno.analysis.comparison.verdict import Verdict
from pgdyno.analysis.findings.case_findings import Findings
from pgdyno.analysis.telemetry.wait_event_resources import CLIENT
from pgdyno.estimate import (
    ABSENT,
    NO_BREAK,
    Estimate,
    ci_text,
    counted,
    decimals_of,
    group_digits,
    share_text,
    with_unit,
)
from pgdyno.report.result_tables import NAME_IN_HEAD_MAX, Table, enumeration, with_interval
from pgdyno.study.stopping_rule import VERDICT_BLOCKS_MIN

TEXT_MAX = 64
TEXT_IN_SENTENCE_MAX = 40
"""Maximum length of a statement in tables and charts, and in sentences; the JSON has the whole text."""

NAMED_MAX = 3
"""Maximum number of parts in a sentence, largest change first. The table has all."""

NAMED_SHARE_MIN = 0.05
"""Smallest change that a sentence names, as a share of the largest change."""

NAMES: Mapping[str, str] = {
    of.OTHER_STATEMENTS: "other statements",
    of.PLANNING: "planning",
    of.OUTSIDE: "outside statements",
    of.CPU: "on CPU",
    of.RUNNABLE: "runnable (waiting for CPU)",
    of.EXECUTING: "executing or runnable",
    "wal": "WAL write/sync",
    "io": "data file I/O",
    "lock": "heavyweight locks",
    "lwlock": "LWLocks",
    "ipc": "IPC (other server processes)",
    "sleep": "sleep (timeouts)",
    "other": "other waits",
    CLIENT: "client and network",
    of.DRIVER: "driver on CPU",
    of.LAG: "schedule lag (waiting for a free client)",
    of.UNEXPLAINED: "unattributed",
    of.UNKNOWN: "not sampled",
    of.REMAINDER: "client, network, unattributed",
}
"""Names of the parts in tables, in their order."""

IN_SENTENCES: Mapping[str, str] = {
    of.CPU: "server CPU time",
    of.EXECUTING: "time executing or runnable",
    "wal": "WAL write/sync time",
    "io": "data file I/O time",
    "lock": "waits for heavyweight locks",
    "lwlock": "LWLock waits",
    "ipc": "IPC waits",
    "sleep": "sleep",
    "other": "other waits",
    CLIENT: "client and network time",
    of.DRIVER: "driver CPU time",
    of.LAG: "schedule lag",
    of.UNKNOWN: "time not sampled",
    of.REMAINDER: "client, network and unattributed time",
}


def why_sentences(why: TimeBreakdown, verdict: Verdict) -> list[str]:
    """Return sentences on the significant parts; an undecided verdict gets one sentence."""
    either = why.by_resource or why.by_statement
    assert either is not None
    whole = either.total
    if whole.difference.n < VERDICT_BLOCKS_MIN:
        return []
    if verdict is Verdict.UNDECIDED:
        return [_of_undecided(why, whole)]
    found = [_of_whole(why, whole)]
    if why.by_statement:
        found.append(_of_statements(why.by_statement))
    if why.by_resource:
        found.append(_of_resources(why.by_resource))
    if found[1:] == [""] * len(found[1:]):
        return [f"{found[0]} {NO_PART}"]
    if whole.significant:
        shares = [_attributed(waterfall) for waterfall in (why.by_statement, why.by_resource) if waterfall]
        if (most := max(shares)) < ATTRIBUTED_SHARE_MIN:
            found.append(f"These parts are {share_text(most)} of the difference; the rest is not attributed.")
    return [sentence for sentence in found if sentence]


ATTRIBUTED_SHARE_MIN = 0.5
"""Share of the difference below which the sentences say that the named parts do not explain it."""


def _attributed(waterfall: Waterfall) -> float:
    """Return the named parts as a share of the whole difference, 0 if they have the opposite sign."""
    named = sum(part.difference.value for part in _named(waterfall))
    return max(0.0, named / waterfall.total.difference.value)


def _of_undecided(why: TimeBreakdown, whole: TimePart) -> str:
    """Return the sentence of an undecided verdict; its CI may exclude 0 while below the noise floor."""
    either = [part for of in (why.by_statement, why.by_resource) if of for part in of.parts]
    marked = any(part.significant for part in either)
    arms = f"{why.arm.name} vs. {why.baseline.name}"
    return (
        f"The time breakdown of {arms} is inconclusive, too: {_what(why)} differs by "
        f"{whole.difference.signed_text} ({_basis(whole, signed=True)}). "
        f"{'Some of its parts differ significantly.' if marked else NO_PART}"
    )


NO_PART = "No part differs significantly."


def _what(why: TimeBreakdown) -> str:
    return "the mean latency" if why.latency else "the time per transaction"


def _basis(whole: TimePart, *, signed: bool = False) -> str:
    change = whole.difference
    within = change.signed_interval_text
    if not signed and whole.significant and change.low is not None and change.high is not None:
        # The word "less" contains the sign.
        within = with_unit((change if change.value > 0 else _negated(change)).interval_text, change.unit)
    return f"{ci_text(change.confidence)} {within}, {counted(change.n, 'block')}"


def _negated(change: Estimate) -> Estimate:
    assert change.low is not None and change.high is not None
    return replace(change, value=-change.value, low=-change.high, high=-change.low)


def _of_whole(why: TimeBreakdown, whole: TimePart) -> str:
    a, b, change = why.baseline.name, why.arm.name, whole.difference
    basis, what = _basis(whole), _what(why)
    if not whole.significant:
        return f"No significant difference in {what} between {b} and {a}: {change.signed_text} ({basis})."
    size = f"{_size(whole)} ({share_text(abs(change.value) / whole.a_us)}) {_more_or_less(whole)}"
    return f"{b} needs {size} per transaction than {a} ({basis})."


def _of_statements(waterfall: Waterfall) -> str:
    parts = _named(waterfall)
    if not parts:
        return ""
    return f"By statement: {_listed(parts)}."


def _of_resources(waterfall: Waterfall) -> str:
    parts = _named(waterfall)
    text = f"By resource: {_listed(parts)}." if parts else ""
    for part in waterfall.parts:
        if part.key in NOT_CAUSES and part.significant:
            text = f"{text} {_size(part)} {_more_or_less(part)} {NOT_CAUSES[part.key]}".strip()
    return text


NOT_CAUSES: Mapping[str, str] = {
    of.RUNNABLE: "are queueing for CPU (runnable), which is a consequence and not a cause.",
    of.UNEXPLAINED: "are unattributed.",
}
"""Parts that are not among the named ones. A process queues for a CPU after any wait, as long as other
processes are on it: without the wait, or with less CPU time of all, it queues less."""


def _named(waterfall: Waterfall) -> list[TimePart]:
    """Return the significant parts except NOT_CAUSES, largest change first."""
    found = [part for part in waterfall.parts if part.significant and part.key not in NOT_CAUSES]
    largest = max((abs(part.difference.value) for part in found), default=0.0)
    shown = [part for part in found if abs(part.difference.value) >= NAMED_SHARE_MIN * largest]
    return sorted(shown, key=lambda part: -abs(part.difference.value))[:NAMED_MAX]


def _listed(parts: Sequence[TimePart]) -> str:
    return enumeration([f"{_size(part)} {_more_or_less(part)} {_in_sentence(part.key)}" for part in parts])


def _in_sentence(key: str) -> str:
    if key.startswith(f"{of.STATEMENT}:"):
        return f"in “{short(key.partition(':')[2], TEXT_IN_SENTENCE_MAX)}”"
    if key in IN_SENTENCES:
        return IN_SENTENCES[key]
    return NAMES[key] if key == of.OUTSIDE else f"in {NAMES[key]}"


def _size(part: TimePart) -> str:
    return f"{group_digits(abs(part.difference.value), _decimals(part))}{NO_BREAK}µs"


def _decimals(part: TimePart) -> int:
    return min(2, part.difference.decimals)


def _more_or_less(part: TimePart) -> str:
    return "less" if part.difference.value < 0 else "more"


def short(text: str, length: int = TEXT_MAX) -> str:
    """Return a statement, shortened to ``length``."""
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"


def part_name(key: str, length: int = TEXT_MAX) -> str:
    """Return the name of a part in tables and charts."""
    kind, _, text = key.partition(":")
    return short(text, length) if kind == of.STATEMENT else NAMES[key]


@dataclass(frozen=True)
class WhyReport:
    """One arm: sentences for the top of the report, and a table for each breakdown of the time."""

    why: TimeBreakdown
    sentences: Sequence[str]
    tables: Sequence[Table]


def why_reports(findings: Findings) -> list[WhyReport]:
    """Return a report for each arm with data from the probes."""
    verdicts = {of.arm.arm: of.verdict for of in findings.comparisons}
    return [
        WhyReport(
            one,
            why_sentences(one, verdicts[arm]),
            tables(one, findings),
        )
        for arm, one in findings.time_breakdowns.items()
        if one.by_statement or one.by_resource
    ]


def tables(why: TimeBreakdown, findings: Findings) -> list[Table]:
    """Return the breakdowns of the time by resource and by statement."""
    several = f", {why.arm.name}" if len(findings.arms) > 2 else ""
    found = []
    for title, waterfall, note in (
        ("by resource", why.by_resource, _note_on_resources(why, _server_clock(why, findings))),
        ("by statement", why.by_statement, _note_on_statements(why)),
    ):
        if waterfall is not None:
            head = f"Time per transaction {title}{several}, µs"
            found.append(_table(head, why, waterfall, note))
    return found


def _table(title: str, why: TimeBreakdown, waterfall: Waterfall, note: str) -> Table:
    whole = "mean latency" if why.latency else "whole"
    names = (("A", why.baseline.name), ("B", why.arm.name))
    heads = [f"{of}: {name}" if len(name) <= NAME_IN_HEAD_MAX else of for of, name in names]
    full_names = [f"{of} is {name}." for of, name in names if len(name) > NAME_IN_HEAD_MAX]
    columns = ("part", *heads, "B − A")
    rows = [_row(whole, waterfall.total)]
    rows += [_row(part_name(part.key), part) for part in in_order(waterfall)]
    return Table(
        f"{title} (lower is better)",
        columns,
        rows,
        " ".join([*full_names, note]),
        frozenset(columns[1:]),
        dispensable=columns[1:3],
        breaks_first=True,
    )


def in_order(waterfall: Waterfall) -> list[TimePart]:
    """Return resources in the order of NAMES, after the statements in descending order of time."""
    place = {key: i for i, key in enumerate(NAMES)}
    return sorted(waterfall.parts, key=lambda part: (place.get(part.key, -1), -max(part.a_us, part.b_us)))


def _row(name: str, part: TimePart) -> list[str]:
    if not any(part.by_block.values()) and part.a_us == part.b_us == 0:
        return [name, "0", "0", "0"]
    mark = " *" if part.significant else ""
    return [
        name,
        _level(part.a_us),
        _level(part.b_us),
        with_interval(part.difference, part.difference.confidence) + mark,
    ]


def _level(us: float) -> str:
    return ABSENT if us == 0 else group_digits(us, min(2, decimals_of(us, 3)))


WAL_CLOCK = ("wal.write_us_per_tx", "wal.sync_us_per_tx")
"""Metrics of WAL writes and syncs by the clock of the server (track_wal_io_timing)."""


def _server_clock(why: TimeBreakdown, findings: Findings) -> str:
    """Return a sentence with the server's own WAL times, which differ from the sampled waits."""
    known = {
        arm.name: [level.value for key in WAL_CLOCK if (level := findings.telemetry.levels[arm.arm].get(key))]
        for arm in (why.baseline, why.arm)
    }
    if not all(sum(us) for us in known.values()):
        return ""
    times = enumeration([f"{_level(sum(us))}{NO_BREAK}µs ({name})" for name, us in known.items()])
    return (
        f"By the clock of the server, WAL writes and syncs took {times} per transaction. It counts a sync "
        "once for all transactions that wait for it, and includes background processes. The sampled wait "
        "counts every waiting transaction."
    )


def _note_on_resources(why: TimeBreakdown, server_clock: str) -> str:
    said = [_significant(why)]
    if _has_queue(why):
        said.append(_QUEUE)
    if server_clock:
        said.append(server_clock)
    if why.cpu_is_of_all:
        said.append("CPU time includes all server processes, because that of client backends is unknown.")
    if why.samples:
        samples = counted(round(why.samples), "sample")
        if why.scaled is None:
            said.append(f"Wait shares come from {samples} of pg_stat_activity.")
        else:
            said.append(
                f"Wait shares come from {samples} of pg_stat_activity and are scaled by "
                f"{group_digits(why.scaled, 2)} to match the kernel's measured wait time (a woken backend "
                "still shows its wait event until it gets a CPU)."
            )
    if any(_negative(part) for part in why.by_resource.parts) if why.by_resource else False:
        said.append(_TOO_MUCH)
    return " ".join(said)


def _note_on_statements(why: TimeBreakdown) -> str:
    said = [
        _significant(why),
        "Outside statements: parsing, commit and its WAL, protocol, network, driver.",
    ]
    if any(_negative(part) for part in why.by_statement.parts) if why.by_statement else False:
        said.append(_TOO_MUCH)
    if why.twice:
        said.append(
            f"{enumeration(list(why.twice))}: statements inside functions are counted twice, because "
            "pg_stat_statements before 14 does not distinguish them."
        )
    return " ".join(said)


_SIGNIFICANT = "*: significant; the CIs are corrected for all parts (Holm). The parts add up to the whole."
_SCALED = "Levels are as measured; B − A is scaled to the same speed of the machine in all blocks."
_QUEUE = "Runnable processes queue for a CPU after any wait: a consequence of the other parts, not a cause."
_TOO_MUCH = "A negative residual means that the measured parts exceed the whole by that amount."


def _significant(why: TimeBreakdown) -> str:
    return _SIGNIFICANT if why.latency else f"{_SIGNIFICANT} {_SCALED}"


def _has_queue(why: TimeBreakdown) -> bool:
    return why.by_resource is not None and any(part.key == of.RUNNABLE for part in why.by_resource.parts)


def _negative(part: TimePart) -> bool:
    return part.a_us < 0 or part.b_us < 0
