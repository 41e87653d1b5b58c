"""The caveats that the lab itself finds: about a trial from its counters, about a study from its arms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pgdyno.caveats import Caveat, Code
from pgdyno.drive.run import Run
from pgdyno.lab.arm import LabArm
from pgdyno.probe.cpu import MachineCpu
from pgdyno.study.plan import Study

DRIVER_SHARE_MAX = 0.25
"""Of the machine's CPU. The peers' clients take 14 to 30 % for this workload; ours should take less than 10."""

DRIVER_LATE_NS_MAX = 10_000_000
"""At the 99th percentile: beyond it the driver adds more to a latency than a commit's fsync does."""

STEAL_SHARE_MAX = 0.05
FAILURE_SHARE_MAX = 0.001
RETRY_SHARE_MAX = 0.01


def doubts_of_trial(
    study: Study, trial: int, arm: LabArm, run: Run, target: int, cpu: Mapping[str, MachineCpu]
) -> Iterator[Caveat]:
    """Yields the caveats of one trial."""
    if {"measure", "end"} <= cpu.keys():
        yield from _machine_doubts(trial, arm, run, cpu["measure"], cpu["end"])
    if run.result is None:
        return
    late_ns = run.result["driver"]["wake_late_ns"]["p99"]
    if late_ns > DRIVER_LATE_NS_MAX:
        yield Caveat(
            Code.DRIVER_LATE,
            {"arm": arm.name, "late_ms": late_ns / 1e6, "limit_ms": DRIVER_LATE_NS_MAX / 1e6},
            trial,
        )
    yield from _outcome_doubts(trial, arm, run.result["targets"][target]["kinds"])
    log = arm.log()
    if log is not None and study.schedule == "slices" and len(study.arms) > 1:
        n = log.count("checkpoint starting")
        if n:
            yield Caveat(Code.CHECKPOINT_IN_SLICES, {"arm": arm.name, "n": n}, trial)


def _machine_doubts(
    trial: int, arm: LabArm, run: Run, before: MachineCpu, after: MachineCpu
) -> Iterator[Caveat]:
    busy_s = after.busy_s - before.busy_s
    stolen = (after.steal_s - before.steal_s) / busy_s if busy_s > 0 else 0.0
    if stolen > STEAL_SHARE_MAX:
        yield Caveat(Code.STEAL, _share(arm, stolen, STEAL_SHARE_MAX), trial)
    if run.result is not None and busy_s > 0:
        cpu_ns = run.result["driver"]["cpu_ns"]
        share = (cpu_ns["user"] + cpu_ns["system"]) / 1e9 / busy_s
        if share > DRIVER_SHARE_MAX:
            yield Caveat(Code.DRIVER_BUSY, _share(arm, share, DRIVER_SHARE_MAX), trial)


def _outcome_doubts(trial: int, arm: LabArm, kinds: Mapping[str, Any]) -> Iterator[Caveat]:
    counts = [kind["counts"] for kind in kinds.values()]
    n = sum(c["ok"] + c["rolled_back"] + c["failed"] + c["skipped"] for c in counts)
    if n == 0:
        return
    failed = sum(c["failed"] + c["skipped"] for c in counts) / n
    if failed > FAILURE_SHARE_MAX:
        yield Caveat(Code.FAILURES_OVER_SHARE, _share(arm, failed, FAILURE_SHARE_MAX), trial)
    retried = sum(c["retried"] for c in counts) / n
    if retried > RETRY_SHARE_MAX:
        yield Caveat(Code.RETRIES_OVER_SHARE, _share(arm, retried, RETRY_SHARE_MAX), trial)


def _share(arm: LabArm, share: float, limit: float) -> dict[str, str | int | float]:
    return {"arm": arm.name, "share": f"{share:.1%}", "limit": f"{limit:.1%}"}


def doubts_of_study(study: Study, cores: int, engine_profile: str) -> Iterator[Caveat]:
    """Yields the caveats that the plan alone gives."""
    yield Caveat(Code.SHARED_MACHINE, {"cores": cores})
    if engine_profile != "release":
        yield Caveat(Code.DEBUG_ENGINE)
    if study.pacing == "none" and study.rate is None:
        yield Caveat(Code.NO_KEYING_AND_THINKING)
