"""State of the machine: facts, and the load between two readings of its counters.

- Clock, kernel, memory, processor and disk of the machine.
- Load of the machine, and its state.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import tempfile
import time
import timeit
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pgdyno.measure.host_counters import TICK_S, Tree, disk_of
from pgdyno.measure.machine import Limits, places, read_limits
from pgdyno.server.directories import mount_of, read_mounts
from pgdyno.server.settings import disk_kind

# ----------------------------------------------------------------------
# Clock, kernel, memory, processor and disk of the machine.
# ----------------------------------------------------------------------

GZIPPED_CHARACTERS_MAX = 4 * 2**20
"""Maximum length. A kernel configuration has about 250,000 characters."""


def gzipped(tree: Tree, path: str) -> str | None:
    """Return the text of a compressed file; None if it is missing, not readable or damaged."""
    try:
        with gzip.open(tree.root / path.lstrip("/"), "rt", encoding="utf-8", errors="replace") as file:
            return file.read(GZIPPED_CHARACTERS_MAX)
    except (OSError, EOFError, zlib.error):
        return None


def texts(tree: Tree, pattern: str) -> list[str]:
    """Return the texts of all matching files, sorted by name."""
    found = sorted(tree.root.glob(pattern.lstrip("/")))
    of_files = (tree.text(str(path.relative_to(tree.root))) for path in found)
    return [text for text in of_files if text is not None]


def names(tree: Tree, pattern: str) -> list[str]:
    """Return the names of all matching files and directories."""
    return sorted(path.name for path in tree.root.glob(pattern.lstrip("/")))


BATCHES = 200
READS = 500
"""Readings per batch. A batch takes about 20 µs, so most batches are undisturbed. All of them take a few
ms."""


@dataclass(frozen=True)
class Clock:
    """``source``: clock source of the kernel. ``read_ns``: smallest mean of a batch of readings, including
    Python (about 20 to 40 ns).
    """

    source: str | None
    read_ns: float


def read_clock(tree: Tree) -> Clock:
    """Read the clock source, and measure a reading."""
    batches_s = timeit.repeat(time.monotonic_ns, repeat=BATCHES, number=READS)
    path = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
    return Clock(source=tree.text(path), read_ns=min(batches_s) / READS * 1e9)


NONE_OR_VOLUNTARY = "none or voluntary"
"""Preemption model of a kernel without full preemption whose configuration is not readable."""

LAZY_SINCE = (6, 12)
"""First version in which a kernel with the name PREEMPT may use lazy preemption."""

_MODELS = {"NONE": "none", "VOLUNTARY": "voluntary", "LAZY": "lazy", "": "full", "RT": "rt"}
_CONFIGURED = re.compile(r"^CONFIG_PREEMPT_?(NONE|VOLUNTARY|LAZY|RT|)=y$", re.MULTILINE)


@dataclass(frozen=True)
class Kernel:
    """``preemption``: none, voluntary, lazy, full or rt; None if unknown."""

    release: str | None = None
    preemption: str | None = None


def read_kernel(tree: Tree) -> Kernel:
    """Read the version, and the preemption model: the current one, else that of the boot, else of the build.

    Only root can read the current one.
    """
    release = tree.text("/proc/sys/kernel/osrelease")
    return Kernel(release, _preemption_model(tree, release or ""))


def _preemption_model(tree: Tree, release: str) -> str | None:
    if now := re.search(r"\((\w+)\)", tree.text("/sys/kernel/debug/sched/preempt") or ""):
        return now[1]
    words = (tree.text("/proc/sys/kernel/version") or "").split()
    if "PREEMPT_RT" in words:
        return "rt"
    command_line = tree.text("/proc/cmdline") or ""
    booted = re.findall(r"(?:^|\s)preempt=(none|voluntary|lazy|full)(?=\s|$)", command_line)
    if "PREEMPT_DYNAMIC" in words and booted:
        return str(booted[-1])
    config = gzipped(tree, "/proc/config.gz") or tree.text(f"/boot/config-{release}") or ""
    configured = [_MODELS[name] for name in _CONFIGURED.findall(config)]
    if configured:
        return "rt" if "rt" in configured else configured[0]
    if "PREEMPT" in words:
        number = re.match(r"(\d+)\.(\d+)", release)
        is_older = number is not None and (int(number[1]), int(number[2])) < LAZY_SINCE
        return "full" if is_older else None
    return None if not words or "PREEMPT_DYNAMIC" in words else NONE_OR_VOLUNTARY


def numbers(text: str | None) -> dict[str, int]:
    """Return the numbers of a file with a name and a number per line; those with the unit kB in bytes."""
    found = re.findall(r"^(\w+):?\s+(\d+)( kB)?$", text or "", re.MULTILINE)
    return {name: int(number) * (1024 if unit else 1) for name, number, unit in found}


@dataclass(frozen=True)
class Memory:
    """``huge_pages``: mode of transparent huge pages (always, madvise, never).

    ``huge_pages_total`` and ``huge_pages_free``: reserved huge pages of ``huge_page_bytes`` each.
    ``settings``: those of VM_SETTINGS that the kernel has.
    """

    total_bytes: int | None
    available_bytes: int | None
    swap_bytes: int | None
    swap_used_bytes: int | None
    huge_pages: str | None
    numa_balancing: int | None
    zone_reclaim: int | None
    huge_page_bytes: int | None = None
    huge_pages_total: int | None = None
    huge_pages_free: int | None = None
    settings: Mapping[str, int] = field(default_factory=dict)


VM_SETTINGS = (
    *("swappiness", "overcommit_memory", "overcommit_ratio", "dirty_ratio", "dirty_background_ratio"),
)
"""Settings of the kernel, as files of /proc/sys/vm."""


def read_memory(tree: Tree) -> Memory:
    """Read memory, swap and huge pages. The kernel counts mapped huge pages without an access as free."""
    sizes = numbers(tree.text("/proc/meminfo"))
    swap, free = sizes.get("SwapTotal"), sizes.get("SwapFree")
    pages_free = sizes.get("HugePages_Free")
    mode = re.search(r"\[(\w+)\]", tree.text("/sys/kernel/mm/transparent_hugepage/enabled") or "")
    return Memory(
        total_bytes=sizes.get("MemTotal"),
        available_bytes=sizes.get("MemAvailable"),
        swap_bytes=swap,
        swap_used_bytes=None if swap is None or free is None else swap - free,
        huge_pages=mode[1] if mode else None,
        numa_balancing=tree.number("/proc/sys/kernel/numa_balancing"),
        zone_reclaim=tree.number("/proc/sys/vm/zone_reclaim_mode"),
        huge_page_bytes=sizes.get("Hugepagesize"),
        huge_pages_total=sizes.get("HugePages_Total"),
        huge_pages_free=None if pages_free is None else max(0, pages_free - sizes.get("HugePages_Rsvd", 0)),
        settings={name: n for name in VM_SETTINGS if (n := tree.number(f"/proc/sys/vm/{name}")) is not None},
    )


CPU = "/sys/devices/system/cpu"


@dataclass(frozen=True)
class Processor:
    """``cores``: size of the affinity mask. ``governors``: those in use, empty if unknown.

    ``boost``: whether the frequency can exceed the base frequency. ``smt``: whether SMT is enabled.
    ``hypervisor``: its name on a virtual machine, else empty. ``nodes``: number of NUMA nodes.
    """

    cores: int
    governors: tuple[str, ...]
    boost: bool | None
    smt: bool | None
    hypervisor: str | None
    nodes: int | None
    on_battery: bool | None


def read_processor(tree: Tree) -> Processor:
    """Read the state of the processor. The setting of intel_pstate counts if that driver is active."""
    smt = tree.number(f"{CPU}/smt/active")
    boost, no_turbo = tree.text(f"{CPU}/cpufreq/boost"), tree.text(f"{CPU}/intel_pstate/no_turbo")
    nodes = [name for name in names(tree, "/sys/devices/system/node/node*") if name[4:].isdigit()]
    return Processor(
        cores=len(os.sched_getaffinity(0)),
        governors=tuple(sorted(set(texts(tree, f"{CPU}/cpu[0-9]*/cpufreq/scaling_governor")))),
        boost=no_turbo == "0" if no_turbo in ("0", "1") else boost == "1" if boost in ("0", "1") else None,
        smt=None if smt is None else smt == 1,
        hypervisor=_hypervisor(tree),
        nodes=len(nodes) or None,
        on_battery=_is_on_battery(tree),
    )


def _hypervisor(tree: Tree) -> str | None:
    """Return the name of the hypervisor, or ``unnamed``; empty on a physical machine. None if unknown, for
    example without CPU flags (ARM).
    """
    if kind := tree.text("/sys/hypervisor/type"):
        return kind
    flags = re.search(r"^flags\s*:(.*)$", tree.text("/proc/cpuinfo") or "", re.MULTILINE)
    if flags is None:
        return None
    product = tree.text("/sys/class/dmi/id/product_name") or "unnamed"
    return product if "hypervisor" in flags[1].split() else ""


def _is_on_battery(tree: Tree) -> bool:
    folder = "/sys/class/power_supply"
    of = [
        [tree.text(f"{folder}/{name}/{fact}") for fact in ("type", "status")]
        for name in names(tree, f"{folder}/*")
    ]
    return ["Battery", "Discharging"] in of


PAGE = bytes(8192)
"""A page, as pg_test_fsync writes."""

SYNCS_MAX = 20_000
"""Maximum number of flushes, because their times are kept in memory."""


@dataclass(frozen=True)
class FlushTimes:
    """Times of ``n`` consecutive writes of 8 kB with fdatasync."""

    n: int
    median_s: float
    p99_s: float
    worst_s: float


@dataclass(frozen=True)
class Disk:
    """``device``: the kernel's name, None if no disk is visible. ``kind``: nvme, ssd or rotational, as
    reported by the kernel. ``write_cache``: type of the device's cache; ``write back`` requires flushes.
    ``syncs``: None if not requested or not possible. ``scheduler``: its I/O scheduler.
    """

    file_system: str | None
    device: str | None
    kind: str
    write_cache: str | None
    size_bytes: int
    free_bytes: int
    syncs: FlushTimes | None
    read_ahead_kb: int | None = None
    scheduler: str | None = None


def read_disk(tree: Tree, path: Path, sync_s: float) -> Disk:
    """Read the disk of the directory ``path``. Measures flushes for ``sync_s``; none if it is 0."""
    device = disk_of(path)
    usage = shutil.disk_usage(path)
    queue = f"/sys/block/{device}/queue"
    scheduler = re.search(r"\[(\S+)\]", (tree.text(f"{queue}/scheduler") or "") if device else "")
    mount = mount_of(path, read_mounts())
    return Disk(
        file_system=mount.kind if mount else None,
        device=device,
        kind=disk_kind(path),
        write_cache=tree.text(f"{queue}/write_cache") if device else None,
        size_bytes=usage.total,
        free_bytes=usage.free,
        syncs=measure_flushes(path, sync_s) if sync_s > 0 else None,
        read_ahead_kb=tree.number(f"{queue}/read_ahead_kb") if device else None,
        scheduler=scheduler[1] if scheduler else None,
    )


def measure_flushes(path: Path, duration_s: float) -> FlushTimes | None:
    """Write one page repeatedly, each time with a flush. None if the directory is not writable."""
    took_s: list[float] = []
    try:
        with tempfile.TemporaryFile(dir=path, prefix="pgdyno-sync-") as file:
            os.pwrite(file.fileno(), PAGE, 0)
            os.fsync(file.fileno())  # allocates the block before the measurement
            ends_s = time.monotonic() + duration_s
            while not took_s or (time.monotonic() < ends_s and len(took_s) < SYNCS_MAX):
                begun_s = time.monotonic()
                os.pwrite(file.fileno(), PAGE, 0)
                os.fdatasync(file.fileno())
                took_s.append(time.monotonic() - begun_s)
    except OSError:
        return None
    return percentile_summary(took_s)


def percentile_summary(took_s: list[float]) -> FlushTimes:
    """Return the percentiles by rank."""
    ordered = sorted(took_s)
    n = len(ordered)
    return FlushTimes(n, ordered[n // 2], ordered[min(n - 1, (99 * n) // 100)], ordered[-1])


# ----------------------------------------------------------------------
# Load of the machine, and its state.
# ----------------------------------------------------------------------

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

BUSIEST_MAX = 3
"""Maximum number of processes that are named."""

PRESSURES = ("cpu", "io", "memory")

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class Counters:
    """Counters of the machine.

    ``total_s``, ``busy_s`` and ``steal_s``: CPU time of all cores since boot; busy includes steal, and total
    includes busy. ``pressure_s``: time with some stalled tasks, by resource. ``throttled``: number of thermal
    throttling events. ``limited_s``: CPU time withheld by control groups. ``processes``: (name, CPU seconds)
    by process ID.
    """

    at_s: float
    total_s: float
    busy_s: float
    steal_s: float
    wall_ahead_s: float
    pressure_s: Mapping[str, float]
    swapped_bytes: int | None
    oom_kills: int | None
    throttled: int | None
    limited_s: float | None
    processes: Mapping[int, tuple[str, float]] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class MachineLoad:
    """Load between two times.

    Shares are of the time of all cores, except ``steal``, a share of the busy time, and ``pressure``, a share
    of the elapsed time. ``others``: processes that do not belong to pgdyno; ``busiest``: the largest by name.
    None or missing: not reported by the machine.
    """

    elapsed_s: float
    steal: float
    others: float
    busiest: tuple[tuple[str, float], ...]
    pressure: Mapping[str, float]
    swapped_bytes: int | None
    oom_kills: int | None
    throttled: int | None
    limited_s: float | None
    clock_step_s: float


def read_counters(tree: Tree) -> Counters:
    """Read all counters."""
    ticks = (tree.text("/proc/stat") or "cpu" + " 0" * 8).split()[1:9]
    user, nice, system, idle, iowait, irq, softirq, steal = (int(n) * TICK_S for n in ticks)
    busy_s = user + nice + system + irq + softirq + steal
    vmstat = numbers(tree.text("/proc/vmstat"))
    swapped = [vmstat[name] for name in ("pswpin", "pswpout") if name in vmstat]
    heat = texts(tree, "/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count")
    stalled = {
        of: re.search(r"^some .*total=(\d+)", tree.text(f"/proc/pressure/{of}") or "", re.MULTILINE)
        for of in PRESSURES
    }
    return Counters(
        at_s=time.monotonic(),
        total_s=busy_s + idle + iowait,
        busy_s=busy_s,
        steal_s=steal,
        wall_ahead_s=time.time() - time.monotonic(),
        pressure_s={of: int(found[1]) / 1e6 for of, found in stalled.items() if found},
        swapped_bytes=sum(swapped) * PAGE_BYTES if swapped else None,
        oom_kills=vmstat.get("oom_kill"),
        throttled=sum(map(int, heat)) if heat else None,
        limited_s=throttled_s(tree),
        processes=_processes(tree),
    )


def load_between(before: Counters, after: Counters, own: int | None = None) -> MachineLoad:
    """Return the load between two readings. ``own``: process that does not count as others, by default this
    one. Processes that did not exist at both times only count in the use of the whole machine.
    """
    elapsed_s = after.at_s - before.at_s
    total_s = max(after.total_s - before.total_s, 1e-9)
    busy_s, stolen_s = after.busy_s - before.busy_s, after.steal_s - before.steal_s
    own = os.getpid() if own is None else own
    own_s, used_s = 0.0, dict[str, float]()
    for pid, (name, cpu_s) in after.processes.items():
        grown_s = cpu_s - before.processes.get(pid, (name, cpu_s))[1]
        if pid == own:
            own_s = grown_s
        else:
            used_s[name] = used_s.get(name, 0.0) + max(0.0, grown_s)
    busiest = sorted(used_s.items(), key=lambda item: -item[1])[:BUSIEST_MAX]
    return MachineLoad(
        elapsed_s=elapsed_s,
        steal=stolen_s / busy_s if busy_s > 0 else 0.0,
        others=max(0.0, busy_s - stolen_s - own_s) / total_s,
        busiest=tuple((name, cpu_s / total_s) for name, cpu_s in busiest if cpu_s > 0),
        pressure={
            of: (seconds - before.pressure_s[of]) / elapsed_s
            for of, seconds in after.pressure_s.items()
            if of in before.pressure_s and elapsed_s > 0
        },
        swapped_bytes=_grown(before.swapped_bytes, after.swapped_bytes),
        oom_kills=_grown(before.oom_kills, after.oom_kills),
        throttled=_grown(before.throttled, after.throttled),
        limited_s=_grown(before.limited_s, after.limited_s),
        clock_step_s=after.wall_ahead_s - before.wall_ahead_s,
    )


def _grown(before: Number | None, after: Number | None) -> Number | None:
    return None if before is None or after is None else after - before


def throttled_s(tree: Tree) -> float | None:
    """Return the CPU time that limits of control groups have withheld so far; None if unknown."""
    counts = [numbers(tree.text(f"{place}/cpu.stat")) for place in dict.fromkeys(places(tree, "cpu"))]
    units = {"throttled_usec": 1e6, "throttled_time": 1e9}  # of cgroup versions 2 and 1
    return max((of[name] / unit for of in counts for name, unit in units.items() if name in of), default=None)


def _processes(tree: Tree) -> dict[int, tuple[str, float]]:
    """Return name and CPU seconds by process. A name may contain blanks and parentheses."""
    found = {}
    for pid in names(tree, "/proc/[0-9]*"):
        name, _, rest = (tree.text(f"/proc/{pid}/stat") or "").partition("(")[2].rpartition(")")
        if len(fields := rest.split()) > 12:
            found[int(pid)] = name, (int(fields[11]) + int(fields[12])) * TICK_S
    return found


@dataclass(frozen=True)
class MachineState:
    """State of the machine. ``disk``: None without data on this machine. ``counters``: at the end of the
    observation of ``load``.
    """

    unix_s: float
    processor: Processor
    memory: Memory
    kernel: Kernel
    limits: Limits
    clock: Clock
    disk: Disk | None
    load: MachineLoad
    counters: Counters

    def as_json(self) -> dict[str, Any]:
        """Return the state for the results file, without the counters."""
        found = asdict(self)
        del found["counters"]
        return found


def examine_machine(
    watch_s: float,
    data_path: Path | None,
    sync_s: float,
    tree: Tree | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> MachineState:
    """Observe the load for ``watch_s``, then measure flushes for ``sync_s``, which would add to the load."""
    tree = tree or Tree()
    before = read_counters(tree)
    wait(watch_s)
    after = read_counters(tree)
    return MachineState(
        unix_s=time.time(),
        processor=read_processor(tree),
        memory=read_memory(tree),
        kernel=read_kernel(tree),
        limits=read_limits(tree),
        clock=read_clock(tree),
        disk=None if data_path is None else read_disk(tree, data_path, sync_s),
        load=load_between(before, after),
        counters=after,
    )
