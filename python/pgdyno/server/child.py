"""Launcher of a server or tool, run as a separate program by pgdyno and never imported.

    python -I -S child.py PARENT_PID UID GID PROGRAM ARGUMENT…

It drops root (UID ≥ 0), requests SIGQUIT (immediate shutdown of PostgreSQL) from the kernel for the end of
its parent, and executes PROGRAM. The order matters: a change of user clears the death signal. A function
between fork and exec in pgdyno would do the same, but is unsafe in a process with threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def become(parent_pid: int, uid: int, gid: int, program: str, arguments: list[str]) -> None:
    """Execute the program. Returns only by an exception."""
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT, 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent_pid:
        sys.exit("pgdyno ended before this program started")
    # Reset the signals that the launcher thread blocks, and those that a shell ignores in the background.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    os.chdir("/")
    os.execv(program, [program, *arguments])


if __name__ == "__main__":
    become(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5:])
