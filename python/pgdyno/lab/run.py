"""The study, block by block, within its budget."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pgdyno.evidence.records import BlockStatus, Ending
from pgdyno.lab.block import Lab, run_block
from pgdyno.lab.progress import BlockBegan
from pgdyno.study.plan import blocks_of

FAILED_BLOCKS_IN_A_ROW_MAX = 3
"""A server that fails in every block will fail in the next one; one that fails now and then is a result."""


@dataclass
class Budget:
    """Time for measuring: what was spent before a resume counts."""

    budget_s: float
    spent_s: float
    block_s: float | None = None

    def allows_another(self) -> bool:
        """Whether the next block, taking as long as the last one, ends within half a block of the budget."""
        return self.block_s is None or self.spent_s + self.block_s / 2 <= self.budget_s

    def blocks_expected(self, done: int) -> int | None:
        """How many blocks there will be in all."""
        if self.block_s is None:
            return None
        return done + max(0, round((self.budget_s - self.spent_s) / self.block_s))

    def spend(self, block_s: float) -> None:
        """A block took this long. The first one copies all data and says little of those that follow."""
        self.spent_s += block_s
        self.block_s = block_s


def run_study(lab: Lab, first_block: int = 0, spent_s: float = 0.0) -> Ending:
    """Runs blocks until the budget, the number of blocks or the user says stop, and says which it was."""
    budget = Budget(lab.study.budget_s, spent_s)
    failed = 0
    for block in blocks_of(lab.study, first_block):
        if lab.interruption.requested:
            return Ending.INTERRUPTED
        if not budget.allows_another():
            return Ending.BUDGET
        expected = lab.study.blocks_max or budget.blocks_expected(block.index)
        unit = lab.study.workload.PACE.unit
        lab.watch(BlockBegan(block.index, expected, budget.spent_s, budget.budget_s, unit))
        begun_s = time.monotonic()
        status = run_block(lab, block)
        budget.spend(time.monotonic() - begun_s)
        if status is BlockStatus.INTERRUPTED:
            return Ending.INTERRUPTED
        failed = failed + 1 if status is BlockStatus.FAILED else 0
        if failed and (lab.study.on_failure == "stop" or failed >= FAILED_BLOCKS_IN_A_ROW_MAX):
            return Ending.FAILED
    return Ending.BLOCKS
