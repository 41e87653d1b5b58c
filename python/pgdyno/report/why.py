"""Why an arm is faster or slower, in words and tables: ``analysis/why.py`` has the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgdyno.analysis import why as of
from pgdyno.analysis.client_time import CLIENT
from pgdyno.analysis.findings import Findings
from pgdyno.analysis.verdict import BLOCKS_MIN
from pgdyno.analysis.why import Part, Waterfall, Why
from pgdyno.estimate import ABSENT, NO_BREAK, counted, decimals_of, given_percent, grouped, share_text
from pgdyno.report.tables import Table, listed, with_interval

TEXT_MAX = 64
TEXT_IN_SENTENCE_MAX = 40
"""Of a statement in a table or picture, and in a sentence; the JSON has all of it."""

NAMED_MAX = 3
"""Parts that a sentence names: those that change most. The table has all."""

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


@dataclass(frozen=True)
class WhyReport:
    """Of one arm: sentences for the top of the report, and a table for each decomposition."""

    why: Why
    sentences: Sequence[str]
    tables: Sequence[Table]


def build(findings: Findings) -> list[WhyReport]:
    """An arm after the other; nothing where the probes told nothing of it."""
    return [
        WhyReport(one, sentences(one, findings.study.plan.confidence), tables(one, findings))
        for one in findings.why.values()
        if one.by_statement or one.by_resource
    ]


def sentences(why: Why, confidence: float) -> list[str]:
    """What is beyond the noise, and nothing else."""
    either = why.by_resource or why.by_statement
    assert either is not None
    whole = either.whole
    if whole.difference.n < BLOCKS_MIN:
        return []
    said = [_of_whole(why, whole, confidence)]
    if why.by_statement:
        said.append(_of_statements(why.by_statement))
    if why.by_resource:
        said.append(_of_resources(why.by_resource))
    if said[1:] == [""] * len(said[1:]):
        return [f"{said[0]} No part of it differs beyond the noise."]
    return [sentence for sentence in said if sentence]


def _of_whole(why: Why, whole: Part, confidence: float) -> str:
    a, b, change = why.baseline.name, why.arm.name, whole.difference
    interval = f"{given_percent(confidence)} interval {change.signed_interval_text}"
    basis = f"{interval}, {counted(change.n, 'block')}"
    what = "the mean latency" if why.latency else "the time per transaction"
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
    return sorted(found, key=lambda part: -abs(part.difference.value))[:NAMED_MAX]


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


def name_of(key: str) -> str:
    """Of a part, in tables and pictures."""
    kind, _, text = key.partition(":")
    return short(text) if kind == of.STATEMENT else NAMES[key]


def tables(why: Why, findings: Findings) -> list[Table]:
    """By statement and by resource."""
    several = f", {why.arm.name}" if len(findings.arms) > 2 else ""
    found = []
    for title, waterfall, note in (
        ("by resource", why.by_resource, _note_on_resources(why)),
        ("by statement", why.by_statement, _note_on_statements(why)),
    ):
        if waterfall is not None:
            found.append(
                _table(f"Where the time goes, {title}{several}: µs per transaction", why, waterfall, note)
            )
    return found


def _table(title: str, why: Why, waterfall: Waterfall, note: str) -> Table:
    whole = "mean latency" if why.latency else "whole"
    columns = ("part", f"A: {why.baseline.name}", f"B: {why.arm.name}", "B − A")
    rows = [_row(whole, waterfall.whole)]
    rows += [_row(name_of(part.key), part) for part in in_order(waterfall)]
    return Table(
        f"{title} (less is better)",
        columns,
        rows,
        note,
        frozenset(columns[1:]),
        dispensable=columns[1:3],
    )


def in_order(waterfall: Waterfall) -> list[Part]:
    """Resources as NAMES has them; statements first, those with the most time before the others."""
    place = {key: i for i, key in enumerate(NAMES)}
    return sorted(waterfall.parts, key=lambda part: (place.get(part.key, -1), -max(part.a_us, part.b_us)))


def _row(name: str, part: Part) -> list[str]:
    mark = " *" if part.significant else ""
    return [
        name,
        _level(part.a_us),
        _level(part.b_us),
        with_interval(part.difference, part.difference.confidence) + mark,
    ]


def _level(us: float) -> str:
    return ABSENT if us == 0 else grouped(us, min(2, decimals_of(us, 3)))


def _note_on_resources(why: Why) -> str:
    said = ["*: beyond the noise; the intervals are Holm's over the parts, which add up to the whole."]
    if why.cpu_is_of_all:
        said.append("CPU time is that of all processes of the server, for that of the clients' is not known.")
    if why.looks:
        said.append(f"Waits are known by {counted(round(why.looks), 'look')} at the servers' processes.")
    if any(_negative(part) for part in why.by_resource.parts) if why.by_resource else False:
        said.append(_TOO_MUCH)
    if why.scaled is not None:
        said.append(
            "The looks found more waiting than the kernel, for what has been woken looks so until it has a "
            f"CPU: waits, the client's among them, are multiplied by {grouped(why.scaled, 2)}."
        )
    return " ".join(said)


def _note_on_statements(why: Why) -> str:
    said = [
        "*: beyond the noise; the intervals are Holm's over the parts, which add up to the whole.",
        "Outside of statements: parsing, commit and its WAL, protocol, network, driver.",
    ]
    if any(_negative(part) for part in why.by_statement.parts) if why.by_statement else False:
        said.append(_TOO_MUCH)
    if why.twice:
        said.append(
            f"Of {listed(list(why.twice))} statements inside of functions are counted twice: before 14 "
            "pg_stat_statements does not tell them apart."
        )
    return " ".join(said)


_TOO_MUCH = "What was measured of the parts is more than the whole: the part below zero says by how much."


def _negative(part: Part) -> bool:
    return part.a_us < 0 or part.b_us < 0


def as_object(why: Why) -> dict[str, object]:
    """For JSON."""
    return {
        "whole_is": "mean latency" if why.latency else "clients × time / transactions",
        "unit": "µs per transaction",
        "by_resource": _waterfall_object(why.by_resource),
        "by_statement": _waterfall_object(why.by_statement),
        "looks": why.looks,
        "waits_multiplied_by": why.scaled,
        "cpu_of_all_processes": why.cpu_is_of_all,
        "nested_statements_counted_twice": list(why.twice),
    }


def _waterfall_object(waterfall: Waterfall | None) -> dict[str, object] | None:
    if waterfall is None:
        return None
    return {
        "whole": _part_object(waterfall.whole),
        "parts": {part.key: _part_object(part) for part in in_order(waterfall)},
    }


def _part_object(part: Part) -> dict[str, object]:
    change = part.difference
    return {
        "a": part.a_us,
        "b": part.b_us,
        "difference": change.value,
        "low": change.low,
        "high": change.high,
        "confidence": change.confidence,
        "n": change.n,
        "p_value": part.p_value,
        "significant": part.significant,
        "by_block": {str(block): us for block, us in part.by_block.items()},
    }
