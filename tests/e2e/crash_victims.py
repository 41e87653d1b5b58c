"""Victims of the crash test: only processes that descend from its own pgdyno."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import psutil

Victim = Literal["pgdyno", "engine", "postmaster", "backend", "everything"]
VICTIMS: tuple[Victim, ...] = ("pgdyno", "engine", "postmaster", "backend", "everything")
"""``backend``: any child of a postmaster. ``everything``: pgdyno and all its descendants at once, as in a
power failure.
"""

ENDS_PGDYNO = frozenset[Victim]({"pgdyno", "everything"})


def find(root: psutil.Process, victim: Victim) -> list[psutil.Process]:
    """Return the processes of that kind that descend from ``root``. For ``pgdyno`` and ``everything`` root is
    the first.
    """
    if victim == "pgdyno":
        return [root]
    with contextlib.suppress(psutil.NoSuchProcess):
        tree = root.children(recursive=True)
        match victim:
            case "everything":
                return [root, *tree]
            case "engine":
                return [process for process in tree if _program(process) == "pgdyno-engine"]
            case "postmaster":
                return [process for process in tree if _is_postmaster(process)]
            case "backend":
                return [process for process in tree if _is_postmaster(process.parent())]
    return []


def strike(processes: Sequence[psutil.Process]) -> list[int]:
    """Send SIGKILL and return the process IDs of killed processes.

    A process that has ended is skipped, even if its ID was reused: the start time is compared after a pidfd
    is opened.
    """
    handles = []
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(process.pid)
            if process.is_running():  # the same number and the same start time
                handles.append((process.pid, handle))
            else:
                os.close(handle)
    met = []
    for pid, handle in handles:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            met.append(pid)
        os.close(handle)
    return met


def _program(process: psutil.Process | None) -> str:
    with contextlib.suppress(psutil.Error, OSError):
        if process is not None:
            return Path(process.exe()).name
    return ""


def _is_postmaster(process: psutil.Process | None) -> bool:
    if process is None or _program(process) != "postgres":
        return False
    with contextlib.suppress(psutil.Error):
        return _program(process.parent()) != "postgres"
    return False
