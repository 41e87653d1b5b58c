"""Options that say how long something takes, where a plain duration is not all that they can be."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import typer

from pgdyno.errors import UsageError
from pgdyno.estimate import counted
from pgdyno.study.arm import ArmSpec
from pgdyno.study.checkpoints import likely_timeout_s, rounds_for
from pgdyno.study.plan import LOOKS_FROM, Study
from pgdyno.study.sizing import (
    BLOCK_OVERHEAD_S,
    ROUNDS_OF_A_WINDOW_MAX,
    SLICE_S_MAX,
    SLICE_S_MIN,
    Rhythm,
    WarmUp,
    by_evidence,
    whole_rounds,
)
from pgdyno.units import format_duration, parse_duration_s


def asked_warm_up(text: str | None, likely_s: float, slice_s: float) -> WarmUp:
    """``10s``, ``5s..60s`` or ``auto``; ``likely_s`` is what a block has for it. Raises UsageError."""
    if text is None or text == "auto":
        return by_evidence(likely_s, 2 * likely_s, slice_s)
    least, dots, most = text.partition("..")
    if not dots:
        return WarmUp(parse_duration_s(text))
    if not least or not most:
        raise UsageError(f"--warmup: {text!r} lacks a bound: give both, for example: 5s..60s")
    return WarmUp(parse_duration_s(most), parse_duration_s(least))


def warm_up_text(study: Study) -> str:
    """``10 s``, or ``2 s to 8 s``."""
    longest = format_duration(study.warmup_s)
    least_s = study.warmup_min_s
    return longest if least_s is None else f"{format_duration(least_s)} to {longest}"


CHECKPOINTS = "checkpoints:"
CHECKPOINTS_MAX = 1000


def parse_slice_s(text: str) -> float:
    """``1s``, ``200ms``. Raises UsageError: no duration, or none that a slice can have."""
    slice_s = parse_duration_s(text)
    if not SLICE_S_MIN <= slice_s <= SLICE_S_MAX:
        raise UsageError(
            f"--slice: {text!r} is no length of a slice; it goes from {format_duration(SLICE_S_MIN)} to "
            f"{format_duration(SLICE_S_MAX)}, for example: 1s"
        )
    return slice_s


def refuse_turns_in_one_piece(
    context: typer.Context, window: str | None, transactions: int | None, schedule: str
) -> None:
    """Checkpoint cycles and numbers of transactions are one piece, driven with the schedule blocks. Where
    slices were asked for in so many words, that is not what was wanted. Raises UsageError.
    """
    if transactions is not None and window is not None:
        raise UsageError("--transactions and --window both say how much is measured: give one of them")
    if window is not None and window.startswith(CHECKPOINTS):
        piece = "checkpoint cycles are"
    elif transactions is not None:
        piece = "a number of transactions is"
    else:
        return
    asked = {
        "--schedule slices": schedule == "slices" and _is_given(context, "schedule"),
        "--slice": _is_given(context, "slice_length"),
    }
    for said, is_asked in asked.items():
        if is_asked:
            raise UsageError(
                f"{said}: {piece} measured in one piece, one arm at a time (--schedule blocks): "
                f"leave {said} away, or give --window a time instead"
            )


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def asked_window(
    text: str | None, rhythm: Rhythm, slice_s: float, schedule: str, arms: Sequence[ArmSpec]
) -> dict[str, object]:
    """``20s`` or ``checkpoints:2`` as fields of a study; None: what the rhythm has. Raises UsageError."""
    if text is None:
        return {"rounds": rhythm.rounds}
    if not text.startswith(CHECKPOINTS):
        window_s, longest_s = parse_duration_s(text), ROUNDS_OF_A_WINDOW_MAX * slice_s
        if window_s > longest_s:
            raise UsageError(
                f"--window: {text!r} is longer than {ROUNDS_OF_A_WINDOW_MAX} slices of "
                f"{format_duration(slice_s)}: give at most {format_duration(longest_s)}, or longer slices"
            )
        return {"rounds": whole_rounds(window_s, slice_s, schedule)}
    number = text.removeprefix(CHECKPOINTS)
    if not re.fullmatch(r"[0-9]{1,4}", number) or not 1 <= int(number) <= CHECKPOINTS_MAX:
        raise UsageError(
            f"--window: {text!r} is no number of checkpoint cycles, 1 to {CHECKPOINTS_MAX}; "
            "for example: checkpoints:2"
        )
    if schedule == "duet":
        raise UsageError(
            "--schedule duet: checkpoint cycles are measured one arm at a time: take the schedule blocks"
        )
    rounds, unit_s = rounds_for(int(number), likely_timeout_s(arms))
    return {"checkpoints": int(number), "rounds": rounds, "slice_s": unit_s, "schedule": "blocks"}


BUDGETS_OF_A_BLOCK_MAX = 2.0
"""The first block runs however short the budget is; one that takes more than two of it was not meant."""


def block_least_s(study: Study) -> float:
    """What a block is driven at the least, as far as is known before the start; 0 of transactions."""
    if study.transactions is not None:
        return 0.0
    turns = 1 if study.schedule == "duet" else len(study.arms)
    least_s = study.warmup_s if study.warmup_min_s is None else study.warmup_min_s
    return turns * (least_s + study.rounds * study.slice_s)


def require_room_for_a_block(study: Study) -> None:
    """Where lengths were asked for. Not of checkpoint cycles, whose length the servers decide, nor where a
    number of blocks was asked for. Raises UsageError: the budget is far too short for one.
    """
    block_s = block_least_s(study)
    is_open = study.checkpoints is not None or study.blocks_max is not None
    if is_open or block_s <= BUDGETS_OF_A_BLOCK_MAX * study.budget_s:
        return
    raise UsageError(
        f"--minutes: one block takes {format_duration(block_s)} or more, and the budget is "
        f"{format_duration(study.budget_s)}: give --minutes {math.ceil(block_s / 6) / 10:g} or more "
        f"({math.ceil(LOOKS_FROM * block_s / 60)} for the {LOOKS_FROM} blocks of a verdict), or a shorter "
        "--slice, --window or --warmup"
    )


def shortage(study: Study) -> str:
    """That the budget holds too few blocks for a verdict, as far as is known before the start; else empty."""
    driven_s = block_least_s(study)
    likely_s = driven_s + BLOCK_OVERHEAD_S if driven_s else 0.0
    if study.budget_s >= LOOKS_FROM * likely_s:
        return ""
    short = "too short" if study.budget_s < LOOKS_FROM * driven_s else "probably too short"
    return (
        f"a block takes {format_duration(driven_s)} or more beside restoring and checking, and a verdict "
        f"{LOOKS_FROM} of them: a budget of {format_duration(study.budget_s)} is {short} for one; "
        f"--minutes {math.ceil(LOOKS_FROM * likely_s / 60)} would do"
    )


def time_text(study: Study) -> str:
    """How long it measures: ``at most 5 min in all``. The first block is run also where it takes longer."""
    if (block_s := block_least_s(study)) > study.budget_s:
        return f"one block, {format_duration(block_s)} or more"
    most = "at most " if study.stops_on_verdict else ""
    return f"{most}{format_duration(study.budget_s)} in all"


def window_text(study: Study) -> str:
    """What is measured of an arm in a block: ``20 s in slices of 1 s``, ``2 checkpoint cycles``."""
    if study.transactions is not None:
        return f"{counted(study.transactions, 'transaction')} of each client"
    if study.checkpoints is not None:
        return counted(study.checkpoints, "checkpoint cycle")
    turns = f" in slices of {format_duration(study.slice_s)}" if study.is_together else ""
    turns += ", both at the same time" if study.schedule == "duet" else ""
    return f"{format_duration(study.rounds * study.slice_s)}{turns}"
