"""Facts of the machine that disturb measurements: clock, kernel, limits, memory, processor."""

from __future__ import annotations

import os
import re
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from pgdyno.probe.proc_files import Tree

BATCHES = 200
READS = 500
"""A batch takes some 20 µs: short enough that most are undisturbed. All together take a few milliseconds."""


@dataclass(frozen=True)
class Clock:
    """``source`` by the kernel's word. ``read_ns``: the least mean of a batch of readings, Python's own part
    (some 20 to 40 ns) with it.
    """

    source: str | None
    read_ns: float


def read_clock(tree: Tree) -> Clock:
    """As it is now."""
    path = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
    return Clock(source=tree.text(path), read_ns=min(_batch_ns() for _ in range(BATCHES)))


def _batch_ns() -> float:
    begun_ns = time.monotonic_ns()
    for _ in range(READS):
        time.monotonic_ns()
    return (time.monotonic_ns() - begun_ns) / (READS + 1)


def wall_ahead_s() -> float:
    """Of the monotonic clock: it changes when somebody sets the time of day."""
    return time.time() - time.monotonic()


NONE_OR_VOLUNTARY = "none or voluntary"
"""A kernel without preemption whose configuration cannot be read: it is one of these."""

LAZY_SINCE = (6, 12)
"""From this version on a kernel that calls itself PREEMPT may be lazy."""

_MODELS = {"NONE": "none", "VOLUNTARY": "voluntary", "LAZY": "lazy", "": "full", "RT": "rt"}
_CONFIGURED = re.compile(r"^CONFIG_PREEMPT_?(NONE|VOLUNTARY|LAZY|RT|)=y$", re.MULTILINE)


@dataclass(frozen=True)
class Kernel:
    """``preemption``: none, voluntary, lazy, full or rt; None where the kernel does not tell."""

    release: str | None = None
    preemption: str | None = None


def read_kernel(tree: Tree) -> Kernel:
    """Read it as it is now. Only root sees the debug file; the others tell how the kernel was booted."""
    release = tree.text("/proc/sys/kernel/osrelease")
    config = tree.gzipped("/proc/config.gz") or tree.text(f"/boot/config-{release}")
    return Kernel(
        release=release,
        preemption=preemption(
            debug=tree.text("/sys/kernel/debug/sched/preempt"),
            version=tree.text("/proc/sys/kernel/version"),
            command_line=tree.text("/proc/cmdline"),
            config=config,
            release=release,
        ),
    )


def preemption(
    *,
    debug: str | None,
    version: str | None,
    command_line: str | None,
    config: str | None,
    release: str | None,
) -> str | None:
    """Return the model: what the kernel says now, else how it was booted, else how it was built."""
    if now := re.search(r"\((\w+)\)", debug or ""):
        return now[1]
    words = (version or "").split()
    if "PREEMPT_RT" in words:
        return "rt"
    booted = re.findall(r"(?:^|\s)preempt=(none|voluntary|lazy|full)(?=\s|$)", command_line or "")
    if "PREEMPT_DYNAMIC" in words and booted:
        return str(booted[-1])
    configured = [_MODELS[name] for name in _CONFIGURED.findall(config or "")]
    if configured:
        return "rt" if "rt" in configured else configured[0]
    if "PREEMPT" in words:
        number = re.match(r"(\d+)\.(\d+)", release or "")
        is_older = number is not None and (int(number[1]), int(number[2])) < LAZY_SINCE
        return "full" if is_older else None
    return None if not words or "PREEMPT_DYNAMIC" in words else NONE_OR_VOLUNTARY


GROUPS = "/sys/fs/cgroup"

UNLIMITED_BYTES = 2**60
"""Version 1 writes no limit as a number near 2**63."""


@dataclass(frozen=True)
class Limits:
    """``cpu_cores`` of time: 1.5 is a core and a half. None: no limit. ``files``: open ones, of a process."""

    cpu_cores: float | None
    memory_bytes: int | None
    files: int


