"""The examination of a machine: sources of noise in CPU, memory and disks.

- Result of one check of the machine.
- Checks of the clock, CPU limits, other load, cores and their frequency.
- Checks of memory, swap, huge pages for shared buffers, and the preemption model.
- Checks of the disk and the file system of the data.
- All checks of the machine in their order, and their caveats, before and after a study.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pgdyno.caveats import Caveat, Parameter
from pgdyno.caveats import Code as CoreCode
from pgdyno.errors import UsageError
from pgdyno.features.doctor.machine_state import (
    PRESSURES,
    Clock,
    Disk,
    FlushTimes,
    Kernel,
    MachineLoad,
    MachineState,
    Memory,
    Processor,
    examine_machine,
    load_between,
)
from pgdyno.measure.arms import Prepared
from pgdyno.measure.machine import Limits
from pgdyno.measure.progress import PreparationStep, Warned, Watch
from pgdyno.measure.study_runner import EndOfExamination
from pgdyno.results.records import StudyEnd
from pgdyno.results.writer import Writer
from pgdyno.server.build_catalogue import Catalogue
from pgdyno.study.plan import Study
from pgdyno.units import format_duration, format_size, given_percent, parse_size_bytes, percent_text


class Code(StrEnum):
    """Codes of caveats about the machine."""

    GOVERNOR = "governor"
    BOOST = "boost"
    THERMAL_THROTTLING = "thermal-throttling"
    ON_BATTERY = "on-battery"
    SMT = "smt"
    VIRTUAL_MACHINE = "virtual-machine"
    NUMA = "numa"
    HUGE_PAGES = "huge-pages"
    SMALL_PAGES = "small-pages"
    PREEMPTION = "preemption"
    SWAP_USED = "swap-used"
    SWAPPING = "swapping"
    OUT_OF_MEMORY = "out-of-memory"
    MACHINE_STEAL = "machine-steal"
    OTHER_LOAD = "other-load"
    PRESSURE = "pressure"
    CPU_LIMITED = "cpu-limited"
    CPU_THROTTLED = "cpu-throttled"
    MEMORY_LIMITED = "memory-limited"
    FILES_LIMITED = "files-limited"
    SLOW_CLOCK = "slow-clock"
    CLOCK_SET = "clock-set"
    FILE_SYSTEM = "file-system"
    SPACE_SHORT = "space-short"
    FLUSH_TOO_FAST = "flush-too-fast"
    FLUSH_SLOW = "flush-slow"
    FLUSH_UNEVEN = "flush-uneven"


# ----------------------------------------------------------------------
# Result of one check of the machine.
# ----------------------------------------------------------------------


@dataclass(frozen=True)
class Checked:
    """Result of a check. ``about``: its subject. ``text``: the value if it is fine, the reason if it is
    unknown. ``caveat``: that of a finding.
    """

    about: str
    found: Literal["fine", "unknown", "disturbs"]
    text: str = ""
    caveat: Caveat | None = None


def fine(about: str, text: str) -> Checked:
    """Return the result without a finding."""
    return Checked(about, "fine", text)


def not_reported(about: str, text: str = "not reported by this machine") -> Checked:
    """Return the result for an unknown property, which is neither fine nor a finding."""
    return Checked(about, "unknown", text)


def disturbs(about: str, code: str, **parameters: Parameter) -> Checked:
    """Return a finding."""
    caveat = Caveat(code, parameters)
    return Checked(about, "disturbs", caveat.text, caveat)


# ----------------------------------------------------------------------
# Checks of the clock, CPU limits, other load, cores and their frequency.
# ----------------------------------------------------------------------

READ_NS_MAX = 250
"""Maximum time of a clock reading. From the processor it takes 20 to 80 ns, including Python; by a system
call at least 200 ns, and from a device (hpet, acpi_pm) 1000 ns."""

STEP_S_MAX = 0.1
"""Minimum step of a clock that was set. Slewing changes a clock by at most 0.5 ms per second."""


def reading(clock: Clock) -> Checked:
    """Check the time of a clock reading. The name of the source is not sufficient: kvm-clock is as fast as
    tsc."""
    about = "clock"
    if clock.read_ns > READ_NS_MAX:
        source = clock.source or "unknown"
        return disturbs(
            about, Code.SLOW_CLOCK, read_ns=round(clock.read_ns), source=source, limit_ns=READ_NS_MAX
        )
    if clock.source is None:
        return not_reported(about, f"unknown source; a reading takes {clock.read_ns:.0f} ns")
    return fine(about, f"{clock.source}, a reading takes {clock.read_ns:.0f} ns")


def steps(load: MachineLoad, when: str) -> Checked:
    """Check that the time of day was not set. Slewing during a long study is not a step."""
    about = "time of day"
    slewed_s = STEP_S_MAX + 0.0005 * load.elapsed_s
    if abs(load.clock_step_s) > slewed_s:
        return disturbs(about, Code.CLOCK_SET, step=format_duration(load.clock_step_s), when=when)
    return fine(about, f"not set {when}")


WITHHELD_SHARE_MAX = 0.01
"""Maximum withheld CPU time as a share of the elapsed time: half of the default margin of a verdict."""

FILES_MIN = 1024
"""Minimum limit of open files. A backend opens up to max_files_per_process files, by default 1000."""


def cpu_limit(limits: Limits, cores: int) -> Checked:
    """Check that no quota is below the number of cores."""
    about = "limit of CPU time"
    if limits.cpu_cores is not None and limits.cpu_cores < cores:
        return disturbs(about, Code.CPU_LIMITED, cores=f"{limits.cpu_cores:g}", of=cores)
    return fine(about, "none below the cores")


def withheld(load: MachineLoad, when: str) -> Checked:
    """Check that no quota was exhausted."""
    about = "CPU withheld by a limit"
    if load.limited_s is None:
        return not_reported(about)
    if load.limited_s > WITHHELD_SHARE_MAX * load.elapsed_s:
        return disturbs(about, Code.CPU_THROTTLED, withheld=format_duration(load.limited_s), when=when)
    return fine(about, f"none {when}")


def memory_limit(limits: Limits, total_bytes: int | None) -> Checked:
    """Check that no limit is below the memory of the machine."""
    about = "limit of memory"
    limit = limits.memory_bytes
    if limit is not None and (total_bytes is None or limit < total_bytes):
        of = "unknown size" if total_bytes is None else format_size(total_bytes)
        return disturbs(about, Code.MEMORY_LIMITED, limit=format_size(limit), of=of)
    return fine(about, "none below that of the machine")


def files(limits: Limits) -> Checked:
    """Check the maximum number of open files of a process."""
    about = "open files of a process"
    if limits.files < FILES_MIN:
        return disturbs(about, Code.FILES_LIMITED, files=limits.files, limit=FILES_MIN)
    return fine(about, f"up to {limits.files}")


STEAL_MAX = 0.02
"""Maximum steal as a share of the requested CPU time. An idle hypervisor takes less than 1%."""

OTHERS_MAX = 0.05
"""Maximum CPU time of other processes as a share of all cores. An idle desktop takes less, and studies look
for effects of 5%."""

PRESSURE_MAX = {"cpu": 0.10, "io": 0.05, "memory": 0.01}
"""Maximum pressure as a share of the elapsed time. Short waits for a CPU are normal; waits for memory are
not."""


def cpu_steal(load: MachineLoad, when: str) -> Checked:
    """Check steal. On an idle machine there is no steal: it occurs under load."""
    about = "stolen CPU time"
    if load.steal > STEAL_MAX:
        return disturbs(
            about,
            Code.MACHINE_STEAL,
            share=percent_text(load.steal, 1),
            limit=given_percent(STEAL_MAX),
            when=when,
        )
    return fine(about, f"{percent_text(load.steal, 1)} {when}")


def other_processes(load: MachineLoad, when: str) -> Checked:
    """Check the load of other processes."""
    about = "other load"
    if load.others > OTHERS_MAX:
        names = (
            ", ".join(f"{name} {percent_text(share, 1)}" for name, share in load.busiest)
            or "short-lived processes"
        )
        parameters = {
            "share": percent_text(load.others, 1),
            "limit": given_percent(OTHERS_MAX),
            "names": names,
            "when": when,
        }
        return disturbs(about, Code.OTHER_LOAD, **parameters)
    return fine(about, f"{percent_text(load.others, 1)} of the CPU {when}")


def pressure(load: MachineLoad, of: str, when: str) -> Checked:
    """Check the pressure on a resource. ``of``: cpu, io or memory."""
    about = f"waiting for {WANTED[of]}"
    share, limit = load.pressure.get(of), PRESSURE_MAX[of]
    if share is None:
        return not_reported(about)
    if share > limit:
        parameters = {
            "what": WANTED[of],
            "share": percent_text(share, 1),
            "limit": given_percent(limit),
            "when": when,
        }
        return disturbs(about, Code.PRESSURE, **parameters)
    return fine(about, f"{percent_text(share, 1)} of the time {when}")


WANTED = {"cpu": "CPU", "io": "the disk", "memory": "memory"}
"""Names of the resources for output."""


STEADY_GOVERNOR = "performance"
"""The governor that always keeps a core at its highest frequency."""


def governor(processor: Processor) -> Checked:
    """Check the governors of all cores: a core that saves power slows down the processes on it."""
    about = "CPU frequency governor"
    if not processor.governors:
        return not_reported(about)
    if processor.governors != (STEADY_GOVERNOR,):
        return disturbs(about, Code.GOVERNOR, governor=", ".join(processor.governors))
    return fine(about, STEADY_GOVERNOR)


def boost(processor: Processor) -> Checked:
    """Check that the frequency is constant under load."""
    about = "CPU boost"
    if processor.boost is None:
        return not_reported(about)
    return disturbs(about, Code.BOOST) if processor.boost else fine(about, "off")


def heat(load: MachineLoad, when: str) -> Checked:
    """Check that there was no throttling: it halves the speed of a core."""
    about = "thermal throttling"
    if load.throttled is None:
        return not_reported(about)
    if load.throttled > 0:
        return disturbs(about, Code.THERMAL_THROTTLING, times=load.throttled, when=when)
    return fine(about, f"none {when}")


def smt(processor: Processor) -> Checked:
    """Check that each CPU is a separate core."""
    about = "threads per core (SMT)"
    if processor.smt is None:
        return not_reported(about)
    return disturbs(about, Code.SMT) if processor.smt else fine(about, "one per core")


def virtual(processor: Processor) -> Checked:
    """Check whether the machine is virtual, with other virtual machines on the same host."""
    about = "virtual machine"
    if processor.hypervisor is None:
        return not_reported(about)
    if processor.hypervisor:
        return disturbs(about, Code.VIRTUAL_MACHINE, hypervisor=processor.hypervisor)
    return fine(about, "no")


def nodes(processor: Processor, memory: Memory) -> Checked:
    """Check for several NUMA nodes; the finding includes the settings of the kernel."""
    about = "NUMA nodes"
    if processor.nodes is None:
        return not_reported(about)
    if processor.nodes == 1:
        return fine(about, "one")
    known = {"numa_balancing": memory.numa_balancing, "zone_reclaim_mode": memory.zone_reclaim}
    settings = ", ".join(f"{name} {value}" for name, value in known.items() if value is not None)
    return disturbs(about, Code.NUMA, nodes=processor.nodes, settings=settings or "settings unknown")


def battery(processor: Processor) -> Checked:
    """Check that the machine does not run on battery."""
    about = "power"
    if processor.on_battery is None:
        return not_reported(about)
    return disturbs(about, Code.ON_BATTERY) if processor.on_battery else fine(about, "not from a battery")


# ----------------------------------------------------------------------
# Checks of memory, swap, huge pages for shared buffers, and the preemption model.
# ----------------------------------------------------------------------

SWAP_USED_SHARE_MAX = 0.01
"""Maximum used swap as a share of memory. Kernels swap out small amounts of sleeping programs."""

SWAPPED_BYTES_MAX = 2**20
"""Maximum swap traffic. More means that memory is short."""


def transparent_huge_pages(memory: Memory) -> Checked:
    """Check transparent huge pages. With madvise only programs that request them get them; PostgreSQL does
    not."""
    about = "transparent huge pages"
    if memory.huge_pages is None:
        return not_reported(about)
    return (
        disturbs(about, Code.HUGE_PAGES) if memory.huge_pages == "always" else fine(about, memory.huge_pages)
    )


def swap_used(memory: Memory) -> Checked:
    """Check the swap in use."""
    about = "swap"
    used, total = memory.swap_used_bytes, memory.total_bytes
    if used is None or total is None:
        return not_reported(about)
    if used > SWAP_USED_SHARE_MAX * total:
        return disturbs(about, Code.SWAP_USED, used=format_size(used))
    return fine(about, f"{format_size(used)} used" if memory.swap_bytes else "no swap")


def swapping(load: MachineLoad, when: str) -> Checked:
    """Check that no pages are swapped in or out."""
    about = "swapping"
    if load.swapped_bytes is None:
        return not_reported(about)
    if load.swapped_bytes > SWAPPED_BYTES_MAX:
        return disturbs(about, Code.SWAPPING, moved=format_size(load.swapped_bytes), when=when)
    return fine(about, f"none {when}")


def out_of_memory(load: MachineLoad, when: str) -> Checked:
    """Check that the kernel killed no processes for lack of memory."""
    about = "OOM-killed processes"
    if load.oom_kills is None:
        return not_reported(about)
    if load.oom_kills > 0:
        return disturbs(about, Code.OUT_OF_MEMORY, times=load.oom_kills, when=when)
    return fine(about, f"none {when}")


PAGE_TABLES_BYTES_MAX = 64 * 2**20
"""Maximum size of the page tables of all backends: 32 clients with 1 GB, 256 with 128 MB. Larger ones fill
the processor caches."""

MAPPED_PER_TABLE_BYTE = 512
"""An entry of 8 bytes maps a page of 4096 bytes."""

OVERHEAD = 1.1
"""Ratio of shared memory to shared buffers for servers before 15, which do not report it: a few percent
more."""

USUAL_HUGE_PAGE_BYTES = 2 * 2**20
"""Default size of a huge page: that of x86_64 and most ARM machines."""

FULLY_PREEMPTIBLE = ("full", "rt")


@dataclass(frozen=True)
class ServerMemory:
    """Shared memory of an arm's server on this machine.

    ``pages``: number of huge pages that it needs, from 15 on; None: unknown. ``runs``: it is a running
    server, and ``status`` its ``huge_pages_status`` (from 17 on).
    """

    arm: str
    clients: int
    shared_buffers_bytes: int
    huge_pages: str
    pages: int | None = None
    runs: bool = False
    status: str | None = None

    @property
    def page_tables_bytes(self) -> int:
        """Size of the page tables of all clients with small pages, after each has accessed all buffers."""
        return self.clients * self.shared_buffers_bytes // MAPPED_PER_TABLE_BYTE


Together = Sequence[ServerMemory]
"""Servers that run at the same time."""


def huge_pages(memory: Memory, asked: Sequence[Together]) -> Checked:
    """Check whether the shared buffers of the servers will be in huge pages, if they are large."""
    about = "huge pages for shared buffers"
    every = [server for together in asked for server in together]
    needing = [server for server in every if server.page_tables_bytes > PAGE_TABLES_BYTES_MAX]
    if not needing:
        most = max((server.page_tables_bytes for server in every), default=0)
        return fine(about, f"not needed: page tables of at most {format_size(most)}")
    reasons = {server: _why_small(memory, server, together) for together in asked for server in together}
    lacking = [server for server in needing if reasons[server]]
    if lacking:
        return disturbs(
            about,
            Code.SMALL_PAGES,
            arms=", ".join(dict.fromkeys(server.arm for server in lacking)),
            reason="; ".join(dict.fromkeys(str(reasons[server]) for server in lacking)),
            clients=max(server.clients for server in lacking),
            tables=format_size(max(server.page_tables_bytes for server in lacking)),
            pages=pages_to_reserve(memory, asked),
        )
    if any(reasons[server] is None for server in needing):
        return not_reported(about)
    return fine(about, "enough are free")


def preemption(kernel: Kernel, memory: Memory, asked: Sequence[Together], cores: int) -> Checked:
    """Check whether the kernel can preempt a backend while others wait for it.

    In a study this matters only with more clients than cores, and servers without huge pages.
    """
    about = "preemption by the kernel"
    if kernel.preemption is None:
        return not_reported(about)
    if kernel.preemption not in FULLY_PREEMPTIBLE:
        return fine(about, kernel.preemption)
    exposed = [
        server
        for together in asked
        for server in together
        if server.clients > cores and _why_small(memory, server, together) != ""
    ]
    if asked and not exposed:
        return fine(about, f"{kernel.preemption}, but few clients or huge pages")
    return disturbs(about, Code.PREEMPTION, model=kernel.preemption)


def pages_to_reserve(memory: Memory, asked: Sequence[Together]) -> int:
    """Return the value for vm.nr_hugepages: pages in use, and the largest need of concurrent servers."""
    in_use = (memory.huge_pages_total or 0) - (memory.huge_pages_free or 0)
    return in_use + max((_needed(memory, together) for together in asked), default=0)


def _needed(memory: Memory, together: Together) -> int:
    page_bytes = memory.huge_page_bytes or USUAL_HUGE_PAGE_BYTES
    return sum(
        server.pages or math.ceil(OVERHEAD * server.shared_buffers_bytes / page_bytes) for server in together
    )


def _why_small(memory: Memory, server: ServerMemory, together: Together) -> str | None:
    """Return the reason for small pages; empty: the server has huge pages; None: unknown."""
    if server.status == "on" or server.huge_pages == "on":
        return ""
    if server.huge_pages == "off":
        return "huge_pages is off"
    if server.runs:
        return "it found no huge pages when it started" if server.status == "off" else None
    free = memory.huge_pages_free
    needed = _needed(memory, [one for one in together if one.huge_pages != "off" and not one.runs])
    if free is None:
        return None
    return "" if free >= needed else f"{needed} huge pages are needed, {free} are free"


# ----------------------------------------------------------------------
# Checks of the disk and the file system of the data.
# ----------------------------------------------------------------------

CONSEQUENCES = {
    **dict.fromkeys(("tmpfs", "ramfs"), "it is in memory: flushes have no effect, and data are not durable"),
    **dict.fromkeys(("overlay", "aufs"), "the first change of a file copies it from a lower layer"),
    **dict.fromkeys(("btrfs", "zfs", "bcachefs"), "it is copy-on-write: files become fragmented"),
    **dict.fromkeys(
        ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "virtiofs"), "the load of another machine affects it"
    ),
}
"""Consequences of file systems that differ from a local one on a disk. See ``file_system`` for FUSE."""

FREE_BYTES_MIN = 2 * 2**30
FREE_SHARE_MIN = 0.05
"""Minimum free space. Below it, ext4 and xfs allocate space less efficiently; the last 5% are reserved for
root."""

FLUSH_S_MIN = {"rotational": 1e-3, "ssd": 20e-6, "nvme": 10e-6}
"""Minimum plausible flush time. A disk with 7200 rpm takes 4 ms on average, the fastest flash with capacitors
about 15 µs, and a transfer over PCI Express alone 10 µs."""

FLUSH_S_MAX = 0.02
"""Maximum flush time: two rotations of a slow disk."""

UNEVEN_TIMES = 10
UNEVEN_S_MIN = 5e-3
"""Limits of the 99th percentile: ten times the median, and long enough to affect a rate."""

SYNCS_MIN = 100
"""Minimum number of flushes for a 99th percentile."""


def file_system(disk: Disk) -> Checked:
    """Check that it behaves like a local file system on a disk."""
    about = "file system of the data"
    if disk.file_system is None:
        return not_reported(about)
    consequence = CONSEQUENCES.get(disk.file_system)
    if disk.file_system.startswith("fuse"):
        consequence = "every call passes through another program"
    if consequence:
        return disturbs(about, Code.FILE_SYSTEM, file_system=disk.file_system, consequence=consequence)
    return fine(about, disk.file_system)


def space(disk: Disk) -> Checked:
    """Check the free space."""
    about = "free space for the data"
    share = disk.free_bytes / disk.size_bytes if disk.size_bytes else 0.0
    if disk.free_bytes < FREE_BYTES_MIN or share < FREE_SHARE_MIN:
        return disturbs(
            about,
            Code.SPACE_SHORT,
            free=format_size(disk.free_bytes),
            share=percent_text(share, 1),
            limit_size=format_size(FREE_BYTES_MIN),
            limit=given_percent(FREE_SHARE_MIN),
        )
    return fine(about, f"{format_size(disk.free_bytes)}, {percent_text(share, 1)}")


def flush(disk: Disk) -> Checked:
    """Check that the flush of a commit is not too fast, too slow or too uneven."""
    about = "flush of a page (write and fdatasync)"
    syncs = disk.syncs
    if syncs is None:
        return not_reported(about, "could not be measured")
    least_s = FLUSH_S_MIN.get(disk.kind, FLUSH_S_MIN["ssd"])
    median = format_duration(syncs.median_s)
    if syncs.median_s < least_s:
        return disturbs(about, Code.FLUSH_TOO_FAST, median=median, limit=format_duration(least_s))
    if syncs.median_s > FLUSH_S_MAX:
        return disturbs(about, Code.FLUSH_SLOW, median=median, limit=format_duration(FLUSH_S_MAX))
    if is_uneven(syncs):
        limit = format_duration(max(UNEVEN_S_MIN, UNEVEN_TIMES * syncs.median_s))
        p99 = format_duration(syncs.p99_s)
        return disturbs(about, Code.FLUSH_UNEVEN, median=median, p99=p99, limit=limit)
    return fine(
        about, f"median {median}, worst of {syncs.n} {format_duration(syncs.worst_s)}{_beneath(disk)}"
    )


def is_uneven(syncs: FlushTimes) -> bool:
    """Return whether the 99th percentile exceeds both limits, the relative and the absolute one."""
    limit_s = max(UNEVEN_S_MIN, UNEVEN_TIMES * syncs.median_s)
    return syncs.n >= SYNCS_MIN and syncs.p99_s > limit_s


def _beneath(disk: Disk) -> str:
    if disk.device is not None and disk.device.startswith(("vd", "xvd")):
        return "; a virtual disk: whether its host makes confirmed flushes durable is unknown"
    return f"; the cache of the disk is {disk.write_cache}" if disk.write_cache else ""


# ----------------------------------------------------------------------
# All checks of the machine in their order, and their caveats, before and after a study.
#
# The results file has the state of the machine in ``study.host`` under ``states``, and findings as caveats of
# every case.
# ----------------------------------------------------------------------


def engine(profile: str | None) -> Checked:
    """Check the build profile of the engine."""
    about = "engine of pgdyno"
    if profile is None:
        return not_reported(about, "unknown build profile")
    return disturbs(about, CoreCode.DEBUG_ENGINE) if profile == "debug" else fine(about, f"a {profile} build")


def server(label: str, catalogue: Catalogue | None) -> Checked:
    """Check that a server is not a debug build. Its catalogue is cached after its first use."""
    about = f"server {label}"
    if catalogue is None:
        return not_reported(about, "compile options unknown before its first use")
    words = catalogue.compiled.get("CFLAGS", "").split()
    flags = [word for word in words if word in ("-O0", "-Og")]
    if catalogue.initial.get("debug_assertions") == "on":
        flags.append("--enable-cassert")
    if flags:
        return disturbs(about, CoreCode.DEBUG_SERVER, arm=label, flags=" ".join(flags))
    return fine(about, "not built for debugging")


def server_checks(known: Mapping[str, Catalogue | None]) -> list[Checked]:
    """Check all servers: one result per debug build, and one for the others."""
    every = [server(label, catalogue) for label, catalogue in known.items()]
    found = [one for one in every if one.caveat is not None]
    good = sum(one.found == "fine" for one in every)
    unasked = len(every) - len(found) - good
    about = "installed and cached servers"
    text = f"{good} not built for debugging" + (f", {unasked} unknown" if unasked else "")
    if not good and not found:
        return [not_reported(about, f"{unasked} with unknown compile options" if unasked else "none")]
    return [*found, *([fine(about, text)] if good else [])]


NOW = "now"
BEFORE = "before the study"
RESUMED = "before the study was resumed"
DURING = "during the study"
AFTER = "after the study"


def check_machine(state: MachineState, when: str = NOW, servers: Sequence[Together] = ()) -> list[Checked]:
    """Return all checks of a machine, for the servers of a study if they are known."""
    return [*_standing(state, servers), *passing(state, when), *_counted(state.load, when)]


def _standing(state: MachineState, servers: Sequence[Together]) -> Iterator[Checked]:
    """Yield checks of properties that do not change by themselves."""
    yield governor(state.processor)
    yield boost(state.processor)
    yield smt(state.processor)
    yield virtual(state.processor)
    yield nodes(state.processor, state.memory)
    yield transparent_huge_pages(state.memory)
    if servers:
        yield huge_pages(state.memory, servers)
    yield preemption(state.kernel, state.memory, servers, state.processor.cores)
    yield cpu_limit(state.limits, state.processor.cores)
    yield memory_limit(state.limits, state.memory.total_bytes)
    yield files(state.limits)
    yield reading(state.clock)
    if state.disk is not None:
        yield file_system(state.disk)


def passing(state: MachineState, when: str) -> Iterator[Checked]:
    """Yield checks of properties that can change within a minute."""
    yield battery(state.processor)
    yield other_processes(state.load, when)
    yield cpu_steal(state.load, when)
    for of in PRESSURES:
        yield pressure(state.load, of, when)
    yield swap_used(state.memory)
    if state.disk is not None:
        yield space(state.disk)
        yield flush(state.disk)


def _counted(grown: MachineLoad, when: str) -> Iterator[Checked]:
    """Yield checks of counters between two times."""
    yield heat(grown, when)
    yield swapping(grown, when)
    yield out_of_memory(grown, when)
    yield withheld(grown, when)
    yield steps(grown, when)


def caveats_after(
    before: MachineState, after: MachineState, known: Collection[str], servers: Sequence[Together] = ()
) -> list[Caveat]:
    """Return the caveats on changes during the study: new findings, not in ``known``, and changes of
    counters.
    """
    meanwhile = _counted(load_between(before.counters, after.counters), DURING)
    found = caveats_of([*meanwhile, *_standing(after, servers), *passing(after, AFTER)])
    return [caveat for caveat in found if caveat.code not in known]


def caveats_of(checked: Iterable[Checked]) -> list[Caveat]:
    """Return the caveats of the findings."""
    return [one.caveat for one in checked if one.caveat is not None]


WATCH_SHARE = 0.005
WATCH_S_MIN, WATCH_S_MAX = 0.2, 2.0
"""Duration of the observation, as a share of the measuring time of the study and in seconds."""


@dataclass(frozen=True)
class StudyExamination:
    """Examination of the machine before and after a study.

    ``data_path``: None if all arms are running servers. ``known``: codes of caveats of the study.
    """

    writer: Writer
    cases: int
    watch_s: float
    data_path: Path | None
    watch: Watch
    state: MachineState | None
    known: frozenset[str]
    servers: Sequence[Together] = ()

    @classmethod
    def begin(
        cls,
        writer: Writer,
        studies: Sequence[Study],
        data_path: Path,
        watch: Watch,
        known: frozenset[str] | None = None,
        servers: Sequence[Together] = (),
    ) -> StudyExamination:
        """Examine the machine, and report at once findings that the user can still change.

        ``known``: codes of the caveats of a resumed study, which are not repeated; None for a new study.
        ``servers``: the servers of its arms on this machine.
        """
        watch(PreparationStep("checking the machine"))
        watch_s = watch_s_of(studies)
        ours = any(not arm.is_dsn for study in studies for arm in study.arms)
        place = data_path if ours else None
        state = _examined(watch_s, place, watch)
        if state is None:
            return cls(writer, len(studies), watch_s, place, watch, None, frozenset())
        when = BEFORE if known is None else RESUMED
        checked = check_machine(state, when, servers)
        found = [caveat for caveat in caveats_of(checked) if caveat.code not in (known or ())]
        codes = frozenset(caveat.code for caveat in found) | (known or frozenset())
        examination = cls(writer, len(studies), watch_s, place, watch, state, codes, servers)
        examination.note(when, state, checked, found)
        for caveat in caveats_of(passing(state, when)):
            watch(Warned(caveat.text))
        return examination

    def end(self, *, promptly: bool = False) -> None:
        """Examine the machine again: only changes are caveats. ``promptly``: use a short observation."""
        watch_s = WATCH_S_MIN if promptly else self.watch_s
        state = None if self.state is None else _examined(watch_s, self.data_path, self.watch)
        if self.state is not None and state is not None:
            caveats = caveats_after(self.state, state, self.known, self.servers)
            self.note(AFTER, state, check_machine(state, AFTER, self.servers), caveats)

    def note(
        self, when: str, state: MachineState, checked: Sequence[Checked], caveats: Sequence[Caveat]
    ) -> None:
        """Write the state and the caveats to the results file."""
        checks = [{"about": one.about, "found": one.found, "text": one.text} for one in checked]
        self.writer.add_machine_state({"when": when, **state.as_json(), "checks": checks})
        for case in range(self.cases):
            for caveat in caveats:
                self.writer.add_caveat(caveat, case)


def examine(
    writer: Writer, ready: Sequence[Prepared], watch: Watch, known: frozenset[str] | None
) -> EndOfExamination:
    """See ``measure.study_runner.Examine``."""
    studies = [prepared.study for prepared in ready]
    servers = [together for prepared in ready for together in servers_of(prepared)]
    examination = StudyExamination.begin(writer, studies, ready[0].data_path, watch, known, servers)
    return lambda ending: examination.end(promptly=ending is StudyEnd.INTERRUPTED)


def servers_of(prepared: Prepared) -> list[list[ServerMemory]]:
    """Return the servers of a case's arms on this machine; a list contains those that run at the same
    time."""
    found = []
    for index, settings in prepared.in_effect.items():
        arm = prepared.study.arms[index]
        pages = settings.get("shared_memory_size_in_huge_pages", "")
        try:
            size_bytes = parse_size_bytes(settings.get("shared_buffers", ""))
        except UsageError:
            continue  # an unreadable value of a running server must not fail the study
        server = ServerMemory(
            arm=arm.name,
            clients=prepared.study.driving(index).clients,
            shared_buffers_bytes=size_bytes,
            huge_pages=settings.get("huge_pages", "try"),
            pages=int(pages) if pages.isdecimal() else None,  # -1: this platform has no huge pages
            runs=arm.is_dsn,
            status=settings.get("huge_pages_status") if arm.is_dsn else None,
        )
        found.append(server)
    return [found] if prepared.study.is_together else [[server] for server in found]


def _examined(watch_s: float, place: Path | None, watch: Watch) -> MachineState | None:
    """Return the state of the machine; None with a warning if it fails, because this must not fail the
    study."""
    try:
        return examine_machine(watch_s, place, watch_s / 2)
    except Exception as error:  # noqa: BLE001
        watch(Warned(f"cannot check this machine: {type(error).__name__}: {error}"))
        return None


def watch_s_of(studies: Sequence[Study]) -> float:
    """Return the duration of the observation before and after the study."""
    return min(WATCH_S_MAX, max(WATCH_S_MIN, WATCH_SHARE * sum(map(_likely_s, studies))))


def _likely_s(study: Study) -> float:
    if study.blocks_max is None:
        return study.budget_s
    groups = 1 if study.is_together else len(study.arms)
    return min(study.budget_s, study.blocks_max * groups * study.window_likely_s())
