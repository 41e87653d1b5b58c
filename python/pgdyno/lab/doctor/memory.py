"""Memory, swap and huge pages."""

from __future__ import annotations

from pgdyno.caveats import Code
from pgdyno.lab.doctor.checked import Checked, disturbs, fine, unknown
from pgdyno.probe.machine.load import Load
from pgdyno.probe.machine.memory import Memory
from pgdyno.units import format_size

SWAP_USED_SHARE_MAX = 0.01
"""Of the memory: less is what a kernel puts away of programs that sleep, and nobody waits for."""

SWAPPED_BYTES_MAX = 2**20
"""A moment's worth of paging: beyond it memory is short."""


def huge_pages(memory: Memory) -> Checked:
    """Transparent ones. With madvise only programs get them that ask, and PostgreSQL does not."""
    about = "transparent huge pages"
    if memory.huge_pages is None:
        return unknown(about)
    return (
        disturbs(about, Code.HUGE_PAGES) if memory.huge_pages == "always" else fine(about, memory.huge_pages)
    )


def swap_used(memory: Memory) -> Checked:
    """What lies there now."""
    about = "swap"
    used, total = memory.swap_used_bytes, memory.total_bytes
    if used is None or total is None:
        return unknown(about)
    if used > SWAP_USED_SHARE_MAX * total:
        return disturbs(about, Code.SWAP_USED, used=format_size(used))
    return fine(about, f"{format_size(used)} used" if memory.swap_bytes else "there is none")


def swapping(load: Load, when: str) -> Checked:
    """Whether pages move."""
    about = "swapping"
    if load.swapped_bytes is None:
        return unknown(about)
    if load.swapped_bytes > SWAPPED_BYTES_MAX:
        return disturbs(about, Code.SWAPPING, moved=format_size(load.swapped_bytes), when=when)
    return fine(about, f"none {when}")


def out_of_memory(load: Load, when: str) -> Checked:
    """Whether the kernel had to end processes: their work, or a server's backend, is lost."""
    about = "processes ended for want of memory"
    if load.oom_kills is None:
        return unknown(about)
    if load.oom_kills > 0:
        return disturbs(about, Code.OUT_OF_MEMORY, times=load.oom_kills, when=when)
    return fine(about, f"none {when}")
