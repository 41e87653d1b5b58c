"""The tag of a wheel with these programs, by readelf of the GNU binutils."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

MACHINES = {"Advanced Micro Devices X86-64": "x86_64", "AArch64": "aarch64"}


def required_tag(programs: Iterable[Path]) -> str:
    minors, machines = [], set()
    for path in programs:
        text = subprocess.run(
            ["readelf", "--wide", "--file-header", "--version-info", path],
            capture_output=True,
            text=True,
            check=True,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        ).stdout
        minors += map(int, re.findall(r"Name: GLIBC_2\.(\d+)", text))
        machines.add(MACHINES[re.findall(r"Machine: +(.*)", text)[0]])
    (machine,) = machines
    return f"py3-none-manylinux_2_{max(minors)}_{machine}"
