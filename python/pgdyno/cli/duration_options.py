"""Parsing of --slice, --warmup and --window, which accept more than a duration."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import typer

from pgdyno.errors import UsageError
from pgdyno.estimate import counted
from pgdyno.study.arm_spec import ArmSpec
from pgdyno.study.checkpoint_windows import likely_timeout_s, rounds_for
from pgdyno.study.forecast_cost import search_s
from pgdyno.study.plan import CHECKPOINTS_MAX, Study
from pgdyno.study.sizing import (
    ROUNDS_OF_A_WINDOW_MAX,
    SLICE_S_MAX,
    SLICE_S_MIN,
    BlockLayout,
    MachineSize,
    WarmUpLimits,
    adaptive_warm_up,
    block_overhead_s,
    whole_rounds,
)
from pgdyno.study.stopping_rule import VERDICT_BLOCKS_MIN
from pgdyno.units import format_duration, parse_duration_s


def warm_up_from_option(text: str | None, likely_s: float, slice_s: float, *, extends: bool) -> WarmUpLimits:
    """Parse ``10s``, ``5s..60s`` or ``auto``; ``likely_s`` is the share of a block. Raises UsageError.

    ``extends``: a trend of the effect extends the maximum, which then begins short, because the trend is the
    clearer the shorter the warm-up was (docs/explanation/steady-state.md).
    """
    if text is None or text == "auto":
        return adaptive_warm_up(likely_s, likely_s if extends else 2 * likely_s, slice_s)
    least, dots, most = text.partition("..")
    if not dots:
        return WarmUpLimits(parse_duration_s(text))
    if not least or not most:
        raise UsageError(f"--warmup {text!r} lacks a bound: give both, for example: 5s..60s")
    return WarmUpLimits(parse_duration_s(most), parse_duration_s(least))


CHECKPOINTS = "checkpoints:"


def parse_slice_s(text: str) -> float:
    """Parse ``1s`` or ``200ms``. Raises UsageError: not a duration, out of range."""
    if text == "auto":
        raise UsageError("--slice auto was removed: give a length; an A/A study (18 18) measures its noise")
    slice_s = parse_duration_s(text)
    if not SLICE_S_MIN <= slice_s <= SLICE_S_MAX:
        raise UsageError(
            f"--slice must be between {format_duration(SLICE_S_MIN)} and {format_duration(SLICE_S_MAX)} "
            f"(got {text!r}); for example: 1s"
        )
    return slice_s


def refuse_slices_for_whole_windows(
    context: typer.Context, window: str | None, transactions: int | None, schedule: str | None
) -> None:
    """Refuse slices for windows that cannot be divided: checkpoint cycles and numbers of transactions.

    Such windows run with the schedule blocks. Raises UsageError if slices are requested explicitly.
    """
    if transactions is not None and window is not None:
        raise UsageError("--transactions and --window exclude each other: remove one of them")
    if window is not None and window.startswith(CHECKPOINTS):
        window_option = f"--window {window}"
    elif transactions is not None:
        window_option = f"--transactions {transactions}"
    else:
        return
    asked = {
        "--schedule slices": schedule == "slices" and _is_given(context, "schedule"),
        "--slice": _is_given(context, "slice_length"),
    }
    for option, is_asked in asked.items():
        if is_asked:
            raise UsageError(
                f"{option} cannot be combined with {window_option}, which measures one arm at a time "
                f"(--schedule blocks): remove {option}, or use a time in --window"
            )


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def window_from_option(
    text: str | None, rhythm: BlockLayout, slice_s: float, schedule: str, arms: Sequence[ArmSpec]
) -> dict[str, object]:
    """Return the fields of a study for ``20s`` or ``checkpoints:2``, or the default. Raises UsageError."""
    if text is None:
        return {"rounds": rhythm.rounds}
    if not text.startswith(CHECKPOINTS):
        window_s, longest_s = parse_duration_s(text), ROUNDS_OF_A_WINDOW_MAX * slice_s
        if window_s > longest_s:
            raise UsageError(
                f"--window must be at most {format_duration(longest_s)}, {ROUNDS_OF_A_WINDOW_MAX} slices of "
                f"{format_duration(slice_s)} (got {text!r}): use a shorter --window, or a longer --slice"
            )
        return {"rounds": whole_rounds(window_s, slice_s, schedule)}
    number = text.removeprefix(CHECKPOINTS)
    if not re.fullmatch(r"[0-9]{1,4}", number) or not 1 <= int(number) <= CHECKPOINTS_MAX:
        raise UsageError(
            f"--window: the number of checkpoint cycles must be between 1 and {CHECKPOINTS_MAX} "
            f"(got {text!r}); for example: checkpoints:2"
        )
    if schedule == "duet":
        raise UsageError(
            f"--schedule duet cannot be combined with --window {text}, which measures one arm at a time: "
            "use --schedule blocks"
        )
    rounds, unit_s = rounds_for(int(number), likely_timeout_s(arms))
    return {"checkpoints": int(number), "rounds": rounds, "slice_s": unit_s, "schedule": "blocks"}


BUDGETS_OF_A_BLOCK_MAX = 2.0
"""Maximum length of the first block in budgets. The first block always runs; a longer one is an error."""


def block_least_s(study: Study) -> float:
    """Return the minimum load time of a block, in seconds; 0 if unknown (--transactions)."""
    if study.transactions is not None:
        return 0.0
    turns = 1 if study.schedule == "duet" else len(study.arms)
    least_s = study.warmup_s if study.warmup_min_s is None else study.warmup_min_s
    return turns * (least_s + study.rounds * study.slice_s)


def require_time_for_block(study: Study) -> None:
    """Refuse a budget far too short for one block, if lengths are given explicitly. Raises UsageError.

    Skipped for checkpoint cycles, whose length depends on the server, and for a given number of blocks.
    """
    block_s = block_least_s(study)
    is_open = study.checkpoints is not None or study.blocks_max is not None
    if is_open or block_s <= BUDGETS_OF_A_BLOCK_MAX * study.budget_s:
        return
    raise UsageError(
        f"--minutes {study.budget_s / 60:.3g} is too short for one block, which takes at least "
        f"{format_duration(block_s)}: use at least {math.ceil(block_s / 6) / 10:g} "
        f"({math.ceil(VERDICT_BLOCKS_MIN * block_s / 60)} for the {VERDICT_BLOCKS_MIN} blocks of a "
        "verdict), or shorten --slice, --window or --warmup"
    )


def shortage(study: Study, machine: MachineSize, cases: int = 1) -> str:
    """Return a warning if the budget has too few blocks for a verdict; else an empty string.

    ``cases`` share the minutes. This is no error: fewer blocks have an interval, too, and the estimate of the
    blocks is rough.
    """
    driven_s = block_least_s(study)
    if not driven_s or (study.blocks_max is not None and study.blocks_max < VERDICT_BLOCKS_MIN):
        return ""
    searches_s = len(study.arms) * search_s(study, machine)
    likely_s = driven_s + searches_s + block_overhead_s(1 if study.schedule == "duet" else len(study.arms))
    blocks = int(study.budget_s / likely_s)
    if blocks >= VERDICT_BLOCKS_MIN:
        return ""
    needed = math.ceil(cases * VERDICT_BLOCKS_MIN * likely_s / 60)
    arms = counted(len(study.arms), "arm") + (f" in {counted(cases, 'case')}" if cases > 1 else "")
    search = f" with searches of about {format_duration(round(searches_s))}" if searches_s else ""
    # The first block always runs.
    return (
        f"{arms}{search} need about {needed} min for {VERDICT_BLOCKS_MIN} blocks, the minimum for a verdict; "
        f"{format_duration(cases * study.budget_s)} gives about {max(1, blocks)}: use --minutes {needed} or "
        f"more{', or fewer arms' if len(study.arms) > 2 else ''}"
    )


def time_text(study: Study) -> str:
    """Return the time budget as text: ``at most 5 min in all``; a longer first block runs anyway."""
    if (block_s := block_least_s(study)) > study.budget_s:
        return f"one block, {format_duration(block_s)} or more"
    most = "at most " if study.stops_on_verdict else ""
    return f"{most}{format_duration(study.budget_s)} in all"


def window_text(study: Study) -> str:
    """Return the window of an arm in a block: ``20 s in slices of 1 s``, ``2 checkpoint cycles``."""
    if study.transactions is not None:
        return f"{counted(study.transactions, 'transaction')} per client"
    if study.checkpoints is not None:
        return counted(study.checkpoints, "checkpoint cycle")
    turns = f" in slices of {format_duration(study.slice_s)}" if study.is_together else ""
    turns += ", both arms simultaneously" if study.schedule == "duet" else ""
    return f"{format_duration(study.rounds * study.slice_s)}{turns}"
