"""The search for each arm's capacity, before the measured part of a block: short runs of an open loop.

All arms that are up together search at the same time, in turn: a step is one run of the driver, with a slice
of each arm at a rate of its own, in random order. What the steps did to the data stays, so the checks of the
trial begin after them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pgdyno.analysis.telemetry.percentiles import limited_ms, merge
from pgdyno.drive.run import Run, run_drive
from pgdyno.drive.specification import drive_specification
from pgdyno.evidence.events import histograms_from, slice_from
from pgdyno.evidence.records import Counts, Measure
from pgdyno.evidence.records import Slice as Driven
from pgdyno.lab.progress import Step
from pgdyno.lab.trial import Lab, Trial
from pgdyno.study.capacity_search import (
    CLOSED_LOOP_S,
    LatencyLimit,
    Tried,
    capacity,
    next_rate,
    parse_limit,
    step_s,
)
from pgdyno.study.plan import Block, Driving, Rate, Slice
from pgdyno.study.schedule import Role
from pgdyno.workload.choose import workload_of

Targets = Sequence[tuple[str, str]]


def search_capacities(lab: Lab, block: Block, trials: Mapping[int, Trial], targets: Targets) -> Run | None:
    """Notes what was tried at each trial. Returns a run that was cut short: then no rate was found."""
    assert lab.study.capacity is not None
    limit = parse_limit(lab.study.capacity)
    rng = random.Random(f"search:{block.seed}")
    lab.watch(Step("measuring the arms in a closed loop"))
    order = rng.sample(range(len(targets)), len(targets))
    closed, run = _closed_loop(lab, block, trials, targets, [*order, *reversed(order)])
    if not run.complete:
        return _cut_short(run)
    tried: dict[int, list[Tried]] = {target: [] for target in range(len(targets))}
    for number in range(1, 10_000):  # next_rate ends it
        wanted = {target: next_rate(tried[target], limit, closed[target]) for target in tried}
        rates = {target: rate for target, rate in wanted.items() if rate is not None}
        if not rates:
            break
        lab.watch(Step(f"searching the capacity, step {number}"))
        run = _step(lab, block.seed + number, trials, targets, rates, limit, rng)
        if not run.complete:
            return _cut_short(run)
        for target, rate in rates.items():
            tried[target].append(Tried(rate, _latency_ms(run, target, limit)))
    for target, trial in enumerate(trials.values()):
        driving = lab.study.driving(trial.arm.index)
        trial.checks = workload_of(driving.workload).checks(driving.clients, restored=False)
        trial.search = _noted(lab.study.capacity, closed[target], tried[target])
        trial.rate_per_s = (
            capacity(tried[target], limit) or (tried[target] or [Tried(1.0, 0.0)])[-1].rate_per_s
        )
        assert trial.witness is not None
        trial.checks.begin(trial.witness)
    return None


def _cut_short(run: Run) -> Run:
    """What a step has counted is not the trial's."""
    return replace(run, before="while searching for the capacity: ")


def _noted(limit: str, closed_per_s: float, tried: Sequence[Tried]) -> dict[str, object]:
    """As the evidence keeps it; JSON has no infinity."""
    steps = [
        {
            "rate_per_s": step.rate_per_s,
            "latency_ms": None if math.isinf(step.latency_ms) else step.latency_ms,
        }
        for step in tried
    ]
    return {"limit": limit, "closed_loop_per_s": closed_per_s, "steps": steps}


def _closed_loop(
    lab: Lab, block: Block, trials: Mapping[int, Trial], targets: Targets, order: Sequence[int]
) -> tuple[list[float], Run]:
    """Transactions per second of each target."""
    slices = [Slice(target, Role.MEASURE, CLOSED_LOOP_S, i // len(targets)) for i, target in enumerate(order)]
    driven: list[list[Driven]] = [[] for _ in targets]
    drivings = [_driving(lab, index, None) for index in trials]
    specification = drive_specification(drivings[0], block.seed, slices, targets, drivings)

    def on_event(event: Mapping[str, object]) -> None:
        if event["event"] == "slice":
            driven[int(str(event["target"]))].append(slice_from(event))

    run = run_drive(specification, lab.interruption, on_event, lambda: [None for _ in targets])
    rates = []
    for pieces in driven:
        counted_s = sum(piece.counted_s for piece in pieces)
        executed = sum(counts.executed for piece in pieces for counts in piece.kinds.values())
        rates.append(max(1.0, executed / counted_s) if counted_s else 1.0)
    return rates, run


def _step(
    lab: Lab,
    seed: int,
    trials: Mapping[int, Trial],
    targets: Targets,
    rates: Mapping[int, float],
    limit: LatencyLimit,
    rng: random.Random,
) -> Run:
    """A slice of each target that still searches."""
    study = lab.study
    order = rng.sample(sorted(rates), len(rates))
    slices = [
        Slice(target, Role.MEASURE, step_s(rates[target], limit, study.slice_s, study.discard_s), 0)
        for target in order
    ]
    drivings = [_driving(lab, index, rates.get(target)) for target, index in enumerate(trials)]
    specification = drive_specification(drivings[0], seed, slices, targets, drivings)
    return run_drive(specification, lab.interruption, lambda _: None, lambda: [None for _ in targets])


def _driving(lab: Lab, arm: int, rate_per_s: float | None) -> Driving:
    return driving_at(lab.study.driving(arm), rate_per_s)


def driving_at(driving: Driving, rate_per_s: float | None) -> Driving:
    """The same clients at a rate, or without one."""
    rate = None if rate_per_s is None else Rate(per_s=rate_per_s)
    return driving.model_copy(update={"rate": rate})


def _latency_ms(run: Run, target: int, limit: LatencyLimit) -> float:
    """Too few transactions for the percentile have missed it: as many as are needed were on their way."""
    assert run.result is not None
    found = run.result["targets"][target]
    counts = [Counts(**kind["counts"]) for kind in found["kinds"].values()]
    answered = sum(of.executed for of in counts)
    every = sum(of.all for of in counts)
    pairs = merge(h.pairs for h in histograms_from(found) if h.measure is Measure.LATENCY)
    latency_ms = limited_ms(pairs, answered, every - answered, limit.quantile)
    return math.inf if latency_ms is None else latency_ms
