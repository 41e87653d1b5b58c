"""CPU time of the processes of a local server, and of the whole machine.

Sources: the CPU-time clock of each process (clock_getcpuclockid(3): nanoseconds, current, all threads), and
the postmaster's time for children that it has reaped. A sandbox without this clock has the clock ticks of
``/proc`` (10 ms). Runnable time: ``/proc/PID/schedstat`` (proc_schedstat in the kernel's
Documentation/scheduler/sched-stats.rst).
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
"""Maximum number of readings of the list of children, until two consecutive ones are equal: the kernel may
omit a child while another one ends."""


@dataclass(frozen=True)
class MachineCpu:
    """Seconds since boot, summed over the cores: busy (all but idle and I/O wait), and steal."""

    busy_s: float
    steal_s: float


def machine_cpu() -> MachineCpu:
    """Read the CPU times of the machine."""
    times = psutil.cpu_times()
    idle_s = times.idle + times.iowait
    guest_s = times.guest + times.guest_nice  # counted in user and nice already
    return MachineCpu(busy_s=sum(times) - guest_s - idle_s, steal_s=times.steal)


def server_cpu_s(postmaster_pid: int) -> float:
    """Return the CPU seconds of the server: postmaster, its living children, and reaped children.

    A child that ends between two readings moves from the second part to the third, so differences are exact
    up to the kernel's tick. Raises ProcessLookupError if the postmaster has ended.
    """
    try:
        reaped = psutil.Process(postmaster_pid).cpu_times()
        living_s = sum(process_cpu_s(child) for child in child_pids(postmaster_pid))
        return process_cpu_s(postmaster_pid) + living_s + reaped.children_user + reaped.children_system
    except psutil.NoSuchProcess as error:
        raise ProcessLookupError(postmaster_pid) from error


def process_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process with all its threads; 0 if it has ended: then the next reading of
    its parent includes them.
    """
    try:
        # CPUCLOCK_SCHED of the whole process, as in clock_getcpuclockid(3).
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        # The process has ended, or a sandbox replaces the kernel.
        return _ticks_s(pid)


@dataclass(frozen=True)
class Scheduled:
    """Total seconds of some processes: on CPU, and runnable (waiting for CPU)."""

    on_cpu_s: float
    ready_s: float


def scheduled(pids: Iterable[int]) -> Scheduled | None:
    """Return the scheduler's times of these single-threaded processes since their start.

    None if one has ended, or without CONFIG_SCHED_INFO.
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
    """Return the children of a single-threaded process such as the postmaster. A search in /proc, as in
    psutil, takes a hundred times as long.
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