def read_limits(tree: Tree) -> Limits:
    """Those of this process, which the servers that it starts inherit."""
    cpus = [cores for place in places(tree, "cpu") if (cores := _cores(tree, place)) is not None]
    memory = [size for place in places(tree, "memory") if (size := _memory_bytes(tree, place)) is not None]
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return Limits(
        cpu_cores=min(cpus, default=None),
        memory_bytes=min(memory, default=None),
        files=2**31 if files == resource.RLIM_INFINITY else files,
    )


def places(tree: Tree, controller: str) -> Iterator[str]:
    """The directories of our group and of those above it: each may have a limit. In a container the names
    are often those of the machine outside, and only the last, the root, is there.
    """
    for line in (tree.text("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _upwards(GROUPS, path)
        elif controller in controllers.split(","):
            yield from _upwards(f"{GROUPS}/{controller}", path)
            yield from _upwards(f"{GROUPS}/{controllers}", path)


def _upwards(root: str, path: str) -> Iterator[str]:
    group = PurePosixPath("/", path)
    for above in (group, *group.parents):
        yield f"{root}{above}".rstrip("/")


def throttled_s(tree: Tree) -> float | None:
    """For how long the CPU was kept from us by a limit so far, all our groups together."""
    found = [
        _throttled_s(tree.text(f"{place}/cpu.stat") or "") for place in dict.fromkeys(places(tree, "cpu"))
    ]
    known = [seconds for seconds in found if seconds is not None]
    return max(known) if known else None


def _throttled_s(text: str) -> float | None:
    counts = dict(line.split() for line in text.splitlines() if len(line.split()) == 2)
    if "throttled_usec" in counts:
        return int(counts["throttled_usec"]) / 1e6
    return int(counts["throttled_time"]) / 1e9 if "throttled_time" in counts else None


def _cores(tree: Tree, place: str) -> float | None:
    if text := tree.text(f"{place}/cpu.max"):
        quota, period = text.split()
        return None if quota == "max" else int(quota) / int(period)
    old, period_us = tree.number(f"{place}/cpu.cfs_quota_us"), tree.number(f"{place}/cpu.cfs_period_us")
    return old / period_us if old and period_us and old > 0 else None


def _memory_bytes(tree: Tree, place: str) -> int | None:
    for name in ("memory.max", "memory.limit_in_bytes"):
        size = tree.number(f"{place}/{name}")  # "max" is no number
        if size is not None and size < UNLIMITED_BYTES:
            return size
    return None


KILOBYTE = 1024


@dataclass(frozen=True)
class Memory:
    """``huge_pages``: when the kernel makes huge pages by itself (always, madvise, never).

    ``huge_pages_total`` and ``huge_pages_free`` count those that are reserved, of ``huge_page_bytes`` each.
    """

    total_bytes: int | None
    available_bytes: int | None
    swap_bytes: int | None
    swap_used_bytes: int | None
    huge_pages: str | None
    overcommit: int | None
    numa_balancing: int | None
    zone_reclaim: int | None
    huge_page_bytes: int | None = None
    huge_pages_total: int | None = None
    huge_pages_free: int | None = None


def read_memory(tree: Tree) -> Memory:
    """As it is now."""
    text = tree.text("/proc/meminfo") or ""
    sizes = meminfo(text)
    swap, free = sizes.get("SwapTotal"), sizes.get("SwapFree")
    return Memory(
        total_bytes=sizes.get("MemTotal"),
        available_bytes=sizes.get("MemAvailable"),
        swap_bytes=swap,
        swap_used_bytes=None if swap is None or free is None else swap - free,
        huge_pages=chosen(tree.text("/sys/kernel/mm/transparent_hugepage/enabled")),
        overcommit=tree.number("/proc/sys/vm/overcommit_memory"),
        numa_balancing=tree.number("/proc/sys/kernel/numa_balancing"),
        zone_reclaim=tree.number("/proc/sys/vm/zone_reclaim_mode"),
        huge_page_bytes=sizes.get("Hugepagesize"),
        huge_pages_total=_count(text, "HugePages_Total"),
        huge_pages_free=_unreserved(_count(text, "HugePages_Free"), _count(text, "HugePages_Rsvd")),
    )


def meminfo(text: str) -> dict[str, int]:
    """Its sizes in bytes."""
    found = re.findall(r"^(\w+):\s*(\d+) kB$", text, re.MULTILINE)
    return {name: int(kilobytes) * KILOBYTE for name, kilobytes in found}


def _count(text: str, name: str) -> int | None:
    found = re.search(rf"^{name}:\s*(\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else None


def _unreserved(free: int | None, promised: int | None) -> int | None:
    """Pages that a process has mapped and not touched yet are free by the kernel's count, and not for us."""
    return None if free is None else max(0, free - (promised or 0))


def chosen(text: str | None) -> str | None:
    """``always [madvise] never`` → ``madvise``."""
    found = re.search(r"\[(\w+)\]", text or "")
    return found[1] if found else None


CPU = "/sys/devices/system/cpu"


@dataclass(frozen=True)
class Processor:
    """``cores`` that we may run on. ``governors``: those in use, none where the machine does not say.

    ``boost``: whether the clock may rise above what the processor keeps up. ``smt``: whether cores are two
    threads of one. ``hypervisor``: its name where the machine is virtual, else empty. ``nodes`` of memory.
    """

    cores: int
    governors: tuple[str, ...]
    boost: bool | None
    smt: bool | None
    hypervisor: str | None
    nodes: int | None
    on_battery: bool | None


def read_processor(tree: Tree) -> Processor:
    """As it is now."""
    smt = tree.number(f"{CPU}/smt/active")
    nodes = [name for name in tree.names("/sys/devices/system/node/node*") if name[4:].isdigit()]
    return Processor(
        cores=len(os.sched_getaffinity(0)),
        governors=tuple(sorted(set(tree.texts(f"{CPU}/cpu[0-9]*/cpufreq/scaling_governor")))),
        boost=boost(tree.text(f"{CPU}/cpufreq/boost"), tree.text(f"{CPU}/intel_pstate/no_turbo")),
        smt=None if smt is None else smt == 1,
        hypervisor=hypervisor(
            tree.text("/proc/cpuinfo"),
            tree.text("/sys/hypervisor/type"),
            tree.text("/sys/class/dmi/id/product_name"),
        ),
        nodes=len(nodes) or None,
        on_battery=on_battery(_supplies(tree)),
    )


def boost(generic: str | None, no_turbo: str | None) -> bool | None:
    """By the word of the driver that there is: acpi-cpufreq's and amd-pstate's, or intel_pstate's."""
    if no_turbo in ("0", "1"):
        return no_turbo == "0"
    return generic == "1" if generic in ("0", "1") else None


def hypervisor(cpuinfo: str | None, kind: str | None, product: str | None) -> str | None:
    """Its name, or ``unnamed``; empty on a machine of its own. None where the processor has no flags to ask
    (ARM), and nothing else tells.
    """
    if kind:
        return kind
    flags = re.search(r"^flags\s*:(.*)$", cpuinfo or "", re.MULTILINE)
    if flags is None:
        return None
    return (product or "unnamed") if "hypervisor" in flags[1].split() else ""


def _supplies(tree: Tree) -> list[tuple[str, str]]:
    names = tree.names("/sys/class/power_supply/*")
    paths = [f"/sys/class/power_supply/{name}" for name in names]
    return [(tree.text(f"{path}/type") or "", tree.text(f"{path}/status") or "") for path in paths]


def on_battery(supplies: list[tuple[str, str]]) -> bool:
    """Of (type, status) of each supply: whether a battery is being emptied."""
    return any(kind == "Battery" and status == "Discharging" for kind, status in supplies)
