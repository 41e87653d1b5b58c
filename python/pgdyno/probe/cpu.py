"""CPU time of a server's processes, and of the rest of the machine. Local servers only.

Sources: ``/proc/PID/schedstat`` (time on CPU in nanoseconds; the kernel's clock ticks of 10 ms, too coarse
for backends that each use little, serve where the kernel keeps nothing finer), and the postmaster's time for
children that it has reaped.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil

PROC = Path("/proc")


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
        postmaster = psutil.Process(postmaster_pid)
        reaped = postmaster.cpu_times()
        living_s = sum(_on_cpu_s(child.pid) for child in postmaster.children())
        return _on_cpu_s(postmaster_pid) + living_s + reaped.children_user + reaped.children_system
    except psutil.NoSuchProcess as error:
        raise ProcessLookupError(postmaster_pid) from error


def _on_cpu_s(pid: int) -> float:
    try:
        return int((PROC / str(pid) / "schedstat").read_text().split()[0]) / 1e9
    except FileNotFoundError:
        # A kernel without it, or no such process any more.
        return _ticks_s(pid)
    except ProcessLookupError:
        return 0.0


def _ticks_s(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        # It ended since we listed it: the postmaster's next reading has it.
        return 0.0
    return float(times.user + times.system)
