"""Resources of this machine that determine settings: memory, cores, disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pgdyno.study.cpu_partition import Core

SYS = Path("/sys/devices/system/cpu")


def usable_cores(sys: Path = SYS) -> list[Core]:
    """Return the cores in the affinity mask of this process. If the kernel does not report the topology, each
    is a physical core.
    """
    return [
        Core(
            package=_number(sys / f"cpu{number}" / "topology" / "physical_package_id", 0),
            core=_number(sys / f"cpu{number}" / "topology" / "core_id", number),
            number=number,
        )
        for number in sorted(os.sched_getaffinity(0))
    ]


def _number(path: Path, otherwise: int) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return otherwise


# Virtual disks report that they rotate unless configured otherwise; today they are usually on an SSD.
VIRTUAL = ("vd", "xvd")

Disk = Literal["nvme", "ssd", "rotational"]


@dataclass(frozen=True)
class MachineResources:
    """Memory and cores available to this process, and the type of the data disk."""

    memory_bytes: int
    cores: int
    disk: Disk


def disk_kind(data_path: Path, sys: Path = Path("/sys")) -> Disk:
    """Return the type that the kernel reports for the block device of that path; an SSD if it reports
    none."""
    while not data_path.exists():
        data_path = data_path.parent
    device = data_path.stat().st_dev
    found = (sys / "dev" / "block" / f"{os.major(device)}:{os.minor(device)}").resolve()
    for place in (found, found.parent):  # a partition has its queue one level up
        try:
            rotational = (place / "queue" / "rotational").read_text().strip()
        except OSError:
            continue
        if rotational == "1" and not place.name.startswith(VIRTUAL):
            return "rotational"
        return "nvme" if place.name.startswith("nvme") else "ssd"
    return "ssd"
