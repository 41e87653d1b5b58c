"""Capacity from a sweep of rates: the limit, the crossing computed by hand, and the report."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from golden_reports import LIMIT, sweep_of_rates
from report_forms import FORMS, report_of, sections_of
from synthetic_study import Synthetic

from pgdyno.analysis.comparison import Verdict
from pgdyno.analysis.comparison_caveats import comparison_caveats
from pgdyno.analysis.telemetry.percentiles import limited_ms
from pgdyno.errors import UsageError
from pgdyno.report.answer import case_report
from pgdyno.report.document import Section
from pgdyno.report.study_report import StudyReport
from pgdyno.results.records import TrialStatus
from pgdyno.study.values import LatencyLimit, crossing, parse_limit


def sweep(limit: str, blocks: int = 6) -> list[Synthetic]:
    return [replace(of, blocks=blocks) for of in sweep_of_rates(limit)]


def section(built: StudyReport) -> Section:
    return next(of for of in sections_of(built) if of.title.startswith("Capacity"))


@pytest.fixture(scope="module")
def built() -> StudyReport:
    return report_of(*sweep(LIMIT))


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("p99 < 20ms", LatencyLimit(0.99, 0.02)),
        ("p99.9<1s", LatencyLimit(0.999, 1.0)),
        (" p50 < 0.5 ms", LatencyLimit(0.5, 0.0005)),
    ],
)
def test_a_limit_is_read(text: str, limit: LatencyLimit) -> None:
    found = parse_limit(text)
    assert found.quantile == pytest.approx(limit.quantile) and found.latency_s == pytest.approx(
        limit.latency_s
    )


@pytest.mark.parametrize("text", ["p99.9<1500ms", "p99.9 < 1.5 s", "p99.9<1500000us"])
def test_a_limit_is_shown_in_milliseconds_whatever_its_spelling(text: str) -> None:
    assert str(parse_limit(text)) == "p99.9 < 1,500\u00a0ms"


@pytest.mark.parametrize(
    "text", ["p99", "20ms", "p100 < 1s", "p99 > 1s", "p99 < 0ms", "p99 < soon", "p0 < 1s"]
)
def test_an_invalid_limit_is_rejected(text: str) -> None:
    with pytest.raises(UsageError, match=r"p99 < 20ms|duration"):
        parse_limit(text)


@pytest.mark.parametrize(
    ("latencies_ms", "rate"),
    [
        ((1, 4, 16, 64), 300),  # 9 ms: at 300, as latency is the square of the rate by 100
        ((9, 20, 30, 40), 0),  # the limit is already reached
        ((1, 2, 3, 4), math.inf),
        ((1, math.inf, 2, 3), 100 * math.sqrt(2)),  # no extrapolation
        ((1, 16, 2, 3), 100 * 2 ** (math.log(9) / math.log(16))),  # rates after a miss do not count
    ],
)
def test_the_capacity_is_the_rate_at_which_latency_first_reaches_the_limit(
    latencies_ms: tuple[float, ...], rate: float
) -> None:
    logs = [math.log(latency) for latency in latencies_ms]
    assert crossing([100, 200, 400, 800], logs, math.log(9)) == pytest.approx(rate)


def test_unanswered_transactions_miss_the_limit() -> None:
    pairs = np.array([[n * 1_000_000, 1] for n in range(1, 1001)], dtype=np.uint64)  # 1 … 1000 ms
    assert limited_ms(pairs, 1000, 0, 0.99) == 990
    # Of 1005, five were never answered: the 995th is the 99th percentile.
    assert limited_ms(pairs, 1000, 5, 0.99) == 995
    assert limited_ms(pairs, 1000, 20, 0.99) == math.inf
    assert limited_ms(pairs[:0], 0, 1000, 0.99) == math.inf
    assert limited_ms(pairs[:900], 900, 0, 0.99) is None
    assert limited_ms(pairs[:100], 100, 0, 0.9) == 90


def test_a_report_contains_the_capacity_and_the_change(built: StudyReport) -> None:
    assert len(section(built).sentences) == 3
    found = json.loads(FORMS["json"](built))["more"]["capacity"]
    effect = found["changes"][0]["percent"]
    assert effect["low"] < 100 * (1 / 0.9 - 1) < effect["high"]
    assert [of["above"] + of["below"] for of in found["arms"]] == [0, 0]


def test_an_arm_that_failed_at_a_rate_has_no_capacity() -> None:
    *cases, highest = sweep(LIMIT)
    built = report_of(*cases, replace(highest, statuses={(2, 1): TrialStatus.FAILED}))
    found = json.loads(FORMS["json"](built))["more"]["capacity"]
    capacities = {of["name"]: of["capacity"] for of in found["arms"]}
    assert capacities["17"] is not None and capacities["18"] is None
    assert found["changes"] == []
    assert any("18: capacity unknown, because it failed in a pass" in of for of in section(built).sentences)


@pytest.mark.parametrize(
    ("slower", "blocks", "named"),
    [
        ((1.0, 1.0), 8, []),
        ((1.0, 2.4), 8, ["18"]),  # slightly above the limit in all of eight blocks
        ((1.0, 2.4), 2, []),  # plausible by chance
        ((90.0, 90.0), 1, ["17", "18"]),  # too large for an error of the search, even in one block
    ],
)
def test_a_capacity_at_which_the_limit_did_not_hold_has_no_verdict(
    slower: tuple[float, float], blocks: int, named: list[str]
) -> None:
    wanted = Synthetic(
        effects=(1, 1.3), noise=0.001, latencies=slower, capacity=LIMIT, blocks=blocks, slices=1
    )
    built = report_of(wanted)
    caveats = [of for of in built.findings.first.caveats if of.kind == "capacity-not-sustained"]
    assert [of.parameters["arm"] for of in caveats] == named
    assert all((of.parameters["kept"], of.parameters["blocks"]) == (0, blocks) for of in caveats)
    (comparison,) = built.findings.first.comparisons
    assert comparison.unconfirmed == named or (comparison.unconfirmed, named) == ((), [])
    decided = blocks == 8 and not named
    assert comparison.verdict is (Verdict.FASTER if decided else Verdict.UNDECIDED)


def test_a_block_in_which_the_limit_held_at_no_rate_is_not_said_to_lack_transactions() -> None:
    """A capacity is missing because of the limit: the arm did complete transactions, at given rates."""
    for capacity in (LIMIT, None):
        found = report_of(Synthetic(capacity=capacity, blocks=5, slices=1)).findings.first
        lost = [replace(of, stalled=[3], blocks=[0, 1, 2, 4]) for of in found.comparisons]
        caveats = comparison_caveats(
            found.study, [of.arm for of in found.arms], found.trials, lost, {0: None, 1: None}
        )
        expected = {"nothing-done", "no-keying-and-thinking"} if capacity is None else {"no-capacity"}
        either = {"nothing-done", "no-keying-and-thinking", "no-capacity"}
        assert {of.kind for of in caveats} & either == expected
        report = case_report(replace(found, comparisons=[replace(of, primary=None) for of in lost]))
        assert (str(parse_limit(LIMIT)) in report.headlines[0].more) == (capacity is not None)
        assert report.headlines[0].more
