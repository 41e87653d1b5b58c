"""One run of the driver over the trials of a block, with checkpoints and steps of features before it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import psycopg

from pgdyno.caveats import Caveat
from pgdyno.errors import EngineError, FleetError, ServerError, in_one_line
from pgdyno.hooks import Hooks
from pgdyno.measure.arms import LabArm, brief_session
from pgdyno.measure.engine_runs import (
    EngineRun,
    Pinning,
    drive_specification,
    interval_from,
    run_drive,
    slice_from,
)
from pgdyno.measure.progress import PreparationStep, Running, Warned
from pgdyno.measure.telemetry_collection import TelemetryCollection
from pgdyno.measure.trial import BarrierReadings, Lab, RunningTrial, read_surroundings
from pgdyno.measure.warm_up import WarmUp, interval_s_of
from pgdyno.server.engine import NODE_LOST, Event
from pgdyno.study.plan import Driving, Study
from pgdyno.study.schedule import PlannedBlock, PlannedSlice, Role


def order_checkpoint(arm: LabArm) -> float:
    """Run CHECKPOINT and return its duration in seconds. Raises psycopg.Error, ServerError."""
    begun_s = time.monotonic()
    with brief_session(arm) as connection:
        connection.execute("CHECKPOINT")
        return time.monotonic() - begun_s


def force_checkpoints(lab: Lab, trials: Sequence[RunningTrial]) -> None:
    """Force a checkpoint on each server at the barrier before the measured part, when no transaction runs.

    Adds a caveat if it fails, for example without permission. The driver detects a lost server.
    """
    for trial in trials:
        lab.watch(PreparationStep(f"forced checkpoint of {trial.arm.name}"))
        try:
            trial.ordered_checkpoint_s = order_checkpoint(trial.arm)
        except (psycopg.Error, ServerError) as error:
            caveat = Caveat.of("checkpoint-not-forced", arm=trial.arm.name, reason=in_one_line(error))
            lab.watch(Warned(caveat.text))
            lab.writer.add_caveat(caveat, lab.case)


Targets = Sequence[tuple[str, str]]
"""Name and connection string of each arm."""

BeforeDrive = Callable[[Lab, PlannedBlock, Mapping[int, RunningTrial], Targets], EngineRun | None]
"""A step of a feature before the run of a block. Returns a run that ended early, which ends the block."""

BEFORE_DRIVE: Hooks[BeforeDrive] = Hooks("before_drive")


Seen = dict[str, BarrierReadings]


def drive_trials(
    lab: Lab,
    block: PlannedBlock,
    trials: Mapping[int, RunningTrial],
    seen: Seen,
    telemetry: TelemetryCollection,
) -> EngineRun:
    """Drive the trials of the block. ``seen`` and ``telemetry`` receive the readings at the barriers."""
    arms = list(trials)
    targets = [(trials[index].arm.name, trials[index].arm.conninfo()) for index in arms]
    slices = [replace(s, arm=arms.index(s.arm)) for s in block.slices if s.arm in trials]
    pinning = _pinning(lab.study, [trials[index].arm for index in arms])
    if lab.study.warmup_workload is not None:
        clients = [lab.study.driving(index).clients for index in arms]
        _warm_up(lab, block, slices, targets, clients, pinning)
        slices = [s for s in slices if s.role == "measure"]
    for step in BEFORE_DRIVE:
        if cut_short := step(lab, block, trials, targets):
            return cut_short
    for trial in trials.values():
        trial.log_from = len(trial.arm.log() or "")
    drivings = [trials[index].driving or lab.study.driving(index) for index in arms]
    interval_s = interval_s_of(lab.study)
    specification = drive_specification(
        drivings[0], block.seed, slices, targets, drivings, interval_s=interval_s, pinning=pinning
    )
    # Warm-ups of earlier blocks are comparable at the same rate only; a capacity search finds another rate.
    earlier = [[] if lab.study.searches_capacity else lab.rates.get(index, []) for index in arms]
    warm_up = WarmUp(
        lab.block_study, len(arms), interval_s, earlier, lab.warmed_s.get((lab.case, block.index))
    )

    driven = [None if pinning else piece.arm for piece in slices]

    def on_event(event: Event) -> None:
        match event["event"]:
            case "started":
                telemetry.epoch_unix_s = event["epoch_unix_ns"] / 1e9
            case "slice":
                telemetry.driven = driven[min(event["slice"] + 1, len(driven) - 1)]
                _note_slice(lab, trials[arms[event["target"]]], event)
            case "step":
                lab.watch(PreparationStep(event["step"]))
            case "error":
                trials[arms[event["target"]]].sqlstate = event["sqlstate"] or ""
            case "interval":
                _note_interval(lab, trials[arms[event["target"]]], event)
                telemetry.store_series()
            case _:
                pass

    def at_barrier() -> None:
        # The servers' CPU time is read last before the measured part and first after it, without our own
        # queries.
        ours = [trials[index].arm for index in arms]
        if not seen:
            if lab.study.checkpoints is not None:
                force_checkpoints(lab, list(trials.values()))
            seen["measure"] = read_surroundings(ours)
            telemetry.driven = next(
                (arm for arm, of in zip(driven, slices, strict=True) if of.role is Role.MEASURE), driven[-1]
            )
            telemetry.begin()
            telemetry.read_server_cpu()
        else:
            telemetry.read_server_cpu()
            telemetry.end()
            seen["end"] = read_surroundings(ours)
            telemetry.finish()

    lab.watch(PreparationStep("connecting"))
    run = run_drive(
        specification,
        lab.interruption,
        on_event,
        at_barrier,
        telemetry.note_driver,
        warm_up.ends_with,
        lab.engine_of(block.seed),
    )
    _note_warm_ups(lab, block, trials, warm_up, complete=run.complete)
    return run


def _note_warm_ups(
    lab: Lab, block: PlannedBlock, trials: Mapping[int, RunningTrial], warm_up: WarmUp, *, complete: bool
) -> None:
    """Keep what later blocks compare their warm-ups with."""
    for target, index in enumerate(trials):
        if (found := warm_up.found(target)) is not None:
            trials[index].warmed = replace(found, times=lab.warm_up_times)
        if complete:
            lab.rates.setdefault(index, []).append(warm_up.rates(target))
            lab.measured[index] = [piece for piece in trials[index].slices if piece.role is Role.MEASURE]
        if lab.study.schedule == "blocks" and (found := warm_up.found(target)) is not None:
            first_s = found.driven_s if found.by == "evidence" else lab.study.warmup_s
            lab.warmed_s.setdefault((lab.case, block.index), first_s)


def _pinning(study: Study, arms: Sequence[LabArm]) -> Pinning | None:
    """Return the CPU partitions of a duet. If a server has ended since its start, the engine's run fails."""
    if study.cpu_partition is None:
        return None
    return Pinning(study.cpu_partition.cores, [arm.postmaster_pid() or 0 for arm in arms])


