"""Checks of memory, swap, huge pages for shared buffers, and the preemption model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pgdyno.caveats import Code
from pgdyno.lab.doctor.machine_check import Checked, disturbs, fine, unknown
from pgdyno.probe.machine_facts import Kernel, Memory
from pgdyno.probe.machine_state import Load
from pgdyno.units import format_size

SWAP_USED_SHARE_MAX = 0.01
"""Of the memory: less is what a kernel puts away of programs that sleep, and nobody waits for."""

SWAPPED_BYTES_MAX = 2**20
"""A moment's worth of paging: beyond it memory is short."""


def transparent_huge_pages(memory: Memory) -> Checked:
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


PAGE_TABLES_BYTES_MAX = 64 * 2**20
"""Of all backends together: 32 clients with 1 GB, 256 with 128 MB. More fills the caches of the processor."""

MAPPED_PER_TABLE_BYTE = 512
"""An entry of 8 bytes maps a page of 4096."""

OVERHEAD = 1.1
"""Shared memory beside the shared buffers, for servers before 15, which do not tell it: a few per cent."""

USUAL_HUGE_PAGE_BYTES = 2 * 2**20
"""Of x86_64 and most ARM machines, where the machine does not tell."""

FULLY_PREEMPTIBLE = ("full", "rt")


@dataclass(frozen=True)
class ServerMemory:
    """The shared memory of an arm's server on this machine.

    ``pages``: the huge pages that it would take, from 15 on; None: not known. ``runs``: it is up already, and
    ``status`` is its ``huge_pages_status`` (from 17 on).
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
        """What small pages take for all clients, once each has touched all of the buffers."""
        return self.clients * self.shared_buffers_bytes // MAPPED_PER_TABLE_BYTE


Together = Sequence[ServerMemory]
"""Servers that are up at the same time."""


def huge_pages(memory: Memory, asked: Sequence[Together]) -> Checked:
    """Check whether the servers' shared buffers will lie in huge pages, where it matters."""
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
        return unknown(about)
    return fine(about, "there are enough")


def preemption(kernel: Kernel, memory: Memory, asked: Sequence[Together], cores: int) -> Checked:
    """Check whether a backend may be suspended in the kernel while others wait for it.

    Of a study only where it has more clients than there are cores, and servers without huge pages.
    """
    about = "preemption by the kernel"
    if kernel.preemption is None:
        return unknown(about)
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
    """Return the number for vm.nr_hugepages: what is in use, and what the servers need at most at once."""
    in_use = (memory.huge_pages_total or 0) - (memory.huge_pages_free or 0)
    return in_use + max((_needed(memory, together) for together in asked), default=0)


def _needed(memory: Memory, together: Together) -> int:
    page_bytes = memory.huge_page_bytes or USUAL_HUGE_PAGE_BYTES
    return sum(
        server.pages or math.ceil(OVERHEAD * server.shared_buffers_bytes / page_bytes) for server in together
    )


def _why_small(memory: Memory, server: ServerMemory, together: Together) -> str | None:
    """Return why a server has small pages; empty: it has huge ones; None: that is not known."""
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
