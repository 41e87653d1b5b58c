"""What the lab says while it works, for whoever watches: a live view, a log, a test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pgdyno.analysis.comparison.verdict import Verdict
from pgdyno.estimate import Estimate
from pgdyno.study.schedule import Role


@dataclass(frozen=True)
class Step:
    """A step of the preparation begins, in words: ``restore 18``."""

    text: str


@dataclass(frozen=True)
class Load:
    """A dataset is being loaded; ``share`` is 0..1 of the phase."""

    dataset: str
    phase: str
    share: float


@dataclass(frozen=True)
class BlockBegan:
    """A block begins. ``blocks_expected`` counts all of its case that fit in the budget, as far as can be
    told, and ``total_s`` is the time that all will take, None where that is not known yet; a verdict may end
    it before (``may_stop``). ``unit`` is that of the rates that end it; ``case`` is empty where there is just
    one.
    """

    block: int
    blocks_expected: int | None
    elapsed_s: float
    total_s: float | None
    unit: str
    case: str = ""
    arms: tuple[str, ...] = ()
    may_stop: bool = False


@dataclass(frozen=True)
class Running:
    """An interval of a slice: of which arm, how fast (transactions per second), p99 in seconds if known.

    ``share`` of the arm's window in this block that is done, by time or by transactions; None in a warm-up.
    """

    arm: int
    role: Role
    transactions_per_s: float
    latency_p99_s: float | None
    share: float | None = None


@dataclass(frozen=True)
class BlockEnded:
    """A block is in the evidence. ``rates`` per arm; None where a trial does not count."""

    block: int
    rates: tuple[float | None, ...]


@dataclass(frozen=True)
class Standing:
    """One arm against the baseline so far. ``change``: None where no block counts; ``blocks_needed`` where it
    is decided, or an arm stalled.
    """

    arm: str
    baseline: str
    verdict: Verdict
    change: Estimate | None
    blocks_needed: int | None


@dataclass(frozen=True)
class Looked:
    """After a block of a study that stops on its verdict: what all finished blocks of its case say.
    ``block_s``: how long a block takes, where one was run.
    """

    standings: tuple[Standing, ...]
    block_s: float | None


@dataclass(frozen=True)
class Warned:
    """Something the user should know at once: a failed trial, a caveat."""

    text: str


Progress = Step | Load | BlockBegan | Running | BlockEnded | Looked | Warned
Watch = Callable[[Progress], None]
