"""CPU time of the processes of a local server, and of the whole machine.

    before = server_cpu(postmaster_pid)
    …
    used = server_cpu(postmaster_pid).since(before)     # seconds, and their maximum error

Sources: the CPU-time clock of each process (clock_getcpuclockid(3): nanoseconds, current, all threads), and
the postmaster's time for children that it has reaped, in whole clock ticks of 10 ms (proc_pid_stat(5)). A
sandbox without this clock has the clock ticks of ``/proc`` for all processes. Runnable time:
``/proc/PID/schedstat`` (proc_schedstat in the kernel's Documentation/scheduler/sched-stats.rst).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from pgdyno.units import NS_PER_S

PROC = Path("/proc")

READS_MAX = 3
"""Maximum number of readings until two consecutive ones are equal. The kernel may omit a child from its list
while another one ends, and a child that is reaped during a reading is in none of its parts."""

TICK_S = 1 / os.sysconf("SC_CLK_TCK")

ROUNDING_S = 2 * TICK_S
"""User and system time are rounded down to a tick, each by itself."""

REAPED_S_MAX = 0.5
"""Time for an ended session to disappear. Its process ends in a few ms; the limit is for a connection pooler,
which keeps it."""


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


@dataclass(frozen=True)
class CpuUsed:
    """Seconds of CPU time, and their maximum error."""

    used_s: float
    error_s: float


@dataclass(frozen=True)
class ServerCpu:
    """CPU time of a server since its start: of its processes now, and of those that the postmaster has
    reaped, rounded down by up to ROUNDING_S.

    ``living_error_s`` is the rounding of the first part. ``reaped_faults`` counts the page faults of reaped
    processes. Every process has some, so an equal count means that none was reaped.
    """

    living_s: float
    living_error_s: float
    reaped_s: float
    reaped_faults: int

    @property
    def total_s(self) -> float:
        """Both parts."""
        return self.living_s + self.reaped_s

    def since(self, before: ServerCpu) -> CpuUsed:
        """Return the CPU time between two readings.

        A process that ends in between moves to the part that is rounded. So short times are exact only if no
        process ends. The result is never negative: if rounding makes the difference negative, the processes
        used less CPU time than the maximum error.
        """
        error_s = max(self.living_error_s, before.living_error_s)
        if self.reaped_faults != before.reaped_faults:
            error_s += ROUNDING_S
        return CpuUsed(max(0.0, self.total_s - before.total_s), error_s)


def server_cpu(postmaster_pid: int) -> ServerCpu:
    """Read the CPU time of a server: of the postmaster, its living children, and its reaped children.

    Raises ProcessLookupError if the postmaster has ended.
    """
    try:
        reaped_s, faults = _reaped(postmaster_pid)
        for _ in range(READS_MAX):
            pids = [postmaster_pid, *child_pids(postmaster_pid)]
            times = [_cpu(pid) for pid in pids]
            reaped_before_s, before = reaped_s, faults
            reaped_s, faults = _reaped(postmaster_pid)
            if faults == before:
                break
    except (OSError, psutil.NoSuchProcess) as error:
        raise ProcessLookupError(postmaster_pid) from error
    living_error_s = sum(error_s for _, error_s in times) + reaped_s - reaped_before_s
    return ServerCpu(sum(cpu_s for cpu_s, _ in times), living_error_s, reaped_s, faults)


def _reaped(pid: int) -> tuple[float, int]:
    """Return the CPU time and the minor page faults of the reaped children of a process. Raises OSError."""
    fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    faults, user, system = (int(fields[number - 3]) for number in (11, 16, 17))  # of proc_pid_stat(5)
    return (user + system) * TICK_S, faults


def process_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process with all its threads; 0 if it has ended."""
    return _cpu(pid)[0]


def _cpu(pid: int) -> tuple[float, float]:
    """Return the CPU seconds of a process, and by how much they may be too small; 0 if it has ended."""
    try:
        # CPUCLOCK_SCHED of the whole process, as in clock_getcpuclockid(3).
        return time.clock_gettime((~pid << 3) | 2), 0.0
    except OSError:
        # The process has ended, or a sandbox replaces the kernel.
        ticks_s = _ticks_s(pid)
        return ticks_s, ROUNDING_S if ticks_s else 0.0


def wait_until_reaped(pid: int) -> None:
    """Wait until a process that is about to end has been reaped, at most REAPED_S_MAX.

    Then a reading has its CPU time in the rounded part, and the next one, too.
    """
    ends_s = time.monotonic() + REAPED_S_MAX
    while (PROC / str(pid)).exists() and time.monotonic() < ends_s:
        time.sleep(0.001)


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
