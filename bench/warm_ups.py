"""Simulation of studies whose arms warm up slowly and differently: ``python -m bench warm-ups``.

The rate of each arm rises exponentially to its final value. The product's own functions end each warm-up,
judge the blocks after each one, extend the warm-up and end the study, with the defaults of ``pgdyno compare
--minutes N``. Results are the shares of verdicts, minutes, and the share of studies with an extended warm-up.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.noise import Floats
from bench.stopping import SEED, table
from pgdyno.analysis.comparison import Verdict, compare_arms
from pgdyno.analysis.measurement_noise import InterimResult
from pgdyno.analysis.statistics.intervals import method_of, percent_of
from pgdyno.analysis.telemetry.metrics import TPS
from pgdyno.measure.study_runner import Budget, times_of_warm_up
from pgdyno.measure.warm_up import Rates, WarmUp, interval_s_of, with_longer_warm_up
from pgdyno.results.reader import without_superseded
from pgdyno.results.records import Arm, Counts, DriverFacts, Slice, Trial, TrialStatus
from pgdyno.server.engine import Event
from pgdyno.study.arm_spec import parse_arm
from pgdyno.study.defaults import SLICE_S, Schedule, adaptive_warm_up, discard_s, fit_block_layout
from pgdyno.study.plan import Study, block_targets
from pgdyno.study.schedule import Role, block_of
from pgdyno.units import NS_PER_S, signed
from pgdyno.workloads.pgbench.parameters import PgbenchParameters

STUDIES = 200
MINUTES = 20.0
OVERHEAD_S = 5.0
"""Restores, starts and checks of a block."""

RATE = 20_000.0
"""Final transactions per second of the baseline. No noise comes from counting."""

SLICE_SD, BLOCK_SD, DRIFT_SD = 0.06, 0.011, 0.002
"""Log SDs: of a slice, of an arm in a block, and of a step of the drift that both arms share. The ratio of a
block then has an SD of 2.5%."""


@dataclass(frozen=True)
class Case:
    """Two arms. ``time_constants_s`` are in seconds of an arm's own load, 0 if it is steady. ``rise`` is the
    initial shortfall as a share of the final rate, ``effect`` the final change from the first arm to the
    second.
    """

    time_constants_s: tuple[float, float]
    rise: float = 0.5
    effect: float = 0.0

    def rates(self, rng: np.random.Generator, slices: int) -> list[Floats]:
        """Return the rate of each arm in each slice of a block."""
        at = (np.arange(slices) + 0.5) * SLICE_S
        drift = np.cumsum(rng.normal(0, DRIFT_SD, 2 * slices)).reshape(slices, 2)
        finals = (RATE, RATE * (1 + self.effect))
        return [
            final
            * (1 - (self.rise * np.exp(-at / constant_s) if constant_s else 0.0))
            * np.exp(rng.normal(0, SLICE_SD, slices) + drift[:, arm] + rng.normal(0, BLOCK_SD))
            for arm, (final, constant_s) in enumerate(zip(finals, self.time_constants_s, strict=True))
        ]


CASES = (
    Case((0.0, 0.0)),
    *(
        Case(constants, rise, effect)
        for rise in (0.5, 0.2)
        for constants, effect in (
            ((2.0, 2.0), 0.0),
            ((2.0, 3.0), 0.0),
            ((3.0, 6.0), 0.0),
            ((5.0, 10.0), 0.0),
            ((5.0, 10.0), 0.05),
            ((10.0, 20.0), 0.0),
            ((20.0, 60.0), 0.0),
            ((0.0, 20.0), 0.0),
            ((0.0, 30.0), 0.0),
            ((0.0, 60.0), 0.0),
        )
    ),
)


@dataclass(frozen=True)
class SimulatedStudy:
    """One simulated study: verdict, effect as a log ratio, duration, and the maximum of the last warm-up."""

    verdict: Verdict
    effect: float
    minutes: float
    warm_up_s: float


def default_study(minutes: float) -> Study:
    """Return the plan of ``pgdyno compare 15 15 --minutes N``, except clients and workload."""
    layout = fit_block_layout(60 * minutes, 2, SLICE_S, Schedule.SLICES, block_targets())
    warm_up = adaptive_warm_up(layout.warmup_s, layout.warmup_s, SLICE_S)
    return Study.model_validate(
        {
            "workload": PgbenchParameters(scale=1),
            "clients": 1,
            "title": "",
            "arms": [parse_arm("15").model_copy(update={"name": name}) for name in "AB"],
            "schedule": Schedule.SLICES,
            "slice_s": SLICE_S,
            "discard_s": discard_s(SLICE_S),
            "warmup_s": warm_up.most_s,
            "warmup_min_s": warm_up.least_s,
            "rounds": layout.rounds,
            "budget_s": 60 * minutes,
            "seed": SEED,
        }
    )


def simulate_study(rng: np.random.Generator, case: Case, minutes: float = MINUTES) -> SimulatedStudy:
    """Simulate one study."""
    study, budget, times = default_study(minutes), Budget(60 * minutes, 0.0), 1
    arms = [Arm(arm, name, name, {}, {}, [], {}, 1, {}) for arm, name in enumerate("AB")]
    trials: list[Trial] = []
    earlier: list[list[Rates]] = [[], []]
    while True:
        plan = with_longer_warm_up(study, times)
        trials += _block(rng, case, plan, len(trials) // 2, times, earlier)
        budget.spend(OVERHEAD_S + (trials[-1].ended_unix_s or 0.0))
        counted = without_superseded(trials)
        found = InterimResult(compare_arms(arms, counted, study, [TPS]), method_of(study, counted))
        if found.is_decided or not budget.allows_another():
            (comparison,) = found.comparisons
            effect = comparison.primary.summary.mean if comparison.primary else math.nan
            return SimulatedStudy(comparison.verdict, effect, budget.spent_s / 60, plan.warmup_s)
        times = times_of_warm_up(found, study, times, budget)


def _block(
    rng: np.random.Generator, case: Case, plan: Study, number: int, times: int, earlier: Sequence[list[Rates]]
) -> list[Trial]:
    """Return the trials of a block, and add its rates to ``earlier``, those of earlier blocks by arm."""
    planned = block_of(plan, number)
    warm_up = WarmUp(plan, 2, interval_s_of(plan), earlier)
    rates = case.rates(rng, len(planned.slices) // 2)
    slices: list[list[Slice]] = [[], []]
    now_s, is_warm = 0.0, False
    for position, one in enumerate(planned.slices):
        if one.role is Role.WARM_UP and is_warm:
            continue
        n = round(rates[one.arm][len(slices[one.arm])] * one.duration_s)
        ends_s = now_s + one.duration_s
        counted_s = now_s + (plan.discard_s if one.role is Role.MEASURE else 0.0)
        kinds = {"transaction": Counts(ok=round(n * (ends_s - counted_s) / one.duration_s))}
        slices[one.arm].append(Slice(position, one.role, now_s, counted_s, ends_s, ends_s, 0.0, 0.0, kinds))
        for event in _events(one.arm, one.role, now_s, ends_s, n):
            is_warm = warm_up.ends_with(event) or is_warm
        now_s = ends_s
    for arm, of_arm in enumerate(earlier):
        of_arm.append(warm_up.rates(arm))
    ends = [warm_up.found(arm) for arm in (0, 1)]
    return [
        Trial(
            trial=2 * number + arm,
            block=number,
            arm=arm,
            attempt=1,
            status=TrialStatus.OK,
            started_unix_s=0.0,
            ended_unix_s=now_s,
            slices=slices[arm],
            driver=DriverFacts(warm_up=None if end is None else replace(end, times=times)),
        )
        for arm, end in enumerate(ends)
    ]


def _events(arm: int, role: Role, from_s: float, to_s: float, n: int) -> Iterator[Event]:
    """Yield the events of the engine at the end of a slice."""
    common = {"role": role, "target": arm}
    times = {"from_ns": round(from_s * NS_PER_S), "to_ns": round(to_s * NS_PER_S)}
    kinds = {"transaction": {"ok": n, "rolled_back": 0}}
    yield {**common, **times, "event": "interval", "kinds": kinds, "latency_ns": {}}
    yield {**common, "event": "slice"}


def row(case: Case, studies: int, minutes: float) -> list[str]:
    """Return the row of a case."""
    rng = np.random.default_rng(SEED)
    ended = [simulate_study(rng, case, minutes) for _ in range(studies)]
    verdicts = Counter(one.verdict for one in ended)
    spent = sorted(one.minutes if one.verdict is not Verdict.UNDECIDED else math.inf for one in ended)
    shares = [
        verdicts[of] / studies for of in (Verdict.FASTER, Verdict.SLOWER, Verdict.SAME, Verdict.UNDECIDED)
    ]
    middle, nine = (float(np.quantile(spent, share, method="inverted_cdf")) for share in (0.5, 0.9))
    planned_s = default_study(minutes).warmup_s
    return [
        ", ".join(f"{of:g} s" if of else "steady" for of in case.time_constants_s),
        f"{case.rise:.0%}",
        f"{case.effect:.0%}",
        *(f"{share:.1%}" for share in shares),
        signed(percent_of(float(np.mean([one.effect for one in ended]))), 1, "%"),
        *(f"{of:.0f}" if math.isfinite(of) else f"> {minutes:g}" for of in (middle, nine)),
        f"{sum(one.warm_up_s > planned_s for one in ended) / studies:.1%}",
    ]


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench warm-ups", description=__doc__)
    parser.add_argument(
        "--studies", type=int, default=STUDIES, metavar="N", help="of each case [default: 200]"
    )
    parser.add_argument("--minutes", type=float, default=MINUTES, metavar="N", help="of each [default: 20]")
    chosen = parser.parse_args(arguments)
    head = (
        "Time constants",
        "Initial shortfall",
        "Effect",
        "Faster",
        "Slower",
        "Same",
        "Undecided",
        "Mean estimate",
        "Minutes, median",
        "Minutes, 9 of 10",
        "Warm-up extended",
    )
    print(table(head, [row(case, chosen.studies, chosen.minutes) for case in CASES]))
    return 0
