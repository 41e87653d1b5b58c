"""Sentences and JSON of a search for the commit that changed the performance."""

from __future__ import annotations

import math
import shlex
from typing import Any

from pgdyno.analysis.statistics.effect import percent_of
from pgdyno.estimate import Better, Estimate, ci_text, counted, given_percent, share_text
from pgdyno.results.search_file import Confirmation, Ends, Measured, SearchRecord, Step
from pgdyno.study.commit_search import Outcome
from pgdyno.units import format_duration


def effect_of(measured: Measured) -> Estimate | None:
    """Return the effect in percent of the baseline; None without a block."""
    if measured.mean is None:
        return None
    return Estimate(
        value=percent_of(measured.mean),
        unit="%",
        n=measured.blocks,
        better=Better.MORE,
        low=None if measured.low is None else percent_of(measured.low),
        high=None if measured.high is None else percent_of(measured.high),
        confidence=measured.confidence,
    )


def effect_text(measured: Measured | None) -> str:
    """Return ``−4.8% (99.3% CI [−6.0%, −3.6%], 8 blocks)``, or "no block" in words."""
    effect = None if measured is None else effect_of(measured)
    if effect is None:
        return "no valid block"
    blocks = counted(effect.n, "block")
    if effect.low is None:
        return f"{effect.signed_text} ({blocks})"
    return f"{effect.signed_text} ({ci_text(effect.confidence)} {effect.signed_interval_text}, {blocks})"


def is_conclusive(record: SearchRecord) -> bool:
    """Return whether the search found one commit, and its effect was confirmed."""
    if record.ends is not Ends.DIFFERENT or not record.search.is_found:
        return False
    return record.last == 1 or record.confirmation is Confirmation.CONFIRMED


def sentences(record: SearchRecord, folder: str) -> list[str]:
    """Return the result of the search, one sentence or list item per line."""
    more = f"pgdyno bisect --resume {shlex.quote(folder)} --minutes 60"
    good, bad = record.commits[0], record.commits[-1]
    ends = f"BAD {bad.short} vs. GOOD {good.short}: {effect_text(record.ends_measured)}."
    if record.ends is not Ends.DIFFERENT:
        return [ends, _no_ends(record, more)]
    return [*_found(record, more), ends, *_confirmation(record, more), *_limits(record)]


def _no_ends(record: SearchRecord, more: str) -> str:
    if record.ends is Ends.SAME:
        return (
            f"GOOD and BAD are the same within ±{given_percent(record.study.margin)}, so there is no commit "
            "to find. To search for a smaller effect, start again with a smaller --margin."
        )
    reason = f" ({record.ends_reason})" if record.ends_reason else ""
    return f"It is undecided whether GOOD and BAD differ{reason}. To continue: {more}"


def _found(record: SearchRecord, more: str) -> list[str]:
    search, commits = record.search, record.commits
    if search.is_found:
        return [
            f"First {direction(record)} commit: {commits[search.bad].sha} {commits[search.bad].subject!r}"
        ]
    listed = [f"  {commits[number].title}" for number in range(search.good + 1, search.bad + 1)]
    if len(listed) > LISTED_MAX:
        listed[LISTED_MAX - 2 : -1] = [f"  … {len(listed) - LISTED_MAX + 1} more …"]
    number = counted(search.bad - search.good, "commit")
    lines = [f"The first {direction(record)} commit is one of {number}:", *listed]
    if (step := record.undecided) is not None:
        lines.append(f"Commit {commits[step.commit].title} is undecided: {effect_text(step.measured)}.")
        lines.append(f"Reason: {step.reason}. To continue: {more}")
    else:
        lines.append("The commits between them were skipped.")
    return lines


LISTED_MAX = 20
"""Maximum number of commits of a range that are listed. The range has its ends in any case."""


def direction(record: SearchRecord) -> str:
    """Return ``slower`` or ``faster``: BAD against GOOD."""
    return "slower" if (record.reference or 0) < 0 else "faster"


