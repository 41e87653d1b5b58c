"""Processes of a server: started so that they cannot outlive pgdyno, and cleared after a killed postmaster.

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
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import psutil

from pgdyno.interruption import SIGNALS
from pgdyno.server import child
from pgdyno.server.server_account import Account

StopMode = Literal["smart", "fast", "immediate"]
STOP_SIGNALS: Mapping[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}

# The kernel sends a child its death signal when the THREAD that started it ends. One thread that lives as
# long as pgdyno starts them all, so that a server may be started from a pool's short-lived thread.
# It takes no signals: one that went to it would leave the main thread asleep in what it waits for.
_launcher = ThreadPoolExecutor(
    max_workers=1,
    thread_name_prefix="pgdyno-launcher",
    initializer=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS),
)


def clean_environment() -> dict[str, str]:
    """What a server and its tools see: no PG* variable, no locale and no time zone of the caller."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "LC_ALL": "C", "TZ": "UTC"}


def launch(command: Sequence[str], account: Account, log_path: Path) -> subprocess.Popen[bytes]:
    """Start a server as that user, its output appended to the log. Its own session keeps the terminal's
    Ctrl-C off.
    """
    with log_path.open("ab") as log:
        return _launcher.submit(
            subprocess.Popen,
            _becoming(command, account),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=clean_environment(),
            start_new_session=True,
        ).result()


def run_tool(command: Sequence[str], account: Account, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run one of a build's tools (initdb, pg_controldata …) as that user to its end; output captured.

    Like a server it is told to end when pgdyno is killed: an initdb that went on would write into a directory
    that the next pgdyno removes. Raises subprocess.TimeoutExpired.
    """
    with _launcher.submit(
        subprocess.Popen[str],
        _becoming(command, account),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=clean_environment(),
    ).result() as process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _becoming(command: Sequence[str], account: Account) -> list[str]:
    """The command line of a process that becomes ``command`` as that user, and ends with pgdyno."""
    uid, gid = (account.uid, account.gid) if account.switch else (-1, -1)
    ours = [sys.executable, "-I", "-S", child.__file__, str(os.getpid()), str(uid), str(gid)]
    return [*ours, *command]


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
