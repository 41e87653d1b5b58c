"""The sentences that say why an arm is faster or slower, and the names of the parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pgdyno.analysis.causes import parts_of_time as of
from pgdyno.analysis.causes.why import Part, Waterfall, Why
from pgdyno.analysis.comparison.verdict import BLOCKS_MIN, Verdict
from pgdyno.analysis.telemetry.client_time import CLIENT
from pgdyno.estimate import NO_BREAK, Estimate, confidence_percent, counted, grouped, share_text
from pgdyno.report.tables import listed

TEXT_MAX = 64
TEXT_IN_SENTENCE_MAX = 40
"""Of a statement in a table or picture, and in a sentence; the JSON has all of it."""

NAMED_MAX = 3
"""Parts that a sentence names: those that change most. The table has all."""

NAMED_SHARE_MIN = 0.05
"""Of the largest of them: what is surely there but hardly counts is left to the table."""

NAMES: Mapping[str, str] = {
    of.OTHER_STATEMENTS: "other statements",
    of.PLANNING: "planning",
    of.OUTSIDE: "outside of statements",
    of.CPU: "server on a CPU",
    of.READY: "server ready, no CPU free",
    of.EXECUTING: "server executing or ready to",
    "wal": "waiting: WAL to disk",
    "io": "waiting: blocks read and written",
    "lock": "waiting: locks",
    "lwlock": "waiting: inner locks",
    "ipc": "waiting: other server processes",
    "sleep": "waiting: sleep",
    "other": "waiting: else",
    CLIENT: "driver and network, waiting",
    of.DRIVER: "driver on a CPU",
    of.LAG: "waiting for a free client",
    of.UNEXPLAINED: "unexplained",
    of.UNKNOWN: "not looked at",
    of.REMAINDER: "driver, network, unexplained",
}
"""The parts as tables have them, in the order in which they are told."""

IN_SENTENCES: Mapping[str, str] = {
    of.CPU: "the server's CPU time",
    of.READY: "waiting for a free CPU",
    of.EXECUTING: "executing, or waiting for a free CPU",
    "wal": "waiting for the WAL to be on disk",
    "io": "reading and writing blocks",
    "lock": "waiting for locks",
    "lwlock": "waiting for inner locks",
    "ipc": "waiting for other server processes",
    "sleep": "sleeping",
    "other": "other waits",
    CLIENT: "waiting for driver and network",
    of.DRIVER: "the driver's CPU time",
    of.LAG: "waiting for a free client",
    of.UNKNOWN: "what was not looked at",
    of.REMAINDER: "driver, network and what is unexplained",
}


def sentences(why: Why, verdict: Verdict) -> list[str]:
    """What is beyond the noise, and nothing else; no more than the verdict on the arm says."""
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
    """Of the whole as of the verdict. The interval may leave 0 out: the machine's own noise may be more."""
    either = [part for of in (why.by_statement, why.by_resource) if of for part in of.parts]
    marked = any(part.significant for part in either)
    return (
        f"Where the time goes does not decide it either: {_what(why)} differs by "
        f"{whole.difference.signed_text} ({_basis(whole)}). "
        f"{'What differs in its parts is in the table.' if marked else NO_PART}"
    )


NO_PART = "No part of it differs beyond the noise."


def _what(why: Why) -> str:
    return "the mean latency" if why.latency else "the time per transaction"


def _basis(whole: Part) -> str:
    change = whole.difference
    within = change.signed_interval_text
    if whole.significant and change.low is not None and change.high is not None:
        # "Less" says the sign already.
        within = (change if change.value > 0 else _negated(change)).interval_text + f"{NO_BREAK}{change.unit}"
    return f"{confidence_percent(change.confidence)} interval {within}, {counted(change.n, 'block')}"


def _negated(change: Estimate) -> Estimate:
    assert change.low is not None and change.high is not None
    return replace(change, value=-change.value, low=-change.high, high=-change.low)


def _of_whole(why: Why, whole: Part) -> str:
    a, b, change = why.baseline.name, why.arm.name, whole.difference
    basis, what = _basis(whole), _what(why)
    if not whole.significant:
        return f"{b} and {a} do not differ in {what} beyond the noise: {change.signed_text} ({basis})."
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
        said = f"{said} {_size(unexplained[0])} {_more_or_less(unexplained[0])} are unexplained.".strip()
    return said


def _named(waterfall: Waterfall) -> list[Part]:
    """The significant parts, those that change most first."""
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
        return f"in {IN_SENTENCES[key]}" if key in _PLACES else f"of {IN_SENTENCES[key]}"
    return NAMES[key] if key == of.OUTSIDE else f"in {NAMES[key]}"


_PLACES = {of.REMAINDER, of.UNKNOWN, "other"}


def _size(part: Part) -> str:
    return f"{grouped(abs(part.difference.value), _decimals(part))}{NO_BREAK}µs"


def _decimals(part: Part) -> int:
    return min(2, part.difference.decimals)


def _more_or_less(part: Part) -> str:
    return "less" if part.difference.value < 0 else "more"


def short(text: str, length: int = TEXT_MAX) -> str:
    """A statement, so that it can be told from others."""
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"


def name_of(key: str, length: int = TEXT_MAX) -> str:
    """Of a part, in tables and pictures."""
    kind, _, text = key.partition(":")
    return short(text, length) if kind == of.STATEMENT else NAMES[key]
