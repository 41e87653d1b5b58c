"""Runs the blocks of all cases, in passes, within the study's budget, with an interim analysis after each.

Pass p runs block p of every case, in a random order that is a function of the study's seed: a study that is
cut short has measured all of its cases, and whatever drifts on the machine meets all alike.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pgdyno.analysis.comparison.interim_analysis import interim_result
from pgdyno.analysis.comparison.paired_comparison import Comparison
from pgdyno.lab.block import run_block, run_in_sequence
from pgdyno.lab.progress import BlockBegan, Looked, Standing
from pgdyno.lab.trial import Lab
from pgdyno.results.reader import Evidence
from pgdyno.results.records import BlockStatus, Ending
from pgdyno.study.aa_plan import doubled_after, share_of_time
from pgdyno.study.cases import UNLIMITED_S
from pgdyno.study.plan import block_of, blocks_of

InterimAnalysis = Callable[[Lab, float | None], bool]
"""Whether every comparison of this lab's case is decided; given how long a block of it takes, in seconds."""


def interim_analysis_of(path: Path) -> InterimAnalysis:
    """Of the evidence that is being written."""

    def look(lab: Lab, block_s: float | None) -> bool:
        # Not verified: this process has written it, and it grows from block to block.
        with Evidence(path, verify=False) as evidence:
            found = interim_result(evidence, lab.case)
        lab.watch(Looked(tuple(map(_standing, found.comparisons)), block_s))
        return found.is_decided

    return look


def _standing(comparison: Comparison) -> Standing:
    decision, primary = comparison.decision, comparison.primary
    return Standing(
        arm=comparison.arm.name,
        baseline=comparison.baseline.name,
        verdict=comparison.verdict,
        change=primary.percent if primary else None,
        blocks_needed=decision.blocks_needed if decision else None,
    )


FAILED_BLOCKS_IN_A_ROW_MAX = 3
"""A server that fails in every block will fail in the next one; one that fails now and then is a result."""


@dataclass
class Budget:
    """Time for measuring: what was spent before a resume counts. ``block_s``: of each case's last block.

    ``aa_share``: what the A/A blocks beside them take, as a share of theirs.
    """

    budget_s: float
    spent_s: float
    block_s: dict[int, float] = field(default_factory=dict)
    aa_share: float = 0.0

    def allows_another(self, case: int = 0) -> bool:
        """Whether the next block, taking as long as the last one, ends within half a block of the budget. The
        very first runs however short that is.
        """
        if not self.block_s:
            return self.spent_s < self.budget_s
        return self.spent_s + self._likely_s(case) / 2 <= self.budget_s

    def passes_expected(self, done: int, cases: int = 1) -> int | None:
        """How many blocks each of the cases will have in all, where another one begins now."""
        if len(self.block_s) < cases:
            return None
        pass_s = (1 + self.aa_share) * sum(self.block_s.values())
        return done + max(1, round((self.budget_s - self.spent_s) / pass_s))

    def total_s(self, left: Mapping[int, int | None]) -> float | None:
        """From beginning to end, as far as can be told; ``left`` is case → its blocks to come."""
        if any(blocks is None for blocks in left.values()):
            return self.budget_s
        if self.block_s:
            needed_s = sum((blocks or 0) * self._likely_s(case) for case, blocks in left.items())
            return min(self.budget_s, self.spent_s + (1 + self.aa_share) * needed_s)
        return self.budget_s if self.budget_s < UNLIMITED_S else None

    def _likely_s(self, case: int) -> float:
        return self.block_s.get(case, sum(self.block_s.values()) / len(self.block_s))

    def spend(self, block_s: float, case: int = 0) -> None:
        """A block took this long. The first one copies all data and says little of those that follow."""
        self.spent_s += block_s
        self.block_s[case] = block_s


@dataclass
class _Case:
    """How far a case has come."""

    lab: Lab
    next_block: int
    failed: int = 0  # blocks in a row
    given_up: bool = False
    decided: bool = False  # every comparison of it

    @property
    def is_done(self) -> bool:
        most = self.lab.study.blocks_max
        return self.given_up or (most is not None and self.next_block >= most)

    @property
    def left(self) -> int | None:
        """Its blocks to come; None: as many as the time allows."""
        most = self.lab.study.blocks_max
        return None if most is None else most - self.next_block

    def note(self, status: BlockStatus) -> None:
        """What became of its block."""
        self.failed = self.failed + 1 if status is BlockStatus.FAILED else 0
        self.given_up = self.failed >= FAILED_BLOCKS_IN_A_ROW_MAX


