"""Checks of the clock, CPU limits, other load, cores and their frequency."""

from __future__ import annotations

from pgdyno.caveats import Code
from pgdyno.lab.doctor.machine_check import Checked, disturbs, fine, percent, unknown
from pgdyno.probe.machine_facts import Clock, Limits, Memory, Processor
from pgdyno.probe.machine_state import Load
from pgdyno.units import format_duration, format_size

READ_NS_MAX = 250
"""Read from the processor it takes 20 to 80 ns, Python's part included; by a system call 200 and more, from a
device (hpet, acpi_pm) 1000."""

STEP_S_MAX = 0.1
"""A clock that is slewed gains or loses 0.5 ms a second: what exceeds this was set."""


def reading(clock: Clock) -> Checked:
    """What it costs: the name of the source alone says little, kvm-clock is as quick as tsc."""
    about = "clock"
    if clock.read_ns > READ_NS_MAX:
        source = clock.source or "not known"
        return disturbs(
            about, Code.SLOW_CLOCK, read_ns=round(clock.read_ns), source=source, limit_ns=READ_NS_MAX
        )
    if clock.source is None:
        return unknown(about, f"its source is not told; a reading takes {clock.read_ns:.0f} ns")
    return fine(about, f"{clock.source}, a reading takes {clock.read_ns:.0f} ns")


def steps(load: Load, when: str) -> Checked:
    """Whether somebody set the time of day. A slew over a long study is no step."""
    about = "time of day"
    slewed_s = STEP_S_MAX + 0.0005 * load.elapsed_s
    if abs(load.clock_step_s) > slewed_s:
        return disturbs(about, Code.CLOCK_SET, step=format_duration(load.clock_step_s), when=when)
    return fine(about, f"not set {when}")


WITHHELD_SHARE_MAX = 0.01
"""Of the elapsed time: as much as a verdict's margin is often about."""

FILES_MIN = 1024
"""A backend keeps up to max_files_per_process files open: 1000, unless somebody changed it."""


def cpu_limit(limits: Limits, cores: int) -> Checked:
    """A quota below the cores that are seen."""
    about = "limit of CPU time"
    if limits.cpu_cores is not None and limits.cpu_cores < cores:
        return disturbs(about, Code.CPU_LIMITED, cores=f"{limits.cpu_cores:g}", of=cores)
    return fine(about, "none below the cores")


def withheld(load: Load, when: str) -> Checked:
    """Whether a quota was used up."""
    about = "CPU withheld by a limit"
    if load.limited_s is None:
        return unknown(about)
    if load.limited_s > WITHHELD_SHARE_MAX * load.elapsed_s:
        return disturbs(about, Code.CPU_THROTTLED, withheld=format_duration(load.limited_s), when=when)
    return fine(about, f"none {when}")


def memory_limit(limits: Limits, total_bytes: int | None) -> Checked:
    """Below the machine's memory."""
    about = "limit of memory"
    limit = limits.memory_bytes
    if limit is not None and (total_bytes is None or limit < total_bytes):
        of = "unknown size" if total_bytes is None else format_size(total_bytes)
        return disturbs(about, Code.MEMORY_LIMITED, limit=format_size(limit), of=of)
    return fine(about, "none below the machine's")


def files(limits: Limits) -> Checked:
    """Open ones of a process."""
    about = "open files of a process"
    if limits.files < FILES_MIN:
        return disturbs(about, Code.FILES_LIMITED, files=limits.files, limit=FILES_MIN)
    return fine(about, f"up to {limits.files}")


STEAL_MAX = 0.02
"""Of the CPU time that was wanted. A quiet hypervisor takes less than a hundredth."""

OTHERS_MAX = 0.05
"""Of all cores' time: a desktop at rest takes less, and an effect of 5 % is what one wants to see."""

PRESSURE_MAX = {"cpu": 0.10, "io": 0.05, "memory": 0.01}
"""Of the elapsed time. Some waiting for a core is nothing special; for memory it is."""


