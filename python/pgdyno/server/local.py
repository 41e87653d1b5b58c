"""A running server that is a process of this machine: which one, and what its disk can still hold."""

from __future__ import annotations

from pathlib import Path

import psutil

from pgdyno.server.running import Connection
from pgdyno.server.user import free_bytes

START_TIME_TOLERANCE_S = 5.0
"""Between the postmaster's start by its own clock and by the kernel's, which counts ticks since boot."""


def local_postmaster(connection: Connection) -> int | None:
    """The server's postmaster, where it is a process that we can see."""
    row = connection.execute(
        "select pg_backend_pid(), extract(epoch from pg_postmaster_start_time())::float8"
    ).fetchone()
    assert row is not None
    try:
        parent = psutil.Process(row[0]).parent()
        # In a container the numbers are of another world: only the right start time makes it ours.
        if parent is not None and abs(parent.create_time() - row[1]) < START_TIME_TOLERANCE_S:
            return parent.pid
    except psutil.Error:
        return None
    return None


def free_for_data(connection: Connection) -> int | None:
    """Bytes that the disk of the server's data directory can still hold; None where we cannot know."""
    row = connection.execute(
        "select setting from pg_settings where name = 'data_directory' and setting <> ''"
    ).fetchone()
    if row is None or local_postmaster(connection) is None:
        return None
    path = Path(row[0])
    try:
        return free_bytes(path) if path.is_dir() else None
    except OSError:
        return None
