"""Section of a quick estimate: what its blocks detect, and the command that would decide."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pgdyno.analysis.case_findings import Findings
from pgdyno.analysis.comparison import BLOCKS_NEEDED_MAX, POWER, Comparison, Verdict, blocks_needed
from pgdyno.analysis.statistics.intervals import Method
from pgdyno.analysis.study_findings import StudyFindings
from pgdyno.features.noise_history.resolution import BlockNoise, within_blocks
from pgdyno.features.quick.options import QUICK
from pgdyno.report.document import Place, Section
from pgdyno.study.defaults import BUDGET_MIN, WINDOW_S
from pgdyno.units import counted, given_number, given_percent, share_text

MINUTES_MAX = 240
"""Longest budget that is recommended. A study that needs more requires less noise."""

OF_THE_ESTIMATE = ("--seed", "--evidence", "--html", "--minutes", "--blocks", "--window")
"""Options with a value that the command that decides does not have."""


def sections(study: StudyFindings) -> Iterable[Section]:
    """Return the section of a study with --quick."""
    try:
        words = shlex.split(study.first.study.command)
    except ValueError:  # a results file from elsewhere may have any text
        return []
    own = words[: words.index("--")] if "--" in words else words
    if QUICK not in own or len(study.cases) != 1:
        return []
    found = [*_resolved(study.first), *_deciding(study.first, words, own)]
    return [Section("quick", sentences=found, brief=found, place=Place.TOP, order=-1)] if found else []


def _resolved(findings: Findings) -> Iterator[str]:
    """Yield what the blocks of each arm detect."""
    for of in findings.comparisons:
        if of.decision is not None and of.primary is not None and of.decision.detectable_percent is not None:
            size, blocks = share_text(of.decision.detectable_percent / 100), of.primary.summary.n
            yield (
                f"Quick estimate of {of.arm.name}: {counted(blocks, 'block')} detect a change of {size} or "
                f"more ({given_percent(POWER)} power)."
            )


def _deciding(findings: Findings, words: Sequence[str], own: Sequence[str]) -> Iterator[str]:
    """Yield the command that is likely to decide what the estimate left open."""
    open_ = [of for of in findings.comparisons if of.verdict is Verdict.UNDECIDED]
    if not open_:
        return
    minutes = [needed for of in open_ if (needed := minutes_needed(of, findings)) is not None]
    if any(one > MINUTES_MAX for one in minutes):
        yield (
            f"More than {MINUTES_MAX} min would be needed to decide: reduce the noise first (pgdyno doctor)."
        )
    else:
        command = shlex.join(
            [*_without_estimate(own), "--minutes", given_number(max([BUDGET_MIN, *minutes]))]
        )
        more = shlex.join(words[len(own) :])
        yield f"To decide: {command}{f' {more}' if more else ''}"


def minutes_needed(of: Comparison, findings: Findings) -> int | None:
    """Return the budget with which a comparison with default windows is likely to decide.

    Its intervals are valid at any stopping time, and its noise is predicted from the slices of the estimate.
    None without an SD.
    """
    plan, block_s = findings.study.plan, findings.block_s
    if of.primary is None or of.primary.summary.sd is None or block_s is None or not plan.window_s:
        return None
    summary, turns = of.primary.summary, plan.turns
    sd, longer_s = summary.sd, block_s + turns * max(0.0, WINDOW_S - plan.window_s)
    assert sd is not None
    within = within_blocks(of, findings.trials, plan)
    if within is not None and plan.window_s < WINDOW_S:
        sd = BlockNoise(sd, block_s, within, plan.window_s).with_window(WINDOW_S / plan.window_s, turns).sd
    blocks = summary.n + blocks_needed(replace(summary, sd=sd, method=Method.ANYTIME), plan.margin)
    return math.ceil(min(blocks, BLOCKS_NEEDED_MAX) * longer_s / 60)


def _without_estimate(words: Sequence[str]) -> list[str]:
    """Return the command without the options of the estimate."""
    kept, is_value = list[str](), False
    for word in words:
        name = word.partition("=")[0]
        if is_value:
            is_value = False
        elif name in OF_THE_ESTIMATE:
            is_value = "=" not in word
        elif word != QUICK:
            kept.append(word)
    return kept
