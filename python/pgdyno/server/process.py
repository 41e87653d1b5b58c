"""The server's process: started so that it cannot outlive pgdyno, ended by PostgreSQL's signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

from pgdyno.interruption import SIGNALS
from pgdyno.server import child
from pgdyno.server.user import Account

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
