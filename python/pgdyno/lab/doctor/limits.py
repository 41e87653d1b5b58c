"""What we may have of the machine."""

from __future__ import annotations

from pgdyno.caveats import Code
from pgdyno.lab.doctor.checked import Checked, disturbs, fine, unknown
from pgdyno.probe.machine.limits import Limits
from pgdyno.probe.machine.load import Load
from pgdyno.units import format_duration, format_size

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
