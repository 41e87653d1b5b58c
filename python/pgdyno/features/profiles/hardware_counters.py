"""Hardware counters of the processes of a local server: instructions and cycles, by perf_event_open(2).

    counters = HardwareCounters.open(postmaster_pid)        # raises ProbeError with the reason
    row = counters.read()                                   # totals since then; use differences
    counters.close()

Events are inherited: the kernel adds the counts of all processes that the server starts later, while they run
and after their end. So the events are opened before the clients connect.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import psutil

from pgdyno.measure.arms import LabArm
from pgdyno.measure.host_counters import child_pids
from pgdyno.measure.server_probes import Row
from pgdyno.measure.telemetry_collection import ProbeError, ProbeKind

SYSCALLS = {"x86_64": 298, "aarch64": 241}
"""Number of perf_event_open by machine. Both are little-endian, as the bits of the flags below."""

INHERIT, EXCLUDE_USER, EXCLUDE_KERNEL, EXCLUDE_HV = 1 << 1, 1 << 4, 1 << 5, 1 << 6
"""Flags of ``struct perf_event_attr`` in <linux/perf_event.h>."""

ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")
"""That structure in its first version: type, size, config, period, sample type, read format, flags, …"""

TOTAL_TIMES = 1 | 2  # PERF_FORMAT_TOTAL_TIME_ENABLED and PERF_FORMAT_TOTAL_TIME_RUNNING
READING = struct.Struct("=QQQ")

CLOSE_ON_EXEC = 8

HARDWARE, SOFTWARE = 0, 1
CYCLES, INSTRUCTIONS = 0, 1

DENIED = frozenset({errno.EACCES, errno.EPERM})
LACKING = frozenset({errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP, errno.ENOSYS})


@dataclass(frozen=True)
class Event:
    """An event of perf_event_open. ``excluded``: flag of the mode that does not count.

    ``optional``: an event that an unprivileged user may not count (kernel.perf_event_paranoid = 2).
    """

    name: str
    type: int
    config: int
    excluded: int
    optional: bool = False

    def attributes(self) -> bytes:
        """Return ``struct perf_event_attr``."""
        flags = INHERIT | EXCLUDE_HV | self.excluded
        return ATTRIBUTES.pack(self.type, ATTRIBUTES.size, self.config, 0, 0, TOTAL_TIMES, flags, 0, 0, 0)


EVENTS = (
    Event("instructions_user", HARDWARE, INSTRUCTIONS, EXCLUDE_KERNEL),
    Event("cycles_user", HARDWARE, CYCLES, EXCLUDE_KERNEL),
    Event("instructions_kernel", HARDWARE, INSTRUCTIONS, EXCLUDE_USER, optional=True),
    Event("cycles_kernel", HARDWARE, CYCLES, EXCLUDE_USER, optional=True),
)


@dataclass
class HardwareCounters:
    """Open events: for each, a file descriptor per process that existed at the start."""

    opened: dict[Event, list[int]]

    @classmethod
    def open(cls, postmaster_pid: int, events: Sequence[Event] = EVENTS) -> Self:
        """Count the postmaster, its children, and all that they start. Raises ProbeError."""
        counters = cls({})
        try:
            # A child that starts after this line and before the postmaster's event is not counted. The other
            # order would count it twice.
            children = child_pids(postmaster_pid)
            for event in events:
                try:
                    fds = [perf_event_open(event, postmaster_pid)]
                except PermissionError:
                    if event.optional:
                        continue
                    raise
                counters.opened[event] = fds
                for child in children:
                    with contextlib.suppress(ProcessLookupError):
                        fds.append(perf_event_open(event, child))
        except (OSError, psutil.Error) as error:
            counters.close()
            raise ProbeError(_reason(error)) from None
        return counters

    def read(self) -> Row:
        """Return the counts, and the times in ns for which each event was enabled and counted.

        The kernel alternates the events (multiplexing) if the CPU has too few counters.
        """
        row: dict[str, int] = {}
        for event, fds in self.opened.items():
            readings = [READING.unpack(os.read(fd, READING.size)) for fd in fds]
            count, enabled_ns, running_ns = map(sum, zip(*readings, strict=True))
            row |= {
                event.name: count,
                f"{event.name}_enabled_ns": enabled_ns,
                f"{event.name}_running_ns": running_ns,
            }
        return row

    def close(self) -> None:
        """End counting."""
        for fds in self.opened.values():
            while fds:
                os.close(fds.pop())


def count(arm: LabArm) -> HardwareCounters:
    """Count the server of an arm. Raises ProbeError."""
    if (pid := arm.postmaster_pid()) is None:
        raise ProbeError("the server's processes are not visible on this machine")
    return HardwareCounters.open(pid)


def perf_event_open(event: Event, pid: int) -> int:
    """Return a file descriptor that counts this process on all CPUs. Raises OSError."""
    number = SYSCALLS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    libc = ctypes.CDLL(None, use_errno=True)
    any_cpu = no_group = ctypes.c_int(-1)
    fd: int = libc.syscall(
        ctypes.c_long(number),
        event.attributes(),
        ctypes.c_int(pid),
        any_cpu,
        no_group,
        ctypes.c_ulong(CLOSE_ON_EXEC),
    )
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return fd


def _reason(error: OSError | psutil.Error) -> str:
    number = error.errno if isinstance(error, OSError) else errno.ESRCH
    if number in LACKING:
        return "this machine has no hardware counters"
    if number in DENIED:
        return "not permitted: set kernel.perf_event_paranoid to 2 or less (sysctl), or run as root"
    return f"perf_event_open failed: {os.strerror(number or 0)}"


PROBE = ProbeKind("hardware", count=count)
