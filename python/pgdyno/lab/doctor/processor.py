"""Cores and their speed."""

from __future__ import annotations

from pgdyno.caveats import Code
from pgdyno.lab.doctor.checked import Checked, disturbs, fine, unknown
from pgdyno.probe.machine.load import Load
from pgdyno.probe.machine.memory import Memory
from pgdyno.probe.machine.processor import Processor

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
