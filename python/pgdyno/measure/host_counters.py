"""Counters of the host: /proc, CPU time, disks.

- Files of /proc and /sys, of this machine or recorded ones.
- CPU time of the processes of a local server, and of the whole machine.
- The disk under a directory.
- Raw counters and gauges of the machine, in one call that takes a fraction of a millisecond.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from pgdyno.server.directories import mount_of, read_mounts
from pgdyno.units import NS_PER_S

# ----------------------------------------------------------------------
# Files of /proc and /sys, of this machine or recorded ones.
# ----------------------------------------------------------------------


@dataclass(frozen=True)
class Tree:
    """A directory tree. Paths are absolute, as on the real machine."""

    root: Path = Path("/")

    def text(self, path: str) -> str | None:
        """Return the stripped text of a file; None if it is missing or not readable.

        Names of programs and options of the kernel are bytes, and the kernel cuts a name within a character.
        """
        try:
            return (self.root / path.lstrip("/")).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        """Return the number in a file; None if it is missing or no number."""
        text = self.text(path)
        try:
            return None if text is None else int(text)
        except ValueError:
            return None


# ----------------------------------------------------------------------
# CPU time of the processes of a local server, and of the whole machine.
#
# Sources: the CPU-time clock of each process (clock_getcpuclockid(3): nanoseconds, current, all threads), and
# the postmaster's time for children that it has reaped, in whole clock ticks of 10 ms (proc_pid_stat(5)). A
# sandbox without this clock has the clock ticks of ``/proc`` for all processes. Runnable time:
# ``/proc/PID/schedstat`` (proc_schedstat in the kernel's Documentation/scheduler/sched-stats.rst).
# ----------------------------------------------------------------------

PROC = Path("/proc")
READ_BYTES = 1 << 16

READS_MAX = 3
"""Maximum number of readings until two consecutive ones are equal. The kernel may omit a child from its list
while another one ends, and a child that is reaped during a reading is in none of its parts."""

TICK_S = 1 / os.sysconf("SC_CLK_TCK")

ROUNDING_S = 2 * TICK_S
"""User and system time are rounded down to a tick, each by itself."""

REAPED_S_MAX = 0.5
"""Time for an ended session to disappear. Its process ends in a few ms; the limit is for a connection pooler,
which keeps it."""


def _read(path: str) -> str:
    """Return the text of a file of /proc in a third of the CPU time of ``Path.read_text``. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(descriptor, READ_BYTES), b"")).decode(errors="replace")
    finally:
        os.close(descriptor)


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
            times = [_cpu_of_process(pid) for pid in pids]
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
    fields = _read(f"{PROC}/{pid}/stat").rpartition(")")[2].split()
    faults, user, system = (int(fields[number - 3]) for number in (11, 16, 17))  # of proc_pid_stat(5)
    return (user + system) * TICK_S, faults


