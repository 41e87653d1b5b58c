"""One run of the driver over the trials of arms that are up together, with what is read around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pgdyno.drive.run import Run, run_drive
from pgdyno.drive.specification import Pinning, drive_specification
from pgdyno.engine import Event
from pgdyno.errors import EngineError
from pgdyno.evidence.events import interval_from, slice_from
from pgdyno.lab.arm import LabArm
from pgdyno.lab.checkpoints import order_checkpoints
from pgdyno.lab.progress import Running, Step
from pgdyno.lab.searching import driving_at, search_capacities
from pgdyno.lab.telemetry import Telemetry
from pgdyno.lab.trial import Lab, Trial
from pgdyno.lab.trial_caveats import Surroundings, read_surroundings
from pgdyno.lab.warming import WarmUp
from pgdyno.probe.cpu import server_cpu_s
from pgdyno.probe.series import step_for
from pgdyno.study.plan import Block, Driving, Slice, Study
from pgdyno.study.schedule import Role

Seen = dict[str, Surroundings]


def drive_trials(
    lab: Lab, block: Block, trials: Mapping[int, Trial], seen: Seen, telemetry: Telemetry
) -> Run:
    """Drives them as the block has it. ``seen`` and ``telemetry`` get what is read at the barriers."""
    arms = list(trials)
    targets = [(trials[index].arm.name, trials[index].arm.conninfo()) for index in arms]
    slices = [replace(s, arm=arms.index(s.arm)) for s in block.slices if s.arm in trials]
    pinning = _pinning(lab.study, [trials[index].arm for index in arms])
    if lab.study.warmup_workload is not None:
        clients = [lab.study.driving(index).clients for index in arms]
        _warm_up(lab, block, slices, targets, clients, pinning)
        slices = [s for s in slices if s.role == "measure"]
    if lab.study.searches_capacity and (cut_short := search_capacities(lab, block, trials, targets)):
        return cut_short
    for trial in trials.values():
        trial.log_from = len(trial.arm.log() or "")
    drivings = [_driving(lab, trials[index]) for index in arms]
    interval_s = step_for(lab.study.window_likely_s())
    specification = drive_specification(
        drivings[0], block.seed, slices, targets, drivings, interval_s=interval_s, pinning=pinning
    )
    # What earlier blocks tell of a warm-up holds at their rate; a block that searches has one of its own.
    earlier = [[] if lab.study.searches_capacity else lab.rates.get(index, []) for index in arms]
    warm_up = WarmUp(lab.study, len(arms), interval_s, earlier, lab.warmed_s.get((lab.case, block.index)))

    def on_event(event: Event) -> None:
        match event["event"]:
            case "started":
                telemetry.epoch_unix_s = event["epoch_unix_ns"] / 1e9
            case "slice":
                _note_slice(lab, trials[arms[event["target"]]], event)
            case "interval":
                _note_interval(lab, trials[arms[event["target"]]], event)
                telemetry.store_series()
            case _:
                pass

    def read() -> list[float | None]:
        # Before the measured part the servers' CPU is read last, after it first: our own questions do not
        # count.
        ours = [trials[index].arm for index in arms]
        if not seen:
            if lab.study.checkpoints is not None:
                order_checkpoints(lab, list(trials.values()))
            seen["measure"] = read_surroundings(ours)
            telemetry.begin()
            return [_server_cpu_s(arm) for arm in ours]
        used = [_server_cpu_s(arm) for arm in ours]
        telemetry.end()
        seen["end"] = read_surroundings(ours)
        return used

    lab.watch(Step("connect"))
    run = run_drive(specification, lab.interruption, on_event, read, telemetry.note_driver, warm_up.ends_with)
    for target, index in enumerate(arms):
        trials[index].warmed = warm_up.found(target)
        if run.complete:
            lab.rates.setdefault(index, []).append(warm_up.rates(target))
        if lab.study.schedule == "blocks" and (found := warm_up.found(target)) is not None:
            first_s = found["driven_s"] if found["by"] == "evidence" else lab.study.warmup_s
            lab.warmed_s.setdefault((lab.case, block.index), first_s)
    return run


def _pinning(study: Study, arms: Sequence[LabArm]) -> Pinning | None:
    """Of a duet, whose servers are all ours. One that has died since its start fails the engine's run."""
    if study.halves is None:
        return None
    return Pinning(study.halves.cores, [arm.postmaster_pid() or 0 for arm in arms])


def _driving(lab: Lab, trial: Trial) -> Driving:
    """At the rate that was found for it, where one was sought."""
    driving = lab.study.driving(trial.arm.index)
    return driving if trial.rate_per_s is None else driving_at(driving, trial.rate_per_s)


def _warm_up(
    lab: Lab,
    block: Block,
    slices: Sequence[Slice],
    targets: Sequence[tuple[str, str]],
    clients: Sequence[int],
    pinning: Pinning | None,
) -> None:
    """By another workload than the one that is measured, in a run of its own. What it did is not kept."""
    assert lab.study.warmup_workload is not None
    lab.watch(Step("warm up"))
    workload, threads = lab.study.warmup_workload, lab.study.threads
    drivings = [Driving(workload=workload, clients=n, threads=threads) for n in clients]
    warm = [s for s in slices if s.role == "warm-up"]
    specification = drive_specification(drivings[0], block.seed, warm, targets, drivings, pinning=pinning)
    run = run_drive(specification, lab.interruption, lambda _: None, lambda: [None for _ in targets])
    if run.failure is not None:
        raise EngineError(f"while warming up: {run.failure['message']}")


def _note_slice(lab: Lab, trial: Trial, event: Event) -> None:
    piece = slice_from(event)
    lab.writer.add_slice(trial.id, piece)
    trial.slices.append(piece)
    if piece.role is Role.MEASURE:
        trial.counted_s += piece.counted_s
        trial.ok.update({kind: counts.ok for kind, counts in piece.kinds.items()})


def _note_interval(lab: Lab, trial: Trial, event: Event) -> None:
    interval = interval_from(event)
    lab.writer.add_interval(trial.id, interval)
    n = sum(counts.executed for counts in interval.kinds.values())
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
            transactions_per_s=n / max(interval.to_s - interval.from_s, 1e-9),
            latency_p99_s=None if p99_ns is None else p99_ns / 1e9,
            share=share,
        )
    )


def _share(study: Study, trial: Trial) -> float:
    """How much of a trial's window is done."""
    if study.transactions is not None:
        return trial.measured_n / (study.transactions * study.driving(trial.arm.index).clients)
    return trial.measured_s / (study.rounds * study.slice_s)


def _server_cpu_s(arm: LabArm) -> float | None:
    pid = arm.postmaster_pid()
    if pid is None or arm.shares_server:
        return None
    try:
        return server_cpu_s(pid)
    except ProcessLookupError:
        # It died; the driver finds that out as well and says so.
        return None
