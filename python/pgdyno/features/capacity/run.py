"""Search of the capacity of each arm before the measured part of a block.

Arms that run at the same time search in turn. A step is one run of the driver with one slice of each arm, in
random order, each at its own rate. Changes of the data by these steps remain, so the checks of the trial
begin after them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from pgdyno.analysis.telemetry.percentiles import limited_ms, merge
from pgdyno.features.capacity.search import CLOSED_LOOP_S, next_rate, step_s
from pgdyno.measure.drive import Targets, driving_at
from pgdyno.measure.engine_runs import EngineRun, drive_specification, histograms_from, run_drive, slice_from
from pgdyno.measure.progress import PreparationStep
from pgdyno.measure.trial import Lab, RunningTrial
from pgdyno.results.records import CapacitySearch, Counts, Measure
from pgdyno.results.records import Slice as Driven
from pgdyno.server.engine import Event
from pgdyno.study.schedule import PlannedBlock, PlannedSlice, Role
from pgdyno.study.values import LatencyLimit, SearchStep, capacity, parse_limit
from pgdyno.units import format_duration, number_text
from pgdyno.workloads.workload import workload_of


def search_capacities(
    lab: Lab, block: PlannedBlock, trials: Mapping[int, RunningTrial], targets: Targets
) -> EngineRun | None:
    """Search the capacity of each arm, if the study asks for it, and store it in its trial.

    Returns a run that ended early, if any.
    """
    if not lab.study.searches_capacity:
        return None
    assert lab.study.capacity is not None
    limit = parse_limit(lab.study.capacity)
    rng = random.Random(f"search:{block.seed}")
    drive = partial(_drive, lab, block, trials, targets)
    lab.watch(PreparationStep("measuring the arms in a closed loop"))
    order = rng.sample(range(len(targets)), len(targets))
    closed, run = _closed_loop(drive, [*order, *reversed(order)])
    if not run.complete:
        return _cut_short(run)
    tried: dict[int, list[SearchStep]] = {target: [] for target in range(len(targets))}
    for number in range(1, 10_000):  # next_rate ends it
        wanted = {target: next_rate(tried[target], limit, closed[target]) for target in tried}
        rates = {target: rate for target, rate in wanted.items() if rate is not None}
        if not rates:
            break
        steps = "; ".join(
            step_text(lab.arms[index].name, rates[target], tried[target], lab.study.capacity)
            for target, index in enumerate(trials)
            if target in rates
        )
        lab.watch(PreparationStep(f"searching the capacity, step {number}: {steps}"))
        slices = [
            PlannedSlice(
                target,
                Role.MEASURE,
                step_s(rates[target], limit, lab.study.slice_s, lab.study.discard_s),
                0,
            )
            for target in rng.sample(sorted(rates), len(rates))
        ]
        run = drive(slices, number, rates)
        if not run.complete:
            return _cut_short(run)
        for target, rate in rates.items():
            tried[target].append(SearchStep(rate, _latency_ms(run, target, limit)))
    for target, trial in enumerate(trials.values()):
        driving = lab.study.driving(trial.arm.index)
        trial.checks = workload_of(driving.workload).checks(driving.clients, restored=False)
        trial.search = CapacitySearch(lab.study.capacity, closed[target], tried[target])
        trial.rate_per_s = (
            capacity(tried[target], limit) or (tried[target] or [SearchStep(1.0, 0.0)])[-1].rate_per_s
        )
        assert trial.crash_detector is not None
        trial.checks.begin(trial.crash_detector)
    return None


def step_text(arm: str, rate_per_s: float, tried: Sequence[SearchStep], limit: str) -> str:
    """Return ``18 at 1,200 tx/s (last 960 tx/s: p99 12 ms)``."""
    text = f"{arm} at {number_text(rate_per_s)} tx/s"
    if not tried:
        return text
    last_ms, name = tried[-1].latency_ms, limit.partition("<")[0].strip()
    met = "not met" if math.isinf(last_ms) else format_duration(last_ms / 1e3)
    return f"{text} (last {number_text(tried[-1].rate_per_s)} tx/s: {name} {met})"


def _cut_short(run: EngineRun) -> EngineRun:
    """Mark the run as part of the search: its counts do not belong to the trial."""
    return replace(run, before="while searching for the capacity: ")


def _drive(
    lab: Lab,
    block: PlannedBlock,
    trials: Mapping[int, RunningTrial],
    targets: Targets,
    slices: Sequence[PlannedSlice],
    number: int = 0,
    rates: Mapping[int, float] = MappingProxyType({}),
    on_event: Callable[[Event], None] = lambda _: None,
) -> EngineRun:
    """Run one step of the search; a target without a rate has a closed loop."""
    drivings = [
        driving_at(lab.study.driving(index), rates.get(target)) for target, index in enumerate(trials)
    ]
    specification = drive_specification(drivings[0], block.seed + number, slices, targets, drivings)
    return run_drive(specification, lab.interruption, on_event, start=lab.engine_of(block.seed))


def _closed_loop(drive: Callable[..., EngineRun], order: Sequence[int]) -> tuple[list[float], EngineRun]:
    """Return the transactions per second of each target, and the run; ``order`` has each target twice."""
    n = len(order) // 2
    slices = [PlannedSlice(target, Role.MEASURE, CLOSED_LOOP_S, i // n) for i, target in enumerate(order)]
    driven: list[list[Driven]] = [[] for _ in range(n)]

    def on_event(event: Event) -> None:
        if event["event"] == "slice":
            driven[event["target"]].append(slice_from(event))

    run = drive(slices, on_event=on_event)
    rates = []
    for pieces in driven:
        counted_s = sum(piece.counted_s for piece in pieces)
        executed = sum(counts.executed for piece in pieces for counts in piece.kinds.values())
        rates.append(max(1.0, executed / counted_s) if counted_s else 1.0)
    return rates, run


def _latency_ms(run: EngineRun, target: int, limit: LatencyLimit) -> float:
    """Return the latency percentile of the limit; infinite if too few transactions were completed."""
    assert run.result is not None
    found = run.result.targets[target]
    counts = [Counts(**kind.counts) for kind in found.kinds.values()]
    answered = sum(of.executed for of in counts)
    every = sum(of.all for of in counts)
    pairs = merge(h.pairs for h in histograms_from(found) if h.measure is Measure.LATENCY)
    latency_ms = limited_ms(pairs, answered, every - answered, limit.quantile)
    return math.inf if latency_ms is None else latency_ms
