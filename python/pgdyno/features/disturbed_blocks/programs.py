"""CPU time and I/O of programs that do not belong to the study, and stolen CPU time: the probe ``programs``.

It reads ``/proc`` before and after the measured part. A program is *ours* if it descends from this process or
has the session of one that does: pgdyno, engine, servers, what servers start. Kernel threads work for the
servers, too, and are never others. When a process ends, its CPU time and I/O move to the one that waits for
it (proc_pid_stat(5), proc_pid_io(5)). Processes without a parent, also ours, move to an ancestor of this
process or to process 1, so what those have of ended children is not counted. Reading the I/O of another
user's process needs root.
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgdyno.measure.arms import LabArm
from pgdyno.measure.host_counters import PROC, TICK_S, machine_cpu
from pgdyno.measure.server_probes import Row
from pgdyno.measure.telemetry_collection import ProbeKind
from pgdyno.study.plan import Study

PROBE_NAME = "programs"
KERNEL_THREAD = 0x00200000
"""PF_KTHREAD in <linux/sched.h>, a flag of a process."""


@dataclass(frozen=True)
class Process:
    """A process. ``ended_cpu_s``: CPU time of its ended children, whose I/O is in ``io_bytes``."""

    name: str
    parent: int
    session: int
    is_kernel: bool
    cpu_s: float
    ended_cpu_s: float
    io_bytes: int


Processes = Mapping[int, Process]
"""By ID."""


def read_processes(proc: Path = PROC) -> dict[int, Process]:
    """Return all processes. Those that end meanwhile are missing."""
    found = {}
    for folder in proc.glob("[0-9]*"):
        name, _, rest = _text(folder / "stat").partition("(")[2].rpartition(")")
        fields = rest.split()
        if len(fields) < 15:
            continue
        parent, session, flags = (int(fields[number - 3]) for number in (4, 6, 9))
        user, system, ended_user, ended_system = (int(ticks) * TICK_S for ticks in fields[11:15])
        is_kernel = bool(flags & KERNEL_THREAD)
        io = "" if is_kernel else _text(folder / "io")
        io_bytes = sum(map(int, re.findall(r"^(?:read|write)_bytes: (\d+)", io, re.MULTILINE)))
        found[int(folder.name)] = Process(
            name, parent, session, is_kernel, user + system, ended_user + ended_system, io_bytes
        )
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""


@dataclass(frozen=True)
class Use:
    """Use by other programs between two readings. ``largest``: name of the one with most CPU time."""

    cpu_s: float
    io_bytes: int
    largest: str


def used_by_others(before: Processes, after: Processes, own: int) -> Use:
    """Return what other programs used. ``own``: the process whose descendants are ours.

    If nobody waits for a process that ends, the result is too small, never too large.
    """
    reapers = {1, *_ancestors(after, own)}
    ended = [pid for pid in before if pid not in after]
    heirs = {pid: next((of for of in _ancestors(before, pid) if of in after), 1) for pid in ended}
    moved = {pid for pid, heir in heirs.items() if heir in reapers}
    left_out = _ours(after, _ours(before, {own})) | moved
    cpu_s, io_bytes = defaultdict[str, float](float), 0
    for sign, processes in ((1, after), (-1, before)):
        for pid, process in processes.items():
            if pid not in left_out and not process.is_kernel:
                cpu_s[process.name] += sign * process.cpu_s
                if pid not in reapers:
                    cpu_s[process.name] += sign * process.ended_cpu_s
                    io_bytes += sign * process.io_bytes
    largest = max(cpu_s, key=lambda name: cpu_s[name], default="")
    return Use(max(0.0, sum(cpu_s.values())), max(0, io_bytes), largest)


def _ancestors(processes: Processes, pid: int) -> Collection[int]:
    """Return the IDs of the parent, its parent, and so on."""
    found = dict[int, None]()
    while pid in processes and (pid := processes[pid].parent) not in found:
        found[pid] = None
    return found


def _ours(processes: Processes, ours: Collection[int]) -> set[int]:
    """Return the IDs in ``ours``, and those of their descendants and of the members of their sessions."""
    found = set(ours)
    while more := {
        pid
        for pid, process in processes.items()
        if pid not in found and (process.parent in found or process.session in found)
    }:
        found |= more
    return found


class Observation:
    """The probe while it runs."""

    def __init__(self) -> None:
        """Take the first reading."""
        self._began = self._ended = time.monotonic(), machine_cpu(), read_processes()

    def halt(self) -> None:
        """Take the second reading."""
        self._ended = time.monotonic(), machine_cpu(), read_processes()

    def stop(self) -> Sequence[Row]:
        """Return one row: shares of the CPU time of all cores, and of the CPU time that was requested."""
        (begun_s, cpu, processes), (ended_s, now, after) = self._began, self._ended
        elapsed_s = ended_s - begun_s
        used = used_by_others(processes, after, os.getpid())
        requested_s = now.busy_s - cpu.busy_s
        return [
            {
                "elapsed_s": elapsed_s,
                "cpu_share": used.cpu_s / (elapsed_s * len(os.sched_getaffinity(0))),
                "io_bytes_per_s": used.io_bytes / elapsed_s,
                "steal_share": (now.steal_s - cpu.steal_s) / requested_s if requested_s > 0 else 0.0,
                "largest": used.largest,
            }
        ]

    def give_up(self) -> None:
        """Do nothing: there is nothing to end."""


def start(_arm: LabArm, _study: Study) -> Observation:
    """Start the probe."""
    return Observation()


PROBE = ProbeKind(PROBE_NAME, start=start)
