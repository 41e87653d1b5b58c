"""State of the machine: facts, and the load between two readings of its counters."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pgdyno.probe.cpu_time import TICK_S
from pgdyno.probe.disks import Disk, read_disk
from pgdyno.probe.machine_facts import (
    Clock,
    Kernel,
    Limits,
    Memory,
    Processor,
    read_clock,
    read_kernel,
    read_limits,
    read_memory,
    read_processor,
    throttled_s,
    wall_ahead_s,
)
from pgdyno.probe.proc_files import Tree

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

BUSIEST_MAX = 3
"""Maximum number of processes that are named."""

PRESSURES = ("cpu", "io", "memory")


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
    total_s, busy_s, steal_s = cpu_times(tree.text("/proc/stat") or "")
    vmstat = _numbers(tree.text("/proc/vmstat") or "")
    swapped = [vmstat[name] for name in ("pswpin", "pswpout") if name in vmstat]
    heat = tree.texts("/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count")
    pressures = {of: pressure_s(tree.text(f"/proc/pressure/{of}")) for of in PRESSURES}
    return Counters(
        at_s=time.monotonic(),
        total_s=total_s,
        busy_s=busy_s,
        steal_s=steal_s,
        wall_ahead_s=wall_ahead_s(),
        pressure_s={of: seconds for of, seconds in pressures.items() if seconds is not None},
        swapped_bytes=sum(swapped) * PAGE_BYTES if swapped else None,
        oom_kills=vmstat.get("oom_kill"),
        throttled=sum(int(count) for count in heat) if heat else None,
        limited_s=throttled_s(tree),
        processes=_processes(tree),
    )


def load_between(before: Counters, after: Counters, own: int | None = None) -> MachineLoad:
    """Return the load between two readings. ``own``: process that does not count as others, by default this
    one."""
    elapsed_s = after.at_s - before.at_s
    total_s = max(after.total_s - before.total_s, 1e-9)
    busy_s = after.busy_s - before.busy_s
    stolen_s = after.steal_s - before.steal_s
    own = os.getpid() if own is None else own
    used = used_by_others(before, after, own)
    own_s = _used_by(own, before, after)
    busiest = sorted(used.items(), key=lambda item: -item[1])[:BUSIEST_MAX]
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
        limited_s=None
        if before.limited_s is None or after.limited_s is None
        else after.limited_s - before.limited_s,
        clock_step_s=after.wall_ahead_s - before.wall_ahead_s,
    )


def used_by_others(before: Counters, after: Counters, own: int) -> dict[str, float]:
    """Return CPU seconds by program name, of processes that existed at both times. The use of others is only
    included in that of the whole machine.
    """
    used: dict[str, float] = {}
    for pid, (name, cpu_s) in after.processes.items():
        if pid != own and pid in before.processes:
            used[name] = used.get(name, 0.0) + max(0.0, cpu_s - before.processes[pid][1])
    return used


def _used_by(pid: int, before: Counters, after: Counters) -> float:
    if pid not in before.processes or pid not in after.processes:
        return 0.0
    return after.processes[pid][1] - before.processes[pid][1]


def cpu_times(text: str) -> tuple[float, float, float]:
    """Return total, busy and steal time of /proc/stat; busy includes steal."""
    found = re.search(r"^cpu\s+(.*)$", text, re.MULTILINE)
    if found is None:
        return 0.0, 0.0, 0.0
    times = [int(ticks) * TICK_S for ticks in found[1].split()[:8]]
    times += [0.0] * (8 - len(times))
    idle_s = times[3] + times[4]
    return sum(times), sum(times) - idle_s, times[7]


def pressure_s(text: str | None) -> float | None:
    """Return the seconds with some stalled tasks, from a file of /proc/pressure."""
    found = re.search(r"^some .*total=(\d+)", text or "", re.MULTILINE)
    return int(found[1]) / 1e6 if found else None


def process_of(stat: str) -> tuple[str, float] | None:
    """Return name and CPU seconds from /proc/PID/stat. A name may contain blanks and parentheses."""
    name, _, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()
    return (name, (int(fields[11]) + int(fields[12])) * TICK_S) if len(fields) > 12 else None


def _processes(tree: Tree) -> dict[int, tuple[str, float]]:
    found = {}
    for pid in tree.names("/proc/[0-9]*"):
        if (stat := tree.text(f"/proc/{pid}/stat")) and (process := process_of(stat)):
            found[int(pid)] = process
    return found


def _numbers(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _grown(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


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
