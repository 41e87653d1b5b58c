"""A gate in words and as JSON: what tripped it, that nothing did, or what cannot be judged; and the verdicts
as a flat list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pgdyno.analysis.comparison.verdict import Verdict
from pgdyno.analysis.study.gate import Gate, Judged, Tripped, Unjudged, judged
from pgdyno.analysis.study.hosts import HostsFindings
from pgdyno.analysis.study.study import StudyFindings
from pgdyno.estimate import confidence_percent, counted, grouped
from pgdyno.report.tables import change_text

SAID = {
    Verdict.FASTER: "is faster than",
    Verdict.SLOWER: "is slower than",
    Verdict.SAME: "is as fast, within the margin, as",
    Verdict.UNDECIDED: "is undecided against",
}


def sentence(of: Judged) -> str:
    """``clients 8: 18 is slower than 17 (new orders per minute −10.6 %, 95 % interval …, 7 blocks)``."""
    place = f"{of.case}: " if of.case else ""
    return f"{place}{of.arm} {SAID[of.verdict]} {of.baseline} ({size(of)})"


def size(of: Judged) -> str:
    """The change with its interval, where there is one."""
    if of.percent is None:
        return "no block counts"
    if not of.has_interval:
        return f"{of.name} {change_text(of.percent, '%')}, no interval yet"
    interval = f"{confidence_percent(of.percent.confidence)} interval {of.percent.signed_interval_text}"
    return f"{of.name} {of.percent.signed_text}, {interval}"


REASONS_MAX = 10
"""Named one by one; of more it says how many."""


def outcome(of: Gate) -> str:
    """Whether the gate holds, and of how many; and of what it cannot be said."""
    asked = " or ".join(condition.text for condition in of.conditions)
    if of.passes:
        return f"Gate passed: {asked} holds of no comparison."
    unjudged = f"cannot be judged: {_unjudged(of.absent)}." if of.absent else ""
    if not of.holds:
        return f"Gate {unjudged}"
    failed = f"Gate failed: {asked} holds of {counted(len(of.tripped), 'comparison')}."
    return f"{failed} The rest {unjudged}" if unjudged else failed


NO_BLOCK = "no block has a number of it"
SOME_BLOCKS = (
    "in some blocks an arm did nothing that has a number of it, and without them it would be flattered"
)


def _unjudged(absent: Sequence[Unjudged]) -> str:
    """``slower:p99 of 18 against 17 in clients 8: no block has a number of it``, and so on."""
    by_reason: dict[str, list[str]] = {}
    for one in absent[:REASONS_MAX]:
        named = f"{one.condition.text} of {_place(one.of)}" if one.of else one.condition.text
        by_reason.setdefault(_why(one), []).append(named)
    told = "; ".join(f"{', '.join(named)}: {why}" for why, named in by_reason.items())
    rest = len(absent) - REASONS_MAX
    return f"{told}; and {grouped(rest, 0)} more" if rest > 0 else told


def _why(of: Unjudged) -> str:
    return SOME_BLOCKS if of.of and of.of.percent is not None else NO_BLOCK


def _place(of: Judged) -> str:
    pair = f"{of.arm} against {of.baseline}"
    return f"{pair} in {of.case}" if of.case else pair


def reasons(of: Gate) -> list[str]:
    """A sentence for each comparison that trips it, and for each that would have, alone; and how many of the
    trials are in no number.
    """
    found = [f"{one.condition.text}: {sentence(one.of)}." for one in of.tripped] + [
        f"Not counted: {sentence(one.of)}; among {counted(of.family, 'comparison')} that may be chance."
        for one in of.held_back
    ]
    found += [
        f"Not counted: {sentence(one.of)}; it is under the noise floor: arms that are the same show as much."
        for one in of.under_floor
    ]
    rest = len(found) - REASONS_MAX
    told = [*found[:REASONS_MAX], f"And {grouped(rest, 0)} more."] if rest > 0 else found
    if of.lost:
        told.append(
            f"Of {counted(of.trials, 'trial')} {grouped(of.lost, 0)} failed or were excluded: "
            "what the gate says rests on the others alone."
        )
    return told


def verdicts(findings: StudyFindings | HostsFindings) -> list[dict[str, Any]]:
    """Of the primary metric, case by case."""
    return [_judged(of) for of in judged(findings)]


def as_object(of: Gate | None) -> dict[str, Any] | None:
    """For JSON; None where no gate was asked for."""
    if of is None:
        return None
    return {
        "conditions": [condition.text for condition in of.conditions],
        "holds": of.holds,
        "confidence": of.confidence,
        "family": of.family,
        "tripped": _tripped(of.tripped),
        "held_back": _tripped(of.held_back),
        "under_floor": _tripped(of.under_floor),
        "absent": list(dict.fromkeys(one.condition.text for one in of.absent)),
        "unjudged": [
            {"condition": one.condition.text, "why": _why(one), **_judged(one.of)}
            for one in of.absent
            if one.of is not None
        ],
        "trials_lost": of.lost,
    }


def _tripped(found: Sequence[Tripped]) -> list[dict[str, Any]]:
    return [
        {"condition": one.condition.text, "sentence": sentence(one.of), **_judged(one.of)} for one in found
    ]


def _judged(of: Judged) -> dict[str, Any]:
    return {
        "case": of.case,
        "arm": of.arm,
        "baseline": of.baseline,
        "metric": of.metric,
        "verdict": of.verdict,
        "percent": None if of.percent is None else asdict(of.percent),
        "p_value": of.p_value,
    }