def run_study(
    labs: Sequence[Lab],
    look: InterimAnalysis,
    first_blocks: Sequence[int] | None = None,
    spent_s: float = 0.0,
) -> Ending:
    """Runs blocks until all is decided, or the budget, the number of blocks or the user says stop, and says
    which it was.

    One lab a case; ``first_blocks``: where each goes on. Passes stay whole: a case that is decided goes on
    with the others. What is decided already is resumed for a narrower interval, and no verdict ends it.
    """
    aa_share = max(share_of_time(lab.study) if lab.aa else 0.0 for lab in labs)
    budget = Budget(sum(lab.study.budget_s for lab in labs), spent_s, aa_share=aa_share)
    cases = [_Case(lab, first) for lab, first in zip(labs, first_blocks or [0] * len(labs), strict=True)]
    number = min(case.next_block for case in cases)
    looks = labs[0].study.stops_on_verdict
    may_stop = looks and not (number > 0 and all(look(lab, None) for lab in labs))
    while active := [case for case in cases if not case.is_done]:
        # A resumed study may have cases that are a block ahead: they wait for the others.
        turn = [case for case in active if case.next_block <= number]
        random.Random(f"{labs[0].study.seed}:{number}").shuffle(turn)
        for case in turn:
            if case.lab.interruption.requested:
                return Ending.INTERRUPTED
            if not budget.allows_another(case.lab.case):
                return Ending.BUDGET
            block = case.next_block
            status = _run_next(case, budget, active, may_stop=may_stop)
            if status is not BlockStatus.INTERRUPTED:
                case.decided = looks and look(case.lab, budget.block_s[case.lab.case])
            if status is BlockStatus.DONE and not (may_stop and case.decided):
                status = _run_aa(case, block, budget)
            if status is BlockStatus.INTERRUPTED:
                return Ending.INTERRUPTED
            if status is BlockStatus.FAILED and case.lab.study.on_failure == "stop":
                return Ending.FAILED
        if may_stop and all(case.decided and not case.given_up for case in cases):
            return Ending.VERDICT
        number += 1
    return Ending.FAILED if any(case.given_up for case in cases) else Ending.BLOCKS


def _run_next(case: _Case, budget: Budget, cases: Sequence[_Case], *, may_stop: bool) -> BlockStatus:
    """The next block of a case; of one in sequence all blocks, which overlap."""
    lab, study = case.lab, case.lab.study
    expected = study.blocks_max or budget.passes_expected(case.next_block, len(cases))
    lab.watch(
        BlockBegan(
            block=case.next_block,
            blocks_expected=expected,
            elapsed_s=budget.spent_s,
            total_s=budget.total_s({of.lab.case: of.left for of in cases}),
            unit=study.workload.pace.unit,
            case=lab.name,
            arms=tuple(arm.name for arm in lab.arms),
            may_stop=may_stop,
        )
    )
    begun_s = time.monotonic()
    if study.schedule == "sequential":
        status, ran = run_in_sequence(lab, list(blocks_of(study))), study.blocks_max or 0
    else:
        status, ran = run_block(lab, block_of(study, case.next_block)), case.next_block + 1
    budget.spend(time.monotonic() - begun_s, lab.case)
    if status is not BlockStatus.INTERRUPTED:
        case.next_block = ran
    case.note(status)
    return status


def _run_aa(case: _Case, block: int, budget: Budget) -> BlockStatus:
    """The A/A block beside a block of a case, where there is one and it fits. It is not repeated by a resume,
    and its failures are shown in its trials: they do not give the case up.
    """
    arm = doubled_after(case.lab.study, block)
    twins = None if arm is None else case.lab.aa.get(arm)
    if twins is None or not budget.allows_another(case.lab.case):
        return BlockStatus.DONE
    twins.watch(
        BlockBegan(
            block=block,
            blocks_expected=None,
            elapsed_s=budget.spent_s,
            total_s=budget.total_s({case.lab.case: case.left}),
            unit=twins.study.workload.pace.unit,
            case=twins.name,
            arms=tuple(one.name for one in twins.arms),
        )
    )
    begun_s = time.monotonic()
    status = run_block(twins, block_of(twins.study, block))
    budget.spent_s += time.monotonic() - begun_s
    return status
