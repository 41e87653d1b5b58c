"""Search of the capacity of each arm before the measured part of a block.

Arms that run at the same time search in turn. A step is one run of the driver with one slice of each arm, in
random order, each at its own load. Changes of the data by these steps remain, so the checks of the trial
begin after them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from pgdyno.analysis.telemetry.percentiles import limited_ms, merge
from pgdyno.features.capacity.search import (
    CLOSED_LOOP_S,
    expected_per_s,
    next_clients,
    next_rate,
    step_s,
    warm_up_s,
)
from pgdyno.measure.drive import Targets
from pgdyno.measure.engine_runs import EngineRun, drive_specification, histograms_from, run_drive, slice_from
from pgdyno.measure.progress import PreparationStep
from pgdyno.measure.trial import Lab, RunningTrial
from pgdyno.results.records import CapacitySearch, Counts, Measure
from pgdyno.results.records import Slice as Driven
from pgdyno.server.engine import Event
from pgdyno.study.plan import Driving, Rate, Study
from pgdyno.study.schedule import PlannedBlock, PlannedSlice, Role
from pgdyno.study.values import LatencyLimit, SearchStep, capacity, parse_limit
from pgdyno.units import counted, format_duration, group_digits
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
    drive = partial(_drive, lab, block, targets)
    names = [trial.arm.name for trial in trials.values()]
    studied = [lab.study.driving(index) for index in trials]
    lab.watch(PreparationStep("measuring the arms in a closed loop"))
    order = rng.sample(range(len(targets)), len(targets))
    first = [_at_load(lab.study, driving, None) for driving in studied]
    closed, run = _closed_loop(partial(drive, first), [*order, *reversed(order)])
    if not run.complete:
        return _cut_short(run)
    tried: list[list[SearchStep]] = [[] for _ in targets]
    for number in range(1, 10_000):  # the next loads end it
        wanted = {
            target: _next_load(lab.study, tried[target], limit, closed[target], driving.clients)
            for target, driving in enumerate(studied)
        }
        loads = {target: load for target, load in wanted.items() if load is not None}
        if not loads:
            break
        loads_text = "; ".join(
            step_text(
                names[target], load, tried[target], lab.study.capacity, by_clients=lab.study.searches_clients
            )
            for target, load in loads.items()
        )
        lab.watch(PreparationStep(f"searching the capacity, step {number}: {loads_text}"))
        drivings = [_at_load(lab.study, driving, wanted[target]) for target, driving in enumerate(studied)]
        order = rng.sample(sorted(loads), len(loads))
        slices = _slices(lab.study, order, loads, tried, limit, closed)
        per_s: dict[int, float] = {}
        run = drive(drivings, slices, number, partial(_note_rate, per_s))
        if not run.complete:
            return _cut_short(run)
        for target, load in loads.items():
            latency_ms = _latency_ms(run, target, limit)
            if lab.study.searches_clients:
                step = SearchStep(per_s[target], latency_ms, int(load))
            else:
                step = SearchStep(load, latency_ms)
            tried[target].append(step)
    for target, trial in enumerate(trials.values()):
        steps = tried[target]
        trial.search = CapacitySearch(lab.study.capacity, closed[target], steps)
        found = capacity(steps, limit) or (steps[-1].load if steps else 1.0)
        trial.driving = _at_load(lab.study, studied[target], found)
        trial.checks = workload_of(trial.driving.workload).checks(trial.driving.clients, restored=False)
        assert trial.crash_detector is not None
        trial.checks.begin(trial.crash_detector)
    return None


def _cut_short(run: EngineRun) -> EngineRun:
    """Mark the run as part of the search: its counts do not belong to the trial."""
    return replace(run, before="while searching for the capacity: ")


def _next_load(
    study: Study, tried: Sequence[SearchStep], limit: LatencyLimit, closed_per_s: float, clients: int
) -> float | None:
    if study.searches_clients:
        return next_clients(tried, limit, closed_per_s, clients)
    return next_rate(tried, limit, closed_per_s)


def _at_load(study: Study, driving: Driving, load: float | None) -> Driving:
    """Return the clients with the load of a step. None: a closed loop, by clients of one."""
    if not study.searches_clients:
        return driving.model_copy(update={"rate": None if load is None else Rate(per_s=load)})
    clients = 1 if load is None else int(load)
    threads = None if driving.threads is None else min(driving.threads, clients)
    return driving.model_copy(update={"clients": clients, "threads": threads})


def step_text(
    arm: str, load: float, tried: Sequence[SearchStep], limit: str, *, by_clients: bool = False
) -> str:
    """Return ``18 at 1,200 tx/s (last 960 tx/s: p99 12 ms)``, or the same with clients."""

    def shown(at: float) -> str:
        return counted(int(at), "client") if by_clients else f"{group_digits(at, 0)} tx/s"

    text = f"{arm} at {shown(load)}"
    if not tried:
        return text
    last_ms, name = tried[-1].latency_ms, limit.partition("<")[0].strip()
    met = "not met" if math.isinf(last_ms) else format_duration(last_ms / 1e3)
    return f"{text} (last {shown(tried[-1].load)}: {name} {met})"


def _slices(
    study: Study,
    order: Sequence[int],
    loads: Mapping[int, float],
    tried: Sequence[Sequence[SearchStep]],
    limit: LatencyLimit,
    closed: Sequence[float],
) -> list[PlannedSlice]:
    """Return the slice of each target of a step, by clients after a warm-up of each."""
    warm, measured = [], []
    for target in order:
        rate_per_s = loads[target]
        if study.searches_clients:
            clients = int(loads[target])
            rate_per_s = expected_per_s(tried[target], clients, closed[target])
            length_s = warm_up_s(clients, rate_per_s, study.discard_s)
            warm.append(PlannedSlice(target, Role.WARM_UP, length_s, 0))
        length_s = step_s(rate_per_s, limit, study.slice_s, study.discard_s)
        measured.append(PlannedSlice(target, Role.MEASURE, length_s, 0))
    return [*warm, *measured]


def _drive(
    lab: Lab,
    block: PlannedBlock,
    targets: Targets,
    drivings: Sequence[Driving],
    slices: Sequence[PlannedSlice],
    number: int = 0,
    on_event: Callable[[Event], None] = lambda _: None,
) -> EngineRun:
    """Run one step of the search."""
    specification = drive_specification(drivings[0], block.seed + number, slices, targets, drivings)
    return run_drive(specification, lab.interruption, on_event, start=lab.engine_of(block.seed))


def _note_rate(per_s: dict[int, float], event: Event) -> None:
    """Store the throughput of a measured slice, with one transaction for none, as an upper bound."""
    if event["event"] == "slice" and event["role"] == Role.MEASURE:
        piece = slice_from(event)
        if piece.counted_s:  # not interrupted before its counted part
            per_s[event["target"]] = max(1, piece.executed) / piece.counted_s


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
        executed = sum(piece.executed for piece in pieces)
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
