"""Memory, swap, and how the kernel hands pages out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pgdyno.probe.machine.tree import Tree

KILOBYTE = 1024


@dataclass(frozen=True)
class Memory:
    """``huge_pages``: when the kernel makes huge pages by itself (always, madvise, never).

    ``huge_pages_total`` and ``huge_pages_free`` count those that are reserved, of ``huge_page_bytes`` each.
    """

    total_bytes: int | None
    available_bytes: int | None
    swap_bytes: int | None
    swap_used_bytes: int | None
    huge_pages: str | None
    overcommit: int | None
    numa_balancing: int | None
    zone_reclaim: int | None
    huge_page_bytes: int | None = None
    huge_pages_total: int | None = None
    huge_pages_free: int | None = None


def read_memory(tree: Tree) -> Memory:
    """As it is now."""
    text = tree.text("/proc/meminfo") or ""
    sizes = meminfo(text)
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
        huge_page_bytes=sizes.get("Hugepagesize"),
        huge_pages_total=_count(text, "HugePages_Total"),
        huge_pages_free=_unreserved(_count(text, "HugePages_Free"), _count(text, "HugePages_Rsvd")),
    )


def meminfo(text: str) -> dict[str, int]:
    """Its sizes in bytes."""
    found = re.findall(r"^(\w+):\s*(\d+) kB$", text, re.MULTILINE)
    return {name: int(kilobytes) * KILOBYTE for name, kilobytes in found}


def _count(text: str, name: str) -> int | None:
    found = re.search(rf"^{name}:\s*(\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else None


def _unreserved(free: int | None, promised: int | None) -> int | None:
    """Pages that a process has mapped and not touched yet are free by the kernel's count, and not for us."""
    return None if free is None else max(0, free - (promised or 0))


def chosen(text: str | None) -> str | None:
    """``always [madvise] never`` → ``madvise``."""
    found = re.search(r"\[(\w+)\]", text or "")
    return found[1] if found else None
