"""Order of the blocks of a study's cases."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from example_records import begun

from example_studies import make_study
from pgdyno.analysis.measurement_noise import InterimResult
from pgdyno.features.drivers.session import session_of
from pgdyno.interruption import Interruption
from pgdyno.measure import block as lab_block
from pgdyno.measure import study_runner
from pgdyno.measure.progress import BlockEnded, Warned
from pgdyno.measure.study_runner import Budget, _read_progress, run_study
from pgdyno.measure.trial import Lab
from pgdyno.results.records import BlockStatus, Counts, Role, Slice, StudyEnd, TrialOutcome, TrialStatus
from pgdyno.study.plan import DriversPlan, Study
from pgdyno.study.schedule import PlannedBlock, aa_arm_after, aa_study, blocks_of

PATH = Path("e.sqlite")
"""Path of a results file without a request to stop."""


class Played:
    """Blocks that take no time: records (case, block), and simulates outcomes for some cases."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, failing: Sequence[int] = (), block_s: int | None = None
    ) -> None:
        self.ran: list[tuple[int, int]] = []
        self.failing = failing
        self.void: list[tuple[int, int]] = []  # blocks that are void once
        monkeypatch.setattr(study_runner, "run_block", self.block)
        if block_s is not None:
            monkeypatch.setattr(study_runner.time, "monotonic", itertools.count(step=block_s).__next__)

    def block(self, lab: Lab, block: PlannedBlock) -> BlockStatus:
        self.ran.append((lab.case, block.index))
        if (lab.case, block.index) in self.void:
            self.void.remove((lab.case, block.index))
            return BlockStatus.INTERRUPTED
        return BlockStatus.FAILED if lab.case in self.failing else BlockStatus.DONE


def labs(blocks: Sequence[int], **changes: object) -> list[Lab]:
    never = cast(Interruption, SimpleNamespace(requested=False))
    studies = [make_study(blocks_max=most, probes=(), **changes) for most in blocks]
    return [
        Lab(study, [], cast(Any, SimpleNamespace(path=PATH)), lambda _: None, never, case, f"case {case}")
        for case, study in enumerate(studies)
    ]


@dataclass(frozen=True)
class Found:
    """Findings of an interim analysis."""

    is_decided: bool = False
    extends_warm_up: bool = False
    is_lost: bool = False
    comparisons: Sequence[Any] = ()


def undecided(_lab: Lab, _budget: Budget | None) -> InterimResult:
    return cast(InterimResult, Found())


class Deciding:
    """Decides each case after a number of its blocks, counted by ``played``."""

    def __init__(self, played: Played, after: Sequence[int], resumed: int = 0) -> None:
        self.played, self.after, self.resumed, self.looks = played, after, resumed, 0

    def __call__(self, lab: Lab, _budget: Budget | None) -> InterimResult:
        self.looks += 1
        ran = self.resumed + sum(case == lab.case for case, _ in self.played.ran)
        return cast(InterimResult, Found(is_decided=ran >= self.after[lab.case]))


