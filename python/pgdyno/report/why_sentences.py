"""The sentences on why an arm is faster or slower, and the names of the parts of the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pgdyno.analysis.causes import time_breakdown as of
from pgdyno.analysis.causes.time_breakdown import Part, Waterfall, Why
from pgdyno.analysis.comparison.verdict import BLOCKS_MIN, Verdict
from pgdyno.analysis.telemetry.client_time import CLIENT
from pgdyno.estimate import NO_BREAK, Estimate, ci_text, counted, grouped, share_text, with_unit
from pgdyno.report.tables import listed

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
    of.READY: "runnable (waiting for CPU)",
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
    of.READY: "time waiting for CPU (runnable)",
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


def sentences(why: Why, verdict: Verdict) -> list[str]:
    """Return sentences on the significant parts; an undecided verdict gets one sentence."""
    either = why.by_resource or why.by_statement
    assert either is not None
    whole = either.whole
    if whole.difference.n < BLOCKS_MIN:
        return []
    if verdict is Verdict.UNDECIDED:
        return [_of_undecided(why, whole)]
    said = [_of_whole(why, whole)]
    if why.by_statement:
        said.append(_of_statements(why.by_statement))
    if why.by_resource:
        said.append(_of_resources(why.by_resource))
    if said[1:] == [""] * len(said[1:]):
        return [f"{said[0]} {NO_PART}"]
    return [sentence for sentence in said if sentence]


def _of_undecided(why: Why, whole: Part) -> str:
    """Return the sentence of an undecided verdict; its CI may exclude 0 while below the noise floor."""
    either = [part for of in (why.by_statement, why.by_resource) if of for part in of.parts]
    marked = any(part.significant for part in either)
    return (
        f"The time breakdown is inconclusive, too: {_what(why)} differs by "
        f"{whole.difference.signed_text} ({_basis(whole, signed=True)}). "
        f"{'The table shows which parts differ.' if marked else NO_PART}"
    )


NO_PART = "No part differs significantly."


def _what(why: Why) -> str:
    return "the mean latency" if why.latency else "the time per transaction"


def _basis(whole: Part, *, signed: bool = False) -> str:
    change = whole.difference
    within = change.signed_interval_text
    if not signed and whole.significant and change.low is not None and change.high is not None:
        # "Less" says the sign already.
        within = with_unit((change if change.value > 0 else _negated(change)).interval_text, change.unit)
    return f"{ci_text(change.confidence)} {within}, {counted(change.n, 'block')}"


def _negated(change: Estimate) -> Estimate:
    assert change.low is not None and change.high is not None
    return replace(change, value=-change.value, low=-change.high, high=-change.low)


def _of_whole(why: Why, whole: Part) -> str:
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
    parts = [part for part in _named(waterfall) if part.key != of.UNEXPLAINED]
    unexplained = [part for part in waterfall.parts if part.key == of.UNEXPLAINED and part.significant]
    said = f"By resource: {_listed(parts)}." if parts else ""
    if unexplained:
        said = f"{said} {_size(unexplained[0])} {_more_or_less(unexplained[0])} are unattributed.".strip()
    return said


def _named(waterfall: Waterfall) -> list[Part]:
    """Return the significant parts, largest change first."""
    found = [part for part in waterfall.parts if part.significant]
    largest = max((abs(part.difference.value) for part in found), default=0.0)
    told = [part for part in found if abs(part.difference.value) >= NAMED_SHARE_MIN * largest]
    return sorted(told, key=lambda part: -abs(part.difference.value))[:NAMED_MAX]


def _listed(parts: Sequence[Part]) -> str:
    return listed([f"{_size(part)} {_more_or_less(part)} {_in_sentence(part.key)}" for part in parts])


def _in_sentence(key: str) -> str:
    if key.startswith(f"{of.STATEMENT}:"):
        return f"in “{short(key.partition(':')[2], TEXT_IN_SENTENCE_MAX)}”"
    if key in IN_SENTENCES:
        return IN_SENTENCES[key]
    return NAMES[key] if key == of.OUTSIDE else f"in {NAMES[key]}"


def _size(part: Part) -> str:
    return f"{grouped(abs(part.difference.value), _decimals(part))}{NO_BREAK}µs"


def _decimals(part: Part) -> int:
    return min(2, part.difference.decimals)


def _more_or_less(part: Part) -> str:
    return "less" if part.difference.value < 0 else "more"


def short(text: str, length: int = TEXT_MAX) -> str:
    """Return a statement, shortened to ``length``."""
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"


def name_of(key: str, length: int = TEXT_MAX) -> str:
    """Return the name of a part in tables and charts."""
    kind, _, text = key.partition(":")
    return short(text, length) if kind == of.STATEMENT else NAMES[key]
