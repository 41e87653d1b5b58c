"""The run of a study: its blocks in order, and the stop.

- Execution of the blocks of all cases, in passes, within the budget, with an interim analysis after each.
- Execution and resumption of a study: servers, datasets, results file, blocks.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from pgdyno import __version__
from pgdyno.analysis.comparison import Comparison, RemainingBudget, forecast_verdict, less_noise_of
from pgdyno.analysis.measurement_noise import InterimResult, interim_result
from pgdyno.caveats import Caveat
from pgdyno.errors import EvidenceError, EvidenceExistsError
from pgdyno.hooks import Hooks
from pgdyno.interruption import Interruption
from pgdyno.measure import aa_blocks
from pgdyno.measure.arms import Prepared
from pgdyno.measure.block import rate_of_trial, rate_unit, run_block, run_in_sequence
from pgdyno.measure.machine import describe_host
from pgdyno.measure.prepare import prepare_arms
from pgdyno.measure.progress import ArmVerdict, BlockStarted, InterimVerdicts, Warned, Watch
from pgdyno.measure.trial import SESSIONS, Lab, Session, start_again
from pgdyno.measure.warm_up import Rates, rates_so_far
from pgdyno.results import records
from pgdyno.results.reader import Evidence
from pgdyno.results.records import BlockStatus, StudyEnd, TrialStatus
from pgdyno.results.writer import Writer
from pgdyno.server.engine import build_info
from pgdyno.study.cases import Case, Request
from pgdyno.study.defaults import discard_s, longer_slice_s, whole_rounds
from pgdyno.study.plan import VERDICT_BLOCKS_MIN, Study
from pgdyno.study.schedule import BLOCKS_PER_AA, aa_arm_after, block_of, blocks_of, share_of_time
from pgdyno.units import format_duration

# ----------------------------------------------------------------------
# Execution of the blocks of all cases, in passes, within the budget, with an interim analysis after each.
#
# Pass p runs block p of every case, in a random order determined by the seed of the study. So a study that
# ends early has measured all cases, and drift of the machine affects all of them equally.
# ----------------------------------------------------------------------

InterimAnalysis = Callable[[Lab, "Budget"], InterimResult]
"""Analyzes the blocks of a case so far, and forecasts verdicts within the budget."""


def interim_analysis_of(path: Path) -> InterimAnalysis:
    """Return the interim analysis of the results file that is being written."""

    def analyze(lab: Lab, budget: Budget) -> InterimResult:
        notes: list[str] = []
        # Without verification: this process writes the file, and it grows with every block.
        with Evidence(path, verify=False) as evidence:
            found = interim_result(evidence, lab.case)
            for history in aa_blocks.NOISE_HISTORIES:
                left = budget.blocks_left_of(lab.case), budget.block_s[lab.case]
                notes += history.notes(evidence, lab.case, found, *left)
        standings = tuple(_standing(comparison, lab, budget) for comparison in found.comparisons)
        lab.watch(InterimVerdicts(standings, budget.block_s[lab.case], tuple(notes)))
        return found

    return analyze


def _standing(comparison: Comparison, lab: Lab, budget: Budget) -> ArmVerdict:
    decision, primary = comparison.decision, comparison.primary
    forecast = None
    if decision and primary and lab.study.stops_on_verdict:
        cores = len(os.sched_getaffinity(0))
        clients = max(comparison.baseline.clients, comparison.arm.clients)
        remaining = RemainingBudget(
            budget.blocks_left_of(lab.case),
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
        is_trending=comparison.is_unsteady,
        may_trend=comparison.may_trend,
        is_provisional=not lab.study.needs_anytime_intervals,
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

    def blocks_left_of(self, case: int) -> int:
        """Return the number of further blocks of a case."""
        return min(self.passes_left(), self.blocks_left.get(case, sys.maxsize))

    def total_s(self, left: Mapping[int, int | None]) -> float | None:
        """Return the expected total time, None if unknown; ``left``: remaining blocks by case."""
        if any(blocks is None for blocks in left.values()):
            return self.budget_s
        if self.block_s:
            needed_s = sum((blocks or 0) * self._likely_s(case) for case, blocks in left.items())
            return min(self.budget_s, self.spent_s + (1 + self.aa_share) * needed_s)
        return None

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


REPETITIONS: Hooks[Callable[[Lab, int, Budget], bool]] = Hooks("repetitions")
"""Functions of features that return whether a block of a case that is done is to be repeated."""


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
    may_stop = labs[0].study.stops_on_verdict and not (number and _was_decided(cases, analyze, budget))
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
            while status is BlockStatus.INTERRUPTED and _repeats(case, cases, f"block {case.next_block + 1}"):
                status = _run_next(case, budget, active, may_stop=may_stop)
            if status is BlockStatus.DONE and block == 0 and _lengthen_slices(case, budget):
                status = _run_next(case, budget, active, may_stop=may_stop)
            while status is BlockStatus.DONE and any(of(case.lab, block, budget) for of in REPETITIONS):
                case.next_block = block
                status = _run_next(case, budget, active, may_stop=may_stop)
            if status is not BlockStatus.INTERRUPTED:
                case.decided = _is_decided(case, analyze, budget, may_stop=may_stop)
            if status is BlockStatus.DONE and not (may_stop and case.decided) and not case.given_up:
                status = _run_aa(case, block, budget, cases)
            if status is BlockStatus.INTERRUPTED:
                requested = case.lab.interruption.requested
                return StudyEnd.INTERRUPTED if requested else StudyEnd.FAILED
            if status is BlockStatus.FAILED and case.lab.study.on_failure == "stop":
                return StudyEnd.FAILED
        if may_stop and all(case.decided or case.given_up for case in cases):
            return StudyEnd.FAILED if any(case.given_up for case in cases) else StudyEnd.VERDICT
        number += 1
    return StudyEnd.FAILED if any(case.given_up for case in cases) else StudyEnd.BLOCKS


def _was_decided(cases: Sequence[CaseProgress], analyze: InterimAnalysis, budget: Budget) -> bool:
    """Analyze all cases of a resumed study, so that their state is shown. Return whether all are decided."""
    likely_s = max(1.0, budget.spent_s / sum(case.next_block for case in cases))
    budget = replace(budget, block_s=dict.fromkeys(range(len(cases)), likely_s))
    decided = [analyze(case.lab, budget).is_decided for case in cases]
    return all(decided)


def _repeats(case: CaseProgress, cases: Sequence[CaseProgress], block: str) -> bool:
    """Return whether the session of the study repeats an interrupted block."""
    session = case.lab.session
    return session is not None and session.repeats(case, cases, block)


def _is_decided(case: CaseProgress, analyze: InterimAnalysis, budget: Budget, *, may_stop: bool) -> bool:
    """Analyze a case after its block. Extend its warm-up if an effect depends on its length.

    Give the case up if no verdict is possible any more. With a fixed number of blocks the analysis is only
    shown.
    """
    if case.left is not None:
        # Including superseded blocks, which no result counts.
        budget.blocks_left[case.lab.case] = case.left
    if not case.lab.study.stops_on_verdict:
        if case.lab.study.can_have_interim_analyses:
            analyze(case.lab, budget)
        return False
    found = analyze(case.lab, budget)
    if may_stop and found.is_lost and not case.given_up:
        case.given_up = True
        texts = dict.fromkeys(of.failures_text for of in found.comparisons if of.failures)
        case.lab.watch(Warned(f"{'; '.join(texts)}: no further block can give a verdict"))
    times = times_of_warm_up(found, case.lab.study, case.lab.warm_up_times, budget, case.left)
    if times > case.lab.warm_up_times:
        case.lab = lab = replace(case.lab, warm_up_times=times)
        most = format_duration(lab.block_study.warmup_s)
        blocks = max((len(comparison.blocks) for comparison in found.comparisons), default=0)
        lab.watch(Warned(Caveat.of("warm-up-extended", longest=most, blocks=blocks).text))
    return found.is_decided


def _lengthen_slices(case: CaseProgress, budget: Budget) -> bool:
    """Return whether the first block is to be repeated with longer slices, because of long transactions.

    The budget must have time for VERDICT_BLOCKS_MIN of these blocks. Slices grow only as far as transactions
    need, so SAME_BLOCKS_MIN of them fit unless only slices that are too short would leave room for so many.
    """
    lab, study = case.lab, case.lab.study
    may_grow = study.slices_may_grow and not study.has_grown_slices
    if not (may_grow and study.is_together) or study.load_is_fixed:
        return False
    latency_s = _latency_s(lab)
    window_s = study.rounds * study.slice_s
    least_rounds = whole_rounds(0.0, study.slice_s, study.schedule)
    spare_s = (budget.budget_s - budget.spent_s) / VERDICT_BLOCKS_MIN - budget.pass_s()
    slice_s = longer_slice_s(study.slice_s, latency_s, (window_s + spare_s / study.turns) / least_rounds)
    if spare_s < 0 or slice_s == study.slice_s:
        return False
    reason = f"the transactions of the first block, {format_duration(latency_s)} each"
    lengths = {
        "slice_s": slice_s,
        "slice_from": reason,
        "discard_s": discard_s(slice_s),
        "rounds": whole_rounds(window_s, slice_s, study.schedule),
    }
    start_again(case, lambda of: _with_lengths(of, lengths))
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
        executed = sum(piece.executed for piece in slices)
        if executed:
            # A closed loop: by Little's law, clients / rate is the mean latency.
            driving, counted_s = lab.study.driving(arm), sum(piece.counted_s for piece in slices)
            found.append(driving.workload.busy_clients(driving.clients) * counted_s / executed)
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


def times_of_warm_up(
    found: InterimResult, study: Study, times: int, budget: Budget, blocks_left: int | None = None
) -> int:
    """Return the maximum of the warm-up of the next block as a multiple of the plan's; ``times``: so far.

    It is extended if VERDICT_BLOCKS_MIN then fit, because there is no verdict without: to the first multiple
    after which arms that still rise are expected to bias no effect, else to twice the time. A fixed warm-up
    is the user's choice.
    """
    if not found.extends_warm_up or study.warmup_min_s is None:
        return times
    left = sys.maxsize if blocks_left is None else blocks_left
    spare_s = (budget.budget_s - budget.spent_s) / VERDICT_BLOCKS_MIN - budget.pass_s()
    most = int(spare_s / (study.warmup_s * study.turns))
    if left < VERDICT_BLOCKS_MIN or most < 2 * times:
        return times
    biases = [of.bias for of in found.comparisons if of.bias and of.bias.exceeds(study.margin)]
    if not biases:
        return 2 * times
    longer = (
        n
        for n in range(times + 1, most + 1)
        if all(bias.is_small_after(n * study.warmup_s, study.margin) for bias in biases)
    )
    return next(longer, times)


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
            kept=lab.kept,
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
        if not _repeats(aa, cases, f"the A/A block after block {block + 1}"):
            return status
        if case.next_block <= block:
            return BlockStatus.DONE  # all cases start again with fewer load generators


# ----------------------------------------------------------------------
# Execution and resumption of a study: servers, datasets, results file, blocks.
# ----------------------------------------------------------------------

WatchFor = Callable[[Sequence[str]], AbstractContextManager[Watch]]
"""Creates the receiver of progress events, given the names of the arms of the first case."""

AnalysisOf = Callable[[Path], InterimAnalysis]
"""Creates the interim analysis of a results file, which decides when the study stops."""

EndOfExamination = Callable[[StudyEnd], None]

Examine = Callable[[Writer, Sequence[Prepared], Watch, frozenset[str] | None], EndOfExamination]
"""Examines the machine before the first block of all cases, and stores its caveats. Returns the function for
the check after the last block. The last argument: kinds of caveats of a resumed study; None for a new one."""

EXAMINATIONS: Hooks[Examine] = Hooks("examinations")


@contextmanager
def open_session(study: Study) -> Iterator[Session | None]:
    """Open the session of a study; None if no feature replaces anything in it."""
    with ExitStack() as stack:
        opened = [stack.enter_context(opens(study)) for opens in SESSIONS]
        yield next(filter(None, opened), None)


def start_study(
    path: Path,
    request: Request,
    watch_for: WatchFor,
    interruption: Interruption,
    analysis_of: AnalysisOf = interim_analysis_of,
) -> StudyEnd:
    """Run a new study with a new results file. Errors in the request are raised before it is created."""
    if path.exists():
        raise EvidenceExistsError(path)
    studies = [case.study for case in request.cases]
    names = [arm.name for arm in studies[0].arms]
    with (
        open_session(studies[0]) as session,
        watch_for(names) as watch,
        prepare_arms(studies, watch, interruption) as ready,
    ):
        described: aa_blocks.Described = [
            (study_record(request, case, prepared), prepared.records)
            for case, prepared in zip(request.cases, ready, strict=True)
        ]
        cases = ready
        for history in aa_blocks.NOISE_HISTORIES:
            described, cases = history.add(described, cases, watch)
        described = [*described, *aa_blocks.aa_records([study for study, _ in described], cases)]
        with Writer.create(path, *described[0], *described[1:]) as writer:
            for case, prepared in enumerate(cases):
                for caveat in prepared.caveats:
                    writer.add_caveat(caveat, case)
            begun = [_Progress(request.name_of(case), case.study) for case in request.cases]
            labs = _labs(begun, cases, writer, watch, interruption, session)
            labs = aa_blocks.with_aa(labs, cases, aa_blocks.new_numbers(cases))
            ending = _measure(path, writer, labs, cases, analysis_of(path))
        for history in aa_blocks.NOISE_HISTORIES:
            history.store(path, watch)
        return ending


def resume_study(
    path: Path,
    more_minutes: float | None,
    watch_for: WatchFor,
    interruption: Interruption,
    analysis_of: AnalysisOf = interim_analysis_of,
) -> StudyEnd:
    """Continue with the first unfinished blocks. ``more_minutes`` are added to the time spent."""
    done = _read_progress(path)
    studies = [case.study for case in done]
    with Evidence(path, verify=False) as evidence:  # just verified
        spent_s = sum(case.spent_s for case in done) + aa_blocks.spent_s(evidence)
        numbers = aa_blocks.numbers_of(evidence)
        of_twins = {of: rates_so_far(evidence, of, evidence.study(of).plan) for of in numbers.values()}
    if more_minutes is not None:
        budget_s = (spent_s + 60 * more_minutes) / len(studies)
        studies = [study.model_copy(update={"budget_s": budget_s}) for study in studies]
    names = [arm.name for arm in studies[0].arms]
    with (
        open_session(studies[0]) as session,
        watch_for(names) as watch,
        prepare_arms(studies, watch, interruption) as ready,
    ):
        require_comparable(path, ready)
        with Writer.resume(path) as writer:
            if more_minutes is not None:
                writer.note_more_time(studies[0].budget_s, may_go_on=any(case.may_go_on for case in done))
            labs = _labs(done, ready, writer, watch, interruption, session)
            labs = aa_blocks.with_aa(labs, ready, numbers, of_twins)
            firsts = [case.next_block for case in done]
            ending = _measure(path, writer, labs, ready, analysis_of(path), firsts, spent_s)
        for history in aa_blocks.NOISE_HISTORIES:
            history.store(path, watch)
        return ending


@dataclass(frozen=True)
class _Progress:
    """Progress of a case. ``kept``: (block, arm) of the finished trials, with the rates of those that count.
    ``failed``: blocks with a failed one. ``rates``: rates of its warm-ups.
    """

    name: str
    study: Study
    next_block: int = 0
    spent_s: float = 0.0
    kept: Mapping[tuple[int, int], float | None] = field(default_factory=dict)
    failed: frozenset[int] = frozenset()
    rates: dict[int, list[Rates]] = field(default_factory=dict)
    warm_up_times: int = 1

    @property
    def may_go_on(self) -> bool:
        """Return whether further blocks can follow an interim analysis; false for a single analysis."""
        most = self.study.blocks_max
        return self.study.can_have_interim_analyses and (most is None or self.next_block < most)


def _labs(
    done: Sequence[_Progress],
    ready: Sequence[Prepared],
    writer: Writer,
    watch: Watch,
    interruption: Interruption,
    session: Session | None,
) -> list[Lab]:
    return [
        Lab(
            prepared.study,
            prepared.arms,
            writer,
            watch,
            interruption,
            number,
            case.name,
            case.kept,
            case.failed,
            rates=case.rates,
            warm_up_times=case.warm_up_times,
            session=session,
        )
        for number, (case, prepared) in enumerate(zip(done, ready, strict=True))
    ]


def _read_progress(path: Path) -> list[_Progress]:
    with Evidence(path) as evidence:
        return [_progress_of(evidence, case) for case in evidence.cases()]


def _progress_of(evidence: Evidence, case: int) -> _Progress:
    recorded = evidence.study(case)
    study = recorded.plan
    blocks = [b for b in evidence.blocks(case) if b.status in (BlockStatus.DONE, BlockStatus.FAILED)]
    trials = [
        t for t in evidence.trials(case) if t.status not in (TrialStatus.RUNNING, TrialStatus.INTERRUPTED)
    ]
    warm_ups = [one for t in trials if t.status is TrialStatus.OK and (one := t.driver.warm_up) is not None]
    spent = [(b.started_unix_s, b.ended_unix_s) for b in blocks]
    if study.schedule == "sequential":
        # Blocks overlap in time; trials do not.
        spent = [(t.started_unix_s, t.ended_unix_s) for t in trials]
    return _Progress(
        name=recorded.case,
        study=study,
        next_block=max((b.block + 1 for b in blocks), default=0),
        spent_s=sum((ended or begun) - begun for begun, ended in spent),
        kept={(t.block, t.arm): _rate(study, t) for t in trials},
        failed=frozenset(t.block for t in trials if t.status is TrialStatus.FAILED),
        rates=rates_so_far(evidence, case, study),
        warm_up_times=max((one.times for one in warm_ups), default=1),
    )


def _rate(study: Study, trial: records.Trial) -> float | None:
    counted_s = sum(piece.counted_s for piece in trial.measured)
    if trial.status is not TrialStatus.OK or counted_s <= 0:
        return None
    ok = Counter[str]()
    for piece in trial.measured:
        ok.update({kind: counts.ok for kind, counts in piece.kinds.items()})
    return rate_of_trial(study, trial.arm, ok, counted_s, trial.driver)


ENGINE_FACTS = ("version", "profile", "target", "rustc", "dataset_format")
HOST_FACTS = ("processor", "cores", "memory_bytes", "kernel", "architecture")
SERVER_FACTS = ("build_id", "version_text", "wal_disk")
"""Facts that must be equal to resume a study."""


def require_comparable(path: Path, ready: Sequence[Prepared]) -> None:
    """Blocks of other engines, servers, machines or schedules must not be pooled. Raises EvidenceError."""
    with Evidence(path, verify=False) as evidence:
        engine, now_engine = evidence.study().engine, build_info()
        facts: list[tuple[str, object, object]] = [
            (f"{name} of the engine", engine.get(name), now_engine.get(name)) for name in ENGINE_FACTS
        ]
        for case, prepared in enumerate(ready):
            arms, study = evidence.arms(case), evidence.study(case)
            host = describe_host(prepared.data_path)
            facts.append(("schedule", study.plan.schedule, prepared.study.schedule))
            facts += [(name, study.host.get(name), host[name]) for name in HOST_FACTS]
            for before, now in zip(arms, prepared.records, strict=True):
                place = f"server of {now.name}"
                facts += [(place, before.server.get(f), now.server.get(f)) for f in SERVER_FACTS]
    for what, then, here in facts:
        if then != here:
            raise EvidenceError(
                f"{path} was measured with another {what} ({then}; now {here}): start a new study"
            )


def _measure(
    path: Path,
    writer: Writer,
    labs: Sequence[Lab],
    ready: Sequence[Prepared],
    analyze: InterimAnalysis,
    first_blocks: Sequence[int] | None = None,
    spent_s: float = 0.0,
) -> StudyEnd:
    ending = StudyEnd.FAILED
    try:
        known = None if first_blocks is None else _kinds(path)
        examinations = [examine(writer, ready, labs[0].watch, known) for examine in EXAMINATIONS]
        ending = run_study(labs, analyze, first_blocks, spent_s)
        for end in examinations:
            end(ending)
    except KeyboardInterrupt:
        ending = StudyEnd.INTERRUPTED
        raise
    finally:
        writer.finish_study(ending, time.time())
    return ending


def _kinds(path: Path) -> frozenset[str]:
    """Return the kinds of the caveats of a study to be resumed."""
    with Evidence(path, verify=False) as evidence:
        return frozenset(caveat.kind for caveat in evidence.caveats(0))


def study_record(request: Request, case: Case, ready: Prepared) -> records.StudyRecord:
    """Return the record of a case for the results file. The plan has no passwords and is sufficient for a
    resume."""
    return records.StudyRecord(
        title=request.title,
        created_unix_s=time.time(),
        pgdyno_version=__version__,
        engine=build_info(),
        command=request.command,
        plan=ready.study.without_passwords(),
        host=describe_host(ready.data_path),
        case=request.name_of(case),
        levels=dict(case.levels),
        file=request.file,
        changes=request.changes,
        # As in the study file, without defaults.
        published=request.published.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        if request.published
        else None,
        arm_levels=[dict(levels) for levels in case.arms],
        why_no_aa=ready.why_no_aa,
    )
