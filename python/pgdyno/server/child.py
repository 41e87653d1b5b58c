"""Launcher of a server or tool, run as a separate program by pgdyno and never imported.

    python -I -S child.py PARENT_PID UID GID CONTROL_GROUP alone|tree PROGRAM ARGUMENT…

It joins the control group unless its name is empty, drops root (UID ≥ 0) and executes PROGRAM. A function
between fork and exec in pgdyno would do the same, but is unsafe in a process with threads.

alone: PROGRAM takes the place of the launcher, and the kernel sends it SIGQUIT (immediate shutdown of
PostgreSQL) at the end of pgdyno. The order matters: a change of user clears the death signal.

tree: PROGRAM is a child in a session of its own, and the launcher waits for its end. Then it kills the
descendants of PROGRAM that are left, also those in another session: they become children of the launcher when
their parent ends. SIGTERM, or the end of pgdyno, asks the session to end and kills all after GRACE_S.
SIGQUIT kills all at once. The exit status is that of PROGRAM, 128 + N after signal N.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time

GRACE_S = 2.0
"""Time for an orderly end after SIGTERM. pgdyno ends within 5 s after the first signal."""

END_S = 15.0
"""Time for the end of killed processes. Only those that wait for a disk, or belong to another user, take
longer; they are left.
"""

POLL_S = 0.05
"""Longest time between two rounds of SIGKILL. Each round ends one generation."""

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
WATCHED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGQUIT, signal.SIGINT, signal.SIGHUP)


def control(operation: int, value: int) -> None:
    """Call prctl(2)."""
    if ctypes.CDLL(None, use_errno=True).prctl(operation, value, 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")


def end_with(parent_pid: int, number: int) -> None:
    """Let the kernel send this signal at the end of the parent."""
    control(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent_pid:
        sys.exit("pgdyno ended before this program started")


def become(parent_pid: int, death_signal: int, uid: int, gid: int, group: str, command: list[str]) -> None:
    """Execute the program. Returns only by an exception."""
    if group:
        with open(f"{group}/cgroup.procs", "w") as processes:  # noqa: PTH123
            processes.write("0")  # this process
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    end_with(parent_pid, death_signal)
    # Reset the signals that the launcher blocks, and those that a shell ignores in the background.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    os.execv(command[0], command)


def keep(parent_pid: int, uid: int, gid: int, group: str, command: list[str]) -> int:
    """Run the program, and end its descendants with it. Return its exit status."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, the kernel would reap the children
    control(PR_SET_CHILD_SUBREAPER, 1)
    end_with(parent_pid, signal.SIGTERM)
    launcher_pid, pid = os.getpid(), os.fork()
    if pid == 0:
        os.setsid()
        become(launcher_pid, signal.SIGKILL, uid, gid, group, command)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # only the program reads its input
    ended: dict[int, int] = {}
    ends_s = float("inf")
    while pid not in ended and time.monotonic() < ends_s:
        found = signal.sigtimedwait(WATCHED, max(0.0, min(ends_s - time.monotonic(), 3600.0)))
        number = found.si_signo if found else 0
        if number == signal.SIGQUIT:
            break
        if number == signal.SIGTERM and ends_s == float("inf"):
            ask(pid)
            ends_s = time.monotonic() + GRACE_S
        reap(ended)
    ends_s = time.monotonic() + END_S
    while reap(ended) and time.monotonic() < ends_s:
        for child in children():
            with contextlib.suppress(PermissionError):
                os.kill(child, signal.SIGKILL)
        signal.sigtimedwait([signal.SIGCHLD], POLL_S)
    status = os.waitstatus_to_exitcode(ended.get(pid, signal.SIGKILL))
    return status if status >= 0 else 128 - status


def ask(pid: int) -> None:
    """Send SIGTERM to the session of the program, or to the program if it has none yet."""
    try:
        os.killpg(pid, signal.SIGTERM)
    except ProcessLookupError:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def reap(ended: dict[int, int]) -> bool:
    """Add the children that have ended, with their status. Return whether others are left."""
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0] != 0:
            ended[found[0]] = found[1]
        return True
    return False


def children() -> list[int]:
    """Return the children of this process, also those that have ended: their IDs are not used again yet."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - pathlib doubles the time of a start
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:  # noqa: PTH123
            if int(stat.read().rpartition(b")")[2].split()[1]) == os.getpid():
                found.append(int(name))
    return found


if __name__ == "__main__":
    parent_pid, uid, gid = map(int, sys.argv[1:4])
    if sys.argv[5] == "tree":
        sys.exit(keep(parent_pid, uid, gid, sys.argv[4], sys.argv[6:]))
    become(parent_pid, signal.SIGQUIT, uid, gid, sys.argv[4], sys.argv[6:])
