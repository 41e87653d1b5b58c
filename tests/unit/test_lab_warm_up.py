"""The warm-up ends when every arm is steady and all have the same number of slices, not before its
minimum.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from synthetic_study import QuickWriter, Synthetic, arms_of, study_of

from example_studies import make_study
from pgdyno.analysis.statistics.series import VALUES_MIN
from pgdyno.measure.engine_runs import interval_from
from pgdyno.measure.warm_up import RESUMED_BLOCKS_MAX, Rates, WarmUp, rates_so_far
from pgdyno.results.reader import Evidence
from pgdyno.results.records import Block, BlockStatus, TrialOutcome, TrialStatus, WarmUpEnd
from pgdyno.server.engine import Event
from pgdyno.study.plan import Study

S = 1_000_000_000
STEADY = [1000, 1004, 998, 1002, 999, 1001, 1000, 1003, 997, 1000]
RISING = [100, 200, 300, 400, 500, 600, 700, 800, 900, 1000]


def study(**fields: Any) -> Study:
    return make_study(**{"warmup_s": 12.0, "warmup_min_s": 2.0, **fields})


def interval(target: int, at: int, n: float, took_s: float = 1.0, p50_ns: int = 1000) -> Event:
    return {
        "event": "interval",
        "role": "warm-up",
        "target": target,
        "from_ns": at * S,
        "to_ns": int((at + took_s) * S),
        "kinds": {"new_order": {"ok": int(n * took_s), "rolled_back": 0, "failed": 3}},
        "latency_ns": {"p50": p50_ns},
    }


def closed(target: int) -> Event:
    return {"event": "slice", "role": "warm-up", "target": target}


def ended_after(warm_up: WarmUp, first: list[int], second: list[int]) -> int | None:
    """Return the number of rounds, with a slice per arm, after which it ended."""
    for number, rates in enumerate(zip(first, second, strict=True)):
        for target, n in enumerate(rates):
            assert not warm_up.ends_with(interval(target, 2 * number + target, n))
            if warm_up.ends_with(closed(target)):
                assert target == 1  # the other arm has also had its slice of the round
                return number + 1
    return None


def test_it_ends_when_all_arms_are_steady_and_have_had_as_many_slices() -> None:
    warm_up = WarmUp(study(), 2, 1.0)
    assert ended_after(warm_up, STEADY, STEADY) == VALUES_MIN
    assert warm_up.found(0) == WarmUpEnd(5.0, "evidence", values=5, looks=1, looks_steady=1)
    assert not warm_up.ends_with(closed(1)), "once is enough"


def test_one_arm_that_still_rises_extends_the_warm_up_of_all() -> None:
    warm_up = WarmUp(study(), 2, 1.0)
    assert ended_after(warm_up, STEADY, RISING) is None
    first, second = warm_up.found(0), warm_up.found(1)
    assert (first.by, first.looks, second.looks_steady) == ("time", 6, 0)
    assert first.looks_steady > 0


def test_it_takes_its_minimum_or_without_one_its_whole_time() -> None:
    found = ended_after(WarmUp(study(warmup_min_s=8.0), 2, 1.0), STEADY, STEADY)
    assert found is not None and found >= 8
    constant = WarmUp(study(warmup_min_s=None), 2, 1.0)
    assert ended_after(constant, STEADY, STEADY) is None
    assert constant.found(1) == WarmUpEnd(10.0, "time", values=10, looks=0, looks_steady=0)


def test_in_the_first_blocks_it_takes_a_third_of_its_maximum() -> None:
    first = WarmUp(study(warmup_s=24.0), 2, 1.0)
    later = WarmUp(study(warmup_s=24.0), 2, 1.0, [[[1000.0] * 20] * 2] * 2)
    assert ended_after(first, [1000] * 10, [1000] * 10) == 8
    assert ended_after(later, [1000] * 10, [1000] * 10) == VALUES_MIN


def test_a_single_arm_is_sampled_at_every_interval() -> None:
    warm_up = WarmUp(study(schedule="blocks"), 1, 1.0)
    found = [warm_up.ends_with(interval(0, at, n)) for at, n in enumerate(STEADY)]
    assert found == [at + 1 == VALUES_MIN for at in range(len(STEADY))]


def test_later_arms_of_a_block_are_driven_for_as_long_as_its_first() -> None:
    longer = WarmUp(study(schedule="blocks"), 1, 1.0, as_long_as_s=8.0)
    found = [longer.ends_with(interval(0, at, n)) for at, n in enumerate(STEADY)]
    assert found == [at + 1 == 8 for at in range(len(STEADY))]
    rising = WarmUp(study(schedule="blocks"), 1, 1.0, as_long_as_s=5.0)
    assert any(rising.ends_with(interval(0, at, n)) for at, n in enumerate(RISING))


def test_the_rest_of_a_slice_counts_with_the_interval_before_it() -> None:
    warm_up = WarmUp(study(), 1, 1.0)
    warm_up.ends_with(interval(0, 0, 1000))
    warm_up.ends_with(interval(0, 1, 0, took_s=0.01))
    found = warm_up.found(0)
    assert found is not None and (found.values, found.driven_s) == (1, pytest.approx(1.01))


def test_with_a_fixed_load_steadiness_is_tested_on_the_latency() -> None:
    falling = WarmUp(study(schedule="blocks", rate={"per_s": 100}), 1, 1.0)
    level = WarmUp(study(schedule="blocks", rate={"per_s": 100}), 1, 1.0)
    assert not any(falling.ends_with(interval(0, at, 100, p50_ns=10_000 - 900 * at)) for at in range(10))
    assert any(level.ends_with(interval(0, at, 100, p50_ns=10_000 + at % 2)) for at in range(10))


def test_an_interval_in_which_all_transactions_rolled_back_has_no_latency() -> None:
    warm_up = WarmUp(study(schedule="blocks", rate={"per_s": 100}), 1, 1.0)
    for at in range(4):
        event = interval(0, at, 100, p50_ns=9000 if at % 2 else 0)
        if not at % 2:
            event["kinds"]["new_order"] |= {"ok": 0, "rolled_back": 100}
        warm_up.ends_with(event)
    assert list(warm_up.rates(0)) == [9000.0, 9000.0]


def test_results_of_earlier_blocks_are_used() -> None:
    come_up_at_7 = [200, 300, 420, 530, 640, 760, 880, *STEADY]
    known = [[rate * factor for rate in come_up_at_7] for factor in (1.0, 1.3)]
    slow = WarmUp(study(schedule="blocks"), 1, 1.0, [known])
    assert not any(slow.ends_with(interval(0, at, 1000)) for at in range(6))
    assert slow.ends_with(interval(0, 6, 1000))
    never = WarmUp(study(schedule="blocks"), 1, 1.0, [[RISING, RISING]])
    assert not any(never.ends_with(interval(0, at, n)) for at, n in enumerate(STEADY))
    found = never.found(0)
    assert found is not None and found.looks_steady > 0
    single = WarmUp(study(schedule="blocks"), 1, 1.0, [[RISING]])
    assert any(single.ends_with(interval(0, at, n)) for at, n in enumerate(STEADY[:VALUES_MIN]))


def test_later_blocks_learn_from_warm_up_and_window() -> None:
    warm_up = WarmUp(study(), 1, 1.0)
    for at, n in enumerate([100, 500]):
        warm_up.ends_with(interval(0, at, n))
        warm_up.ends_with(closed(0))
    for at, n in enumerate([1000] * 20):
        assert not warm_up.ends_with({**interval(0, 2 + at, n), "role": "measure"})
        assert not warm_up.ends_with({**closed(0), "role": "measure"})
    assert warm_up.rates(0) == [100, 500, *[1000] * 8]
    assert WarmUp(study(), 1, 1.0).rates(0) == []


@pytest.mark.parametrize("fields", [{}, {"rate": {"per_s": 100}}], ids=["closed", "open"])
def test_a_resumed_study_uses_its_earlier_warm_ups(tmp_path: Path, fields: dict[str, Any]) -> None:
    wanted, of_study = Synthetic(blocks=0), study(schedule="blocks", **fields)
    shown: dict[int, list[Rates]] = {}
    quick = QuickWriter.create(tmp_path / "e", study_of(wanted), arms_of(wanted))
    with quick as writer, writer._transaction():
        for block in range(RESUMED_BLOCKS_MAX + 2):
            writer.begin_block(Block(block, block, (0, 1), 40.0 * block))
            for arm in (0, 1):
                trial = writer.begin_trial(block, arm, 40.0 * block)
                warm_up = WarmUp(of_study, 1, 1.0)
                for event in events_of(block, arm):
                    warm_up.ends_with(event)
                    if event["event"] == "interval":
                        writer.add_interval(trial, interval_from(event))
                status = TrialStatus.FAILED if (block, arm) == (4, 1) else TrialStatus.OK
                writer.finish_trial(trial, TrialOutcome(status, 40.0 * block + 35))
                if status is TrialStatus.OK and block >= 2:
                    shown.setdefault(arm, []).append(warm_up.rates(0))
            writer.finish_block(block, BlockStatus.DONE, 40.0 * block + 38)
    with Evidence(tmp_path / "e") as evidence:
        assert rates_so_far(evidence, 0, of_study) == {
            arm: [pytest.approx(rates) for rates in of_arm] for arm, of_arm in shown.items()
        }
        assert rates_so_far(evidence, 0, study(warmup_min_s=None)) == {}
    assert [len(of_arm) for of_arm in shown.values()] == [RESUMED_BLOCKS_MAX, RESUMED_BLOCKS_MAX - 1]
    assert {len(rates) for of_arm in shown.values() for rates in of_arm} == {15}


def events_of(block: int, arm: int) -> list[Event]:
    """Three slices of warm-up, each followed by the rest of a second, and twenty measured ones."""
    found = []
    for number in range(23):
        role = "warm-up" if number < 3 else "measure"
        at, n, p50_ns = 2 * number, 100 * (number + 1) + 10 * block + arm, 9000 - number
        whole = interval(0, at, n, p50_ns=p50_ns)
        rest = interval(0, at + 1, n, took_s=0.125, p50_ns=p50_ns + 5)
        found += [{**event, "role": role, "slice": number} for event in (whole, rest, closed(0))]
        for event in found[-3:]:
            for counts in event.get("kinds", {}).values():
                counts.update(skipped=0, retried=0)
    return found
