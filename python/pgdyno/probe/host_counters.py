"""Raw counters and gauges of the machine, in one call that takes a fraction of a millisecond.

host = HostCounters([data_dir], driver_pid=4711)
before = host.read()
…
after = host.read()         # the analysis uses differences of counters
host.reasons                # missing groups, each with its reason

``probe.cpu_time`` reads the CPU time of the processes of one server.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from pgdyno.probe.cpu_time import TICK_S, process_cpu_s
from pgdyno.probe.disks import disk_of

PROC = Path("/proc")
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

Group = Callable[[], Mapping[str, float]]


class HostCounters:
    """Reads the counters of this machine. Times are seconds since boot, summed over the cores.

    ``paths``: directories whose disks are counted (data and WAL of a server). ``driver_pid``: process of the
    driver. ``reasons``: by group, the reason why it is missing in the result of ``read``.
    """

    def __init__(self, paths: Iterable[Path] = (), driver_pid: int | None = None) -> None:
        self.reasons: dict[str, str] = {}
        self.driver_pid = driver_pid
        self._disks = self._find_disks(paths)
        self._disk_ms: dict[tuple[str, int], int] = {}  # by disk and field: the time without wraps
        self._cards = {link.name for link in NETWORK.glob("*") if (link / "device").exists()}
        groups: dict[str, Group] = {
            "cpu": _cpu,
            "processes": self._processes,
            "memory": _memory,
            "swap": _swap,
            "network": self._network,
        }
        if self._disks:
            groups["disk"] = self._disk
        groups |= {f"pressure_{of}": lambda of=of: _pressure(of) for of in PRESSURE}  # type: ignore[misc]
        self._groups = {name: read for name, read in groups.items() if self._can(name, read)}

    def read(self) -> Mapping[str, float]:
        """Return all values. A group that is no longer readable is missing, with its reason in
        ``reasons``."""
        found: dict[str, float] = {}
        for name, read in self._groups.items():
            try:
                found |= read()
            except (OSError, LookupError, ValueError) as error:
                self.reasons[name] = str(error)
        return found

    def _can(self, name: str, read: Group) -> bool:
        try:
            read()
        except (OSError, LookupError, ValueError) as error:
            self.reasons[name] = f"not reported by this kernel: {error}"
            return False
        return True

    def _find_disks(self, paths: Iterable[Path]) -> set[str]:
        disks = set()
        for path in paths:
            try:
                disk = disk_of(path)
            except OSError as error:
                self.reasons["disk"] = str(error)
                continue
            if disk is None:
                self.reasons["disk"] = f"{path} is not on a disk with counters (network, memory, overlay)"
            else:
                disks.add(disk)
        return disks

    def _processes(self) -> Mapping[str, float]:
        own = {"pgdyno_cpu_s": time.process_time()}
        if self.driver_pid is None:
            return own
        driver_s = process_cpu_s(self.driver_pid)
        # A process that has ended reads as 0, but a counter must not decrease.
        return {**own, "driver_cpu_s": driver_s} if driver_s > 0 else own

    def _disk(self) -> Mapping[str, float]:
        lines = [line.split() for line in (PROC / "diskstats").read_text().splitlines()]
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
        for line in (PROC / "net" / "dev").read_text().splitlines()[2:]:
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


def _cpu() -> Mapping[str, float]:
    text = (PROC / "stat").read_text()
    times = [int(ticks) * TICK_S for ticks in text[: text.index("\n")].split()[1:9]]
    user, nice, system, idle, iowait, irq, softirq, steal = times
    counts = dict(line.split()[:2] for line in text.splitlines() if line.startswith(("ctxt ", "procs_")))
    return {
        "cpu_busy_s": user + nice + system + irq + softirq + steal,  # as machine_cpu() has it
        "cpu_user_s": user + nice,
        "cpu_system_s": system + irq + softirq,
        "cpu_iowait_s": iowait,
        "cpu_idle_s": idle,
        "cpu_steal_s": steal,
        "context_switches": float(counts["ctxt"]),
        "processes_running": float(counts["procs_running"]),
        "processes_blocked": float(counts["procs_blocked"]),
    }


def _memory() -> Mapping[str, float]:
    lines = (line.split() for line in (PROC / "meminfo").read_text().splitlines())
    kilobytes = {fields[0].rstrip(":"): int(fields[1]) for fields in lines}
    return {name: kilobytes[field] * 1024.0 for field, name in MEMORY.items()}


def _swap() -> Mapping[str, float]:
    lines = (PROC / "vmstat").read_text().splitlines()
    pages = dict(line.split() for line in lines if line.startswith("pswp"))
    return {name: float(pages[field]) * PAGE_BYTES for field, name in SWAP.items()}


def _pressure(of: str) -> Mapping[str, float]:
    """Return the time in which some (full: all) tasks were stalled for lack of it, in seconds since boot."""
    found = {}
    for line in (PROC / "pressure" / of).read_text().splitlines():
        kind, *fields = line.split()
        if (of, kind) == ("cpu", "full"):
            continue  # undefined for the whole machine, always 0
        found[f"pressure_{of}_{kind}_s"] = int(dict(field.split("=") for field in fields)["total"]) / 1e6
    return found