def cpu_steal(load: Load, when: str) -> Checked:
    """Of an idle machine nothing is stolen: it shows when something runs."""
    about = "stolen CPU time"
    if load.steal > STEAL_MAX:
        return disturbs(
            about, Code.MACHINE_STEAL, share=percent(load.steal), limit=f"{STEAL_MAX:.0%}", when=when
        )
    return fine(about, f"{percent(load.steal)} {when}")


def other_processes(load: Load, when: str) -> Checked:
    """Of processes that are not ours."""
    about = "other load"
    if load.others > OTHERS_MAX:
        names = ", ".join(f"{name} {percent(share)}" for name, share in load.busiest) or "short-lived ones"
        parameters = {
            "share": percent(load.others),
            "limit": f"{OTHERS_MAX:.0%}",
            "names": names,
            "when": when,
        }
        return disturbs(about, Code.OTHER_LOAD, **parameters)
    return fine(about, f"{percent(load.others)} of the CPU {when}")


def pressure(load: Load, of: str, when: str) -> Checked:
    """``of``: cpu, io or memory."""
    about = f"waiting for {WANTED[of]}"
    share, limit = load.pressure.get(of), PRESSURE_MAX[of]
    if share is None:
        return unknown(about)
    if share > limit:
        parameters = {"what": WANTED[of], "share": percent(share), "limit": f"{limit:.0%}", "when": when}
        return disturbs(about, Code.PRESSURE, **parameters)
    return fine(about, f"{percent(share)} of the time {when}")


WANTED = {"cpu": "CPU", "io": "the disk", "memory": "memory"}
"""In words."""


STEADY_GOVERNOR = "performance"
"""The one that keeps a core at its highest frequency whatever it did before."""


def governor(processor: Processor) -> Checked:
    """Of any core: one that saves power slows whatever is scheduled there."""
    about = "CPU frequency governor"
    if not processor.governors:
        return unknown(about)
    if processor.governors != (STEADY_GOVERNOR,):
        return disturbs(about, Code.GOVERNOR, governor=", ".join(processor.governors))
    return fine(about, STEADY_GOVERNOR)


def boost(processor: Processor) -> Checked:
    """Whether the frequency is steady under load."""
    about = "CPU boost"
    if processor.boost is None:
        return unknown(about)
    return disturbs(about, Code.BOOST) if processor.boost else fine(about, "off")


def heat(load: Load, when: str) -> Checked:
    """Any throttling at all: it halves a core's speed."""
    about = "thermal throttling"
    if load.throttled is None:
        return unknown(about)
    if load.throttled > 0:
        return disturbs(about, Code.THERMAL_THROTTLING, times=load.throttled, when=when)
    return fine(about, f"none {when}")


def smt(processor: Processor) -> Checked:
    """Whether what is called a core is one."""
    about = "threads of a core (SMT)"
    if processor.smt is None:
        return unknown(about)
    return disturbs(about, Code.SMT) if processor.smt else fine(about, "one a core")


def virtual(processor: Processor) -> Checked:
    """Whether there may be neighbours."""
    about = "virtual machine"
    if processor.hypervisor is None:
        return unknown(about)
    if processor.hypervisor:
        return disturbs(about, Code.VIRTUAL_MACHINE, hypervisor=processor.hypervisor)
    return fine(about, "no")


def nodes(processor: Processor, memory: Memory) -> Checked:
    """More than one node of memory; what the kernel does about it is said."""
    about = "nodes of memory (NUMA)"
    if processor.nodes is None:
        return unknown(about)
    if processor.nodes == 1:
        return fine(about, "one")
    known = {"numa_balancing": memory.numa_balancing, "zone_reclaim_mode": memory.zone_reclaim}
    settings = ", ".join(f"{name} {value}" for name, value in known.items() if value is not None)
    return disturbs(about, Code.NUMA, nodes=processor.nodes, settings=settings or "no settings known")


def battery(processor: Processor) -> Checked:
    """Whether a battery is being emptied."""
    about = "power"
    if processor.on_battery is None:
        return unknown(about)
    return disturbs(about, Code.ON_BATTERY) if processor.on_battery else fine(about, "not from a battery")
