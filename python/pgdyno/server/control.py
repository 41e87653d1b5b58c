"""The state of a data directory that is not running, from its ``pg_control`` file."""

from __future__ import annotations

import struct
from enum import IntEnum
from pathlib import Path

from pgdyno.errors import DatasetError

# pg_control.h, the same from PostgreSQL 9.6 on: uint64 system_identifier, uint32 pg_control_version,
# uint32 catalog_version_no, DBState state (an int).
_HEAD = struct.Struct("=QIIi")


class State(IntEnum):
    """``DBState`` of pg_control.h."""

    STARTUP = 0
    SHUT_DOWN = 1
    SHUT_DOWN_IN_RECOVERY = 2
    SHUTTING_DOWN = 3
    IN_CRASH_RECOVERY = 4
    IN_ARCHIVE_RECOVERY = 5
    IN_PRODUCTION = 6


def state_of(data_dir: Path) -> State:
    """Raises DatasetError when the file is missing or makes no sense."""
    path = data_dir / "global" / "pg_control"
    try:
        with path.open("rb") as control:
            return State(_HEAD.unpack(control.read(_HEAD.size))[3])
    except (OSError, struct.error, ValueError) as error:
        raise DatasetError(f"{path} does not describe a data directory: {error}") from error


def require_clean(data_dir: Path) -> None:
    """Raises DatasetError unless the server that ran there last was shut down cleanly."""
    state = state_of(data_dir)
    if state is not State.SHUT_DOWN:
        raise DatasetError(f"{data_dir} was not shut down cleanly (state: {state.name.lower()})")
    if (data_dir / "postmaster.pid").exists():
        raise DatasetError(f"{data_dir} has a postmaster.pid: a server may be running on it")
