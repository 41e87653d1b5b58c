"""The cores that pgdyno may use, and which of them are threads of one physical core."""

from __future__ import annotations

import os
from pathlib import Path

from pgdyno.study.cpu_partition import Core

SYS = Path("/sys/devices/system/cpu")


def usable_cores(sys: Path = SYS) -> list[Core]:
    """Those of our own affinity mask. Where the kernel does not tell what they are part of, each is a
    physical core.
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
