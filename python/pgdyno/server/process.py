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
    initializer=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM)),
)


def clean_environment() -> dict[str, str]:
    """What a server and its tools see: no PG* variable, no locale and no time zone of the caller."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "LC_ALL": "C", "TZ": "UTC"}


def launch(command: Sequence[str], account: Account, log_path: Path) -> subprocess.Popen[bytes]:
    """Start a server as that user, its output appended to the log. Its own session keeps the terminal's
    Ctrl-C off.
    """
    uid, gid = (account.uid, account.gid) if account.switch else (-1, -1)
    becoming = [sys.executable, "-I", "-S", child.__file__, str(os.getpid()), str(uid), str(gid), *command]
    with log_path.open("ab") as log:
        return _launcher.submit(
            subprocess.Popen,
            becoming,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=clean_environment(),
            start_new_session=True,
        ).result()


def run_tool(command: Sequence[str], account: Account, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run one of a build's tools (initdb, pg_controldata …) as that user to its end; output captured."""
    switch = {"user": account.uid, "group": account.gid, "extra_groups": []} if account.switch else {}
    done: subprocess.CompletedProcess[str] = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
        cwd="/",
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        **switch,  # type: ignore[call-overload]
    )
    return done
