"""Memory, swap, and how the kernel hands pages out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pgdyno.probe.machine.tree import Tree

KILOBYTE = 1024


@dataclass(frozen=True)
class Memory:
    """``huge_pages``: when the kernel makes huge pages by itself (always, madvise, never)."""

    total_bytes: int | None
    available_bytes: int | None
    swap_bytes: int | None
    swap_used_bytes: int | None
    huge_pages: str | None
    overcommit: int | None
    numa_balancing: int | None
    zone_reclaim: int | None


def read_memory(tree: Tree) -> Memory:
    """As it is now."""
    sizes = meminfo(tree.text("/proc/meminfo") or "")
    swap, free = sizes.get("SwapTotal"), sizes.get("SwapFree")
    return Memory(
        total_bytes=sizes.get("MemTotal"),
        available_bytes=sizes.get("MemAvailable"),
        swap_bytes=swap,
        swap_used_bytes=None if swap is None or free is None else swap - free,
        huge_pages=chosen(tree.text("/sys/kernel/mm/transparent_hugepage/enabled")),
        overcommit=tree.number("/proc/sys/vm/overcommit_memory"),
        numa_balancing=tree.number("/proc/sys/kernel/numa_balancing"),
        zone_reclaim=tree.number("/proc/sys/vm/zone_reclaim_mode"),
    )


def meminfo(text: str) -> dict[str, int]:
    """Its sizes in bytes."""
    found = re.findall(r"^(\w+):\s*(\d+) kB$", text, re.MULTILINE)
    return {name: int(kilobytes) * KILOBYTE for name, kilobytes in found}


def chosen(text: str | None) -> str | None:
    """``always [madvise] never`` → ``madvise``."""
    found = re.search(r"\[(\w+)\]", text or "")
    return found[1] if found else None
