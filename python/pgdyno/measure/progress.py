"""Progress events of the lab, for a live view, a log or a test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pgdyno.analysis.comparison import Verdict, VerdictForecast
from pgdyno.study.schedule import Role
from pgdyno.units import Estimate


@dataclass(frozen=True)
class PreparationStep:
    """A step of the preparation begins; text for output, for example ``restoring 18``.

    ``may_last``: it may take minutes, so that a log has a line for it.
    """

    text: str
    may_last: bool = False


@dataclass(frozen=True)
class LoadProgress:
    """A dataset is being loaded; ``share`` is 0..1 of the phase."""

    dataset: str
    phase: str
    share: float


@dataclass(frozen=True)
class BlockStarted:
    """A block begins.

    ``blocks_expected``: estimated number of blocks of its case within the budget. ``total_s``: estimated
    total time, None if unknown; with ``may_stop`` a verdict may end the study earlier. ``unit``: that of the
    rates at the end of a block. ``case``: empty if the study has only one. ``kept``: rates of trials before a
    resume by block and arm, None if a trial does not count.
    """

    block: int
    blocks_expected: int | None
    elapsed_s: float
    total_s: float | None
    unit: str
    case: str = ""
    arms: tuple[str, ...] = ()
    may_stop: bool = False
    kept: Mapping[tuple[int, int], float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Running:
    """An interval of a slice: arm, rate in transactions per second, p99 in seconds if known.

    ``share``: finished part of the arm's window in this block, by time or transactions; None in a warm-up.
    ``errors_per_s``: failed attempts, retried or not; ``sqlstate``: that of the last reported error, if any.
    ``rate``: in the unit of the block (``BlockStarted``).
    """

    arm: int
    role: Role
    transactions_per_s: float
    latency_p99_s: float | None
    share: float | None = None
    errors_per_s: float = 0.0
    sqlstate: str = ""
    rate: float = 0.0


@dataclass(frozen=True)
class BlockEnded:
    """A block is in the results file. ``rates`` per arm; None if its trial has none that counts."""

    block: int
    rates: tuple[float | None, ...]


@dataclass(frozen=True)
class ArmVerdict:
    """Interim result of one arm against the baseline. ``change``: None without valid blocks.
    ``blocks_needed``: None if the comparison is decided or held back. ``forecast``: None if the comparison is
    decided or held back, or with too few blocks. ``is_trending``: there is no verdict, because the effect
    depends on the length of the warm-up. ``may_trend``: it may, so that the study continues after a verdict.
    ``is_provisional``: the number of blocks is fixed, so the interval is final only after the last one.
    """

    arm: str
    baseline: str
    verdict: Verdict
    change: Estimate | None
    blocks_needed: int | None
    forecast: VerdictForecast | None = None
    is_trending: bool = False
    may_trend: bool = False
    is_provisional: bool = False


@dataclass(frozen=True)
class InterimVerdicts:
    """Interim analysis of all finished blocks of a case.

    ``block_s``: duration of a block, None before the first one. ``notes``: lines of features.
    """

    standings: tuple[ArmVerdict, ...]
    block_s: float | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Warned:
    """A message for immediate output: a failed trial, a caveat."""

    text: str


@dataclass(frozen=True)
class Noted:
    """A message that is no warning.

    ``of``: a view that is redrawn shows only the last message of the same, for example of an arm.
    """

    text: str
    of: str = ""


Progress = (
    PreparationStep | LoadProgress | BlockStarted | Running | BlockEnded | InterimVerdicts | Warned | Noted
)
Watch = Callable[[Progress], None]
