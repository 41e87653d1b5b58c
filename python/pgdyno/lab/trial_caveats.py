"""The caveats that only the lab can find, for they need more than the evidence keeps: they are stored there.

What follows from the evidence itself is found by ``analysis.comparison.comparison_caveats``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import psycopg

from pgdyno.caveats import Caveat, Code
from pgdyno.drive.run import Run
from pgdyno.errors import ServerError
from pgdyno.evidence.records import Slice
from pgdyno.lab.arm import LabArm
from pgdyno.probe.autovacuum import autovacuum_runs
from pgdyno.probe.cpu import MachineCpu, machine_cpu
from pgdyno.server.version import NEWEST_MAJOR, Version
from pgdyno.study.pgbench_parameters import PgbenchParameters
from pgdyno.study.plan import Study
from pgdyno.study.schedule import Role

DRIVER_SHARE_MAX = 0.25
"""Of the cores' time. The peers' clients take 14 to 30 % for this workload; ours takes far less."""

DRIVER_LATE_NS_MAX = 10_000_000
"""At the 99th percentile: beyond it the driver adds more to a latency than a commit's fsync does."""

STEAL_SHARE_MAX = 0.05


@dataclass(frozen=True)
class Surroundings:
    """What is read at a barrier beside the servers' CPU. ``autovacuums`` per arm of the run, in its order;
    None where the server does not answer.
    """

    cpu: MachineCpu
    autovacuums: Sequence[int | None]


def untested_version(server: str, version: Version) -> Iterator[Caveat]:
    """Yield the caveat on a server that is newer than every version that pgdyno is tested with."""
    if version.is_untested:
        yield Caveat(Code.UNTESTED_VERSION, {"arm": server, "version": str(version), "newest": NEWEST_MAJOR})


def read_surroundings(arms: Sequence[LabArm]) -> Surroundings:
    """Reads them now, when no transaction runs."""
    return Surroundings(machine_cpu(), [_autovacuums(arm) for arm in arms])


def _autovacuums(arm: LabArm) -> int | None:
    try:
        with arm.connect() as connection:
            return autovacuum_runs(connection)
    except (ServerError, psycopg.Error):
        # It died; the driver finds that out as well and says so.
        return None


def trial_caveats(
    study: Study,
    trial: int,
    arm: LabArm,
    run: Run,
    target: int,
    seen: Mapping[str, Surroundings],
    slices: Sequence[Slice],
) -> Iterator[Caveat]:
    """Yields the caveats of one trial, which had these slices. ``seen`` has the readings at the barriers that
    were passed.
    """
    if arm.is_local():
        cores = study.halves.size if study.halves else len(os.sched_getaffinity(0))
        yield from driver_busy(trial, arm, slices, cores)
    if {"measure", "end"} <= seen.keys():
        yield from _steal(trial, arm, seen["measure"].cpu, seen["end"].cpu)
        before, after = (seen[name].autovacuums[target] for name in ("measure", "end"))
        if study.schedule == "slices" and before is not None and after is not None and after > before:
            yield Caveat(Code.AUTOVACUUM_IN_SLICES, {"arm": arm.name, "n": after - before}, trial)
    if run.result is not None and not run.before:
        late_ns = run.result["driver"]["wake_late_ns"]["p99"]
        if late_ns > DRIVER_LATE_NS_MAX:
            names = {
                "arm": arm.name,
                "late_ms": round(late_ns / 1e6, 1),
                "limit_ms": DRIVER_LATE_NS_MAX // 1_000_000,
            }
            yield Caveat(Code.DRIVER_LATE, names, trial)
    checkpoints = (arm.log() or "").count("checkpoint starting")
    if study.schedule == "slices" and checkpoints:
        yield Caveat(Code.CHECKPOINT_IN_SLICES, {"arm": arm.name, "n": checkpoints}, trial)
    is_told = "checkpoints" in study.probes  # then the analysis knows better
    if arm.log() is not None and not checkpoints and not is_told and _writes(study, arm):
        yield Caveat(Code.WINDOW_WITHOUT_CHECKPOINT, {"arm": arm.name})


def _writes(study: Study, arm: LabArm) -> bool:
    """Whether there is anything that a checkpoint could write."""
    workload = study.driving(arm.index).workload
    return not (isinstance(workload, PgbenchParameters) and workload.effects == {"none"})


def driver_busy(trial: int, arm: LabArm, slices: Sequence[Slice], cores: int) -> Iterator[Caveat]:
    """The driver's CPU in the measured slices, as a share of all that the arm's cores had in that
    time.
    """
    measured = [piece for piece in slices if piece.role is Role.MEASURE]
    elapsed_s = sum(piece.drained_s - piece.opened_s for piece in measured)
    if elapsed_s <= 0:
        return
    share = sum(piece.driver_cpu_s for piece in measured) / (cores * elapsed_s)
    if share > DRIVER_SHARE_MAX:
        yield Caveat(Code.DRIVER_BUSY, _share(arm, share, DRIVER_SHARE_MAX), trial)


def _steal(trial: int, arm: LabArm, before: MachineCpu, after: MachineCpu) -> Iterator[Caveat]:
    busy_s = after.busy_s - before.busy_s
    if busy_s <= 0:
        return
    stolen = (after.steal_s - before.steal_s) / busy_s
    if stolen > STEAL_SHARE_MAX:
        yield Caveat(Code.STEAL, _share(arm, stolen, STEAL_SHARE_MAX), trial)


def _share(arm: LabArm, share: float, limit: float) -> dict[str, str | int | float]:
    return {"arm": arm.name, "share": f"{share:.1%}", "limit": f"{limit:.0%}"}
