"""Checks of the clock, CPU limits, other load, cores and their frequency."""

from __future__ import annotations

from pgdyno.caveats import Code
from pgdyno.estimate import given_percent, percent_text
from pgdyno.lab.doctor.machine_check import Checked, disturbs, fine, not_reported
from pgdyno.probe.machine_facts import Clock, Limits, Memory, Processor
from pgdyno.probe.machine_state import MachineLoad
from pgdyno.units import format_duration, format_size

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
