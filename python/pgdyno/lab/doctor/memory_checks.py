"""Checks of memory, swap, huge pages for shared buffers, and the preemption model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pgdyno.caveats import Code
from pgdyno.lab.doctor.machine_check import Checked, disturbs, fine, not_reported
from pgdyno.probe.machine_facts import Kernel, Memory
from pgdyno.probe.machine_state import MachineLoad
from pgdyno.units import format_size

SWAP_USED_SHARE_MAX = 0.01
"""Maximum used swap as a share of memory. Kernels swap out small amounts of sleeping programs."""

SWAPPED_BYTES_MAX = 2**20
"""Maximum swap traffic. More means that memory is short."""


def transparent_huge_pages(memory: Memory) -> Checked:
    """Check transparent huge pages. With madvise only programs that request them get them; PostgreSQL does
    not."""
    about = "transparent huge pages"
    if memory.huge_pages is None:
        return not_reported(about)
    return (
        disturbs(about, Code.HUGE_PAGES) if memory.huge_pages == "always" else fine(about, memory.huge_pages)
    )


def swap_used(memory: Memory) -> Checked:
    """Check the swap in use."""
    about = "swap"
    used, total = memory.swap_used_bytes, memory.total_bytes
    if used is None or total is None:
        return not_reported(about)
    if used > SWAP_USED_SHARE_MAX * total:
        return disturbs(about, Code.SWAP_USED, used=format_size(used))
    return fine(about, f"{format_size(used)} used" if memory.swap_bytes else "no swap")


def swapping(load: MachineLoad, when: str) -> Checked:
    """Check that no pages are swapped in or out."""
    about = "swapping"
    if load.swapped_bytes is None:
        return not_reported(about)
    if load.swapped_bytes > SWAPPED_BYTES_MAX:
        return disturbs(about, Code.SWAPPING, moved=format_size(load.swapped_bytes), when=when)
    return fine(about, f"none {when}")


def out_of_memory(load: MachineLoad, when: str) -> Checked:
    """Check that the kernel killed no processes for lack of memory."""
    about = "OOM-killed processes"
    if load.oom_kills is None:
        return not_reported(about)
    if load.oom_kills > 0:
        return disturbs(about, Code.OUT_OF_MEMORY, times=load.oom_kills, when=when)
    return fine(about, f"none {when}")


PAGE_TABLES_BYTES_MAX = 64 * 2**20
"""Maximum size of the page tables of all backends: 32 clients with 1 GB, 256 with 128 MB. Larger ones fill
the processor caches."""

MAPPED_PER_TABLE_BYTE = 512
"""An entry of 8 bytes maps a page of 4096 bytes."""

OVERHEAD = 1.1
"""Ratio of shared memory to shared buffers for servers before 15, which do not report it: a few percent
more."""

USUAL_HUGE_PAGE_BYTES = 2 * 2**20
"""Default size of a huge page: that of x86_64 and most ARM machines."""

FULLY_PREEMPTIBLE = ("full", "rt")


@dataclass(frozen=True)
class ServerMemory:
    """Shared memory of an arm's server on this machine.

    ``pages``: number of huge pages that it needs, from 15 on; None: unknown. ``runs``: it is a running
    server, and ``status`` its ``huge_pages_status`` (from 17 on).
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
        """Size of the page tables of all clients with small pages, after each has accessed all buffers."""
        return self.clients * self.shared_buffers_bytes // MAPPED_PER_TABLE_BYTE


Together = Sequence[ServerMemory]
"""Servers that run at the same time."""


def huge_pages(memory: Memory, asked: Sequence[Together]) -> Checked:
    """Check whether the shared buffers of the servers will be in huge pages, if they are large."""
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
        return not_reported(about)
    return fine(about, "enough are free")


def preemption(kernel: Kernel, memory: Memory, asked: Sequence[Together], cores: int) -> Checked:
    """Check whether the kernel can preempt a backend while others wait for it.

    In a study this matters only with more clients than cores, and servers without huge pages.
    """
    about = "preemption by the kernel"
    if kernel.preemption is None:
        return not_reported(about)
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
    """Return the value for vm.nr_hugepages: pages in use, and the largest need of concurrent servers."""
    in_use = (memory.huge_pages_total or 0) - (memory.huge_pages_free or 0)
    return in_use + max((_needed(memory, together) for together in asked), default=0)


def _needed(memory: Memory, together: Together) -> int:
    page_bytes = memory.huge_page_bytes or USUAL_HUGE_PAGE_BYTES
    return sum(
        server.pages or math.ceil(OVERHEAD * server.shared_buffers_bytes / page_bytes) for server in together
    )


def _why_small(memory: Memory, server: ServerMemory, together: Together) -> str | None:
    """Return the reason for small pages; empty: the server has huge pages; None: unknown."""
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
