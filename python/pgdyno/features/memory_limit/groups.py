"""Arms whose servers run in control groups with a memory limit, of versions 1 and 2.

A group is a directory below that of pgdyno's own group, or of the nearest group above it that allows one with
a limit: in version 2, a group with processes cannot have such groups. A link next to the data directory names
the group before it exists, so that whoever removes the live directory, also after a kill, removes the group.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from pgdyno.analysis.case_findings import Findings
from pgdyno.errors import DatasetError, UsageError
from pgdyno.interruption import Interruption
from pgdyno.measure.arms import BuildArm, LabArm, Prepared
from pgdyno.measure.host_counters import Tree
from pgdyno.measure.machine import GROUPS, places
from pgdyno.measure.preflight import ArmRequest, number_of
from pgdyno.measure.prepare import Preparation
from pgdyno.measure.progress import Watch
from pgdyno.report.document import Section
from pgdyno.server.cache_directory import Cache
from pgdyno.server.directories import link_target
from pgdyno.study.plan import Study
from pgdyno.units import format_size

# ----------------------------------------------------------------------
# Control groups: where they can be made, and their removal.
# ----------------------------------------------------------------------

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


# ----------------------------------------------------------------------
# The arms of a study, and what its results file says about them.
# ----------------------------------------------------------------------

SETTING = "shared_buffers"


@dataclass
class LimitedArm(BuildArm):
    """An arm whose server runs in a control group. ``parent``: directory of its group."""

    parent: Path = field(kw_only=True)
    limit_bytes: int = field(kw_only=True)

    def restore(self, block: int) -> None:
        """Restore the data, and make the group of the live directory. Raises DatasetError, too."""
        super().restore(block)
        try:
            group = group_of(self.run.path, self.parent, self.limit_bytes)
        except OSError as error:
            raise DatasetError(f"the control group of run.memory_limit cannot be made: {error}") from error
        self.account = replace(self.account, control_group=str(group))


def require_limits(study: Study, _: Cache, __: Watch, ___: Interruption) -> Study:
    """Return the study, with a cold page cache: a page belongs to the group that reads or writes it first.

    Raises UsageError if its memory limit cannot be set.
    """
    if study.memory_limit_bytes is None:
        return study
    if study.cache_state == "prewarmed":
        raise UsageError(
            "run.memory_limit requires a cold page cache: remove cache_state = prewarmed, and use a warm-up"
        )
    if running := [arm.name for arm in study.arms if arm.is_dsn]:
        raise UsageError(
            f"run.memory_limit cannot limit the running server {running[0]}: remove it, or let pgdyno start "
            "the server"
        )
    usable_parent(study.memory_limit_bytes)
    return study.model_copy(update={"cache_state": "cold"})


def require_room(study: Study, wanted: dict[int, ArmRequest]) -> dict[int, ArmRequest]:
    """Return the requests. Raises UsageError for shared_buffers that do not fit into the memory limit."""
    for request in wanted.values() if study.memory_limit_bytes else ():
        size_bytes = number_of(request, SETTING)
        if size_bytes >= (limit_bytes := study.memory_limit_bytes or 0):
            raise UsageError(
                f"run.memory_limit ({format_size(limit_bytes)}) must be greater than {SETTING} of "
                f"{request.spec.name} ({format_size(size_bytes)}): change one of them"
            )
    return wanted


def with_limits(ready: list[Prepared], _: Watch, __: Interruption) -> list[Prepared]:
    """Return the cases whose servers have a memory limit, with it in the facts about the servers."""
    return [_limited(prepared, prepared.study.memory_limit_bytes) for prepared in ready]


def _limited(prepared: Prepared, limit_bytes: int | None) -> Prepared:
    if limit_bytes is None:
        return prepared
    parent = usable_parent(limit_bytes)
    arms: list[LabArm] = []
    for arm in prepared.arms:
        assert isinstance(arm, BuildArm), "there is no running server"
        own: dict[str, Any] = {one.name: getattr(arm, one.name) for one in fields(BuildArm)}
        arms.append(LimitedArm(**own, parent=parent, limit_bytes=limit_bytes))
    facts = {"memory_limit_bytes": limit_bytes, "control_groups": f"version {version_of(parent)}"}
    described = [replace(record, server={**record.server, **facts}) for record in prepared.records]
    return replace(prepared, arms=arms, records=described)


def sections(findings: Findings) -> Iterator[Section]:
    """Yield the limit for the section on the method."""
    server = findings.arms[0].arm.server
    if limit_bytes := server.get("memory_limit_bytes"):
        text = (
            f"Each server and its page cache are in a control group ({server['control_groups']}) with "
            f"{format_size(limit_bytes)} of memory."
        )
        yield Section("memory-limit", sentences=[text], after="method", is_prose=True)


PREPARATION = Preparation(require_limits, with_limits)