def _warm_up(
    lab: Lab,
    block: PlannedBlock,
    slices: Sequence[PlannedSlice],
    targets: Sequence[tuple[str, str]],
    clients: Sequence[int],
    pinning: Pinning | None,
) -> None:
    """Warm up with another workload in a separate run. Its results are not stored."""
    assert lab.study.warmup_workload is not None
    lab.watch(PreparationStep("warming up"))
    workload, threads = lab.study.warmup_workload, lab.study.threads
    drivings = [Driving(workload=workload, clients=n, threads=threads) for n in clients]
    warm = [s for s in slices if s.role == "warm-up"]
    specification = drive_specification(drivings[0], block.seed, warm, targets, drivings, pinning=pinning)
    start = lab.engine_of(block.seed)
    run = run_drive(specification, lab.interruption, lambda _: None, start=start)
    if run.failure is not None:
        if run.failure.stage == NODE_LOST:
            raise FleetError(run.failure.message)
        kind = EngineError if run.failure.target is None else ServerError
        raise kind(f"warm-up failed: {run.failure.message}")


def _note_slice(lab: Lab, trial: RunningTrial, event: Event) -> None:
    piece = slice_from(event)
    lab.writer.add_slice(trial.id, piece)
    trial.slices.append(piece)
    if piece.role is Role.MEASURE:
        trial.counted_s += piece.counted_s
        trial.ok.update({kind: counts.ok for kind, counts in piece.kinds.items()})


def _note_interval(lab: Lab, trial: RunningTrial, event: Event) -> None:
    interval = interval_from(event)
    lab.writer.add_interval(trial.id, interval)
    n = sum(counts.executed for counts in interval.kinds.values())
    errors = sum(counts.failed + counts.retried for counts in interval.kinds.values())
    took_s = max(interval.to_s - interval.from_s, 1e-9)
    share = None
    if interval.role is Role.MEASURE:
        trial.measured_s += interval.to_s - interval.from_s
        trial.measured_n += sum(counts.all for counts in interval.kinds.values())
        share = _share(lab.study, trial)
    p99_ns = interval.latency_p99_ns
    lab.watch(
        Running(
            arm=trial.arm.index,
            role=event["role"],
            transactions_per_s=n / took_s,
            latency_p99_s=None if p99_ns is None else p99_ns / 1e9,
            share=share,
            errors_per_s=errors / took_s,
            sqlstate=trial.sqlstate,
            rate=lab.study.driving(trial.arm.index).workload.pace.of(
                {kind: counts.ok for kind, counts in interval.kinds.items()}, took_s
            ),
        )
    )


def _share(study: Study, trial: RunningTrial) -> float:
    """Return the finished share of a trial's window. Slices drain after their end, so at most 1."""
    if study.transactions is not None:
        done = trial.measured_n / (study.transactions * study.driving(trial.arm.index).clients)
    else:
        done = trial.measured_s / (study.rounds * study.slice_s)
    return min(1.0, done)