def process_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process with all its threads; 0 if it has ended."""
    return _cpu_of_process(pid)[0]


def _cpu_of_process(pid: int) -> tuple[float, float]:
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
    """Totals of some processes: seconds on CPU, seconds runnable (waiting for CPU), switches to them."""

    on_cpu_s: float
    ready_s: float
    switches: int


def scheduled(pids: Iterable[int]) -> Scheduled | None:
    """Return the scheduler's counters of these single-threaded processes since their start.

    None if one has ended, or without CONFIG_SCHED_INFO.
    """
    on_cpu_ns = ready_ns = switches = 0
    try:
        for pid in pids:
            counted = _read(f"{PROC}/{pid}/schedstat").split()
            on_cpu_ns += int(counted[0])
            ready_ns += int(counted[1])
            switches += int(counted[2])
    except (OSError, ValueError, IndexError):
        return None
    return Scheduled(on_cpu_ns / NS_PER_S, ready_ns / NS_PER_S, switches)


def lifetime(pid: int) -> tuple[float, float, float] | None:
    """Return seconds on CPU, runnable, and since the start of a process; None if it has ended or unknown."""
    try:
        started = _read(f"{PROC}/{pid}/stat").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None
    lived_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(started) * TICK_S
    of = scheduled([pid])
    return None if of is None else (of.on_cpu_s, of.ready_s, max(lived_s, of.on_cpu_s + of.ready_s))


def child_pids(pid: int) -> list[int]:
    """Return the children of a single-threaded process such as the postmaster. A search in /proc, as in
    psutil, takes a hundred times as long.
    """
    path = f"{PROC}/{pid}/task/{pid}/children"
    before = ""
    for _ in range(READS_MAX):
        try:
            now = _read(path)
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


# ----------------------------------------------------------------------
# The disk under a directory.
# ----------------------------------------------------------------------

SYS = Path("/sys")


def disk_of(path: Path) -> str | None:
    """Return the kernel's name of the whole disk of a path (``sda``, ``nvme0n1``, ``dm-0``), as in its
    counters.

    None if no disk is visible: file systems in memory or on a network, overlays, pools.
    """
    number = path.stat().st_dev
    return _name(number) or _name(_source(path, number))


def _name(number: int | None) -> str | None:
    """Return the name of a device by its number; for a partition, that of its disk."""
    if number is None:
        return None
    link = SYS / "dev" / "block" / f"{os.major(number)}:{os.minor(number)}"
    if not link.exists():
        return None
    device = link.resolve()
    return device.parent.name if (device / "partition").exists() else device.name


def _source(path: Path, number: int) -> int | None:
    """Return the device number of a file system with its own numbers (btrfs), from the mount table."""
    mount = mount_of(path, read_mounts())
    if mount is None or not mount.source.startswith("/"):
        return None
    try:
        device = Path(mount.source).stat()
    except OSError:
        return None
    return device.st_rdev if stat.S_ISBLK(device.st_mode) and device.st_rdev != number else None


# ----------------------------------------------------------------------
# Raw counters and gauges of the machine, in one call that takes a fraction of a millisecond.
#
# The analysis uses differences of counters.
# ----------------------------------------------------------------------

NETWORK = Path("/sys/class/net")

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MS = 1e-3
SECTOR_BYTES = 512
"""Unit of /proc/diskstats, independent of the disk."""

MEMORY = {
    "MemAvailable": "memory_available_bytes",
    "Cached": "memory_cached_bytes",  # the page cache, and shared memory
    "Shmem": "memory_shared_bytes",  # includes shared buffers without huge pages
    "Dirty": "memory_dirty_bytes",
    "Writeback": "memory_writeback_bytes",
}
SWAP = {"pswpin": "swap_in_bytes", "pswpout": "swap_out_bytes"}
DISK = {
    # Index of the field in a line of /proc/diskstats, and its unit.
    "disk_reads": (3, 1.0),
    "disk_read_bytes": (5, SECTOR_BYTES),
    "disk_read_s": (6, MS),
    "disk_writes": (7, 1.0),
    "disk_written_bytes": (9, SECTOR_BYTES),
    "disk_write_s": (10, MS),
    "disk_busy_s": (12, MS),
}
WRAP_MS = 1 << 32
"""The kernel prints the times of a disk as unsigned 32-bit numbers: 50 days of reads."""

PRESSURE = ("cpu", "io", "memory")

_STALLED = re.compile(r"^(some|full) .*total=(\d+)", re.MULTILINE)

Group = Callable[[], Mapping[str, float]]


class HostCounters:
    """Reads the counters of this machine. Times are seconds since boot, summed over the cores.

    ``paths``: directories whose disks are counted (data and WAL of a server). ``driver_pid``: process of the
    driver.
    """

    def __init__(self, paths: Iterable[Path] = (), driver_pid: int | None = None) -> None:
        self.driver_pid = driver_pid
        self._disks = _disks_of(paths)
        self._disk_ms: dict[tuple[str, int], int] = {}  # by disk and field: the time without wraps
        self._cards = {link.name for link in NETWORK.glob("*") if (link / "device").exists()}
        groups: list[Group] = [_cpu, self._processes, _memory, _swap, self._network]
        if self._disks:
            groups.append(self._disk)
        groups += [partial(_pressure, of) for of in PRESSURE]
        self._groups = [read for read in groups if _or_nothing(read)]

    def read(self) -> Mapping[str, float]:
        """Return all values. A group that the kernel does not report is missing."""
        found: dict[str, float] = {}
        for read in self._groups:
            found |= _or_nothing(read)
        return found

    def _processes(self) -> Mapping[str, float]:
        own = {"pgdyno_cpu_s": time.process_time()}
        if self.driver_pid is None:
            return own
        driver_s = process_cpu_s(self.driver_pid)
        # A process that has ended reads as 0, but a counter must not decrease.
        return {**own, "driver_cpu_s": driver_s} if driver_s > 0 else own

    def _disk(self) -> Mapping[str, float]:
        lines = [line.split() for line in _read(f"{PROC}/diskstats").splitlines()]
        ours = [fields for fields in lines if fields[2] in self._disks]
        if not ours:
            raise LookupError(f"/proc/diskstats has no line for {', '.join(sorted(self._disks))}")
        return {
            name: unit * sum(self._unwrapped(line, at) if unit == MS else int(line[at]) for line in ours)
            for name, (at, unit) in DISK.items()
        }

    def _unwrapped(self, line: Sequence[str], at: int) -> int:
        """Return a time in ms that continues to grow when the kernel's number starts again at 0.

        A decrease by less than half of the range is a reset, and remains one.
        """
        disk, ms = (line[2], at), int(line[at])
        known = self._disk_ms.get(disk, ms)
        grown = (ms - known) % WRAP_MS
        self._disk_ms[disk] = known + grown if grown < WRAP_MS // 2 else ms
        return self._disk_ms[disk]

    def _network(self) -> Mapping[str, float]:
        """Return bytes of loopback and of the other interfaces.

        Only physical interfaces count, because a bridge counts each byte again; all of them if there are
        none, as in a container.
        """
        counts = {}
        for line in _read(f"{PROC}/net/dev").splitlines()[2:]:
            name, _, fields = line.partition(":")
            numbers = fields.split()
            counts[name.strip()] = (int(numbers[0]), int(numbers[8]))
        loopback = counts.pop("lo", (0, 0))
        cards = [counts[name] for name in counts if name in self._cards] or list(counts.values())
        return {
            "loopback_bytes": float(loopback[0]),
            "network_in_bytes": float(sum(into for into, _ in cards)),
            "network_out_bytes": float(sum(out for _, out in cards)),
        }


def _or_nothing(read: Group) -> Mapping[str, float]:
    try:
        return read()
    except (OSError, LookupError, ValueError):
        return {}


def _disks_of(paths: Iterable[Path]) -> set[str]:
    """Return the disks with counters: file systems on a network, in memory and overlays have none."""
    disks = set()
    for path in paths:
        with contextlib.suppress(OSError):
            disks.add(disk_of(path))
    return {disk for disk in disks if disk is not None}


def _number(text: str, start: str) -> float:
    """Return the number after this start of a line, not the first one. Raises LookupError, ValueError."""
    begin = text.find(f"\n{start}") + 1 + len(start)
    if begin == len(start):
        raise LookupError(f"no line with {start.strip()}")
    return float(text[begin : text.find("\n", begin)].split(maxsplit=1)[0])


def _cpu() -> Mapping[str, float]:
    text = _read(f"{PROC}/stat")
    times = [int(ticks) * TICK_S for ticks in text[: text.index("\n")].split()[1:9]]
    user, nice, system, idle, iowait, irq, softirq, steal = times
    return {
        "cpu_busy_s": user + nice + system + irq + softirq + steal,  # as machine_cpu() has it
        "cpu_user_s": user + nice,
        "cpu_system_s": system + irq + softirq,
        "cpu_iowait_s": iowait,
        "cpu_idle_s": idle,
        "cpu_steal_s": steal,
        "context_switches": _number(text, "ctxt "),
        "processes_running": _number(text, "procs_running "),
        "processes_blocked": _number(text, "procs_blocked "),
    }


def _memory() -> Mapping[str, float]:
    text = _read(f"{PROC}/meminfo")
    return {name: 1024 * _number(text, f"{field}:") for field, name in MEMORY.items()}


def _swap() -> Mapping[str, float]:
    text = _read(f"{PROC}/vmstat")
    return {name: PAGE_BYTES * _number(text, f"{field} ") for field, name in SWAP.items()}


def _pressure(of: str) -> Mapping[str, float]:
    """Return the time in which some (full: all) tasks were stalled for lack of it, in seconds since boot."""
    stalled = _STALLED.findall(_read(f"{PROC}/pressure/{of}"))
    # Full is undefined for CPU time of the whole machine, and always 0.
    return {f"pressure_{of}_{kind}_s": int(us) / 1e6 for kind, us in stalled if (of, kind) != ("cpu", "full")}
