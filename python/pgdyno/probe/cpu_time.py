"""CPU time of a server's processes, and of the rest of the machine. Local servers only.

Sources: each process's CPU-time clock (clock_getcpuclockid(3): nanoseconds, up to this moment, all threads;
the clock ticks of ``/proc``, of 10 ms, serve where a sandbox has no such clock), and the postmaster's time
for children that it has reaped. How long processes were ready without a CPU: ``/proc/PID/schedstat``
(proc_schedstat in the kernel's Documentation/scheduler/sched-stats.rst).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from pgdyno.units import NS_PER_S

PROC = Path("/proc")

READS_MAX = 3
"""Of the list of a postmaster's children, until two in a row agree: the kernel may leave one out of it while
another one ends."""


@dataclass(frozen=True)
class MachineCpu:
    """Seconds since boot, summed over the cores: busy (all but idle and waiting for I/O), and stolen."""

    busy_s: float
    steal_s: float


def machine_cpu() -> MachineCpu:
    """Reads the machine's CPU times."""
    times = psutil.cpu_times()
    idle_s = times.idle + times.iowait
    guest_s = times.guest + times.guest_nice  # counted in user and nice already
    return MachineCpu(busy_s=sum(times) - guest_s - idle_s, steal_s=times.steal)


def server_cpu_s(postmaster_pid: int) -> float:
    """CPU seconds that the server has used so far: postmaster, its living children, and those it has reaped.

    A child that ends between two readings moves from the second part to the third, so differences stay
    right up to the kernel's tick. Raises ProcessLookupError when the postmaster is gone.
    """
    try:
        reaped = psutil.Process(postmaster_pid).cpu_times()
        living_s = sum(process_cpu_s(child) for child in child_pids(postmaster_pid))
        return process_cpu_s(postmaster_pid) + living_s + reaped.children_user + reaped.children_system
    except psutil.NoSuchProcess as error:
        raise ProcessLookupError(postmaster_pid) from error


def process_cpu_s(pid: int) -> float:
    """CPU seconds that one process has used so far, with all its threads; 0 for one that has ended: its
    parent's next reading has it.
    """
    try:
        # CPUCLOCK_SCHED of the whole process, as clock_getcpuclockid(3) spells it.
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        # No such process any more, or a kernel that is none.
        return _ticks_s(pid)


@dataclass(frozen=True)
class Scheduled:
    """Seconds of some processes together: on a CPU, and ready to run but without one."""

    on_cpu_s: float
    ready_s: float


def scheduled(pids: Iterable[int]) -> Scheduled | None:
    """What the kernel's scheduler has counted of these processes of one thread each, since they began; None
    where one is gone, or the kernel does not count it (no CONFIG_SCHED_INFO).
    """
    on_cpu_ns = ready_ns = 0
    try:
        for pid in pids:
            counted = (PROC / str(pid) / "schedstat").read_text().split()
            on_cpu_ns += int(counted[0])
            ready_ns += int(counted[1])
    except (OSError, ValueError, IndexError):
        return None
    return Scheduled(on_cpu_ns / NS_PER_S, ready_ns / NS_PER_S)


def child_pids(pid: int) -> list[int]:
    """The children of a process of one thread, as the postmaster is. Looking for them in the whole of
    /proc, as psutil does, takes a hundred times as long.
    """
    path = PROC / str(pid) / "task" / str(pid) / "children"
    before = ""
    for _ in range(READS_MAX):
        try:
            now = path.read_text()
        except OSError:
            # A kernel without the list, or no such process.
            return [child.pid for child in psutil.Process(pid).children()]
        if now == before:
            break
        before = now
    return [int(child) for child in before.split()]


def _ticks_s(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)
