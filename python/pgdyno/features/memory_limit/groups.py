"""Control groups with a memory limit, of versions 1 and 2.

A group is a directory below that of pgdyno's own group, or of the nearest group above it that allows one with
a limit: in version 2, a group with processes cannot have such groups. A link next to the data directory names
the group before it exists, so that whoever removes the live directory, also after a kill, removes the group.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from pgdyno.errors import UsageError
from pgdyno.measure.host_counters import Tree
from pgdyno.measure.machine import GROUPS, places
from pgdyno.server.directories import link_target

PREFIX = "pgdyno-"
RECORD = "control-group"
"""Link to the group, next to the data directory."""

LIMITS = {"memory.limit_in_bytes": 1, "memory.max": 2}
"""File with the limit of a group, by version."""

NO_CONTROLLER = f"{GROUPS} has no memory controller"
REMOVAL_TIMEOUT_S = 5.0
"""Timeout for the end of the processes of a group, which a killed server leaves for a moment."""

POLL_S = 0.02


def version_of(group: Path) -> int | None:
    """Return the version of a group that can have a memory limit; None if it cannot."""
    return next((version for name, version in LIMITS.items() if (group / name).exists()), None)


def parents(tree: Tree) -> Iterator[Path]:
    """Yield the groups in which a group of a server can be: pgdyno's own first, then those above."""
    for place in dict.fromkeys(places(tree, "memory")):
        if (found := tree.root / place.lstrip("/")).is_dir():
            yield found


def make(group: Path, limit_bytes: int) -> None:
    """Make a group with this limit. Raises OSError."""
    group.mkdir()
    try:
        file = next((name for name in LIMITS if (group / name).exists()), None)
        if file is None:
            raise OSError(f"groups in {group.parent} have no memory limit")
        (group / file).write_text(str(limit_bytes))
    except OSError:
        group.rmdir()
        raise


def usable_parent(limit_bytes: int, tree: Tree | None = None) -> Path:
    """Return the directory in which groups with this limit can be made. Raises UsageError without one."""
    reasons = []
    for parent in parents(tree or Tree()):
        try:
            make(group := parent / f"{PREFIX}{secrets.token_hex(8)}", limit_bytes)
        except OSError as error:
            reasons.append(str(error))
        else:
            group.rmdir()
            return parent
    raise UsageError(
        f"run.memory_limit needs a control group, which cannot be made ({[*reasons, NO_CONTROLLER][0]}): run "
        f"pgdyno as root, in a container with a writable {GROUPS}, or remove run.memory_limit"
    )


def group_of(path: Path, parent: Path, limit_bytes: int) -> Path:
    """Return the group of a live directory with this limit; make it if it does not exist. Raises OSError."""
    if (found := recorded(path)) is None:
        found = parent / f"{PREFIX}{secrets.token_hex(8)}"
        (path / RECORD).symlink_to(found)
    if not found.is_dir():
        make(found, limit_bytes)
    return found


def recorded(path: Path) -> Path | None:
    """Return the group of a live directory, which may not exist; None without one."""
    return link_target(path / RECORD, PREFIX)


def release(path: Path) -> Sequence[str]:
    """Remove the group of a live directory whose server has ended. Return its path if it remains."""
    if (group := recorded(path)) is None:
        return []
    deadline_s = time.monotonic() + REMOVAL_TIMEOUT_S
    while group.is_dir():
        try:
            group.rmdir()
        except OSError:
            if time.monotonic() > deadline_s:
                return [str(group)]
            time.sleep(POLL_S)
    (path / RECORD).unlink()
    return []
