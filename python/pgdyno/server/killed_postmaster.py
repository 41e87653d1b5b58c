"""What a server leaves whose postmaster was killed: its other processes, and shared memory of the system.

PostgreSQL removes both when it next starts on the same data directory. A data directory that is about to be
restored or deleted has no such start: its backends could still write into it, and its shared memory would
stay until the machine is restarted.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from pathlib import Path

import psutil

from pgdyno.server.process import run_tool
from pgdyno.server.user import Account

END_TIMEOUT_S = 20.0
"""How long a killed process may take to end: longer only while it waits for a disk that does not answer."""

RELEASE_TIMEOUT_S = 60.0
"""A start up to the point where shared memory is there takes well under a second."""

FIRST_MAJOR_WITH_CHECK = 15
"""Earlier ones spell ``postgres --check`` as ``postgres --boot -x0``."""


def clear_after_kill(data_dir: Path, account: Account) -> None:
    """End the processes and release the shared memory of a server that did not end in order.

    Does nothing where the server ended in order or its postmaster runs. Never raises: what cannot be cleared
    is the system's, and no trial depends on it.
    """
    lock = data_dir / "postmaster.pid"
    with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
        pid = int(lock.read_text().split("\n", 1)[0])
        if _is_on(pid, data_dir):  # a postmaster's; a number below zero is that of a server that initdb runs
            return
        _end_processes(data_dir)
        lock.unlink()  # PostgreSQL would refuse to start while a zombie has that number
        _release_shared_memory(data_dir, account)
        forget_program(data_dir)


def note_program(data_dir: Path, postgres: Path) -> None:
    """Keep the path of ``postgres`` beside the data directory while initdb runs it: a server writes it into
    ``postmaster.opts``, initdb does not.
    """
    _note(data_dir).write_text(str(postgres))


def forget_program(data_dir: Path) -> None:
    """Remove that note: initdb has done its work."""
    _note(data_dir).unlink(missing_ok=True)


def _note(data_dir: Path) -> Path:
    return data_dir.with_name(f"{data_dir.name}.initdb")


def _is_on(pid: int, data_dir: Path) -> bool:
    """Whether that process is a server's on that very directory, which is then its working directory."""
    try:
        process = Path("/proc", str(pid))
        return (process / "cwd").samefile(data_dir) and (process / "exe").readlink().name == "postgres"
    except OSError:
        return False  # it has ended, or is another user's


def _end_processes(data_dir: Path) -> None:
    """Kill what is left of the server. Backends notice their postmaster's death only when they next wait."""
    for pid in psutil.pids():
        if not _is_on(pid, data_dir):
            continue
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            try:
                if _is_on(pid, data_dir):  # still: the handle is of the same process
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    select.select([handle], [], [], END_TIMEOUT_S)
            finally:
                os.close(handle)


def _release_shared_memory(data_dir: Path, account: Account) -> None:
    """Have PostgreSQL create its shared memory on that directory and end, which is what initdb tries settings
    with: it removes that of the last start, and its own. No recovery, no data are read.
    """
    note, options = _note(data_dir), data_dir / "postmaster.opts"
    program = note.read_text() if note.exists() else options.read_text().split(' "', 1)[0].strip()
    major = int((data_dir / "PG_VERSION").read_text().split(".", 1)[0])
    check = ["--check"] if major >= FIRST_MAJOR_WITH_CHECK else ["--boot", "-x0"]
    small = ["-c", "shared_buffers=1MB", "-c", "huge_pages=off"]
    run_tool([program, *check, "-D", str(data_dir), *small], account, RELEASE_TIMEOUT_S)
