"""A server beside a study, in a process of its own, which nothing waits for.

    python -m pgdyno.features.serve.process SOCKET FILE PARENT_PID

The token comes on standard input: the arguments of a process are visible to all users.
"""

from __future__ import annotations

import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil

from pgdyno.cli.features import features
from pgdyno.features.serve.access import Guard
from pgdyno.features.serve.index import identifier, is_being_written

IDLE_S = 900.0
"""Time after the end of the study and the last request, after which the server ends."""

_started: list[subprocess.Popen[bytes]] = []
"""Servers of this process; without a reference, Python warns that they still run."""


def start(path: Path) -> str:
    """Start a server of the directory of a results file, which need not exist. Return the page's address."""
    from pgdyno.features.serve.server import address, listening  # noqa: PLC0415  # as in main

    path, token = path.absolute(), secrets.token_urlsafe()
    with listening() as listener:
        descriptor = listener.fileno()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(descriptor), str(path), str(psutil.Process().pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the study
            pass_fds=[descriptor],
        )
        assert process.stdin
        with process.stdin as pipe:
            pipe.write(token.encode())
        _started.append(process)
        return address(listener, token, f"/live/{identifier(path.parent, path)}")


def main() -> None:
    """Serve until the study has ended and no page was open for a time."""
    descriptor, path, parent_pid = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    features()
    from pgdyno.features.serve.server import run  # noqa: PLC0415  # it needs the features

    def may_end(guard: Guard) -> bool:
        if not psutil.pid_exists(parent_pid) and not path.exists():  # the study was refused
            return True
        is_idle = not guard.open and time.monotonic() - guard.last_s > IDLE_S
        return is_idle and not is_being_written(path)

    run(socket.socket(fileno=descriptor), sys.stdin.read(), path.parent, path, may_end)


if __name__ == "__main__":
    main()
