"""Crashes of a server on purpose: of one backend, of all processes, and of the machine that they run on."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import time
from array import array
from pathlib import Path

import psutil

from pgdyno.errors import ServerError
from pgdyno.server.running import Server

DEATH_TIMEOUT_S = 20.0
"""Timeout for the end of killed processes. A process that waits for a disk ends when the disk answers."""

SHARED = Path("/dev/shm")
_MAPPED_FILE = re.compile(rb"/dev/shm/PostgreSQL\.(\d+)$", re.MULTILINE)
_IPC_RMID = 0
_libc = ctypes.CDLL(None, use_errno=True)


def kill_server(server: Server, *, forget_memory: bool = False) -> int:
    """Kill all processes of a server with SIGKILL and wait for their end. They are frozen first, so that none
    works longer than the others. Return the time on the monotonic clock at which all were frozen, in ns.

    ``forget_memory``: also remove its shared memory, as the end of the machine would. Otherwise the next
    start of the server does that. Raises ServerError if a process does not end.
    """
    processes: list[psutil.Process] = []
    if server.alive:  # otherwise its ID may belong to another process by now
        with contextlib.suppress(psutil.NoSuchProcess):
            processes.append(postmaster := psutil.Process(server.postmaster_pid))
            postmaster.suspend()  # so that it starts no process meanwhile
            processes += postmaster.children(recursive=True)
    for process in processes[1:]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGSTOP)
    frozen_ns = time.monotonic_ns()
    files = _shared_files(processes[0].pid) if forget_memory and processes else set()
    for process in processes[::-1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    _, alive = psutil.wait_procs(processes, timeout=DEATH_TIMEOUT_S)
    if alive:
        raise ServerError(f"{len(alive)} processes of {server.build.label} did not end after SIGKILL")
    if forget_memory:
        for file in files:
            file.unlink(missing_ok=True)
        for segment in _segments_of(Path("/proc/sysvipc/shm").read_text(), server.postmaster_pid):
            _libc.shmctl(segment, _IPC_RMID, None)
    server.abandon()
    return frozen_ns


def kill_backend(pid: int) -> None:
    """Kill one backend with SIGKILL. Its postmaster then ends all others and restarts. Does nothing if the
    backend has ended.
    """
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _shared_files(postmaster_pid: int) -> set[Path]:
    """Return the files of a server's dynamic shared memory.

    The postmaster has mapped the control segment, which lists all others by their number, also those that no
    process has mapped.
    """
    files: set[Path] = set()
    with contextlib.suppress(OSError):
        # Bytes: the path of a library need not be UTF-8.
        mapped = _MAPPED_FILE.findall(Path(f"/proc/{postmaster_pid}/maps").read_bytes())
        there = {path.suffix[1:]: path for path in SHARED.glob("PostgreSQL.*")}
        for number in map(bytes.decode, mapped):
            content = there[number].read_bytes()
            listed = array("I", content[: len(content) // 4 * 4])
            files |= {there[number], *(there[name] for word in set(listed) if (name := str(word)) in there)}
    return files


def _segments_of(text: str, creator: int) -> list[int]:
    """Return the System V segments that a process created and nobody uses, from ``/proc/sysvipc/shm``."""
    lines = [line.split() for line in text.splitlines()[1:]]
    return [int(line[1]) for line in lines if int(line[4]) == creator and line[6] == "0"]
