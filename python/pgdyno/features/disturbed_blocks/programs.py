"""CPU time and I/O of programs that do not belong to the study, and stolen CPU time: the probe ``programs``.

It reads ``/proc`` before and after the measured part. A program is *ours* if it descends from this process or
has the session of one that does: pgdyno, engine, servers, what servers start, and tools of tests. Kernel
threads work for the servers, too, and are never others. CPU time and I/O of a process include those of its
children that have ended, which its parent has waited for (proc_pid_stat(5), proc_pid_io(5)). Reading the I/O
of another user's process needs root.
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgdyno.measure.arms import LabArm
from pgdyno.measure.host_counters import PROC, TICK_S, machine_cpu
from pgdyno.measure.server_probes import Row
from pgdyno.measure.telemetry_collection import ProbeKind

PROBE_NAME = "programs"
KERNEL_THREAD = 0x00200000
"""PF_KTHREAD in <linux/sched.h>, a flag of a process."""


@dataclass(frozen=True)
class Process:
    """A process. ``started``: in clock ticks since boot; with the ID it identifies the process."""

    name: str
    parent: int
    session: int
    started: int
    is_kernel: bool
    cpu_s: float
    io_bytes: int


Processes = Mapping[int, Process]
"""By ID."""


def read_processes(proc: Path = PROC) -> dict[int, Process]:
    """Return all processes. Those that end meanwhile are missing."""
    found = {}
    for folder in proc.glob("[0-9]*"):
        name, _, rest = _text(folder / "stat").partition("(")[2].rpartition(")")
        fields = rest.split()
        if len(fields) < 20:
            continue
        parent, session, flags, started = (int(fields[number - 3]) for number in (4, 6, 9, 22))
        ticks = sum(int(fields[number - 3]) for number in (14, 15, 16, 17))
        is_kernel = bool(flags & KERNEL_THREAD)
        io = "" if is_kernel else _text(folder / "io")
        io_bytes = sum(map(int, re.findall(r"^(?:read|write)_bytes: (\d+)", io, re.MULTILINE)))
        found[int(folder.name)] = Process(name, parent, session, started, is_kernel, ticks * TICK_S, io_bytes)
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
    io_bytes: float
    largest: str


def used_by_others(before: Processes, after: Processes, own: int) -> Use:
    """Return what other programs used. ``own``: the process whose descendants are ours."""
    ours = _ours(after, _ours(before, {own}))
    earlier, later = _others(before, ours), _others(after, ours)
    cpu_s = _grown(earlier, later, lambda process: process.cpu_s)
    io_bytes = _grown(earlier, later, lambda process: process.io_bytes)
    return Use(sum(cpu_s.values()), sum(io_bytes.values()), max(cpu_s, key=cpu_s.__getitem__, default=""))


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


def _others(processes: Processes, ours: Collection[int]) -> Processes:
    return {pid: of for pid, of in processes.items() if pid not in ours and not of.is_kernel}


def _grown(before: Processes, after: Processes, total: Callable[[Process], float]) -> dict[str, float]:
    """Return by name how much the total of the processes grew.

    The total of a process that has ended moved to its parent, with what it had before.
    """
    moved: defaultdict[int, float] = defaultdict(float)
    for pid, process in sorted(before.items(), key=lambda item: -item[1].started):  # children first
        if pid not in after or after[pid].started != process.started:
            moved[process.parent] += total(process) + moved[pid]
    found: defaultdict[str, float] = defaultdict(float)
    for pid, process in after.items():
        is_same = pid in before and before[pid].started == process.started
        had = total(before[pid]) + moved[pid] if is_same else 0.0
        found[process.name] += max(0.0, total(process) - had)
    return found


class Observation:
    """The probe while it runs."""

    def __init__(self) -> None:
        """Take the first reading."""
        self._began = time.monotonic(), machine_cpu(), read_processes()

    def stop(self) -> Sequence[Row]:
        """Return one row: shares of the CPU time of all cores, and of the CPU time that was requested."""
        begun_s, cpu, processes = self._began
        elapsed_s, now = time.monotonic() - begun_s, machine_cpu()
        used = used_by_others(processes, read_processes(), os.getpid())
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


def start(_arm: LabArm, _window_s: float) -> Observation:
    """Start the probe."""
    return Observation()


PROBE = ProbeKind(PROBE_NAME, start=start)
