"""Facts about this machine for the report: processor, memory, kernel, file system."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path
from typing import Any

import psutil


def describe_host(data_path: Path) -> dict[str, Any]:
    """Return facts about the machine and the file system of ``data_path``, without names of host and user."""
    return {
        "machine": machine_digest(),
        "processor": _processor(),
        "cores": len(psutil.Process().cpu_affinity()),
        "memory_bytes": psutil.virtual_memory().total,
        "swap_bytes": psutil.swap_memory().total,
        "kernel": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "os": platform.freedesktop_os_release().get("PRETTY_NAME", "")
        if Path("/etc/os-release").exists()
        else "",
        "file_system": _file_system(data_path),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


MACHINE_ID = Path("/etc/machine-id")


def machine_digest() -> str | None:
    """Return a digest of the machine ID, which distinguishes machines of the same model without revealing the
    ID. None without an ID, as in many containers.
    """
    try:
        found = MACHINE_ID.read_text().strip()
    except OSError:
        return None
    return hashlib.blake2b(found.encode(), digest_size=8, person=b"pgdyno").hexdigest() if found else None


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def _file_system(path: Path) -> str:
    """Return type and mount options of the file system of ``path``."""
    above = [
        part for part in psutil.disk_partitions(all=True) if path.resolve().is_relative_to(part.mountpoint)
    ]
    if not above:
        return "unknown"
    found = max(above, key=lambda part: len(part.mountpoint))
    return f"{found.fstype} ({found.opts})"
