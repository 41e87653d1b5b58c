"""Reported ends of warm-ups, and a caveat if more than expected by chance were never found steady."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
from synthetic_telemetry import arm, trial

from pgdyno.analysis.steady_state import warm_up_caveats, warm_ups
from pgdyno.caveats import Code
from pgdyno.results.records import DriverFacts, Slice, Trial, WarmUpEnd
from pgdyno.study.schedule import Role


def warmed(
    number: int, driven_s: float, by: Literal["evidence", "time"], looks: int, looks_steady: int
) -> Trial:
    piece = Slice(0, Role.WARM_UP, 0.0, 0.0, driven_s, driven_s, 0, 0, {})
    end = WarmUpEnd(driven_s, by, values=looks + 4, looks=looks, looks_steady=looks_steady)
    return replace(trial(number), slices=[piece], driver=DriverFacts(warm_up=end))


def test_ends_and_tests_of_warm_ups_are_counted() -> None:
    trials = [
        warmed(1, 5.0, "evidence", 1, 1),
        warmed(2, 8.0, "time", 4, 0),
        warmed(3, 6.0, "evidence", 2, 1),
    ]
    found = warm_ups(arm(0, "15"), trials)
    assert found is not None
    assert (found.trials, found.ended_steady, found.shortest_s, found.longest_s) == (3, 2, 5.0, 8.0)
    assert (found.tested, found.unsteady) == (1, 1)
    assert warm_ups(arm(0, "15"), [trial(1)]) is None


@pytest.mark.parametrize(
    ("trials", "unsteady", "looks", "is_told"),
    [
        (1, 1, 4, False),  # one in three is plausible by chance
        (4, 4, 4, True),
        (8, 4, 4, False),
        (8, 7, 4, True),
        (1, 1, 40, True),  # so many unsteady ones are not plausible by chance
        (4, 0, 40, False),
    ],
)
def test_a_caveat_is_raised_if_chance_is_excluded(
    trials: int, unsteady: int, looks: int, is_told: bool
) -> None:
    of = [warmed(n, 8.0, "time", looks, 0 if n < unsteady else 1) for n in range(trials)]
    caveats = warm_up_caveats({"15": warm_ups(arm(0, "15"), of), "18": None})
    assert [caveat.code for caveat in caveats] == [Code.WARM_UP_TOO_SHORT] * is_told


def test_a_caveat_needs_stronger_evidence_with_many_cases() -> None:
    found = {"15": warm_ups(arm(0, "15"), [warmed(n, 8.0, "time", 4, 0) for n in range(4)]), "18": None}
    assert warm_up_caveats(found, cases=1) and not warm_up_caveats(found, cases=10)