def test_blocks_that_a_longer_warm_up_superseded_are_not_still_to_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The interim analysis does not count them, the limit of blocks does."""
    played, left = Played(monkeypatch), []

    def look(lab: Lab, budget: Budget | None) -> InterimResult:
        assert budget is not None
        left.append((len(played.ran), budget.blocks_left[lab.case]))
        return cast(InterimResult, Found(extends_warm_up=len(played.ran) < 3))

    run_study(labs([7], warmup_min_s=1), look)
    assert left == [(n, 7 - n) for n in range(1, 8)]


def test_a_pass_has_a_block_of_every_case_in_an_order_of_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    orders = []
    for _ in range(2):
        played = Played(monkeypatch)
        assert run_study(labs([6, 6, 6]), undecided) is StudyEnd.BLOCKS
        orders.append([played.ran[i : i + 3] for i in range(0, 18, 3)])
        assert [sorted(one) for one in orders[-1]] == [[(case, n) for case in range(3)] for n in range(6)]
    assert orders[0] == orders[1]
    assert len({tuple(case for case, _ in one) for one in orders[0]}) > 1


def test_a_resumed_study_first_brings_its_cases_level(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch)
    assert run_study(labs([2, 2, 2]), undecided, first_blocks=[1, 0, 1]) is StudyEnd.BLOCKS
    assert played.ran[0] == (1, 0)
    assert sorted(played.ran[1:]) == [(0, 1), (1, 1), (2, 1)]


def test_a_case_that_fails_in_every_block_is_abandoned_and_the_others_continue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played = Played(monkeypatch, failing=[1])
    assert run_study(labs([5, 5]), undecided) is StudyEnd.FAILED
    assert [block for case, block in played.ran if case == 1] == [0, 1, 2]
    assert [block for case, block in played.ran if case == 0] == [0, 1, 2, 3, 4]


def test_a_case_whose_verdict_is_prevented_by_a_failure_ends_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played, told = Played(monkeypatch), list[object]()
    text = "18 failed in 1 of 5 blocks (failure rate 0.51% to 72%, 95% CI)"
    failed = SimpleNamespace(failures={"18": None}, failures_text=text, blocks=range(4))

    def look(lab: Lab, _budget: Budget | None) -> InterimResult:
        ran = sum(case == lab.case for case, _ in played.ran)
        return cast(InterimResult, Found(is_lost=lab.case == 1 and ran >= 5, comparisons=[failed]))

    stopping = [replace(lab, watch=told.append) for lab in labs([7, 7])]
    assert run_study(stopping, look) is StudyEnd.FAILED
    assert [sum(case == of for case, _ in played.ran) for of in (0, 1)] == [7, 5]
    warnings = [one for one in told if isinstance(one, Warned)]
    assert warnings == [Warned(f"{text}: no further block can give a verdict")]


def test_a_study_ends_with_the_verdicts_of_its_other_cases_once_one_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played = Played(monkeypatch, failing=[1])
    assert run_study(labs([9, 9]), Deciding(played, [5, 99])) is StudyEnd.FAILED
    assert [sum(case == of for case, _ in played.ran) for of in (0, 1)] == [5, 3]


def test_a_study_of_fixed_length_continues_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch)
    fixed = labs([7], stop="budget")
    assert run_study(fixed, lambda *_: cast(InterimResult, Found(is_lost=True))) is StudyEnd.BLOCKS
    assert len(played.ran) == 7


def test_a_study_that_is_to_stop_at_a_failure_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, failing=[0, 1])
    assert run_study(labs([5, 5], on_failure="stop"), undecided) is StudyEnd.FAILED
    assert len(played.ran) == 1


def test_time_that_is_spent_ends_all_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, block_s=50)
    # A block takes 50 s, and both cases together have 120 s: not even half of a third one fits.
    assert run_study(labs([9, 9]), undecided) is StudyEnd.BUDGET
    assert len(played.ran) == 2


def test_trials_that_a_resumed_sequence_keeps_are_shown_with_their_rates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = make_study(schedule="sequential", blocks_max=2)
    seen: list[object] = []
    writer = SimpleNamespace(path=PATH, begin_block=lambda *_: None, finish_block=lambda *_: None)
    arms = [SimpleNamespace(index=0), SimpleNamespace(index=1)]
    never, kept = cast(Interruption, SimpleNamespace(requested=False)), {(0, 0): 100.0, (1, 0): None}
    lab = Lab(study, cast(Any, arms), cast(Any, writer), seen.append, never, kept=kept)

    def run(
        _lab: Lab, _block: PlannedBlock, group: Sequence[int], rates: dict[int, float | None]
    ) -> BlockStatus:
        rates[group[0]] = 90.0
        return BlockStatus.DONE

    monkeypatch.setattr(lab_block, "run_group", run)
    assert lab_block.run_in_sequence(lab, list(blocks_of(study))) is BlockStatus.DONE
    assert seen == [BlockEnded(0, (100.0, 90.0)), BlockEnded(1, (None, 90.0))]


def test_a_failed_trial_that_a_resumed_sequence_keeps_fails_its_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, number = begun(tmp_path / "e.sqlite")
    file.finish_trial(number, TrialOutcome(TrialStatus.FAILED, 9.0))
    file.close()
    (done,) = _read_progress(tmp_path / "e.sqlite")
    stored: list[tuple[object, ...]] = []
    writer = SimpleNamespace(begin_block=lambda *_: None, finish_block=lambda *of: stored.append(of[:2]))
    (lab,) = labs([2], schedule="sequential", on_failure="stop")
    arms = cast(Any, [SimpleNamespace(index=0), SimpleNamespace(index=1)])
    lab = replace(lab, arms=arms, writer=cast(Any, writer), kept=done.kept, failed=done.failed)
    monkeypatch.setattr(lab_block, "run_group", lambda *_: pytest.fail("a trial ran after a failure"))
    assert lab_block.run_in_sequence(lab, list(blocks_of(lab.study))) is BlockStatus.FAILED
    assert stored == [(0, BlockStatus.FAILED), (1, BlockStatus.DONE)]


def test_a_study_stops_after_the_pass_in_which_every_case_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch)
    assert run_study(labs([9, 9, 9]), Deciding(played, after=[6, 7, 5])) is StudyEnd.VERDICT
    assert sorted(played.ran) == [(case, block) for case in range(3) for block in range(7)]


def test_a_verdict_at_the_last_block_is_the_reason_of_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_study(labs([6]), Deciding(Played(monkeypatch), after=[6])) is StudyEnd.VERDICT


@pytest.mark.parametrize(
    "changes", [{"stop": "budget"}, {"schedule": "sequential"}, {"blocks_max": 5}], ids=str
)
def test_interim_analyses_are_only_shown_if_there_is_one_verdict(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, object]
) -> None:
    played = Played(monkeypatch)
    monkeypatch.setattr(study_runner, "run_in_sequence", lambda *_: BlockStatus.DONE)
    deciding = Deciding(played, after=[1])
    blocks = int(str(changes.pop("blocks_max", 8)))
    assert run_study(labs([blocks], **changes), deciding) is StudyEnd.BLOCKS
    assert deciding.looks == (blocks if changes.get("stop") == "budget" else 0)


@pytest.mark.parametrize(
    ("blocks", "decided_after", "end", "ran"),
    [(9, 5, StudyEnd.BLOCKS, [6, 7, 8]), (20, 8, StudyEnd.VERDICT, [6, 7])],
    ids=["decided at its resume", "undecided"],
)
def test_a_resumed_study_stops_on_its_verdict_unless_it_was_decided_already(
    monkeypatch: pytest.MonkeyPatch, blocks: int, decided_after: int, end: StudyEnd, ran: list[int]
) -> None:
    played = Played(monkeypatch)
    deciding = Deciding(played, after=[decided_after], resumed=6)
    assert run_study(labs([blocks]), deciding, first_blocks=[6]) is end
    assert [block for _, block in played.ran] == ran


class Trending:
    """Finds that an effect has a trend until a warm-up has at least this maximum; records the maximum of each
    block.
    """

    def __init__(self, until_s: float) -> None:
        self.until_s = until_s
        self.warm_ups_s: list[float] = []

    def __call__(self, lab: Lab, _budget: Budget | None) -> InterimResult:
        study = lab.block_study
        self.warm_ups_s.append(study.warmup_s)
        return cast(InterimResult, Found(extends_warm_up=study.warmup_s < self.until_s))


class Interrupting:
    """Interrupts before the block after this number."""

    def __init__(self, after: int) -> None:
        self.left = after

    @property
    def requested(self) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"warmup_min_s": 1.0}, [4, 8, 16, 16, 16]),
        ({"warmup_min_s": None}, [4] * 5),
        ({"warmup_min_s": 1.0, "blocks_max": 8}, [4, 8, 16, 16, 16, 16, 16, 16]),
        ({"warmup_min_s": 1.0, "blocks_max": 6}, [4, 8, 8, 8, 8, 8]),
    ],
    ids=["until the effect is constant", "never a fixed one", "blocks left", "too few blocks left"],
)
def test_the_warm_up_is_extended_while_an_effect_changes(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], expected: list[float]
) -> None:
    Played(monkeypatch, block_s=50)
    trending = Trending(until_s=16)
    plan = make_study(**{"blocks_max": None, "warmup_s": 4.0, "budget_s": 1e4, "probes": (), **changes})
    lab = replace(labs([1])[0], study=plan)
    if plan.blocks_max is None:
        lab = replace(lab, interruption=cast(Interruption, Interrupting(after=5)))
    run_study([lab], trending)
    assert trending.warm_ups_s == expected
    extended = replace(lab, warm_up_times=4).block_study
    assert (extended.warmup_min_s, extended.warmup_s) == (16, 16)


def test_the_warm_up_stays_if_the_budget_has_no_time_for_five_longer_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Played(monkeypatch, block_s=50)
    trending = Trending(until_s=1000)
    plan = make_study(blocks_max=None, warmup_s=4.0, warmup_min_s=1.0, budget_s=420.0, probes=())
    assert run_study([replace(labs([1])[0], study=plan)], trending) is StudyEnd.BUDGET
    # After a block 370 s remain, for five of 50 + 16 s. After two, 320 s are not enough for five of 82 s.
    assert trending.warm_ups_s[:3] == [4, 8, 8]


class Repeating:
    """A writer that records the plans of repeated cases."""

    path = PATH

    def __init__(self) -> None:
        self.plans: list[tuple[int, Study]] = []

    def repeat_with(self, plan: Study, case: int) -> None:
        self.plans.append((case, plan))


def slices_with(rate: int) -> list[Slice]:
    """Ten slices at a rate in transactions per second, negative if they fail. Without one each lasts 3 s."""
    counts = {"x": Counts(ok=rate // 2) if rate >= 0 else Counts(failed=-rate // 2)}
    ended_s = 0.5 if rate > 0 else 3.0
    return [Slice(i, Role.MEASURE, 0.0, 0.0, 0.5, ended_s, 0.0, 0.0, counts) for i in range(10)]


FIRST_BLOCKS: dict[str, tuple[dict[str, Any], list[int], int, float | None]] = {
    # 8 clients at 80 transactions per second: 100 ms each, which must be at most 1/20 of 2 s.
    "slow": ({}, [800, 80], 30, 2.0),
    "fast": ({}, [800, 400], 30, None),
    "chosen": ({"slices_may_grow": False}, [800, 80], 30, None),
    "grown before": ({"slice_from": "the transactions of the first block"}, [800, 80], 30, None),
    "open loop": ({"rate": {"per_s": 80.0}}, [800, 80], 30, None),
    # A window of 10 s per arm becomes one of 16 s: five blocks of 42 s take 210 of the remaining 270 s.
    "little time": ({"budget_s": 300.0}, [800, 20], 30, 8.0),
    # One of 32 s would need five blocks of 74 s.
    "less than needed": ({"budget_s": 300.0}, [800, 10], 30, 8.0),
    "too little time": ({"budget_s": 150.0}, [800, 80], 30, None),
    "a long block": ({"budget_s": 300.0}, [800, 80], 250, None),
    "one arm stalls": ({}, [800, 0], 30, None),
    # Each slice of 0.5 s lasts 3 s, until its transactions have ended.
    "longer than a slice": ({"budget_s": 300.0}, [0, 0], 30, 8.0),
    # They end within their slices, and fail.
    "none succeeds": ({"budget_s": 300.0}, [-8, -8], 30, None),
    "no complete run": ({}, [], 30, None),
}
"""Changes of the study, rates of its arms, length of a block, and that of the new slices."""


@pytest.mark.parametrize("name", FIRST_BLOCKS)
def test_the_first_block_is_repeated_with_longer_slices_if_its_transactions_are_long(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    changes, rates, block_s, slice_s = FIRST_BLOCKS[name]
    played, writer = Played(monkeypatch, block_s=block_s), Repeating()
    usual = {"clients": 8, "blocks_max": 2, "budget_s": 1500.0, "slices_may_grow": True, "rounds": 20}
    plan = make_study(**{**usual, "probes": (), **changes})
    assert plan.slice_s == 0.5
    lab = replace(
        labs([2])[0],
        study=plan,
        writer=cast(Any, writer),
        measured={arm: slices_with(rate) for arm, rate in enumerate(rates)},
    )
    run_study([lab], undecided)
    blocks = [block for _, block in played.ran]
    if slice_s is None:
        assert blocks in ([0], [0, 1]) and not writer.plans
        return
    ((case, longer),) = writer.plans
    assert blocks == [0, 0, 1] and case == 0
    assert (longer.slice_s, longer.rounds) == (slice_s, max(2, 2 * round(10 / slice_s / 2)))
    assert longer.discard_s == slice_s / 20 and longer.has_grown_slices and "each" in longer.slice_from


def test_a_case_with_longer_slices_stays_in_step_with_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    played, writer = Played(monkeypatch, block_s=10), Repeating()
    plan = make_study(clients=8, blocks_max=3, budget_s=9000.0, slices_may_grow=True, rounds=20, probes=())
    slow = {0: slices_with(80), 1: slices_with(80)}
    three = [
        replace(lab, study=plan, writer=cast(Any, writer), measured=slow if lab.case == 1 else {})
        for lab in labs([3, 3, 3])
    ]
    run_study(three, undecided)
    at = played.ran.index((1, 0))
    assert played.ran.pop(at + 1) == (1, 0), "repeated at once"
    passes = [sorted(played.ran[i : i + 3]) for i in (0, 3, 6)]
    assert passes == [[(case, n) for case in range(3)] for n in range(3)]


AA_BLOCKS = 20
"""Blocks of a case with one A/A block."""


def driven_by_nodes(nodes_left: int, on_node_loss: str, shown: list[str]) -> tuple[Lab, int]:
    """Return a case with two load generators, and the block that its A/A block follows, which is case 1."""
    plan = DriversPlan.model_validate({"n": 2, "on_node_loss": on_node_loss})
    pool = SimpleNamespace(plan=plan, n=2, n_left=nodes_left, lost=["n2"], note_loss=lambda: [])
    writer = SimpleNamespace(path=PATH, repeat_with=lambda *_: None, add_caveat=lambda *_: None)
    (lab,) = labs([AA_BLOCKS], drivers=plan, aa=True)

    def watch(progress: object) -> None:
        if isinstance(progress, Warned):
            shown.append(progress.text)

    lab = replace(lab, writer=cast(Any, writer), session=session_of(cast(Any, pool)), watch=watch)
    (at,) = [n for n in range(AA_BLOCKS) if aa_arm_after(lab.study, n) is not None]
    return replace(lab, aa={arm: replace(lab, study=aa_study(lab.study, arm), case=1) for arm in (0, 1)}), at


ALL = range(AA_BLOCKS)
REPEATED = "the A/A block after block 12 is void and is repeated"
AGAIN = "1 node of 2 left: the study starts again with 1 load generator"
TOO_FEW = (
    "1 node of 2 left: start nodes again and resume the study, or start a new one with pgdyno run "
    "--on-node-loss continue"
)


@pytest.mark.parametrize(
    ("nodes_left", "on_node_loss", "void", "end", "after", "told"),
    [
        (2, "stop", 1, StudyEnd.BLOCKS, "repeated", [REPEATED]),
        (1, "stop", 1, StudyEnd.FAILED, "", [TOO_FEW]),
        (2, "stop", 4, StudyEnd.FAILED, "twice repeated", [REPEATED] * 2),
        (1, "continue", 1, StudyEnd.BLOCKS, "all again", [AGAIN]),
    ],
)
def test_a_void_aa_block_is_repeated_twice_at_most_if_there_are_nodes_enough(
    monkeypatch: pytest.MonkeyPatch,
    nodes_left: int,
    on_node_loss: str,
    void: int,
    end: StudyEnd,
    after: str,
    told: list[str],
) -> None:
    played, shown = Played(monkeypatch), cast(list[str], [])
    lab, at = driven_by_nodes(nodes_left, on_node_loss, shown)
    played.void = [(1, at)] * void
    before, following = [(0, n) for n in range(at + 1)], [(0, n) for n in ALL[at + 1 :]]
    assert run_study([lab], undecided) is end
    assert (
        played.ran
        == {
            "repeated": [*before, (1, at), (1, at), *following],
            "": [*before, (1, at)],
            "twice repeated": [*before, *[(1, at)] * 3],
            "all again": [*before, (1, at), *before, (1, at), *following],
        }[after]
    )
    assert shown == told
