"""Execution of the blocks of all cases, in passes, within the budget, with an interim analysis after each.

Pass p runs block p of every case, in a random order determined by the seed of the study. So a study that ends
early has measured all cases, and drift of the machine affects all of them equally.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pgdyno.analysis.comparison.interim_analysis import InterimResult, interim_result
from pgdyno.analysis.comparison.paired_comparison import Comparison
from pgdyno.analysis.comparison.verdict_forecast import RemainingBudget, forecast_verdict, less_noise_of
from pgdyno.caveats import Caveat, Code
from pgdyno.lab.block import rate_unit, run_block, run_in_sequence
from pgdyno.lab.driver_loss import repeat_void_block
from pgdyno.lab.progress import ArmVerdict, BlockStarted, InterimVerdicts, Warned
from pgdyno.lab.trial import Lab
from pgdyno.results.reader import Evidence
from pgdyno.results.records import BlockStatus, StudyEnd
from pgdyno.study.aa_plan import BLOCKS_PER_AA, aa_arm_after, share_of_time
from pgdyno.study.cases import UNLIMITED_S
from pgdyno.study.plan import Study
from pgdyno.study.schedule import block_of, blocks_of
from pgdyno.study.sizing import discard_s, longer_slice_s, whole_rounds
from pgdyno.study.stopping_rule import VERDICT_BLOCKS_MIN
from pgdyno.units import format_duration

InterimAnalysis = Callable[[Lab, "Budget | None"], InterimResult]
"""Analyzes the blocks of a case so far. With the budget, it also forecasts verdicts."""


def interim_analysis_of(path: Path) -> InterimAnalysis:
    """Return the interim analysis of the results file that is being written."""

    def analyze(lab: Lab, budget: Budget | None) -> InterimResult:
        # Without verification: this process writes the file, and it grows with every block.
        with Evidence(path, verify=False) as evidence:
            found = interim_result(evidence, lab.case)
        standings = tuple(_standing(comparison, lab, budget) for comparison in found.comparisons)
        lab.watch(InterimVerdicts(standings, budget.block_s[lab.case] if budget else None))
        return found

    return analyze


def _standing(comparison: Comparison, lab: Lab, budget: Budget | None) -> ArmVerdict:
    decision, primary = comparison.decision, comparison.primary
    forecast = None
    if decision and primary and budget:
        cores = len(os.sched_getaffinity(0))
        clients = max(comparison.baseline.clients, comparison.arm.clients)
        remaining = RemainingBudget(
            min(budget.passes_left(), budget.blocks_left.get(lab.case, sys.maxsize)),
            budget.pass_s(),
            budget.spent_s,
            budget.budget_s,
            less_noise_of(lab.study, clients, cores),
        )
        forecast = forecast_verdict(primary.summary, decision, lab.study, remaining)
    return ArmVerdict(
        arm=comparison.arm.name,
        baseline=comparison.baseline.name,
        verdict=comparison.verdict,
        change=primary.percent if primary else None,
        blocks_needed=decision.blocks_needed if decision else None,
        forecast=forecast,
        is_trending=comparison.is_trending,
        may_trend=comparison.may_trend,
    )


FAILED_BLOCKS_IN_A_ROW_MAX = 3
"""Number of consecutive failed blocks after which a case is given up. Occasional failures are a result."""


@dataclass
class Budget:
    """Time for measuring, including the time before a resume. ``block_s``: duration of the last block by
    case. ``blocks_left``: remaining blocks of cases with a limit.

    ``aa_share``: time of A/A blocks as a share of the time of blocks.
    """

    budget_s: float
    spent_s: float
    block_s: dict[int, float] = field(default_factory=dict)
    blocks_left: dict[int, int] = field(default_factory=dict)
    aa_share: float = 0.0

    def allows_another(self, case: int = 0) -> bool:
        """Return whether the next block, if it takes as long as the last one, ends within half a block of the
        budget. The first block always runs.
        """
        if not self.block_s:
            return self.spent_s < self.budget_s
        return self.spent_s + self._likely_s(case) / 2 <= self.budget_s

    def passes_expected(self, done: int, cases: int = 1) -> int | None:
        """Return the expected total number of blocks per case, including the one that begins now."""
        return None if len(self.block_s) < cases else done + max(1, self.passes_left())

    def pass_s(self) -> float:
        """Return the time of one block of every case so far, with its share of A/A blocks."""
        return (1 + self.aa_share) * sum(self.block_s.values())

    def passes_left(self) -> int:
        """Return the number of further blocks of every case that fit into the budget."""
        return max(0, round((self.budget_s - self.spent_s) / self.pass_s()))

    def total_s(self, left: Mapping[int, int | None]) -> float | None:
        """Return the expected total time, None if unknown; ``left``: remaining blocks by case."""
        if any(blocks is None for blocks in left.values()):
            return self.budget_s
        if self.block_s:
            needed_s = sum((blocks or 0) * self._likely_s(case) for case, blocks in left.items())
            return min(self.budget_s, self.spent_s + (1 + self.aa_share) * needed_s)
        return self.budget_s if self.budget_s < UNLIMITED_S else None

    def _likely_s(self, case: int) -> float:
        return self.block_s.get(case, sum(self.block_s.values()) / len(self.block_s))

    def spend(self, block_s: float, case: int = 0) -> None:
        """Record the duration of a block. It replaces earlier ones: the first block copies all data."""
        self.spent_s += block_s
        self.block_s[case] = block_s


@dataclass
class CaseProgress:
    """Progress of a case."""

    lab: Lab
    next_block: int
    failed: int = 0  # consecutive failed blocks
    given_up: bool = False
    decided: bool = False  # every comparison

    @property
    def is_done(self) -> bool:
        most = self.lab.study.blocks_max
        return self.given_up or (most is not None and self.next_block >= most)

    @property
    def left(self) -> int | None:
        """Number of remaining blocks; None: as many as the budget allows."""
        most = self.lab.study.blocks_max
        return None if most is None else most - self.next_block

    def note(self, status: BlockStatus) -> None:
        """Record the status of its block."""
        self.failed = self.failed + 1 if status is not BlockStatus.DONE else 0
        self.given_up = self.failed >= FAILED_BLOCKS_IN_A_ROW_MAX


def run_study(
    labs: Sequence[Lab],
    analyze: InterimAnalysis,
    first_blocks: Sequence[int] | None = None,
    spent_s: float = 0.0,
) -> StudyEnd:
    """Run blocks until all comparisons are decided, or until the budget, the number of blocks or the user
    ends the study. Return the reason.

    One lab per case; ``first_blocks``: the next block of each. Passes are complete: a decided case continues
    with the others. A study that is decided before a resume continues for a narrower interval, without an end
    by verdict.
    """
    aa_share = max(share_of_time(lab.study) if lab.aa else 0.0 for lab in labs)
    budget = Budget(sum(lab.study.budget_s for lab in labs), spent_s)
    cases = [
        CaseProgress(lab, first) for lab, first in zip(labs, first_blocks or [0] * len(labs), strict=True)
    ]
    number = min(case.next_block for case in cases)
    is_sequential = labs[0].study.stops_on_verdict
    may_stop = is_sequential and not (number > 0 and all(analyze(lab, None).is_decided for lab in labs))
    while active := [case for case in cases if not case.is_done]:
        # In a resumed study some cases may be a block ahead: they wait for the others.
        turn = [case for case in active if case.next_block <= number]
        budget.aa_share = aa_share if number >= BLOCKS_PER_AA else 0.0
        random.Random(f"{labs[0].study.seed}:{number}").shuffle(turn)
        for case in turn:
            if case.lab.interruption.requested:
                return StudyEnd.INTERRUPTED
            if not budget.allows_another(case.lab.case):
                return StudyEnd.BUDGET
            block = case.next_block
            status = _run_next(case, budget, active, may_stop=may_stop)
            while status is BlockStatus.INTERRUPTED and repeat_void_block(case, cases):
                status = _run_next(case, budget, active, may_stop=may_stop)
            if status is BlockStatus.DONE and block == 0 and _lengthen_slices(case, budget):
                status = _run_next(case, budget, active, may_stop=may_stop)
            if status is not BlockStatus.INTERRUPTED:
                case.decided = is_sequential and _is_decided(case, analyze, budget)
            if status is BlockStatus.DONE and not (may_stop and case.decided):
                status = _run_aa(case, block, budget, cases)
            if status is BlockStatus.INTERRUPTED:
                requested = case.lab.interruption.requested
                return StudyEnd.INTERRUPTED if requested else StudyEnd.FAILED
            if status is BlockStatus.FAILED and case.lab.study.on_failure == "stop":
                return StudyEnd.FAILED
        if may_stop and all(case.decided and not case.given_up for case in cases):
            return StudyEnd.VERDICT
        number += 1
    return StudyEnd.FAILED if any(case.given_up for case in cases) else StudyEnd.BLOCKS


def _is_decided(case: CaseProgress, analyze: InterimAnalysis, budget: Budget) -> bool:
    """Analyze a case after its block. Extend its warm-up if an effect changes within the windows."""
    if case.left is not None:
        # Including superseded blocks, which no result counts.
        budget.blocks_left[case.lab.case] = case.left
    found = analyze(case.lab, budget)
    if found.is_trending and _may_extend_warm_up(case, budget):
        case.lab = lab = replace(case.lab, warm_up_times=2 * case.lab.warm_up_times)
        most = format_duration(lab.block_study.warmup_s)
        blocks = max((len(comparison.blocks) for comparison in found.comparisons), default=0)
        lab.watch(Warned(Caveat(Code.WARM_UP_EXTENDED, {"longest": most, "blocks": blocks}).text))
    return found.is_decided


def _lengthen_slices(case: CaseProgress, budget: Budget) -> bool:
    """Return whether the first block is to be repeated with longer slices, because of long transactions.

    The budget must have time for VERDICT_BLOCKS_MIN of these blocks.
    """
    lab, study = case.lab, case.lab.study
    may_grow = study.slices_may_grow and not study.has_grown_slices
    if not (may_grow and study.is_together) or study.load_is_fixed:
        return False
    latency_s = _latency_s(lab)
    turns = 1 if study.schedule == "duet" else len(study.arms)
    window_s = study.rounds * study.slice_s
    least_rounds = whole_rounds(0.0, study.slice_s, study.schedule)
    spare_s = (budget.budget_s - budget.spent_s) / VERDICT_BLOCKS_MIN - budget.pass_s()
    slice_s = longer_slice_s(study.slice_s, latency_s, (window_s + spare_s / turns) / least_rounds)
    if spare_s < 0 or slice_s == study.slice_s:
        return False
    reason = f"the transactions of the first block, {format_duration(latency_s)} each"
    lengths = {
        "slice_s": slice_s,
        "slice_from": reason,
        "discard_s": discard_s(slice_s),
        "rounds": whole_rounds(window_s, slice_s, study.schedule),
    }
    aa = {arm: replace(of, study=_with_lengths(of.study, lengths)) for arm, of in lab.aa.items()}
    # Warm-up rates of other slices have another interval.
    case.lab = replace(lab, study=_with_lengths(study, lengths), aa=aa, rates={})
    for of in (case.lab, *aa.values()):
        of.writer.repeat_with(of.study, of.case)
    case.next_block = 0
    lab.watch(
        Warned(
            f"slices of {format_duration(slice_s)} instead of {format_duration(study.slice_s)}, because of "
            f"{reason}: the block is repeated"
        )
    )
    return True


def _latency_s(lab: Lab) -> float:
    """Return the mean latency of the last block: that of the slowest arm with completed transactions.

    If all transactions ended after their slices, it is the time until they did. An arm that stalls alone is
    no reason for longer slices, nor are transactions that fail.
    """
    found = []
    for arm, slices in lab.measured.items():
        executed = sum(counts.executed for piece in slices for counts in piece.kinds.values())
        if executed:
            # A closed loop: by Little's law, clients / rate is the mean latency.
            counted_s = sum(piece.counted_s for piece in slices)
            found.append(lab.study.driving(arm).clients * counted_s / executed)
    if found:
        return max(found)
    if any(of.all for slices in lab.measured.values() for piece in slices for of in piece.kinds.values()):
        return 0.0
    until_drained = (
        sum(piece.drained_s - piece.opened_s for piece in slices) / len(slices)
        for slices in lab.measured.values()
        if slices
    )
    return min(until_drained, default=0.0)


def _with_lengths(study: Study, lengths: Mapping[str, object]) -> Study:
    discarded = {"discard_s": lengths["discard_s"]}
    drivings = study.drivings and tuple(one.model_copy(update=discarded) for one in study.drivings)
    return study.model_copy(update={**lengths, "drivings": drivings})


def _may_extend_warm_up(case: CaseProgress, budget: Budget) -> bool:
    """Return whether enough blocks for a verdict fit with a warm-up of twice the time.

    A fixed warm-up is the user's choice.
    """
    study = case.lab.block_study
    if case.lab.study.warmup_min_s is None:
        return False
    arms = 1 if study.schedule == "duet" else len(study.arms)
    pass_s = budget.pass_s() + 2 * study.warmup_s * arms
    blocks = sys.maxsize if case.left is None else case.left
    return min(blocks, (budget.budget_s - budget.spent_s) / pass_s) >= VERDICT_BLOCKS_MIN


def _run_next(
    case: CaseProgress, budget: Budget, cases: Sequence[CaseProgress], *, may_stop: bool
) -> BlockStatus:
    """Run the next block of a case; in the schedule sequential, all blocks, which overlap."""
    lab, study = case.lab, case.lab.study
    expected = study.blocks_max or budget.passes_expected(case.next_block, len(cases))
    lab.watch(
        BlockStarted(
            block=case.next_block,
            blocks_expected=expected,
            elapsed_s=budget.spent_s,
            total_s=budget.total_s({of.lab.case: of.left for of in cases}),
            unit=rate_unit(study),
            case=lab.name,
            arms=tuple(arm.name for arm in lab.arms),
            may_stop=may_stop,
        )
    )
    begun_s = time.monotonic()
    if study.schedule == "sequential":
        status, ran = run_in_sequence(lab, list(blocks_of(study))), study.blocks_max or 0
    else:
        status, ran = run_block(lab, block_of(lab.block_study, case.next_block)), case.next_block + 1
    budget.spend(time.monotonic() - begun_s, lab.case)
    if status is not BlockStatus.INTERRUPTED:
        case.next_block = ran
    case.note(status)
    return status


def _run_aa(case: CaseProgress, block: int, budget: Budget, cases: Sequence[CaseProgress]) -> BlockStatus:
    """Run the A/A block after a block of a case, if there is one and the budget allows it.

    It is repeated if a load generator is lost, but not by a resume. Its failures appear in its trials, and do
    not end the case.
    """
    arm = aa_arm_after(case.lab.study, block)
    if arm is None or arm not in case.lab.aa or not budget.allows_another(case.lab.case):
        return BlockStatus.DONE
    lab = replace(case.lab.aa[arm], warm_up_times=case.lab.warm_up_times)
    aa = CaseProgress(lab, block)
    while True:
        lab.watch(
            BlockStarted(
                block=block,
                blocks_expected=None,
                elapsed_s=budget.spent_s,
                total_s=budget.total_s({case.lab.case: case.left}),
                unit=rate_unit(lab.study),
                case=lab.name,
                arms=tuple(one.name for one in lab.arms),
            )
        )
        begun_s = time.monotonic()
        status = run_block(lab, block_of(lab.block_study, block))
        budget.spent_s += time.monotonic() - begun_s
        aa.note(status)
        if status is not BlockStatus.INTERRUPTED:
            return status
        if not repeat_void_block(aa, cases, f"the A/A block after block {block + 1}"):
            return status
        if case.next_block <= block:
            return BlockStatus.DONE  # all cases start again with fewer load generators