def _confirmation(record: SearchRecord, more: str) -> list[str]:
    search = record.search
    if not search.is_found or record.last == 1:
        return []
    if record.confirmation is None:
        return [f"It was not yet compared with its parent. To continue: {more}"]
    commit, parent = (record.commits[number].short for number in (search.bad, search.good))
    words = f"Confirmation, {commit} vs. its parent {parent}: {effect_text(record.confirmation_measured)}."
    if record.confirmation is Confirmation.CONFIRMED:
        return [words, *_part(record)]
    if record.confirmation is Confirmation.UNDECIDED:
        return [words, f"It is undecided whether this commit changes the performance. To continue: {more}"]
    return [
        words,
        "The commit has less than half of the effect between the ends, or none. Several commits may have a "
        "part of it, or a step was wrong.",
    ]


def _part(record: SearchRecord) -> list[str]:
    """Say so if the commit has only a part of the effect between the ends."""
    found, ends = record.confirmation_measured, record.ends_measured
    if found is None or ends is None or found.mean is None or not ends.mean:
        return []
    limits = [end for end in (found.low, found.high) if end is not None]
    # The reference is the smallest effect between the ends that is not excluded.
    if record.reference is None or not limits or max(map(abs, limits)) >= abs(record.reference):
        return []
    share = share_text(found.mean / ends.mean)
    return [f"This is about {share} of the effect between the ends: other commits have a part of it."]


def _limits(record: SearchRecord) -> list[str]:
    skipped = [step for step in record.steps if step.outcome is Outcome.SKIPPED]
    tests = 1 + sum(step.level > 0 for step in record.steps)
    lines = [
        f"Error bound: the probability of a wrong step is at most {share_text(record.level_spent)} "
        f"({counted(tests, 'comparison')}), if the effect has one cause.",
        f"Time: {format_duration(record.spent_s)} of blocks.",
    ]
    if skipped:
        lines.append(f"Skipped: {counted(len(skipped), 'commit')}.")
        lines += [f"  {record.commits[step.commit].title}: {step.reason}" for step in skipped]
    return lines


def bisect_json(record: SearchRecord, folder: str) -> dict[str, Any]:
    """Return the document of ``--json``."""
    search = record.search
    is_found = record.ends is Ends.DIFFERENT and search.is_found
    commits = record.commits

    def named(number: int) -> dict[str, str]:
        return commits[number].model_dump()

    return {
        "repository": record.repository,
        "directory": folder,
        "good": named(0),
        "bad": named(record.last),
        "commits": record.last,
        "ends": {"result": record.ends, "effect": _effect_json(record.ends_measured)},
        "direction": direction(record) if record.ends is Ends.DIFFERENT else None,
        "found": named(search.bad) if is_found else None,
        "range": [named(search.good), named(search.bad)] if record.ends is Ends.DIFFERENT else None,
        "confirmation": {
            "result": record.confirmation,
            "effect": _effect_json(record.confirmation_measured),
        },
        "conclusive": is_conclusive(record),
        "wrong_step_probability_max": record.level_spent,
        "minutes": record.spent_s / 60,
        "steps": [_step_json(record, step) for step in record.steps],
    }


def _step_json(record: SearchRecord, step: Step) -> dict[str, Any]:
    return {
        **record.commits[step.commit].model_dump(),
        "outcome": step.outcome,
        "level": step.level,
        "effect": _effect_json(step.measured),
        "reason": step.reason or None,
    }


def _effect_json(measured: Measured | None) -> dict[str, Any] | None:
    """Return the effect in percent; None without a block."""
    effect = None if measured is None else effect_of(measured)
    if measured is None or effect is None:
        return None
    return {
        "value": effect.value,
        "unit": "%",
        "low": effect.low,
        "high": effect.high,
        "confidence": effect.confidence,
        "blocks": measured.blocks,
        "minutes": measured.spent_s / 60,
        "file": measured.file,
    }


def minutes_text(seconds: float) -> str:
    """Return whole minutes for an estimate, at least one: ``about 12 min``."""
    return f"about {max(1, math.ceil(seconds / 60))} min"
