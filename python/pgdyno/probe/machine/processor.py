"""Cores, their speed, and what lies beneath them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from pgdyno.probe.machine.tree import Tree

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
