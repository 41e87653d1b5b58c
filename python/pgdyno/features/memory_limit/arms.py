"""Arms whose servers run in a control group with a memory limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from pgdyno.analysis.case_findings import Findings
from pgdyno.errors import DatasetError, UsageError
from pgdyno.features.memory_limit.groups import group_of, usable_parent, version_of
from pgdyno.interruption import Interruption
from pgdyno.measure.arms import BuildArm, LabArm, Prepared
from pgdyno.measure.preflight import ArmRequest, number_of
from pgdyno.measure.prepare import Preparation
from pgdyno.measure.progress import Watch
from pgdyno.report.document import Section
from pgdyno.server.cache_directory import Cache
from pgdyno.study.plan import Study
from pgdyno.units import format_size

SETTING = "shared_buffers"
BLOCK_BYTES = 8192
"""Unit of shared_buffers."""


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
        size_bytes = number_of(request, SETTING) * BLOCK_BYTES
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
